//! What a rename leaves behind on demand: a whiteout, by which an overlay of directories says that
//! nothing is there. It is a character device 0:0, which leads to no device, so that anybody may
//! make one.

use format::entry_record::{EntryRecord, Target};
use format::inode_record::{FileKind, InodeRecord};
use format::key::{self, Part};
use inode::{Caller, FsError, Kind};

use crate::txn::{Txn, fresh_inode};
use crate::view::{Found, View};
use crate::{FsResult, NewNode, permit};

/// Whether a whiteout is to be made.
pub(super) fn is_one(new: &NewNode) -> bool {
    new.kind == Kind::CharDevice && new.rdev == 0
}

/// Adds to a batch that an entry of a directory is a whiteout's, with all that making an inode
/// there asks for. What lay beside the entry goes; what it led to, and the counts of the
/// directory, are the caller's.
pub(super) fn put(
    txn: &mut Txn<'_>,
    caller: &Caller,
    (subvolume, view): (u64, View<'_>),
    (dir, name): (u64, &[u8]),
    found: &Found,
) -> FsResult<()> {
    let fs = txn.fs();
    let directory = view.directory(dir)?.ok_or(FsError::NotFound)?;
    let ino = fs.numbers.next_ino(&*fs.store)?;
    let kind = FileKind::CharDevice;
    // As on other file systems: no rights at all, but for what a default list may add to them.
    let inherited = permit::inherit(view, caller, (dir, &directory), 0, kind)?;
    let mut inode = InodeRecord {
        mode: inherited.mode,
        uid: caller.uid,
        gid: inherited.gid,
        has_xattrs: inherited.xattrs.is_some(),
        ..fresh_inode(kind, txn.now)
    };
    txn.on_behalf(caller);
    let share = ((inode.uid, inode.gid), inode.stored());
    inode.charge = txn.charge_new(subvolume, &directory, share)?;
    txn.erase_attached(view.tree, dir, found);
    let target = Target::Embedded(inode);
    let entry = EntryRecord { chained: found.chained, ino, name, target };
    txn.put_entry(view.tree, dir, found.cookie, &entry);
    if let Some(xattrs) = &inherited.xattrs {
        let key = key::entry(dir, found.cookie, Part::Xattrs);
        txn.batch().put(view.tree, &key, &xattrs.encode());
    }
    txn.count(subvolume, 1, 0);
    Ok(())
}
