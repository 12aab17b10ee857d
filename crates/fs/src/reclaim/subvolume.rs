//! Removes a whole subvolume, or a tree without a subvolume: one commit. The store frees the nodes
//! in steps of its own, and marking finds contents without references.

use format::key;
use format::subvolume_record::SubvolumeRecord;
use inode::SubvolId;
use store::TreeId;

use crate::error::malformed;
use crate::subvol::{VOLUME, read_record};
use crate::txn::Txn;
use crate::{Fs, FsResult, search_bases, subvolumes};

/// Removes a detached subvolume that is not held; returns how much was done, and whether it is
/// gone. Those mounted in it are detached in turn, once those who inherit them have theirs.
pub(super) fn remove(fs: &Fs, sequence: u64, id: u64) -> FsResult<(u64, bool)> {
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
    let children = ledger.children(fs, id)?;
    for &child in &children {
        let detached = subvolumes::detach(fs, &mut ledger, &mut txn, child)?;
        fs.reclaim.came_of(detached, sequence);
    }
    txn.batch().delete(VOLUME, &key::subvolume(id));
    txn.batch().delete(VOLUME, &format::inherited_record::inherited(id));
    txn.batch().delete(VOLUME, &key::usage(id));
    txn.charging().drop_charges(id)?;
    let orphans = [&key::ORPHANS_PREFIX[..], &id.to_be_bytes()].concat();
    let end = store::prefix_end(&orphans).expect("invariant: a tag is below 255");
    txn.batch().delete_range(VOLUME, &orphans, &end);
    txn.batch().drop_tree(TreeId(record.tree));
    subvolumes::commit(&ledger, &mut txn)?;
    ledger.moved(id, None);
    subvol.set_gone();
    ledger.removed(record.maker);
    fs.subvols.remove(&fs.nodes, subvol.id);
    for &child in &children {
        ledger.moved(child, None);
        fs.queue.add_detached(1);
    }
    drop(gate);
    fs.queue.request_collection();
    Ok((1, true))
}

/// Removes a tree that no subvolume lives in.
pub(super) fn remove_tree(fs: &Fs, sequence: u64, tree: u64) -> FsResult<u64> {
    let _ledger = fs.admin.lock();
    let mut txn = Txn::removing(fs);
    txn.batch().delete(VOLUME, &key::detached(sequence));
    if is_named(fs, tree)? {
        // Damage: nothing is removed for it.
        tracing::warn!(tree, "a tree that is marked as removed is in use");
    } else if fs.store.tree_exists(TreeId(tree)).map_err(crate::error::from_store)? {
        txn.batch().drop_tree(TreeId(tree));
    }
    txn.commit()?;
    fs.queue.request_collection();
    Ok(1)
}

/// Whether a tree is a subvolume's, or that of a base of the index. What does not decode may name
/// it, and is an error.
fn is_named(fs: &Fs, tree: u64) -> FsResult<bool> {
    let mut named = tree < key::FIRST_TREE;
    fs.visit_volume(&key::SUBVOLUMES_PREFIX, &mut |_, value| {
        let record = SubvolumeRecord::decode(value).map_err(|error| malformed(VOLUME, &error))?;
        named |= record.tree == tree;
        Ok(())
    })?;
    Ok(named || search_bases::get(fs, tree)?.is_some())
}
