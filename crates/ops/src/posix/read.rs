//! `read`: bytes of a file.

use inode::permissions::READ;
use inode::{Caller, FsError, Kind, NodeId};
use vfs::FsResult;
use volume::error::from_store;
use volume::load::{Inode, load, load_bulk};
use volume::locks::Lock;
use volume::subvol::Subvol;
use volume::view::View;
use volume::{Atime, permit};

use crate::Ops;
use crate::edit::edit;
use crate::policy::Policy;

/// Maximum age of a time of last read, if no other rule requires an update.
const DAY: i64 = 24 * 60 * 60 * 1_000_000_000;

/// Reads at `offset` until the buffer is full or the file ends, and updates the time of last read
/// as `atime` requires.
pub fn read(
    fs: &Ops,
    policy: &dyn Policy,
    caller: &Caller,
    node: NodeId,
    (offset, atime): (u64, Atime),
    buffer: &mut [u8],
) -> FsResult<usize> {
    let (subvol, ino) = fs.place(node)?;
    let node = subvol.node(ino);
    let object = fs.locks.shared(Lock::Object { subvol: subvol.id.0, ino });
    let (length, stale) = subvol.read(|tree| {
        let view = View::new(&*fs.store, tree);
        let inode = load(fs, view, node, ino)?;
        let owned = inode.owned();
        match owned.kind {
            Kind::File => {
                owned.check(caller, READ, || permit::of_inode(fs, view, node, ino, &inode))?;
            }
            Kind::Directory => return Err(FsError::IsDirectory),
            _ => return Err(FsError::InvalidArgument("only files have contents")),
        }
        let Inode::File(file) = inode else { return Err(FsError::IsDirectory) };
        let stale =
            is_stale(file.inode.atime, file.inode.mtime, file.inode.ctime, || fs.env.clock.now().0);
        if file.inode.elsewhere.is_some() {
            return Err(FsError::Elsewhere);
        }
        if file.inode.has_extents {
            let extents = data::FileRef { tree, ino };
            let length = fs
                .data
                .read(view.store, extents, file.inode.size, offset, buffer)
                .map_err(from_store)?;
            return Ok((length, stale));
        }
        let bulk = load_bulk(fs, view, node, ino, &file)?;
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bulk.len());
        let length = buffer.len().min(bulk.len() - from);
        buffer[..length].copy_from_slice(&bulk[from..from + length]);
        Ok((length, stale))
    })?;
    drop(object);
    if stale && atime == Atime::Relative {
        note(fs, policy, &subvol, node);
    }
    Ok(length)
}

/// Updates the time of last read of an inode that is not a directory.
pub(super) fn note(fs: &Ops, policy: &dyn Policy, subvol: &Subvol, node: NodeId) {
    // Nor does a read wait for the object store, or copy subvolumes, to record that it was made.
    if subvol.read_only || fs.options.read_only || fs.changes_wait() || fs.gives_first(subvol) {
        return;
    }
    // The read succeeded: failing to update its time is not an error of the read.
    edit(fs, policy, node, |edit| {
        let now = edit.plan.now;
        edit.file()?.inode.atime = now;
        Ok(())
    })
    .ok();
}

/// Whether the time of the last read must be set, by the rules of `relatime`.
pub(crate) fn is_stale(atime: i64, mtime: i64, ctime: i64, now: impl FnOnce() -> i64) -> bool {
    atime <= mtime || atime <= ctime || now().saturating_sub(atime) >= DAY
}
