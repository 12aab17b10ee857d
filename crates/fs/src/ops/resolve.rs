//! `resolve`: a path, walked from the root as the kernel would, for callers without a kernel.

use inode::permissions::EXECUTE;
use inode::{Caller, FsError, Kind, NodeId, PATH_BYTES_MAX};

use super::forget::forget;
use super::lookup::lookup;
use crate::{Atime, Entry, Follow, Fs, FsResult, snapdir};

/// Most symbolic links on the way, as Linux has it.
const LINKS_MAX: usize = 40;

impl Fs {
    /// Walks a path from the root, with permission checks and symbolic links (absolute targets
    /// start at the root as well). Takes one look-up of what it finds.
    ///
    /// `/.snapshots/#17` points to the snapshot of that number, of any directory, for root and the
    /// owner of what it shows: it reaches snapshots of removed directories. The kernel has no such
    /// name: it would admit any user where another user was before.
    pub fn resolve(&self, caller: &Caller, path: &[u8], follow: Follow) -> FsResult<Entry> {
        let mut walk = Walk { fs: self, caller, links: 0, by_number: None };
        let root = walk.root()?;
        walk.path(root, path, follow)
    }
}

struct Walk<'a> {
    fs: &'a Fs,
    caller: &'a Caller,
    links: usize,
    /// The root of a snapshot that was reached by its number.
    by_number: Option<NodeId>,
}

impl Walk<'_> {
    fn root(&mut self) -> FsResult<Entry> {
        let caller = Caller::root();
        lookup(self.fs, &caller, NodeId::ROOT, b".")
    }

    /// Walks a path from a directory that is held; holds what it returns instead.
    fn path(&mut self, start: Entry, path: &[u8], follow: Follow) -> FsResult<Entry> {
        // Components left to walk, the next one last; targets of links are pushed on top.
        let mut rest: Vec<Vec<u8>> = Vec::new();
        push(&mut rest, path);
        let mut directory = path.ends_with(b"/");
        let mut at = start;
        while let Some(name) = rest.pop() {
            let result = self.step(at, &name);
            let next = match result {
                Ok(next) => next,
                Err(error) => {
                    forget(self.fs, at.node, 1);
                    return Err(error);
                }
            };
            let last = rest.is_empty();
            let through = !last || follow == Follow::Yes || directory;
            if next.attr.kind != Kind::Symlink || !through {
                forget(self.fs, at.node, 1);
                at = next;
                continue;
            }
            let target = self.target(&next);
            forget(self.fs, next.node, 1);
            let target = match target {
                Ok(target) => target,
                Err(error) => {
                    forget(self.fs, at.node, 1);
                    return Err(error);
                }
            };
            directory |= last && target.ends_with(b"/");
            push(&mut rest, &target);
            if target.first() == Some(&b'/') {
                forget(self.fs, at.node, 1);
                at = self.root()?;
            }
        }
        if directory && at.attr.kind != Kind::Directory {
            forget(self.fs, at.node, 1);
            return Err(FsError::NotDirectory);
        }
        Ok(at)
    }

    fn step(&mut self, at: Entry, name: &[u8]) -> FsResult<Entry> {
        if at.attr.kind != Kind::Directory {
            return Err(FsError::NotDirectory);
        }
        super::access::access(self.fs, self.caller, at.node, EXECUTE)?;
        if name == b".." && self.by_number == Some(at.node) {
            // Its directory may be where the caller has no access, or be removed.
            return snapdir::enter(self.fs, self.caller, self.fs.root());
        }
        // Any object with such a name, from before such names were refused.
        if let Some(number) = snapdir::number(name)
            && snapdir::is_of_root(self.fs, at.node)
        {
            let entry = self.fs.snapshot_entry(self.caller, number)?;
            self.by_number = Some(entry.node);
            return Ok(entry);
        }
        lookup(self.fs, self.caller, at.node, name)
    }

    fn target(&mut self, link: &Entry) -> FsResult<Vec<u8>> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(FsError::Loop);
        }
        let target = super::readlink::readlink(self.fs, link.node, Atime::Never)?;
        if target.len() >= PATH_BYTES_MAX { Err(FsError::NameTooLong) } else { Ok(target) }
    }
}

fn push(rest: &mut Vec<Vec<u8>>, path: &[u8]) {
    let parts = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty());
    rest.extend(parts.rev().map(<[u8]>::to_vec));
}
