//! Inodes without a name: kept while they are held, removed in steps afterwards.
//!
//! An inode without extents and with few attributes is removed at once, or kept in memory while it
//! is held. Any other is kept under its own number, with an `O` record, and is removed in the
//! background. So `unlink` of a terabyte file costs the caller no more than that of an empty one.

use format::inode_record::{FileKind, InodeRecord, LinkedRecord};
use format::key::{self, Part};
use format::xattr_record::XattrRecord;
use inode::{NodeId, SubvolId};
use vfs::FsResult;
use volume::error::from_store;
use volume::locks::Mode;
use volume::subvol::VOLUME;
use volume::view::View;

use crate::Ops;
use crate::execute::{Context, execute_alone, execute_locked};
use crate::plan::{Attached, Effect, LastName, Plan};
use crate::policy::Policy;

/// Bytes of extended attributes that an inode without a name may have in memory: as many as of
/// contents. Otherwise holders of such inodes could fill memory without counting to any limit.
const MEMORY_BYTES: usize = 4096;

/// Whether an inode without a name is kept on disk: always if its holders may continue after a
/// crash of this process, with another one.
pub fn is_stored(fs: &Ops, inode: &InodeRecord, xattrs: Option<&XattrRecord>) -> bool {
    fs.options.answers
        || inode.has_extents
        || xattrs.is_some_and(|xattrs| xattrs.encode().len() > MEMORY_BYTES)
}

/// Plans what the loss of the last name writes, except for the entry itself. The caller holds
/// the object's lock exclusively and has deleted what was stored beside the name.
pub fn lose_last_name(
    at: &Context<'_>,
    plan: &mut Plan,
    ino: u64,
    inode: &InodeRecord,
    attached: Attached,
) -> FsResult<()> {
    let (tree, subvol) = (at.view.tree, at.id());
    let bytes = if inode.kind == FileKind::File { inode.size as i64 } else { 0 };
    plan.count(subvol, -1, -bytes);
    let had = *inode;
    let mut inode = InodeRecord { ctime: plan.now, charged_names: 0, ..had };
    let stored = is_stored(at.fs, &inode, attached.xattrs.as_ref());
    if !stored {
        // What is in memory is charged again when it gets a name, or extents.
        inode.charge = at.policy.removes_inode(plan, (subvol, ino), &had);
    }
    if stored {
        // Names that a copy inherited out of reach may be charged; they go with the last one.
        at.policy.changes(plan, (subvol, ino), (Some(&had), &mut inode), false)?;
        plan.put_linked(tree, ino, &LinkedRecord { nlink: 0, inode });
        let keys = (key::linked(ino, Part::Bulk), key::linked(ino, Part::Xattrs));
        plan.put_attached(tree, &keys.0, &keys.1, &attached);
        plan.batch().put(VOLUME, &key::orphan(subvol, ino), b"");
    }
    plan.effect(Effect::Lost(LastName { subvol, ino, inode, attached, stored }));
    Ok(())
}

/// A node that is no longer held, and that was stored under its own number.
pub fn released(fs: &Ops, node: NodeId) {
    let ino = node.ino().0;
    let nameless = fs.subvol_of(node).and_then(|subvol| {
        let view = View::new(&*fs.store, subvol.tree());
        Ok((subvol.id, view.linked(ino)?))
    });
    // On an error the inode waits for the next opening, which finds its `O` record.
    if let Ok((subvol, Some(LinkedRecord { nlink: 0, .. }))) = nameless {
        fs.queue.push_orphan(subvol.0, ino);
    }
}

/// Removes inodes that have neither a name nor a holder, about so many records of them, in batches
/// of bounded size; returns how many. An inode with more extents is queued behind the others for
/// the next step.
pub fn reclaim_step(fs: &Ops, policy: &dyn Policy, budget: usize) -> FsResult<u64> {
    let mut done = 0;
    while done < budget as u64 && !fs.queue.are_orphans_awaited() {
        let _removing = fs.queue.removing.read();
        let Some((subvol, ino)) = fs.queue.pop_orphan() else { break };
        match remove((fs, policy), subvol, ino) {
            Ok(Removed { records, more }) => {
                done += 1 + records;
                if more {
                    fs.queue.push_orphan(subvol, ino);
                }
            }
            Err(error) => {
                fs.queue.put_orphan_back(subvol, ino);
                return Err(error);
            }
        }
    }
    Ok(done)
}

/// What a step did to an inode.
#[derive(Debug, Clone, Copy, Default)]
struct Removed {
    /// Extents that it removed.
    records: u64,
    /// Whether there are others.
    more: bool,
}

/// Removes an inode, or a part of one with many extents, in one batch. Extents are removed first:
/// the inode stays until they are gone, and a crash resumes.
fn remove((fs, policy): (&Ops, &dyn Policy), subvol_id: u64, ino: u64) -> FsResult<Removed> {
    let subvol = match fs.subvol(SubvolId(subvol_id)) {
        // The subvolume was removed with everything in it.
        Err(inode::FsError::Stale) => {
            return execute_alone(fs, |plan| {
                plan.removes();
                plan.batch().delete(VOLUME, &key::orphan(subvol_id, ino));
                Ok(Removed::default())
            });
        }
        subvol => subvol?,
    };
    let entered = fs.enter(&subvol)?;
    let at = Context::new(fs, policy, &subvol, entered.tree);
    let object = [(at.object(ino), Mode::Exclusive)];
    execute_locked(entered, &at, &object, |at, plan| plan_removal(at, plan, ino))
}

/// Plans a step of the removal of an inode. Its lock is held.
fn plan_removal(at: &Context<'_>, plan: &mut Plan, ino: u64) -> FsResult<Removed> {
    let Context { fs, subvol, view, .. } = *at;
    if fs.nodes.is_held(subvol.node(ino)) {
        return Ok(Removed::default());
    }
    plan.removes();
    let orphan = key::orphan(at.id(), ino);
    let record = match view.linked(ino)? {
        Some(record) if record.nlink == 0 => record,
        // It has a name, or is stored beside a name and not under its own number. Then the note is
        // damage, and nothing is removed for it.
        _ => {
            plan.batch().delete(VOLUME, &orphan);
            return Ok(Removed::default());
        }
    };
    let file = data::FileRef { tree: view.tree, ino };
    let owner = fs.extent_owner(subvol)?;
    let released =
        fs.data.release_all(&*fs.store, file, owner, plan.batch()).map_err(from_store)?;
    plan.frees(released.freed);
    if !released.more {
        let prefix = key::linked_prefix(ino);
        let end = store::prefix_end(&prefix).unwrap_or_default();
        plan.batch().delete_range(view.tree, &prefix, &end);
        plan.batch().delete(VOLUME, &orphan);
        at.policy.removes_inode(plan, (at.id(), ino), &record.inode);
    }
    Ok(Removed { records: released.extents as u64, more: released.more })
}
