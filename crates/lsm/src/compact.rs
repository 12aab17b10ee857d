//! Compaction: merges runs, in bounded steps that a caller drives.
//!
//! `plan` decides what is merged, from what `candidates` knows of the durable trees. Each step
//! merges a part into a blob that is being written. The last step makes the blob durable and
//! exchanges the new run for its inputs in all trees. It then writes a manifest, if the manifest is
//! no larger than what was merged since the last one; otherwise several merges share a manifest. A
//! crash before that leaves files that the next opening removes. A merge is aborted if the disk has
//! no space left for it beside what checkpoints need (`relieve`). The inputs stay as long as a
//! pinned state, a tree that has only some of them, or the durable state holds them (`collect`).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use store::{Error, MergeStats, Result, Writer};

use crate::blob::BlobWriter;
use crate::candidates::{CompactionCandidates, Look};
use crate::checkpoint::exchange;
use crate::clean::{self, Pointing};
use crate::collect::COLLECTED_AT_ONCE;
use crate::core::Core;
use crate::durable::Durable;
use crate::layer::{Catalog, Layer};
use crate::merging::{Job, MergePart, Merging, end_run};
use crate::plan::{Limits, Merge};
use crate::quarantine::{self, Quarantined};
use crate::run::Run;
use crate::sparse_blobs;

/// Least bytes of a step, and those for each node that the caller asks for.
const STEP_BYTES_MIN: u64 = 256 << 10;
const NODE_BYTES: u64 = 16 << 10;

/// Runs of a tree from which checkpoints merge, instead of leaving it to the caller that drives
/// steps.
const DEPTH_MAX: usize = 24;
/// Ranges of a run that are inspected to estimate what it hides.
const RANGES_MAX: usize = 256;
/// How long a thread waits for another thread's step of a merge that frees space: most finish long
/// before.
const TURN_WAIT: Duration = Duration::from_millis(100);
/// Nodes of a step that a checkpoint makes.
const STEP_NODES: usize = 256;

impl Core {
    /// What compaction does and did. Does not wait for a step.
    pub(crate) fn merge_stats(&self) -> MergeStats {
        let stats = *self.merge_stats.lock();
        MergeStats {
            next: if stats.under_way.is_some() { None } else { self.next_merge() },
            logs: store::ValueLogStats {
                written_bytes: self.log_bytes_written.load(Ordering::Relaxed),
                ..*self.log_stats.lock()
            },
            depth: self.depth.load(Ordering::Relaxed) as u64,
            rate: self.options.merge_bytes_per_second,
            ..stats
        }
    }

    /// How many runs the plan would merge now, and their bytes.
    fn next_merge(&self) -> Option<(u64, u64)> {
        let limits = limits(self.space_to_merge().ok()?, self.files.blobs.bytes_max());
        let look = self.look(limits).ok()?;
        let mut candidates = self.candidates.lock();
        let picked = candidates.pick(look, limits)?.layers;
        let bytes =
            candidates.layers(&picked).iter().map(|layer| layer.durable_run().bytes()).sum();
        Some((picked.len() as u64, bytes))
    }

    /// Whether a merge that frees space is in progress, waits for its manifest, or would begin now.
    /// Ignores a merge that was aborted since the last manifest.
    pub(crate) fn compaction_may_free_space(&self) -> bool {
        let Some(merging) = self.merging.try_lock() else { return true };
        if let Some(job) = &merging.job {
            return job.returns || job.cleans;
        }
        let state = self.durable.try_lock();
        let Some((number, pending)) = state.map(|state| (state.number, !state.pending.is_empty()))
        else {
            return true;
        };
        if pending || merging.rested == number {
            return pending;
        }
        let blob_max = self.files.blobs.bytes_max().min(merging.blob_max);
        // The code below may read, and compaction does not wait for it.
        drop(merging);
        let Ok(space) = self.space_to_merge() else { return false };
        let limits = limits(space, blob_max);
        let Ok(look) = self.look(limits) else { return false };
        self.candidates.lock().pick(look, limits).is_some_and(|merge| merge.returns)
    }

    /// The candidates for the next merge within limits. In a deep tree the hidden bytes of layers
    /// are ignored. Computing them takes time in proportion to the square of the depth, and there
    /// merging by tiers is what helps. But on a full disk only merges that free space are possible.
    fn look(&self, limits: Limits) -> Result<Look> {
        let deep = self.depth.load(Ordering::Relaxed) > DEPTH_MAX;
        if deep && self.candidates.lock().pick(Look::Sizes, limits).is_some() {
            return Ok(Look::Sizes);
        }
        self.look_below()?;
        Ok(Look::Hidden)
    }

    /// Computes what layers hide, in all sections that changed since the last time. Reads with
    /// nothing locked.
    fn look_below(&self) -> Result<()> {
        loop {
            let section = self.candidates.lock().unlooked();
            let Some(section) = section else { return Ok(()) };
            let runs: Vec<&Run> = section.iter().map(|layer| layer.durable_run()).collect();
            let below = |at: usize| runs[at + 1..].iter().copied();
            let hides = (0..runs.len()).map(|at| hidden(runs[at], below(at)));
            let hides = hides.collect::<Result<Vec<u64>>>()?;
            self.candidates.lock().looked(&section, &hides);
        }
    }

    /// Aborts the merge in progress, to free its space, and does not restart it before something
    /// changed. Returns whether there was one and no thread was working on it. A merge that frees
    /// space is aborted only for a checkpoint.
    pub(crate) fn give_up_merge(&self, for_checkpoint: bool) -> bool {
        let Some(mut merging) = self.merging.try_lock() else { return false };
        let job = merging.job.take_if(|job| for_checkpoint || !job.returns);
        if job.is_some() {
            tracing::info!("merge cancelled: its space is needed");
            // A checkpoint may have been made for that space just now.
            let number = self.durable.try_lock().map(|state| state.number);
            merging.rested = number.unwrap_or(merging.planned);
            self.merge_stats.lock().under_way = None;
        }
        job.is_some()
    }
}

impl Core {
    /// One step of merging runs. Returns `false` if there is nothing to merge, if another thread is
    /// merging, or if merging must wait because of the rate limit.
    pub(crate) fn merge_step(&self, nodes: usize) -> Result<bool> {
        let mut merging = match self.merging.try_lock() {
            Some(merging) => merging,
            None if !self.returning.load(Ordering::Relaxed) => return Ok(false),
            // A thread that looks for space must see that space is being freed.
            None => match self.merging.try_lock_for(TURN_WAIT) {
                Some(merging) => merging,
                None => return Ok(true),
            },
        };
        if !merging.limiter.may(self.env.clock.monotonic()) {
            return Ok(false);
        }
        self.step(&mut merging, nodes)
    }

    fn step(&self, merging: &mut Merging, nodes: usize) -> Result<bool> {
        let before = self.journal.merged_bytes() + merging.under_way().map_or(0, |(at, _)| at);
        let done = self.step_on(merging, nodes);
        let after = self.journal.merged_bytes() + merging.under_way().map_or(0, |(at, _)| at);
        merging.limiter.took(after.saturating_sub(before));
        let stats = MergeStats {
            ended: merging.ended,
            cleaned: merging.cleaned,
            under_way: merging.under_way(),
            ..MergeStats::default()
        };
        *self.merge_stats.lock() = stats;
        done
    }

    fn step_on(&self, merging: &mut Merging, nodes: usize) -> Result<bool> {
        // A merge ends with a manifest, and none may be written any more.
        self.log().check()?;
        if merging.job.is_none() {
            merging.job = self.plan_merge(merging)?;
        }
        let may_return = merging.job.as_ref().is_some_and(|job| job.returns || job.cleans);
        self.returning.store(may_return, Ordering::Relaxed);
        let Some(returns) = merging.job.as_ref().map(|job| job.returns) else {
            return self.rest(merging);
        };
        let space = self.space_to_merge()?;
        let left = if returns { space.returning } else { space.bytes };
        let Some(mut job) = merging.job.take().filter(|_| left > 0) else {
            // What it wrote is removed.
            tracing::info!("merge cancelled: no space left on the disk");
            return self.rest(merging);
        };
        let layers = job.layers.clone();
        job.part.bytes = (nodes as u64).saturating_mul(NODE_BYTES).max(STEP_BYTES_MIN);
        let done = job.part.write(&mut job.blob, &job.views).and_then(|more| {
            if job.blob.longest_bytes() > self.files.blobs.bytes_max() {
                return Err(Error::RunTooLong);
            }
            if more {
                merging.job = Some(job);
                return Ok(());
            }
            let cleans = u64::from(job.cleans);
            self.end_merge(job)?;
            merging.ended += 1;
            merging.cleaned += cleans;
            Ok(())
        });
        if let Err(error) = done {
            self.failed(merging, &error, &layers);
            if matches!(error, Error::RunTooLong) {
                // Otherwise the same merge would be next after every manifest, and nothing else
                // ever.
                merging.blob_max = merging.blob_max.min(self.files.blobs.bytes_max()) / 4 * 3;
            }
            return Err(error);
        }
        Ok(true)
    }

    /// Begins no merge before something changed. Makes merged runs durable before compaction goes
    /// idle, also if the last merge was aborted: their space may be what it lacked. If that fails,
    /// it is not retried before the next manifest.
    fn rest(&self, merging: &mut Merging) -> Result<bool> {
        self.returning.store(false, Ordering::Relaxed);
        let is_new = merging.rested != merging.planned;
        merging.rested = merging.planned;
        if !is_new && merging.unsettled == merging.planned {
            return Ok(false);
        }
        self.settle_merges().inspect_err(|_| merging.unsettled = merging.planned)
    }

    /// Handles an error among some layers. If it is damage, what is damaged is skipped from now
    /// on. Otherwise the same merge would fail again, so nothing is tried before something changed.
    fn failed(&self, merging: &mut Merging, error: &Error, layers: &[Arc<Layer>]) {
        let runs: Vec<&Run> = layers.iter().map(|layer| layer.durable_run()).collect();
        match quarantine::note(error, &runs, &mut merging.unreadable_logs) {
            Some(Quarantined::Run(id)) => self.candidates.lock().skipped(id),
            Some(Quarantined::Log) => {}
            None => merging.rested = merging.planned,
        }
    }

    /// Merges while some tree is too deep. A thread that writes faster than others merge pays for
    /// it here, at the end of a checkpoint, and look-ups stay quick.
    pub(crate) fn keep_merged(&self) {
        while self.depth.load(Ordering::Relaxed) > DEPTH_MAX {
            // Waits for another thread that is merging: a thread that makes runs faster than they
            // are merged must not continue doing so.
            let mut merging = self.merging.lock();
            match self.step(&mut merging, STEP_NODES) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    // The checkpoint succeeds all the same.
                    tracing::warn!(%error, "cannot merge runs");
                    return;
                }
            }
        }
    }

    /// Begins the next merge, if the plan has one.
    fn plan_merge(&self, merging: &mut Merging) -> Result<Option<Job>> {
        let (logs, dead) = {
            let state = self.durable.lock();
            // A checkpoint may create another at any time.
            merging.planned = state.number;
            if state.number == merging.rested {
                return Ok(None);
            }
            (state.logs.clone(), state.dead.clone())
        };
        let space = self.space_to_merge()?;
        let blob_max = self.files.blobs.bytes_max().min(merging.blob_max);
        let look = self.look(limits(space, blob_max)).inspect_err(|error| {
            // The sections that it worked on must be inspected again.
            let section = self.candidates.lock().unlooked().unwrap_or_default();
            self.failed(merging, error, &section);
        })?;
        let (merge, cleans, sparse, layers) = {
            let mut candidates = self.candidates.lock();
            let mut sparse = candidates.sparse(&logs);
            sparse.retain(|log, _| !merging.unreadable_logs.contains(log));
            let merge = candidates.pick(look, limits(space, blob_max));
            let (merge, cleans) = if merge.is_some() {
                (merge, false)
            } else {
                let cleaning = clean(&candidates, &sparse, (within(space.bytes), blob_max));
                let cleans = cleaning.is_some();
                let most = within(space.returning).min(blob_max / 8 * 7);
                (cleaning.or_else(|| for_its_blob(&candidates, &dead, most)), cleans)
            };
            let Some(merge) = merge else { return Ok(None) };
            let layers = candidates.layers(&merge.layers);
            (merge, cleans, sparse, layers)
        };
        let Merge { lowest, returns, .. } = merge;
        let runs: Vec<&Run> = layers.iter().map(|layer| layer.durable_run()).collect();
        let uses = || runs.iter().map(|run| &*run.uses);
        let merged: u64 = runs.iter().map(|run| run.bytes()).sum();
        // A run that is rewritten for its pointers has no long values.
        let beside = if cleans { 0 } else { merged };
        let most = clean::most_taken(merged, beside, within(space.bytes), blob_max);
        let mut emptied =
            clean::emptied(&logs, &sparse, self.options.small_log_bytes, most, uses());
        emptied.retain(|log| !merging.unreadable_logs.contains(log));
        let rewritten = uses().flatten().filter(|rows| emptied.contains(&rows.log));
        let bytes = merged + rewritten.map(|rows| rows.bytes).sum::<u64>().min(most);
        let numbers = self.take_blob_numbers()?;
        let mut blob = BlobWriter::create(&self.files, &self.env.device, &self.options, numbers)?;
        blob.clean(emptied, most);
        let id = self.ids.take();
        blob.begin(id);
        let part = MergePart { begin: Bound::Unbounded, lowest, bytes: 0 };
        let views = layers.iter().map(|layer| layer.view()).collect();
        Ok(Some(Job { layers, views, id, part, blob, bytes, cleans, returns }))
    }

    /// Ends a merge whose entries are all written. It first makes the merged run durable: that may
    /// take long, and meanwhile other threads can lock the durable state.
    fn end_merge(&self, job: Job) -> Result<()> {
        let Job { layers, views, id, part, mut blob, .. } = job;
        let entry = end_run(&mut blob, &views, part.lowest)?;
        // Meanwhile a checkpoint may have failed, or the store may have been closed.
        self.log().check()?;
        self.journal.check_open()?;
        let written = match entry {
            None => None,
            Some(entry) => Some((blob.finish(&self.journal)?, entry)),
        };
        let mut state = self.durable.lock();
        let state = &mut *state;
        let run = written.map(|(finished, entry)| {
            self.keep(state, Writer::Merge, finished);
            self.register(state, entry)
        });
        // Same content as before. What was kept and is not needed is reclaimed like everything
        // else.
        self.log().check()?;
        self.journal.check_open()?;
        state.pending_bytes += layers.iter().map(|layer| layer.durable_run().bytes()).sum::<u64>();
        let exchange = exchange(layers, id, run);
        self.exchange(std::slice::from_ref(&exchange));
        state.pending.push(exchange);
        drop(views);
        // A manifest lists everything of all trees. If there are many trees, merges of a few small
        // runs would write little but manifests. What is held until then must not be what the disk
        // lacks.
        let manifests = 2 * self.manifest_bytes.load(Ordering::Relaxed);
        let space = self.space_to_merge()?.bytes;
        if state.pending_bytes >= manifests || space <= state.pending_bytes + manifests {
            self.write_merges(state)?;
        }
        Ok(())
    }

    /// Makes merged runs durable, if there are any since the last manifest; returns whether there
    /// were.
    fn settle_merges(&self) -> Result<bool> {
        let mut state = self.durable.lock();
        if state.pending.is_empty() {
            return Ok(false);
        }
        self.log().check()?;
        self.journal.check_open()?;
        self.write_merges(&mut state)?;
        Ok(true)
    }

    /// Writes a manifest of the merged runs, and reclaims their inputs.
    fn write_merges(&self, state: &mut Durable) -> Result<()> {
        let catalog = Catalog::clone(&self.catalog.lock());
        let lsn = state.lsn;
        self.make_durable(state, catalog, lsn)?;
        self.collect(state, COLLECTED_AT_ONCE);
        Ok(())
    }
}

/// The share of the disk's space that a merge is planned for.
fn within(space: u64) -> u64 {
    space / 8 * 7
}

/// The bounds of the next merge into a blob of this many bytes, if the disk has this much space for
/// it. The merge packs blocks again and builds an index: a part of the space is left for what that
/// may add.
fn limits(space: Limits, blob_max: u64) -> Limits {
    Limits {
        bytes: blob_max.min(within(space.bytes)),
        returning: blob_max.min(within(space.returning)),
    }
}

/// The run to rewrite if nothing is to be merged, in this much space and into a blob of at most
/// this many bytes. What is below the run differs between trees, so its tombstones stay.
fn clean(
    candidates: &CompactionCandidates,
    sparse: &BTreeMap<u64, u64>,
    (space, blob_max): (u64, u64),
) -> Option<Merge> {
    let runs = candidates.pointing(sparse.keys().copied());
    let may = |run: &&Arc<Run>| clean::may_be_rewritten(run.bytes_to_merge(), space, blob_max);
    let pointing = runs.iter().filter(may);
    let pointing = pointing.map(|run| Pointing { id: run.entry.number, uses: &run.uses });
    let id = clean::pick(&pointing.collect::<Vec<_>>(), sparse)?;
    Some(Merge { layers: vec![id], lowest: false, returns: false })
}

/// The run to rewrite for the space of its blob, of at most this many bytes.
fn for_its_blob(
    candidates: &CompactionCandidates,
    dead: &BTreeMap<u64, u64>,
    most: u64,
) -> Option<Merge> {
    let id = sparse_blobs::pick(candidates.runs(), |blob| candidates.hosted(blob), dead, most)?;
    Some(Merge { layers: vec![id], lowest: false, returns: true })
}

/// An estimate of the bytes of runs that a run above them hides. That is what its ranges delete,
/// and for each tombstone the size of an average entry that is not a tombstone.
fn hidden<'r>(run: &Run, below: impl Iterator<Item = &'r Run>) -> Result<u64> {
    if run.entry.ranges == 0 && run.entry.tombstones == 0 || run.is_skipped() {
        return Ok(0);
    }
    let (mut hides, mut bytes, mut entries) = (0, 0, 0);
    let sample = run.entry.ranges.min(RANGES_MAX as u32);
    // Blocks that each range covers wholly, in all runs.
    let mut whole = vec![0_u64; sample as usize];
    // The ranges that are not inspected hide as much as those that are.
    let share = u64::from(run.entry.ranges.div_ceil(RANGES_MAX as u32).max(1));
    for lower in below.filter(|lower| !lower.is_skipped()) {
        bytes += lower.bytes();
        entries += lower.entry.entries.saturating_sub(lower.entry.tombstones);
        if run.entry.ranges == 0 || lower.entry.entries == 0 {
            continue;
        }
        let (ranges, index) = (run.ranges()?, &lower.index()?.blocks);
        let place = |key: &[u8]| index.last_not_above(key).map_or(0, |block| block as u64 + 1);
        let count = index.blocks().len() as u64;
        let mut blocks = 0;
        for ((from, to), whole) in ranges.iter().zip(&mut whole) {
            let has = to.map_or(count, place).saturating_sub(place(from));
            (blocks, *whole) = (blocks + has, *whole + has);
        }
        let hidden = (lower.bytes() / count.max(1)).saturating_mul(blocks).saturating_mul(share);
        hides = hidden.saturating_add(hides);
    }
    // A range that covers no whole block hides at least one entry, as a tombstone does.
    let short = whole.iter().filter(|blocks| **blocks == 0).count() as u64 * share;
    let each = bytes.checked_div(entries).unwrap_or(0);
    let hidden = (run.entry.tombstones + short).saturating_mul(each);
    Ok(hides.saturating_add(hidden).min(bytes))
}
