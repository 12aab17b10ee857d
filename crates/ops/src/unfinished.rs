//! Removes what an interrupted flush left: records that nothing reaches. Called when a volume is
//! opened for writing, before anything else can change it or copy what it holds.

use format::detached_record::DetachedRecord;
use format::key;
use inode::SubvolId;
use store::{Batch, Need, TreeId};
use vfs::FsResult;
use volume::Core;
use volume::error::{from_store, malformed};
use volume::subvol::{VOLUME, read_record};

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
