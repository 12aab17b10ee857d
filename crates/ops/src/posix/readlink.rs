//! `readlink`: the target of a symbolic link. Its time of last read is updated as for files: the
//! kernel caches targets, so it calls once.

use inode::{FsError, Kind, NodeId};
use vfs::FsResult;
use volume::Atime;
use volume::load::{Inode, load, load_bulk};
use volume::locks::Lock;
use volume::view::View;

use super::read::{is_stale, note};
use crate::Ops;
use crate::policy::Policy;

/// The target of a symbolic link; `atime` decides whether to update the time of last read.
pub fn readlink(fs: &Ops, policy: &dyn Policy, node: NodeId, atime: Atime) -> FsResult<Vec<u8>> {
    let (subvol, ino) = fs.place(node)?;
    let node = subvol.node(ino);
    let object = fs.locks.shared(Lock::Object { subvol: subvol.id.0, ino });
    let (target, stale) = subvol.read(|tree| {
        let view = View::new(&*fs.store, tree);
        match load(fs, view, node, ino)? {
            Inode::File(file) if volume::attributes::kind(file.inode.kind) == Kind::Symlink => {
                let times = (file.inode.atime, file.inode.mtime, file.inode.ctime);
                let stale = is_stale(times.0, times.1, times.2, || fs.env.clock.now().0);
                Ok((load_bulk(fs, view, node, ino, &file)?, stale))
            }
            _ => Err(FsError::InvalidArgument("not a symbolic link")),
        }
    })?;
    drop(object);
    if stale && atime == Atime::Relative {
        note(fs, policy, &subvol, node);
    }
    Ok(target)
}
