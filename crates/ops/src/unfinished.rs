//! Inodes that nothing reaches, between the two steps of a flush (`crate::bulk`). When a volume is
//! opened for writing, this removes what an interrupted flush left, before anything else can change
//! it or copy what it holds. It waits for flushes under way where such inodes must not be counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use format::detached_record::DetachedRecord;
use format::key;
use inode::{FsError, SubvolId};
use store::{Batch, KeyRange, Need, Pinned, TreeId};
use vfs::FsResult;
use volume::Core;
use volume::error::{from_store, malformed};
use volume::subvol::{Subvol, VOLUME, read_record};

/// Removes them. Where that is not possible now, a later opening does it.
pub(crate) fn recover(fs: &Core) -> FsResult<()> {
    if fs.may_change().is_err() {
        return Ok(());
    }
    let mut left = Vec::new();
    fs.visit_volume(&key::DETACHED_PREFIX, &mut |key, value| {
        // What does not decode is reported where it is to be reclaimed.
        if let Ok(DetachedRecord::Inodes { subvolume, first, end }) = DetachedRecord::decode(value)
        {
            let sequence = key::parse_number(key).map_err(|error| malformed(VOLUME, &error))?;
            left.push((sequence, subvolume, (first, end)));
        }
        Ok(())
    })?;
    for (sequence, subvolume, range) in left {
        let removed = remove(fs, (sequence, subvolume), range);
        if let Err(error) = removed {
            tracing::warn!(%error, subvolume, "cannot remove what an interrupted import left");
        }
    }
    Ok(())
}

/// Pins a state that has each flush under way as a whole, or nothing of it: its subvolume's gate is
/// held over both steps. The caller holds no lock for which a change waits. What an earlier flush
/// could not remove is in the state, and so is what belongs to a subvolume that was removed.
pub fn pin_whole(fs: &Core) -> FsResult<Box<dyn Pinned>> {
    let mut known = BTreeMap::new();
    loop {
        let gates: Vec<_> = known.values().flatten().map(|of: &Arc<Subvol>| of.quiesce()).collect();
        let pin = fs.store.pin().map_err(from_store)?;
        let mut more = Vec::new();
        let prefix = KeyRange::prefix(&key::DETACHED_PREFIX);
        let mut cursor = pin.scan(VOLUME, prefix).map_err(from_store)?;
        while let Some(item) = cursor.next().map_err(from_store)? {
            // What does not decode is reported where it is to be reclaimed.
            match DetachedRecord::decode(item.value) {
                Ok(DetachedRecord::Inodes { subvolume, .. }) if !known.contains_key(&subvolume) => {
                    more.push(subvolume);
                }
                _ => {}
            }
        }
        drop(cursor);
        drop(gates);
        if more.is_empty() {
            return Ok(pin);
        }
        for subvolume in more {
            let of = match fs.subvol(SubvolId(subvolume)) {
                Ok(of) => Some(of),
                Err(FsError::Stale | FsError::NotFound) => None,
                Err(error) => return Err(error),
            };
            known.insert(subvolume, of);
        }
    }
}

fn remove(fs: &Core, (sequence, subvolume): (u64, u64), range: (u64, u64)) -> FsResult<()> {
    let mut batch = Batch::new();
    if let Some(record) = read_record(&*fs.store, SubvolId(subvolume))? {
        plan_removal(&mut batch, TreeId(record.tree), range);
    }
    batch.delete(VOLUME, &key::detached(sequence));
    fs.store.commit(&batch).map(drop).map_err(from_store)
}

/// Plans that all records of inodes are removed that nothing reaches.
pub(crate) fn plan_removal(batch: &mut Batch, tree: TreeId, (first, end): (u64, u64)) {
    let ranges = [
        (key::directory_prefix(first), key::directory_prefix(end)),
        (key::extent_prefix(first), key::extent_prefix(end)),
    ];
    for (from, to) in &ranges {
        batch.delete_range(tree, from, to);
    }
    batch.mark(Need::Removes);
}
