//! `tmpfile`: a file without a name (O_TMPFILE), which `link` may give one.
//!
//! It begins as an orphan in memory, like a held file whose last name was removed. A crash leaves
//! nothing of it, and only what outgrows the tree is known to the store.

use format::inode_record::{FileKind, InodeRecord};
use format::quota::Charge;
use inode::{Caller, NodeId};

use super::mknod::{check_write, parent_directory};
use crate::locks::Lock;
use crate::nodes::Orphan;
use crate::txn::{Txn, fresh_inode};
use crate::view::View;
use crate::{Entry, Fs, FsResult, attributes, permit};

/// Creates a file without a name, in the subvolume of a directory in which it might be named.
pub(crate) fn tmpfile(fs: &Fs, caller: &Caller, parent: NodeId, mode: u32) -> FsResult<Entry> {
    let (subvol, dir) = fs.place(parent)?;
    let entered = fs.enter(&subvol)?;
    let view = View::new(&*fs.store, entered.tree);
    let _directory = fs.locks.shared(Lock::Object { subvol: subvol.id.0, ino: dir });
    let directory = parent_directory(fs, &subvol, view, caller, dir)?;
    check_write(view, caller, dir, &directory)?;
    let ino = fs.numbers.next_ino(&*fs.store)?;
    let inherited = permit::inherit(view, caller, (dir, &directory), mode, FileKind::File)?;
    let permit::Inherited { gid, mode, xattrs } = inherited;
    let now = Txn::new(fs).now;
    let fresh = fresh_inode(FileKind::File, now);
    let has_xattrs = xattrs.is_some();
    // It is charged when it gets a name, or extents.
    let charge = directory.charge.map(|charge| Charge { subvolume: 0, ..charge });
    let inode = InodeRecord { mode, uid: caller.uid, gid, has_xattrs, charge, ..fresh };
    let node = subvol.node(ino);
    let bulk = Vec::new();
    let xattrs = xattrs.unwrap_or_default();
    fs.nodes.hold_unnamed(node, Orphan::File { inode, bulk, xattrs });
    Ok(fs.entry(attributes::of_file(node, &inode, 0)))
}
