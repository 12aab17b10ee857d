//! Reading several subvolumes at a time, before a query comes to them one by one.
//!
//! What has no base is read whole by the first query after opening, and of a clone that still has
//! all that its source had, what differs below it is looked for. One after another, the disk
//! waits for the processor and the processor for the disk, and there may be hundreds of clones.
//! What is read is kept where every query finds it ([`Index::view`]), within the same bounds; what
//! goes wrong is told by the query when it comes there.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use format::subvolume_record::SubvolumeRecord;
use store::Pinned;

use super::spread::spread;
use super::{Index, below};
use crate::Result;
use crate::assemble::{CARRY_NOTHING, Records, VOLUME};

/// Subvolumes that are read at a time for each thread of a query: they wait for the disk more
/// than they compute.
const READS_PER_THREAD: usize = 4;
/// How far behind the next one it is looked for more.
const LOOKED_AT: usize = 64;

/// Reads the first of the subvolumes to come together with others like it, if nothing is known of
/// it, and it has no base or little below it. Others are left to the query: what differs there may
/// take much memory.
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

/// Whether what is to be held of a subvolume is bounded by less than differences may take. Where
/// its base is not in memory that is not known: the base would be read for this alone, and again.
fn is_small(index: &Index, record: &SubvolumeRecord) -> bool {
    if record.base == 0 {
        return true;
    }
    let base = (!record.pruned).then(|| index.base_in_memory(record.base)).flatten();
    base.is_some_and(|base| below::are_few(&base.table, record.root))
}
