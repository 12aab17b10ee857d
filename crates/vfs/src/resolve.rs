//! `resolve`: a path, walked from the root as the kernel would, for callers without a kernel.

use inode::permissions::EXECUTE;
use inode::{Caller, FsError, Kind, NodeId, PATH_BYTES_MAX};

use crate::{Entry, FileSystem, Follow, FsResult};

/// Most symbolic links on the way, as Linux has it.
const LINKS_MAX: usize = 40;

/// The mode of a directory in which every user makes names and removes only their own: sticky, and
/// writable by others.
const OPEN_TO_ALL: u32 = 0o1002;

/// Walks a path from the root, with permission checks and symbolic links (absolute targets start at
/// the root as well). Takes one look-up of what it finds.
pub fn resolve<F: FileSystem + ?Sized>(
    fs: &F,
    caller: &Caller,
    path: &[u8],
    follow: Follow,
) -> FsResult<Entry> {
    resolve_by(fs, caller, (path, follow), &mut |at, name| fs.lookup(caller, at.node, name.bytes))
}

/// The same, with another look-up of names. The caller may search the directory.
pub(crate) fn resolve_by<F: FileSystem + ?Sized>(
    fs: &F,
    caller: &Caller,
    (path, follow): (&[u8], Follow),
    lookup: Lookup<'_>,
) -> FsResult<Entry> {
    let mut walk = Walk { fs, caller, links: 0, lookup };
    let root = walk.root()?;
    walk.path(root, path, follow)
}

/// Finds a name in a directory, and takes one look-up of what it finds.
pub(crate) type Lookup<'a> = &'a mut dyn FnMut(Entry, Name<'_>) -> FsResult<Entry>;

/// A name that is looked up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Name<'a> {
    pub(crate) bytes: &'a [u8],
    /// Whether the caller gave it. Otherwise it is in the target of a symbolic link.
    pub(crate) is_given: bool,
}

struct Walk<'a, F: ?Sized> {
    fs: &'a F,
    caller: &'a Caller,
    links: usize,
    lookup: Lookup<'a>,
}

impl<F: FileSystem + ?Sized> Walk<'_, F> {
    fn root(&mut self) -> FsResult<Entry> {
        self.fs.lookup(&Caller::root(), NodeId::ROOT, b".")
    }

    /// Walks a path from a directory that is held; holds what it returns instead.
    fn path(&mut self, start: Entry, path: &[u8], follow: Follow) -> FsResult<Entry> {
        // Components left to walk, the next one last; targets of links are pushed on top.
        let mut rest: Vec<Vec<u8>> = Vec::new();
        push(&mut rest, path);
        // Those of the path are below those of targets.
        let mut given = rest.len();
        let mut directory = path.ends_with(b"/");
        let mut at = start;
        while let Some(name) = rest.pop() {
            let is_given = rest.len() < given;
            given = given.min(rest.len());
            let result = self.step(at, Name { bytes: &name, is_given });
            let next = match result {
                Ok(next) => next,
                Err(error) => {
                    self.fs.forget(at.node, 1);
                    return Err(error);
                }
            };
            let last = rest.is_empty();
            let through = !last || follow == Follow::Yes || directory;
            if next.attr.kind != Kind::Symlink || !through {
                self.fs.forget(at.node, 1);
                at = next;
                continue;
            }
            let target = self.may_follow(&at, &next).and_then(|()| self.target(&next));
            self.fs.forget(next.node, 1);
            let target = match target {
                Ok(target) => target,
                Err(error) => {
                    self.fs.forget(at.node, 1);
                    return Err(error);
                }
            };
            directory |= last && target.ends_with(b"/");
            push(&mut rest, &target);
            if target.first() == Some(&b'/') {
                self.fs.forget(at.node, 1);
                at = self.root()?;
            }
        }
        if directory && at.attr.kind != Kind::Directory {
            self.fs.forget(at.node, 1);
            return Err(FsError::NotDirectory);
        }
        Ok(at)
    }

    fn step(&mut self, at: Entry, name: Name<'_>) -> FsResult<Entry> {
        if at.attr.kind != Kind::Directory {
            return Err(FsError::NotDirectory);
        }
        self.fs.access(self.caller, at.node, EXECUTE)?;
        (self.lookup)(at, name)
    }

    /// Refuses a link that another user left in a directory like `/tmp`, as the kernel does where
    /// `fs.protected_symlinks` is set. Such a link would misdirect root, too.
    fn may_follow(&self, directory: &Entry, link: &Entry) -> FsResult<()> {
        let (mode, owner) = (directory.attr.mode, link.attr.uid);
        let is_open = mode & OPEN_TO_ALL == OPEN_TO_ALL;
        if is_open && owner != self.caller.uid && owner != directory.attr.uid {
            return Err(FsError::AccessDenied);
        }
        Ok(())
    }

    fn target(&mut self, link: &Entry) -> FsResult<Vec<u8>> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(FsError::Loop);
        }
        let target = self.fs.readlink_untimed(self.caller, link.node)?;
        if target.len() >= PATH_BYTES_MAX { Err(FsError::NameTooLong) } else { Ok(target) }
    }
}

fn push(rest: &mut Vec<Vec<u8>>, path: &[u8]) {
    let parts = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty());
    rest.extend(parts.rev().map(<[u8]>::to_vec));
}
