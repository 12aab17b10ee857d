//! What a rename leaves behind on request: a whiteout, which hides a name below in an overlay file
//! system. It is a character device 0:0, which points to no device, so any user may
//! create one.

use format::entry_record::{EntryRecord, Target};
use format::inode_record::{FileKind, InodeRecord};
use format::key::{self, Part};
use inode::{Caller, FsError, Kind};
use vfs::{FsResult, NewNode};
use volume::permit;
use volume::view::FoundEntry;

use crate::execute::Context;
use crate::plan::Plan;
use volume::attributes::fresh_inode;

/// Whether to create a whiteout.
pub(crate) fn is_one(new: &NewNode) -> bool {
    new.kind == Kind::CharDevice && new.rdev == 0
}

/// Plans that an entry of a directory becomes a whiteout's, with everything that creating
/// an inode there requires. Removes what was stored beside the entry. The caller updates what the
/// entry pointed to, and the counts of the directory.
pub(super) fn put(
    at: &Context<'_>,
    plan: &mut Plan,
    caller: &Caller,
    (dir, name): (u64, &[u8]),
    found: &FoundEntry,
) -> FsResult<()> {
    let (fs, view) = (at.fs, at.view);
    let directory = view.directory(dir)?.ok_or(FsError::NotFound)?;
    let ino = fs.numbers.next_ino(&*fs.store)?;
    let kind = FileKind::CharDevice;
    // As on other file systems: no rights at all, except those that a default list may add.
    let inherited = permit::inherit(view, caller, (dir, &directory), 0, kind)?;
    let mut inode = InodeRecord {
        mode: inherited.mode,
        uid: caller.uid,
        gid: inherited.gid,
        has_xattrs: inherited.xattrs.is_some(),
        ..fresh_inode(kind, plan.now)
    };
    plan.on_behalf(caller);
    let share = ((inode.uid, inode.gid), 0);
    inode.charge = at.policy.creates(plan, at.id(), &directory, share)?;
    plan.erase_attached(view.tree, dir, found);
    let target = Target::Embedded(inode);
    let entry = EntryRecord { chained: found.chained, ino, name, target };
    plan.put_entry(view.tree, dir, found.cookie, &entry);
    if let Some(xattrs) = &inherited.xattrs {
        let key = key::entry(dir, found.cookie, Part::Xattrs);
        plan.batch().put(view.tree, &key, &xattrs.encode());
    }
    plan.count(at.id(), 1, 0);
    Ok(())
}
