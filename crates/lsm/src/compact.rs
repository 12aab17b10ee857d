//! Merging runs, in bounded steps that somebody drives.
//!
//! What is merged is decided by `plan`, of what `outlook` knows of the durable trees. A step merges
//! a part of it into a blob that is being written; the last one makes the blob durable, exchanges
//! the run for those it was merged from in all trees, and writes a manifest, where that is not more
//! than what was merged since the last; else several merges have one. A crash before that leaves
//! files that the next opening removes. A merge is given up where the disk has no room
//! left for it beside what checkpoints need (`relieve`). What was merged stays as long as a pinned
//! state, a tree that has only some of it, or the durable state holds it (`collect`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use store::{Error, MergeStats, Result, Writer};

use crate::blob::BlobWriter;
use crate::checkpoint::{Durable, Part, end_run, exchange};
use crate::clean::{self, Pointing};
use crate::collect::COLLECTED_AT_ONCE;
use crate::core::{Catalog, Core};
use crate::hollow;
use crate::layer::{Layer, View};
use crate::limit::Limiter;
use crate::outlook::{Look, Outlook};
use crate::passed::{self, Passed};
use crate::plan::{Limits, Merge};
use crate::run::Run;

/// Least bytes of a step, and those for each node that the caller asks for.
const STEP_BYTES_MIN: u64 = 256 << 10;
const NODE_BYTES: u64 = 16 << 10;

/// Runs of a tree from which checkpoints merge, and do not leave it to whoever drives the steps.
const DEPTH_MAX: usize = 24;
/// Ranges of a run that are looked at to find out what it hides.
const RANGES_MAX: usize = 256;
/// How long is waited for another thread's step of a merge that gives room back: most are over
/// long before.
const TURN_WAIT: Duration = Duration::from_millis(100);
/// Nodes of a step that a checkpoint makes.
const STEP_NODES: usize = 256;

/// What is being merged.
pub(crate) struct Merging {
    job: Option<Job>,
    /// The manifest of which it was found that nothing need be merged, or nothing could be.
    rested: u64,
    /// The manifest that was looked at last.
    planned: u64,
    /// The one behind which no manifest could be written of what was merged.
    unsettled: u64,
    /// Most bytes of a merge, less than a blob may have where one became too long: by how much it
    /// would, nobody knows before.
    blob_max: u64,
    /// Value logs that rows are not taken out of (`passed`).
    unreadable_logs: BTreeSet<u64>,
    /// Merges that ended since opening, and those among them that emptied value logs.
    ended: u64,
    cleaned: u64,
    limiter: Limiter,
}

/// A merge that is under way.
struct Job {
    layers: Vec<Arc<Layer>>,
    views: Vec<View>,
    id: u64,
    part: Part,
    blob: BlobWriter,
    /// Bytes of what is read: runs, and rows that are written again.
    bytes: u64,
    /// Whether it is made to empty value logs.
    cleans: bool,
    /// Whether it is made for the room that it gives back.
    returns: bool,
}

impl Merging {
    /// Nothing yet, at most so many bytes a second.
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

    /// Bytes that the merge which is under way has written, and bytes of what it merges.
    fn under_way(&self) -> Option<(u64, u64)> {
        self.job.as_ref().map(|job| (job.blob.bytes().min(job.bytes), job.bytes))
    }
}

impl Core {
    /// What merging does and did. Waits for no step of it.
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
        let limits = limits(self.room_to_merge().ok()?, self.files.blobs.bytes_max());
        let look = self.look(limits).ok()?;
        let mut outlook = self.outlook.lock();
        let picked = outlook.pick(look, limits)?.layers;
        let bytes = outlook.layers(&picked).iter().map(|layer| layer.durable_run().bytes()).sum();
        Some((picked.len() as u64, bytes))
    }

    /// Whether a merge that gives room back is under way, waits for its manifest, or would be begun
    /// now: not one that was given up since the last manifest.
    pub(crate) fn merge_may_return(&self) -> bool {
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
        // What follows may read, and who merges does not wait for it.
        drop(merging);
        let Ok(room) = self.room_to_merge() else { return false };
        let limits = limits(room, blob_max);
        let Ok(look) = self.look(limits) else { return false };
        self.outlook.lock().pick(look, limits).is_some_and(|merge| merge.returns)
    }

    /// What there is to look at for the next merge within limits. Where a tree is deep, what layers
    /// hide is not looked at: that takes time in proportion to the square of the depth, and merging
    /// by tiers is what helps. But on a full disk what gives room back is all that can be merged.
    fn look(&self, limits: Limits) -> Result<Look> {
        let deep = self.depth.load(Ordering::Relaxed) > DEPTH_MAX;
        if deep && self.outlook.lock().pick(Look::Sizes, limits).is_some() {
            return Ok(Look::Sizes);
        }
        self.look_below()?;
        Ok(Look::Hidden)
    }

    /// Looks at what layers hide, in all sections that changed since that was done last. What is
    /// read for it is read with nothing locked.
    fn look_below(&self) -> Result<()> {
        loop {
            let section = self.outlook.lock().unlooked();
            let Some(section) = section else { return Ok(()) };
            let runs: Vec<&Run> = section.iter().map(|layer| layer.durable_run()).collect();
            let below = |at: usize| runs[at + 1..].iter().copied();
            let hides = (0..runs.len()).map(|at| hidden(runs[at], below(at)));
            let hides = hides.collect::<Result<Vec<u64>>>()?;
            self.outlook.lock().looked(&section, &hides);
        }
    }

    /// Gives up the merge that is under way, for the room that it takes, and does not begin it
    /// again before something changed; whether there was one, and nobody is at it. One that is made
    /// for the room that it gives back goes for a checkpoint only.
    pub(crate) fn give_up_merge(&self, for_checkpoint: bool) -> bool {
        let Some(mut merging) = self.merging.try_lock() else { return false };
        let job = merging.job.take_if(|job| for_checkpoint || !job.returns);
        if job.is_some() {
            tracing::info!("a merge is given up for the room that it takes");
            // A checkpoint may have been made for that room just now.
            let number = self.durable.try_lock().map(|state| state.number);
            merging.rested = number.unwrap_or(merging.planned);
            self.merge_stats.lock().under_way = None;
        }
        job.is_some()
    }
}

impl Core {
    /// A step of merging runs; `false` when there is nothing to merge, or another thread is at it,
    /// or so much was merged that it has to wait.
    pub(crate) fn merge_step(&self, nodes: usize) -> Result<bool> {
        let mut merging = match self.merging.try_lock() {
            Some(merging) => merging,
            None if !self.returning.load(Ordering::Relaxed) => return Ok(false),
            // Whoever looks for room is to see that some comes.
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
        let room = self.room_to_merge()?;
        let left = if returns { room.returning } else { room.bytes };
        let Some(mut job) = merging.job.take().filter(|_| left > 0) else {
            // What it wrote is removed.
            tracing::info!("a merge is given up: the medium has no room for it");
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
                // The same would be next after every manifest, and nothing else ever.
                merging.blob_max = merging.blob_max.min(self.files.blobs.bytes_max()) / 4 * 3;
            }
            return Err(error);
        }
        Ok(true)
    }

    /// Begins no merge before something changed. What was merged is durable before there is a rest,
    /// also where the last merge was given up: its room may be what that lacked. Where that fails,
    /// it is not tried again before the next manifest.
    fn rest(&self, merging: &mut Merging) -> Result<bool> {
        self.returning.store(false, Ordering::Relaxed);
        let is_new = merging.rested != merging.planned;
        merging.rested = merging.planned;
        if !is_new && merging.unsettled == merging.planned {
            return Ok(false);
        }
        self.settle_merges().inspect_err(|_| merging.unsettled = merging.planned)
    }

    /// After an error among some layers: where it is damage, what is damaged is passed over from
    /// now on. Else the same would fail again, and nothing is tried before something changed.
    fn failed(&self, merging: &mut Merging, error: &Error, layers: &[Arc<Layer>]) {
        let runs: Vec<&Run> = layers.iter().map(|layer| layer.durable_run()).collect();
        match passed::note(error, &runs, &mut merging.unreadable_logs) {
            Some(Passed::Run(id)) => self.outlook.lock().passed_over(id),
            Some(Passed::Log) => {}
            None => merging.rested = merging.planned,
        }
    }

    /// Merges while some tree is too deep: whoever writes faster than others merge pays for it
    /// here, at the end of a checkpoint, and look-ups stay quick.
    pub(crate) fn keep_merged(&self) {
        while self.depth.load(Ordering::Relaxed) > DEPTH_MAX {
            // Waits for another thread that is at it: whoever makes runs faster than they are
            // merged must not go on doing so.
            let mut merging = self.merging.lock();
            match self.step(&mut merging, STEP_NODES) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    // The checkpoint is made all the same.
                    tracing::warn!(%error, "runs could not be merged");
                    return;
                }
            }
        }
    }

    /// Begins the next merge, if the plan has one.
    fn plan_merge(&self, merging: &mut Merging) -> Result<Option<Job>> {
        let (logs, dead) = {
            let state = self.durable.lock();
            // A checkpoint may make another at any time.
            merging.planned = state.number;
            if state.number == merging.rested {
                return Ok(None);
            }
            (state.logs.clone(), state.dead.clone())
        };
        let room = self.room_to_merge()?;
        let blob_max = self.files.blobs.bytes_max().min(merging.blob_max);
        let look = self.look(limits(room, blob_max)).inspect_err(|error| {
            // What it was at is still to be looked at.
            let section = self.outlook.lock().unlooked().unwrap_or_default();
            self.failed(merging, error, &section);
        })?;
        let (merge, cleans, sparse, layers) = {
            let mut outlook = self.outlook.lock();
            let mut sparse = outlook.sparse(&logs);
            sparse.retain(|log, _| !merging.unreadable_logs.contains(log));
            let merge = outlook.pick(look, limits(room, blob_max));
            let (merge, cleans) = if merge.is_some() {
                (merge, false)
            } else {
                let cleaning = clean(&outlook, &sparse, (within(room.bytes), blob_max));
                let cleans = cleaning.is_some();
                let most = within(room.returning).min(blob_max / 8 * 7);
                (cleaning.or_else(|| hollow(&outlook, &dead, most)), cleans)
            };
            let Some(merge) = merge else { return Ok(None) };
            let layers = outlook.layers(&merge.layers);
            (merge, cleans, sparse, layers)
        };
        let Merge { lowest, returns, .. } = merge;
        let runs: Vec<&Run> = layers.iter().map(|layer| layer.durable_run()).collect();
        let uses = || runs.iter().map(|run| &*run.uses);
        let merged: u64 = runs.iter().map(|run| run.bytes()).sum();
        // A run that is written again for its pointers has no long values.
        let beside = if cleans { 0 } else { merged };
        let most = clean::most_taken(merged, beside, within(room.bytes), blob_max);
        let mut emptied =
            clean::emptied(&logs, &sparse, self.options.small_log_bytes, most, uses());
        emptied.retain(|log| !merging.unreadable_logs.contains(log));
        let anew = uses().flatten().filter(|rows| emptied.contains(&rows.log));
        let bytes = merged + anew.map(|rows| rows.bytes).sum::<u64>().min(most);
        let numbers = self.take_blob_numbers()?;
        let mut blob = BlobWriter::create(&self.files, &self.env.device, &self.options, numbers)?;
        blob.clean(emptied, most);
        let id = self.ids.take();
        blob.begin(id);
        let part = Part { begin: Bound::Unbounded, lowest, bytes: 0 };
        let views = layers.iter().map(|layer| layer.view()).collect();
        Ok(Some(Job { layers, views, id, part, blob, bytes, cleans, returns }))
    }

    /// Ends a merge whose entries are all written. What was merged is made durable first: that may
    /// take long, and whoever needs the durable state meanwhile has it.
    fn end_merge(&self, job: Job) -> Result<()> {
        let Job { layers, views, id, part, mut blob, .. } = job;
        let entry = end_run(&mut blob, &views, part.lowest)?;
        // A checkpoint may have failed meanwhile, or the store been closed.
        self.log().check()?;
        self.is_open()?;
        let written = match entry {
            None => None,
            Some(entry) => Some((blob.finish(self)?, entry)),
        };
        let mut state = self.durable.lock();
        let state = &mut *state;
        let run = written.map(|(finished, entry)| {
            self.keep(state, Writer::Merge, finished);
            self.register(state, entry)
        });
        // The same as before. What was kept, and nobody needs, is given back like all that is.
        self.log().check()?;
        self.is_open()?;
        state.pending_bytes += layers.iter().map(|layer| layer.durable_run().bytes()).sum::<u64>();
        let exchange = exchange(layers, id, run);
        self.exchange(std::slice::from_ref(&exchange));
        state.pending.push(exchange);
        drop(views);
        // A manifest says all of all trees. Where they are many, merges of a few small runs would
        // write little else. What is held until then must not be what the disk lacks.
        let manifests = 2 * self.manifest_bytes.load(Ordering::Relaxed);
        let room = self.room_to_merge()?.bytes;
        if state.pending_bytes >= manifests || room <= state.pending_bytes + manifests {
            self.write_merges(state)?;
        }
        Ok(())
    }

    /// Makes durable what was merged, if anything was since the last manifest; whether it was.
    fn settle_merges(&self) -> Result<bool> {
        let mut state = self.durable.lock();
        if state.pending.is_empty() {
            return Ok(false);
        }
        self.log().check()?;
        self.is_open()?;
        self.write_merges(&mut state)?;
        Ok(true)
    }

    /// Writes a manifest of what was merged, and gives back what that was merged from.
    fn write_merges(&self, state: &mut Durable) -> Result<()> {
        let catalog = Catalog::clone(&self.catalog.lock());
        let lsn = state.lsn;
        self.make_durable(state, catalog, lsn)?;
        self.collect(state, COLLECTED_AT_ONCE);
        Ok(())
    }
}

/// The part of the disk's room that a merge is planned for.
fn within(room: u64) -> u64 {
    room / 8 * 7
}

/// The bounds of the next merge into a blob of so many bytes, where the disk has so much room for
/// it. Blocks are packed again, and an index is made: a part of the room is left for what that may
/// add.
fn limits(room: Limits, blob_max: u64) -> Limits {
    Limits {
        bytes: blob_max.min(within(room.bytes)),
        returning: blob_max.min(within(room.returning)),
    }
}

/// The run to write again where nothing is to be merged, in so much room and into a blob of at most
/// so many bytes. What is below it matters in some trees and not in others: its tombstones stay.
fn clean(
    outlook: &Outlook,
    sparse: &BTreeMap<u64, u64>,
    (room, blob_max): (u64, u64),
) -> Option<Merge> {
    let runs = outlook.pointing(sparse.keys().copied());
    let may = |run: &&Arc<Run>| clean::may_be_written_anew(run.bytes_to_merge(), room, blob_max);
    let pointing = runs.iter().filter(may);
    let pointing = pointing.map(|run| Pointing { id: run.entry.number, uses: &run.uses });
    let id = clean::pick(&pointing.collect::<Vec<_>>(), sparse)?;
    Some(Merge { layers: vec![id], lowest: false, returns: false })
}

/// The run to write again for the room of its blob, of at most so many bytes.
fn hollow(outlook: &Outlook, dead: &BTreeMap<u64, u64>, most: u64) -> Option<Merge> {
    let id = hollow::pick(outlook.runs(), |blob| outlook.hosted(blob), dead, most)?;
    Some(Merge { layers: vec![id], lowest: false, returns: true })
}

/// Bytes of runs that a run above them hides, about: what its ranges delete, and for each
/// tombstone as much as an entry has that is none.
fn hidden<'r>(run: &Run, below: impl Iterator<Item = &'r Run>) -> Result<u64> {
    if run.entry.ranges == 0 && run.entry.tombstones == 0 || run.is_passed_over() {
        return Ok(0);
    }
    let (mut hides, mut bytes, mut entries) = (0, 0, 0);
    let sample = run.entry.ranges.min(RANGES_MAX as u32);
    // Blocks that each has whole, in all runs.
    let mut whole = vec![0_u64; sample as usize];
    // The ranges that are not looked at hide as much as those that are.
    let share = u64::from(run.entry.ranges.div_ceil(RANGES_MAX as u32).max(1));
    for lower in below.filter(|lower| !lower.is_passed_over()) {
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
        hides += lower.bytes() / count.max(1) * blocks * share;
    }
    // A range that has no whole block hides an entry at least, as a tombstone does.
    let short = whole.iter().filter(|blocks| **blocks == 0).count() as u64 * share;
    let each = bytes.checked_div(entries).unwrap_or(0);
    Ok((hides + (run.entry.tombstones + short) * each).min(bytes))
}
