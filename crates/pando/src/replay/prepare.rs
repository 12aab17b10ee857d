//! Builds the tree that a trace expects, in an empty directory.
//!
//! Directories first get all rights of their owner, and their own mode at the end. Contents are
//! bytes that replace the real ones, which no trace has.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use trace::{Expected, Placed};
use wire::{Failure, FailureKind};

use super::pattern;
use super::place::{Dir, Opened, open_at};
use super::run::How;
use crate::failure::{self, Result};
use crate::output;

const DIRECTORY: u8 = 1;
const SYMLINK: u8 = 2;
const TARGET_BYTES_MAX: u64 = 4095;

/// What was built.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    pub(crate) names: u64,
    pub(crate) bytes: u64,
    /// Inodes that no directory of the trace holds, because events were dropped.
    pub(crate) unreached: u64,
    /// Device nodes, whose numbers no trace has, and what a file system has of its own.
    pub(crate) left_out: u64,
}

/// An entry to make.
struct Child<'a> {
    name: &'a [u8],
    node: u64,
    placed: &'a Placed,
}

struct Builder<'a> {
    how: &'a How<'a>,
    path: &'a Path,
    children: BTreeMap<u64, Vec<Child<'a>>>,
    /// Where the first name of an inode is.
    made: BTreeMap<u64, (Arc<Dir>, &'a [u8])>,
    prepared: Prepared,
}

/// Builds the tree below `root`.
pub(super) fn prepare(
    expected: &Expected,
    (root, path): (u64, &Path),
    how: &How<'_>,
) -> Result<Prepared> {
    let mut children: BTreeMap<u64, Vec<Child<'_>>> = BTreeMap::new();
    let mut bytes = 0_u64;
    for (node, placed) in expected.nodes() {
        bytes = bytes.saturating_add(if placed.shown.kind == 0 { placed.shown.size } else { 0 });
        for place in &placed.names {
            let child = Child { name: &place.name, node, placed };
            children.entry(place.parent).or_default().push(child);
        }
    }
    refuse_large(how.root, path, bytes)?;
    let prepared = Prepared { bytes, ..Prepared::default() };
    let mut builder = Builder { how, path, children, made: BTreeMap::new(), prepared };
    builder.build(root)?;
    let reached: BTreeSet<u64> = builder.made.keys().copied().collect();
    let unreached = expected.nodes().filter(|(node, _)| !reached.contains(node)).count() as u64;
    builder.prepared.unreached = unreached.saturating_sub(builder.prepared.left_out);
    fs::syncfs(how.root).map_err(|errno| failure::io("sync", path, &errno.into()))?;
    Ok(builder.prepared)
}

/// A trace may claim files of any size.
fn refuse_large(root: &OwnedFd, path: &Path, bytes: u64) -> Result<()> {
    let space = fs::fstatvfs(root).map_err(|errno| failure::io("look at", path, &errno.into()))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    if bytes <= free {
        return Ok(());
    }
    let (bytes, free) = (output::size(bytes), output::size(free));
    let message = format!("the files that the trace expects have {bytes}, and {free} are free");
    let failure = Failure::new(FailureKind::NoSpace, message);
    Err(failure
        .at(path.as_os_str().as_encoded_bytes())
        .hint("free space, or replay in a directory of a larger file system"))
}

impl<'a> Builder<'a> {
    fn build(&mut self, root: u64) -> Result<()> {
        let opened = Arc::new(Opened::default());
        let fd = self.how.root.try_clone();
        let fd = fd.map_err(|error| failure::io("open", self.path, &error))?;
        let mut queue = vec![(root, Dir::root(fd, &opened))];
        let mut modes = Vec::new();
        while let Some((node, dir)) = queue.pop() {
            for child in self.children.remove(&node).unwrap_or_default() {
                if self.how.is_interrupted() {
                    return Err(Failure::new(FailureKind::Interrupted, "interrupted")
                        .hint("remove what was built, and start again"));
                }
                let made = self.make(&dir, &child).map_err(|errno| self.failed(&child, errno))?;
                if !made {
                    self.prepared.left_out += 1;
                    continue;
                }
                self.prepared.names += 1;
                self.how.bar.inc(1);
                if child.placed.shown.kind == DIRECTORY {
                    let below = Dir::below(&dir, child.name);
                    modes.push((Arc::clone(&below), child));
                    queue.push((node_of(&modes), below));
                }
            }
            dir.close();
        }
        for (dir, child) in modes.iter().rev() {
            self.finish_directory(dir, child).map_err(|errno| self.failed(child, errno))?;
        }
        Ok(())
    }

    fn failed(&self, child: &Child<'_>, errno: Errno) -> Failure {
        let name = String::from_utf8_lossy(child.name);
        let doing = format!("build {name:?} of the expected tree in");
        failure::io(&doing, self.path, &errno.into())
    }

    /// `false`: it is left out.
    fn make(&mut self, dir: &Arc<Dir>, child: &Child<'a>) -> std::result::Result<bool, Errno> {
        let fd = dir.fd()?;
        if let Some((first, name)) = self.made.get(&child.node) {
            if child.placed.shown.kind == DIRECTORY {
                // A made-up trace gives a directory two names.
                return Ok(false);
            }
            fs::linkat(&*first.fd()?, *name, &*fd, child.name, AtFlags::empty())?;
            return Ok(true);
        }
        let (shown, name) = (&child.placed.shown, child.name);
        let mode = self.mode(child.placed);
        match shown.kind {
            0 => Self::file(&fd, child, mode)?,
            DIRECTORY => match fs::mkdirat(&*fd, name, Mode::RWXU) {
                // A directory that the file system has of its own, such as `.snapshots`.
                Err(Errno::EXIST) => return Ok(false),
                made => made?,
            },
            SYMLINK => {
                let filler = || vec![b'x'; shown.size.clamp(1, TARGET_BYTES_MAX) as usize];
                let target = child.placed.target.as_ref().map_or_else(filler, |t| t.to_vec());
                fs::symlinkat(&*target, &*fd, name)?;
            }
            3 => fs::mknodat(&*fd, name, FileType::Fifo, mode, 0)?,
            4 => fs::mknodat(&*fd, name, FileType::Socket, mode, 0)?,
            // A trace has no device numbers of what was there.
            _ => return Ok(false),
        }
        if self.how.is_privileged && child.placed.is_shown {
            let (uid, gid) = (fs::Uid::from_raw(shown.uid), fs::Gid::from_raw(shown.gid));
            fs::chownat(&*fd, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        self.made.insert(child.node, (Arc::clone(dir), name));
        Ok(true)
    }

    fn mode(&self, placed: &Placed) -> Mode {
        let mode = if placed.is_shown { placed.shown.mode & 0o7777 } else { 0o644 };
        Mode::from_bits_truncate(if self.how.is_privileged { mode } else { mode & !0o6000 })
    }

    fn file(dir: &OwnedFd, child: &Child<'_>, mode: Mode) -> std::result::Result<(), Errno> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        let file = open_at(dir, child.name, flags, Mode::RUSR | Mode::WUSR)?;
        pattern::write(&file, 0, child.placed.shown.size)?;
        for (name, length) in &child.placed.xattrs {
            if name.starts_with(b"user.") && *length <= 64 << 10 {
                let value = pattern::bytes(*length);
                match fs::fsetxattr(&file, &**name, value, XattrFlags::empty()) {
                    // A file system without attributes: the replay counts the difference.
                    Err(Errno::OPNOTSUPP) => {}
                    set => set?,
                }
            }
        }
        fs::fchmod(&file, mode)
    }

    fn finish_directory(&self, dir: &Dir, child: &Child<'_>) -> std::result::Result<(), Errno> {
        if !child.placed.is_shown {
            return Ok(());
        }
        let fd = dir.fd()?;
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let done = fs::chmod(&*path, self.mode(child.placed));
        dir.close();
        done
    }
}

/// The inode of the directory that was added last.
fn node_of(modes: &[(Arc<Dir>, Child<'_>)]) -> u64 {
    modes.last().map_or(0, |(_, child)| child.node)
}
