//! Directories with changes to counts and times only, because names in them were added or removed.
//!
//! The log has the increments, and the base's clusters have the former values. So these rows are
//! built without the tree. There, each row shares a leaf with the names of its directory, and
//! scattered changes would read nearly all leaves for them.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use device::Map;
use format::batch::{LaneList, MergeKind};
use format::directory_record::{ATIME_AT, CTIME_AT, ENTRIES_AT, MTIME_AT, SUBDIRECTORIES_AT};
use format::inode_record::FileKind;

use super::Index;
use super::base::Base;
use super::before::ROWS_A_LOOKUP;
use super::changes::Changes;
use super::fold::{PLACE_BYTES, Touched};
use super::folding::{Clusters, Folding};
use crate::cluster::Fields;
use crate::{Attribute, Condition, Result, Row};

/// Estimated memory of a directory in a map.
const MERGED_BYTES: usize = 96;

/// The increments of a directory's record.
#[derive(Debug, Clone, Copy)]
struct Change {
    entries: i64,
    subdirectories: i64,
    mtime: i64,
    ctime: i64,
    atime: i64,
}

impl Change {
    const NONE: Change =
        Change { entries: 0, subdirectories: 0, mtime: i64::MIN, ctime: i64::MIN, atime: i64::MIN };

    /// Applies the change to the row of a directory; `None` if the result would be invalid.
    fn apply<'a>(&self, row: Row<'a>) -> Option<Row<'a>> {
        let entries = i64::try_from(row.entries).ok()?.checked_add(self.entries)?;
        let had = i64::from(row.nlink).checked_sub(2)?;
        let subdirectories = had.checked_add(self.subdirectories)?;
        let is_plain = row.size == row.entries && row.allocated == 0 && row.nlink < u32::MAX;
        if !is_plain || entries < 0 || !(0..=entries).contains(&subdirectories) {
            return None;
        }
        Some(Row {
            entries: entries.cast_unsigned(),
            size: entries.cast_unsigned(),
            nlink: u32::try_from(subdirectories + 2).ok()?,
            mtime: row.mtime.max(self.mtime),
            ctime: row.ctime.max(self.ctime),
            atime: row.atime.max(self.atime),
            ..row
        })
    }
}

/// Directories whose records have merges, and no other change.
#[derive(Default)]
pub(super) struct Merged {
    changes: Map<u64, Change>,
}

impl Merged {
    /// Adds a merge; `false` if it changes anything but counts and times.
    pub(super) fn add(&mut self, directory: u64, lanes: LaneList<'_>) -> bool {
        let known = |offset, kind| match kind {
            MergeKind::Add => [ENTRIES_AT, SUBDIRECTORIES_AT].contains(&offset),
            MergeKind::Max => [MTIME_AT, CTIME_AT, ATIME_AT].contains(&offset),
        };
        if !lanes.iter().all(|lane| known(lane.offset, lane.kind)) {
            return false;
        }
        let change = self.changes.entry(directory).or_insert(Change::NONE);
        for lane in lanes.iter() {
            match lane.offset {
                ENTRIES_AT => change.entries = change.entries.wrapping_add(lane.operand),
                SUBDIRECTORIES_AT => {
                    change.subdirectories = change.subdirectories.wrapping_add(lane.operand);
                }
                MTIME_AT => change.mtime = change.mtime.max(lane.operand),
                CTIME_AT => change.ctime = change.ctime.max(lane.operand),
                _ => change.atime = change.atime.max(lane.operand),
            }
        }
        true
    }

    /// Memory that they take.
    pub(super) fn memory_bytes(&self) -> usize {
        self.changes.capacity() * MERGED_BYTES
    }

    /// Removes directories that have other changes or are not needed.
    pub(super) fn leave_out(&mut self, is_out: impl Fn(u64) -> bool) {
        self.changes.retain(|directory, _| !is_out(*directory));
    }

    /// Directories, in no order.
    pub(super) fn directories(&self) -> impl Iterator<Item = u64> {
        self.changes.keys().copied()
    }

    /// Takes out directories that are numerous in a cluster, and builds their rows. `is_known`:
    /// whether the row at a place is known or will be.
    pub(super) fn rows(
        &mut self,
        clusters: Clusters<'_>,
        is_known: &dyn Fn((u64, u64)) -> bool,
        (cancel, bytes_max): (Option<&AtomicBool>, usize),
    ) -> Changes {
        let Clusters { index, base, count } = clusters;
        let mut wanted: Vec<(u32, u64)> = Vec::with_capacity(self.changes.len());
        for directory in self.directories() {
            // The row is in the cluster of the parent directory.
            let Some(facts) = base.table.facts(directory) else { continue };
            wanted.extend(base.table.clusters_of(facts.parent).map(|number| (number, directory)));
        }
        wanted.sort_unstable();
        let mut rows = Changes::default();
        for wanted in wanted.chunk_by(|one, other| one.0 == other.0) {
            if cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed))
                || rows.memory_bytes() > bytes_max
            {
                break;
            }
            let number = wanted[0].0;
            if wanted.len() <= base.clusters[number as usize].rows as usize / ROWS_A_LOOKUP + 1 {
                continue;
            }
            if let Err(error) = self.cluster(index, base, number, is_known, &mut rows) {
                // Searching the cluster rebuilds it. The remaining rows are read from the tree.
                tracing::debug!(%error, number, "reading rows of directories from the tree");
            }
        }
        count.fetch_add(rows.len() as u64, Ordering::Relaxed);
        rows
    }

    /// Takes out the rows that one cluster has.
    fn cluster(
        &mut self,
        index: &Index,
        base: &Base,
        number: u32,
        is_known: &dyn Fn((u64, u64)) -> bool,
        out: &mut Changes,
    ) -> Result<()> {
        let id = base.clusters[number as usize].id;
        let cluster = index.cache.get(id, || index.open(id))?;
        let rows = cluster.rows(Fields::ATTRIBUTES)?;
        let kind = i128::from(FileKind::Directory.byte());
        let directories = [Condition::Within(Attribute::Kind, kind, kind)];
        let flow = cluster.search(&directories, &mut |at| {
            let row = rows.get(at);
            let place = (row.directory, row.cookie);
            let facts = base.table.facts(row.ino);
            if let Some(change) = self.changes.get(&row.ino)
                && row.subvolume == 0
                && facts.is_some_and(|facts| facts.parent == row.directory)
            {
                // If more is known about the name, the directory is read instead.
                if let Some(row) = change.apply(row).filter(|_| !is_known(place)) {
                    out.push(place, Some(&row));
                    self.changes.remove(&row.ino);
                }
            }
            ControlFlow::Continue(())
        })?;
        debug_assert!(flow.is_continue(), "nothing ends it");
        index.settle(id);
        Ok(())
    }
}

impl Touched {
    /// Takes out the rows of directories with merges that clusters hold; `false` if the result does
    /// not fit.
    pub(super) fn take_merged(
        &mut self,
        merged: &mut Merged,
        clusters: Option<Clusters<'_>>,
        folding: Folding<'_>,
    ) -> bool {
        let (Some(clusters), Some(known)) = (clusters, &mut self.rows) else { return true };
        self.places.sort_unstable();
        let places = &self.places;
        let is_known = |place| places.binary_search(&place).is_ok() || known.has(place);
        let others = known.memory_bytes() + places.len() * PLACE_BYTES + merged.memory_bytes();
        let left = folding.bytes_max.saturating_sub(others);
        let made = merged.rows(clusters, &is_known, (folding.cancel, left));
        if folding.is_cancelled() {
            return false;
        }
        made.memory_bytes() <= left && known.join(made.finish(left).0)
    }
}
