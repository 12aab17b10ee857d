//! Removes a whole subvolume, or a tree without a subvolume: one commit, after those that are
//! mounted in it were detached in commits of bounded size, beside which writers continue. The store
//! frees the nodes in steps of its own, and marking finds contents without references.

use format::key;
use inode::SubvolId;
use store::TreeId;

use crate::quota::Charging;
use crate::subvol::{VOLUME, read_record};
use crate::subvolumes::Ledger;
use crate::txn::Txn;
use crate::{FsResult, Upkeep, subvolumes};

/// Most subvolumes that one commit detaches.
const DETACHED_AT_ONCE: usize = 64;

/// Removes a detached subvolume that is not held; returns how much was done, and whether it is
/// gone. Those mounted in it are detached in turn, once those who inherit them have theirs.
pub(super) fn remove(fs: &Upkeep, sequence: u64, id: u64) -> FsResult<(u64, bool)> {
    let mut ledger = fs.admin.lock();
    if let Some(given) = fs.give_to_one_heir(&mut ledger, id)? {
        return Ok((given, false));
    }
    let mut txn = Txn::removing(fs);
    if fs.store.get(VOLUME, &key::detached(sequence)).map_err(crate::error::from_store)?.is_none() {
        // It was mounted since it was checked.
        return Ok((1, false));
    }
    txn.batch().delete(VOLUME, &key::detached(sequence));
    let Some(record) = read_record(&*fs.store, SubvolId(id))? else {
        txn.commit()?;
        return Ok((1, true));
    };
    if !record.detached {
        // Damage: nothing is removed for it.
        tracing::warn!(subvolume = id, "a tree that is marked as removed is in use");
        txn.commit()?;
        return Ok((1, true));
    }
    let subvol = fs.subvol(SubvolId(id))?;
    let gate = subvol.quiesce();
    let children = ledger.some_children(fs, id, DETACHED_AT_ONCE)?;
    if children.len() == DETACHED_AT_ONCE {
        // There may be more.
        let mut txn = Txn::removing(fs);
        detach_children(fs, &mut ledger, &mut txn, (sequence, &children))?;
        return Ok((children.len() as u64, false));
    }
    txn.batch().delete(VOLUME, &key::subvolume(id));
    txn.batch().delete(VOLUME, &format::inherited_record::inherited(id));
    txn.batch().delete(VOLUME, &key::usage(id));
    Charging::of(fs, &mut txn).drop_charges(id)?;
    let orphans = [&key::ORPHANS_PREFIX[..], &id.to_be_bytes()].concat();
    let end = store::prefix_end(&orphans).expect("invariant: a tag is below 255");
    txn.batch().delete_range(VOLUME, &orphans, &end);
    txn.batch().drop_tree(TreeId(record.tree));
    detach_children(fs, &mut ledger, &mut txn, (sequence, &children))?;
    ledger.moved(id, None);
    subvol.set_gone();
    ledger.removed(record.maker);
    fs.subvols.remove(&fs.nodes, subvol.id);
    drop(gate);
    fs.queue.request_collection();
    Ok((1, true))
}

/// Commits a batch in which subvolumes are detached that are mounted in the one that waits under a
/// number.
fn detach_children(
    fs: &Upkeep,
    ledger: &mut Ledger,
    txn: &mut Txn<'_>,
    (sequence, children): (u64, &[u64]),
) -> FsResult<()> {
    for &child in children {
        let detached = subvolumes::detach(fs, ledger, txn, child)?;
        fs.reclaim.came_of(detached, sequence);
    }
    subvolumes::commit(ledger, txn)?;
    for &child in children {
        ledger.moved(child, None);
        fs.queue.add_detached(1);
    }
    Ok(())
}

/// Removes a tree that no subvolume lives in.
pub(super) fn remove_tree(
    fs: &Upkeep,
    sequence: u64,
    (tree, is_named): (u64, bool),
) -> FsResult<u64> {
    let _ledger = fs.admin.lock();
    let mut txn = Txn::removing(fs);
    txn.batch().delete(VOLUME, &key::detached(sequence));
    if is_named {
        // Damage: nothing is removed for it.
        tracing::warn!(tree, "a tree that is marked as removed is in use");
    } else if fs.store.tree_exists(TreeId(tree)).map_err(crate::error::from_store)? {
        txn.batch().drop_tree(TreeId(tree));
    }
    txn.commit()?;
    fs.queue.request_collection();
    Ok(1)
}
