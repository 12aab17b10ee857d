//! A merge that is under way: its state between two steps, and how a part of it is written.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use store::Result;

use crate::blob::BlobWriter;
use crate::key::Direction;
use crate::layer::{Layer, View};
use crate::limit::Limiter;
use crate::merge::{From, Merge, Tombstones};
use crate::ranges::Ranges;
use crate::rows::Content;
use crate::run::{Caching, Written};

/// What is being merged.
pub(crate) struct Merging {
    pub(crate) job: Option<Job>,
    /// The manifest for which no merge was needed, or none was possible.
    pub(crate) rested: u64,
    /// The manifest that was inspected last.
    pub(crate) planned: u64,
    /// The manifest after which no manifest of the merged runs could be written.
    pub(crate) unsettled: u64,
    /// Most bytes of a merge: less than a blob may have, once a blob became too long. Nobody can
    /// know in advance by how much it would.
    pub(crate) blob_max: u64,
    /// Value logs that rows are not taken out of (`quarantine`).
    pub(crate) unreadable_logs: BTreeSet<u64>,
    /// Merges that ended since opening, and those among them that emptied value logs.
    pub(crate) ended: u64,
    pub(crate) cleaned: u64,
    pub(crate) limiter: Limiter,
}

/// A merge that is under way.
pub(crate) struct Job {
    pub(crate) layers: Vec<Arc<Layer>>,
    pub(crate) views: Vec<View>,
    pub(crate) id: u64,
    pub(crate) part: MergePart,
    pub(crate) blob: BlobWriter,
    /// Bytes of what is read: runs, and rows that are written again.
    pub(crate) bytes: u64,
    /// Whether it is made to empty value logs.
    pub(crate) cleans: bool,
    /// Whether it is made to free space.
    pub(crate) returns: bool,
}

impl Merging {
    /// An idle state, with a limit of this many bytes a second.
    pub(crate) fn new(rate: u64) -> Merging {
        let limiter = Limiter::new(rate);
        Merging {
            job: None,
            rested: 0,
            planned: 0,
            unsettled: 0,
            blob_max: u64::MAX,
            unreadable_logs: BTreeSet::new(),
            ended: 0,
            cleaned: 0,
            limiter,
        }
    }

    /// Bytes written by the merge in progress, and bytes of its inputs.
    pub(crate) fn under_way(&self) -> Option<(u64, u64)> {
        self.job.as_ref().map(|job| (job.blob.bytes().min(job.bytes), job.bytes))
    }
}

/// A part of a merge into a run.
pub(crate) struct MergePart {
    /// Where the part before ended.
    pub(crate) begin: Bound<Vec<u8>>,
    pub(crate) lowest: bool,
    /// Bytes after which it ends: bytes written, or bytes read that produce nothing.
    pub(crate) bytes: u64,
}

impl MergePart {
    /// Continues merging; `false` when nothing is left.
    pub(crate) fn write(&mut self, blob: &mut BlobWriter, views: &[View]) -> Result<bool> {
        let tombstones = if self.lowest { Tombstones::Skip } else { Tombstones::Keep };
        let bound = self.begin.as_ref().map(Vec::as_slice);
        let from = From { direction: Direction::Forward, bound, caching: Caching::Bypass };
        let mut merge = Merge::new(views.iter(), from)?;
        let mut passed = 0;
        // In addition to the blocks in which it begins.
        let most = merge.loaded_bytes().saturating_add(self.bytes);
        while merge.advance_within(tombstones, most)? {
            let Some((key, content)) = merge.current() else {
                let Some(next) = merge.next_key() else { break };
                self.begin = Bound::Included(next.to_vec());
                return Ok(true);
            };
            let before = blob.bytes();
            blob.push(key, content)?;
            let inline = match content {
                Content::Value(value) => value.len(),
                Content::Deleted | Content::Far(_) | Content::Unknown(_) => 0,
            };
            // Rewriting rows, if there are any, is what takes time.
            passed += ((key.len() + inline) as u64).max(blob.bytes().saturating_sub(before));
            if passed >= self.bytes || merge.loaded_bytes() >= most {
                self.begin = Bound::Excluded(key.to_vec());
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Ends a run, whose entries were all written.
pub(crate) fn end_run(
    blob: &mut BlobWriter,
    views: &[View],
    lowest: bool,
) -> Result<Option<Written>> {
    if !lowest {
        let mut ranges = Ranges::default();
        for view in views {
            ranges.add_all(view.ranges()?);
        }
        for (from, to) in ranges.iter() {
            blob.push_range(from, to);
        }
    }
    blob.end()
}
