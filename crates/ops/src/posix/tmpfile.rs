//! `tmpfile`: a file without a name (O_TMPFILE), which `link` may give one.
//!
//! It begins as an orphan in memory, like a held file whose last name was removed. A crash leaves
//! nothing of it, and only what outgrows the tree is known to the store.

use format::inode_record::{FileKind, InodeRecord, LinkedRecord};
use format::key::{self, Part};
use inode::{Caller, NodeId};
use vfs::{Entry, FsResult};
use volume::locks::Mode;
use volume::nodes::Orphan;
use volume::{attributes, permit};

use super::mknod::{check_write, parent_directory};
use crate::Ops;
use crate::execute::{Context, execute_locked};
use crate::orphan::is_stored;
use crate::plan::{Attached, Effect, Plan};
use crate::policy::Policy;
use volume::attributes::fresh_inode;

/// Creates a file without a name, in the subvolume of a directory in which it might be named.
pub fn tmpfile(
    fs: &Ops,
    policy: &dyn Policy,
    caller: &Caller,
    parent: NodeId,
    mode: u32,
) -> FsResult<Entry> {
    let (subvol, dir) = fs.place(parent)?;
    let entered = fs.enter(&subvol)?;
    let at = Context::new(fs, policy, &subvol, entered.tree);
    execute_locked(entered, &at, &[(at.object(dir), Mode::Shared)], |at, plan| {
        plan_unnamed(at, plan, (caller, dir, mode))
    })
}

fn plan_unnamed(
    at: &Context<'_>,
    plan: &mut Plan,
    (caller, dir, mode): (&Caller, u64, u32),
) -> FsResult<Entry> {
    let (fs, view) = (at.fs, at.view);
    let directory = parent_directory(fs, at.subvol, view, caller, dir)?;
    check_write(view, caller, dir, &directory)?;
    let ino = fs.numbers.next_ino(&*fs.store)?;
    let inherited = permit::inherit(view, caller, (dir, &directory), mode, FileKind::File)?;
    let permit::Inherited { gid, mode, xattrs } = inherited;
    let fresh = fresh_inode(FileKind::File, plan.now);
    let has_xattrs = xattrs.is_some();
    let charge = at.policy.creates_unnamed(&directory);
    let inode = InodeRecord { mode, uid: caller.uid, gid, has_xattrs, charge, ..fresh };
    let (node, bulk, xattrs) = (at.subvol.node(ino), Vec::new(), xattrs.unwrap_or_default());
    if is_stored(fs, &inode, Some(&xattrs)) {
        let mut stored = inode;
        at.policy.changes(plan, (at.id(), ino), (None, &mut stored), true)?;
        let attached = Attached { bulk: None, xattrs: stored.has_xattrs.then(|| xattrs.clone()) };
        let keys = (key::linked(ino, Part::Bulk), key::linked(ino, Part::Xattrs));
        plan.put_attached(view.tree, &keys.0, &keys.1, &attached);
        plan.put_linked(view.tree, ino, &LinkedRecord { nlink: 0, inode: stored });
        plan.batch().put(volume::subvol::VOLUME, &key::orphan(at.id(), ino), b"");
        plan.effect(Effect::HoldUnnamed(node, Orphan::File { inode, bulk, xattrs }));
        plan.effect(Effect::StoreOrphan(node));
    } else {
        plan.effect(Effect::HoldUnnamed(node, Orphan::File { inode, bulk, xattrs }));
    }
    Ok(fs.entry(attributes::of_file(node, &inode, 0)))
}
