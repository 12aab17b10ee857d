//! The durable state, and what the parts of the engine keep beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use format::run_manifest::{LogRows, RunEntry};
use store::{Lsn, Result, TreeId};

use crate::blob::Numbers;
use crate::files::{blob_name, path};
use crate::id_allocator::IdAllocator;
use crate::layer::{Catalog, Layer, Stack};
use crate::newest::Alone;
use crate::run::Run;

/// The durable state, and what is on disk beside it. The default is that of a store without
/// anything; an opening names every field.
#[derive(Default)]
pub struct Durable {
    /// The number of its manifest.
    pub(crate) number: u64,
    /// The number of the next attempt to write a manifest.
    pub(crate) next_manifest: u64,
    /// Where assigned numbers are recorded, if requests may arrive late.
    pub(crate) allocator: Option<IdAllocator>,
    /// In an object store with the log: blobs have numbers below this until the next manifest.
    pub(crate) blob_limit: Option<u64>,
    /// Whether an earlier process made its manifest. The last requests of that process may still
    /// arrive, also for a manifest with a greater number. Until this process has made a manifest it
    /// deletes nothing, because such a manifest may name all of it.
    pub(crate) inherited: bool,
    /// Blobs that were found and that nothing of this state names. They are deleted once this
    /// process has made a manifest.
    pub(crate) left: Vec<u64>,
    /// Attempts since then whose outcome is unknown.
    pub(crate) uncertain: Vec<Attempt>,
    /// Copies that are missing of its manifests, because there was no space.
    pub(crate) alone: Option<Alone>,
    /// Names of manifests that could not be read when the store was opened.
    pub(crate) unread: Vec<String>,
    pub(crate) lsn: Lsn,
    pub(crate) next_blob: u64,
    /// Lengths of all existing blobs.
    pub(crate) blobs: BTreeMap<u64, u64>,
    /// The value logs among them, with all that was written to them.
    pub(crate) logs: BTreeMap<u64, LogRows>,
    /// Existing runs; a run that nothing holds any more is reclaimed.
    pub(crate) runs: NotedRuns,
    /// Parts of blobs that nothing needs: number, begin, end.
    pub(crate) gaps: Vec<(u64, u64, u64)>,
    /// Parts that could not be freed, and blobs that could not be deleted: retried when the next
    /// manifest is durable.
    pub(crate) stuck: Stuck,
    /// Bytes of blobs that nothing needs and that can be freed only with the whole blob.
    pub(crate) dead: BTreeMap<u64, u64>,
    /// Runs that log records name and no manifest does yet, with those records. Replaying the
    /// records needs the runs, even if their trees were dropped.
    pub(crate) linked: Vec<(Lsn, Arc<Run>)>,
    /// Exchanges that the trees have and the manifest has not: the exchanges hold what it names.
    pub(crate) pending: Vec<Exchange>,
    /// Bytes of the runs that they merged.
    pub(crate) pending_bytes: u64,
    /// What dropped trees hold until the next checkpoint.
    pub(crate) dropped: DroppedTrees,
}

impl Durable {
    /// Registers a run that is on disk.
    pub(crate) fn take_note(&mut self, run: Run) -> Arc<Run> {
        let run = Arc::new(run);
        self.runs.note(&run);
        run
    }

    /// The numbers of new blobs.
    pub(crate) fn take_numbers(&mut self, values_from: u64) -> Result<Numbers> {
        let blob = self.next_blob;
        let log = (values_from > 0).then_some(blob + 1);
        let last = log.unwrap_or(blob);
        self.reserve(last)?;
        self.next_blob = last + 1;
        Ok(Numbers { blob, log })
    }

    /// The number of a new manifest: never the same twice, whatever the outcome.
    pub(crate) fn take_number(&mut self) -> Result<u64> {
        let number = self.next_manifest;
        if self.blob_limit.is_some() {
            // The next manifest has it until one exists (`fenced`).
            return Ok(number);
        }
        self.reserve(number)?;
        self.next_manifest += 1;
        Ok(number)
    }

    /// Makes sure that no later process assigns a number that this one uses.
    fn reserve(&mut self, last: u64) -> Result<()> {
        if self.blob_limit.is_some_and(|limit| last >= limit) {
            let why = "too many blobs were made since the last manifest";
            let error = std::io::Error::other(why);
            return Err(device::Error::new("create", &path(&blob_name(last)), error).into());
        }
        self.allocator.as_mut().map_or(Ok(()), |allocator| allocator.reserve(last))
    }
}

/// What a checkpoint froze: the stacks of the trees that changed.
pub(crate) type Frozen = BTreeMap<TreeId, Option<Arc<Stack>>>;

/// The same, in a list, for a pin.
pub(crate) type Collected = Vec<(TreeId, Option<Arc<Stack>>)>;

/// Adjacent layers in stacks, and the one layer that is equivalent to them together; none if that
/// layer would be empty.
pub(crate) struct Exchange {
    pub(crate) old: Vec<Arc<Layer>>,
    pub(crate) new: Option<Arc<Layer>>,
}

/// A manifest whose creation seemed to fail: it may be on disk, or appear there. What it names
/// stays until a later one is durable.
pub(crate) struct Attempt {
    pub(crate) number: u64,
    pub(crate) bytes: Vec<u8>,
    /// Whether it was found there, under either name.
    pub(crate) there: bool,
    #[expect(dead_code, reason = "held, so that its runs are not given back")]
    pub(crate) catalog: Arc<Catalog>,
}

/// Runs that are on disk, whether or not anything holds them.
#[derive(Default)]
pub(crate) struct NotedRuns {
    runs: BTreeMap<u64, Noted>,
    /// For each blob, how many of them are in it or point into it.
    in_blobs: BTreeMap<u64, u64>,
}

struct Noted {
    entry: RunEntry,
    uses: Arc<[LogRows]>,
    run: Weak<Run>,
}

impl Noted {
    /// The blobs that it needs: a value log is needed as long as a run points into it.
    fn blobs(&self) -> impl Iterator<Item = u64> {
        std::iter::once(self.entry.blob).chain(self.uses.iter().map(|rows| rows.log))
    }
}

impl NotedRuns {
    /// Registers a run that is on disk.
    pub(crate) fn note(&mut self, run: &Arc<Run>) {
        let uses = Arc::clone(&run.uses);
        let noted = Noted { entry: run.entry, uses, run: Arc::downgrade(run) };
        for blob in noted.blobs() {
            *self.in_blobs.entry(blob).or_default() += 1;
        }
        let before = self.runs.insert(run.entry.number, noted);
        assert!(before.is_none(), "run {} is there twice", run.entry.number);
    }

    /// Forgets a run that nothing holds any more; returns its place: blob, begin, end.
    pub(crate) fn forget(&mut self, number: u64) -> Option<(u64, u64, u64)> {
        let noted = self.runs.get(&number)?;
        if noted.run.strong_count() > 0 {
            return None;
        }
        let noted = self.runs.remove(&number)?;
        for blob in noted.blobs() {
            let count = self.in_blobs.entry(blob).or_default();
            *count -= 1;
            if *count == 0 {
                self.in_blobs.remove(&blob);
            }
        }
        let RunEntry { blob, start, index, index_bytes, .. } = noted.entry;
        Some((blob, start, index + u64::from(index_bytes)))
    }

    /// Whether any of them needs a blob.
    pub(crate) fn need(&self, blob: u64) -> bool {
        self.in_blobs.contains_key(&blob)
    }
}

/// What could not be freed.
#[derive(Default)]
pub(crate) struct Stuck {
    pub(crate) blobs: BTreeSet<u64>,
    pub(crate) gaps: Vec<(u64, u64, u64)>,
}

impl Stuck {
    /// Whether a blob could not be deleted, so that it is unknown what is left of it.
    pub(crate) fn has(&self, blob: u64) -> bool {
        self.blobs.contains(&blob)
    }

    /// Allows another attempt.
    pub(crate) fn try_again(&mut self, gaps: &mut Vec<(u64, u64, u64)>) {
        self.blobs.clear();
        gaps.append(&mut self.gaps);
    }
}

/// What waits for the next checkpoint, as the last step of reclaiming found it.
#[derive(Debug, Default)]
pub(crate) struct DroppedTrees {
    /// Trees that were dropped since the last checkpoint.
    pub(crate) trees: u64,
    /// Bytes of runs that only they have.
    pub(crate) bytes: u64,
    /// Whether the durable state without them has other layers, or could free some.
    pub(crate) matter: bool,
    /// Steps since the last of them was dropped.
    pub(crate) quiet: u32,
    /// Whether the last checkpoint failed.
    pub(crate) failed: bool,
}

impl DroppedTrees {
    /// A checkpoint was made, or failed.
    pub(crate) fn checkpointed(&mut self, made: bool) {
        // What failed returned the dropped trees, perhaps with further ones.
        *self = DroppedTrees { trees: u64::MAX, failed: !made, ..DroppedTrees::default() };
    }
}
