//! Reads several subvolumes in parallel, before a query searches them one by one.
//!
//! The first query after opening reads a subvolume without a base whole. For a clone that still
//! holds everything its source held, it searches for the differences below the clone's root. Done
//! one after another, disk and processor wait for each other, and there may be hundreds of clones.
//! The results go where every query finds them ([`Index::view`]), within the same memory bounds.
//! The query reports errors when it reaches the subvolume.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use format::subvolume_record::SubvolumeRecord;
use store::Pinned;

use super::spread::spread;
use super::{Index, below};
use crate::Result;
use crate::assemble::{CARRY_NOTHING, Records, VOLUME};

/// Subvolumes that each thread of a query reads in parallel: these threads wait for the disk more
/// than they compute.
const READS_PER_THREAD: usize = 4;
/// How far beyond the next subvolume to search for more candidates.
const LOOKED_AT: usize = 64;

/// Reads the first of the remaining subvolumes in parallel with similar ones. Does so if nothing is
/// cached for it and it has no base or little below it. Leaves the others to the query: their
/// differences may take much memory.
pub(super) fn look(
    index: &Index,
    pinned: &Arc<dyn Pinned>,
    cancel: &AtomicBool,
    mut coming: impl Iterator<Item = u64>,
) -> Result<()> {
    let threads = index.options.threads;
    let any = Records { read: &**pinned, tree: VOLUME, searchable: &CARRY_NOTHING };
    let unread = |subvolume: u64| -> Result<Option<_>> {
        let record = any.subvolume(subvolume)?.filter(|_| index.is_unread(subvolume));
        let small = record.filter(|record| is_small(index, record));
        Ok(small.map(|record| (subvolume, record)))
    };
    let Some(first) = coming.next().filter(|_| threads > 1).map(unread).transpose()?.flatten()
    else {
        return Ok(());
    };
    let mut together = vec![first];
    for subvolume in coming.take(LOOKED_AT) {
        together.extend(unread(subvolume)?);
        if together.len() == threads * READS_PER_THREAD {
            break;
        }
    }
    if together.len() > 1 {
        spread((together.len(), "ahead"), together.len(), cancel, &|at| {
            let (subvolume, record) = &together[at];
            let read = index.view(pinned, *subvolume, record, cancel);
            if let Err(error) = read {
                tracing::debug!(%error, subvolume, "reading ahead failed");
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Whether the memory for a subvolume has a bound below what differences may take. Unknown if its
/// base is not in memory: the base would be read for this alone, and then again.
fn is_small(index: &Index, record: &SubvolumeRecord) -> bool {
    if record.base == 0 {
        return true;
    }
    let base = (!record.pruned).then(|| index.base_in_memory(record.base)).flatten();
    base.is_some_and(|base| below::are_few(&base.table, record.root))
}
