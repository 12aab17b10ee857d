//! One step of reclaiming: picks a detached object that is not held, and removes a bounded part of
//! it. When nothing is detached, it counts copies, and then continues pruning.
//!
//! What was detached is read a batch at a time, in the order in which it was detached, and from the
//! first again. A step costs the same however much waits. A step must know of the whole volume
//! which subvolumes front ends hold, and which trees subvolumes have. That is looked up once a
//! batch, after the batch was read. That suffices: no name points to what waits, so nobody takes
//! hold of it later. A subvolume gets a tree that waits only by pruning, which removes the record
//! of the wait.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use device::Set;
use device::sync::Mutex;
use format::detached_record::DetachedRecord;
use format::key;
use format::subvolume_record::SubvolumeRecord;
use inode::FsError;
use policy::Governed;
use store::KeyRange;
use vfs::FsResult;
use volume::error::{from_store, malformed};
use volume::subvol::{VOLUME, node_of};

use super::count::Counting;
use super::directory::Emptying;
use super::leaving::Leaving;
use super::prune::Pruner;
use super::release::Release;
use super::stuck::Failures;
use super::subvolume;
use crate::rest::REST_AFTER_FAILURE;
use crate::search_bases;

/// The same if the disk was full: other work may free space at any time.
const REST_WITHOUT_SPACE: Duration = Duration::from_secs(1);

/// How many records of what was detached are read at once.
const BATCH: usize = 256;

/// What reclaiming keeps between steps; nothing of it need survive a crash.
pub struct Reclaim {
    work: Mutex<Work>,
    removed: AtomicU64,
    pruning: AtomicBool,
    /// Subvolumes that were detached with the tree that they were mounted in: that tree, by
    /// their numbers among what is detached.
    origins: Mutex<BTreeMap<u64, u64>>,
    /// What users wait for that failed.
    pub failures: Failures,
}

#[derive(Default)]
struct Work {
    /// The detached directory that is being emptied, by its number.
    emptying: Option<(u64, Emptying)>,
    pruner: Pruner,
    /// What is looked at next of what was detached.
    waits: Waits,
    counting: Counting,
    /// What could not be removed, and until when it rests, so that it does not block the rest.
    failed: BTreeMap<u64, Duration>,
    /// Copies that could not be given what they inherit, and until when they rest.
    unfit: BTreeMap<u64, Duration>,
    leaving: Leaving,
    release: Release,
}

/// How far the removal of a tree is.
#[derive(Debug, Clone, Default)]
pub struct Waiting {
    /// How many of it and the subvolumes that were mounted in it wait to be reclaimed.
    pub trees: u64,
    /// How many of them an open file or a working directory holds.
    pub held: u64,
    /// How many of them cannot be reclaimed.
    pub stuck: u64,
}

impl Default for Reclaim {
    fn default() -> Reclaim {
        Reclaim::new()
    }
}

impl Reclaim {
    /// Nothing is in progress.
    pub fn new() -> Reclaim {
        Reclaim {
            work: Mutex::new(Work::default()),
            removed: AtomicU64::new(0),
            pruning: AtomicBool::new(false),
            origins: Mutex::default(),
            failures: Failures::default(),
        }
    }

    /// Names, subvolumes and trees that were removed since the volume was opened.
    pub fn removed(&self) -> u64 {
        self.removed.load(Ordering::Relaxed)
    }

    /// Whether a subvolume is being pruned.
    pub(crate) fn is_pruning(&self) -> bool {
        self.pruning.load(Ordering::Relaxed)
    }

    /// Notes that something was detached because its parent mount is being removed.
    fn came_of(&self, detached: u64, with: u64) {
        let mut origins = self.origins.lock();
        let origin = origins.get(&with).copied().unwrap_or(with);
        origins.insert(detached, origin);
    }
}

/// Removes a bounded part of what was detached; returns how much. Returns at once when another
/// thread is at it.
pub fn reclaim_step(fs: &Governed, reclaim: &Reclaim, budget: usize) -> FsResult<u64> {
    let Some(mut work) = reclaim.work.try_lock() else { return Ok(0) };
    let done = step((fs, reclaim), &mut work, budget)?;
    if done > 0 {
        return Ok(done);
    }
    let done = inherit(fs, &mut work)?;
    if done > 0 {
        return Ok(done);
    }
    let done = super::count::step(fs, &mut work.counting, budget)?;
    if done > 0 {
        return Ok(done);
    }
    let state = &mut *work;
    let done = super::prune::step(fs, (&mut state.pruner, &mut state.leaving), budget);
    reclaim.pruning.store(work.pruner.is_busy(), Ordering::Relaxed);
    done
}

/// Gives copies a bounded part of what they inherit.
fn inherit(fs: &Governed, work: &mut Work) -> FsResult<u64> {
    let now = fs.env.clock.monotonic();
    work.unfit.retain(|_, until| *until > now);
    let unfit = &work.unfit;
    fs.inherit_step(&|heir| unfit.contains_key(&heir)).map_err(|(heir, error)| {
        let full = matches!(error, FsError::NoSpace);
        let rest = if full { REST_WITHOUT_SPACE } else { REST_AFTER_FAILURE };
        work.unfit.insert(heir, now + rest);
        error
    })
}

/// Removes a bounded part of what was detached, after waiting for a thread that is at it; includes
/// what rests because there was no space. Returns how much.
pub fn detached_step(fs: &Governed, reclaim: &Reclaim, budget: usize) -> FsResult<u64> {
    let mut work = reclaim.work.lock();
    let soon = fs.env.clock.monotonic() + REST_WITHOUT_SPACE;
    work.failed.retain(|_, until| *until > soon);
    step((fs, reclaim), &mut work, budget)
}

fn step((fs, reclaim): (&Governed, &Reclaim), work: &mut Work, budget: usize) -> FsResult<u64> {
    let Some((sequence, record)) = next(fs, reclaim, work)? else { return Ok(0) };
    let done = remove((fs, reclaim), work, (sequence, record), budget).inspect_err(|error| {
        let full = matches!(error, FsError::NoSpace);
        let rest = if full { REST_WITHOUT_SPACE } else { REST_AFTER_FAILURE };
        let now = fs.env.clock.monotonic();
        work.failed.insert(sequence, now + rest);
        reclaim.failures.note(sequence, error, now);
    })?;
    reclaim.failures.progressed(sequence);
    reclaim.removed.fetch_add(done, Ordering::Relaxed);
    Ok(done)
}

/// A detached object that is not held. It is the one that the last step had a part of, or one
/// behind it, and from the first again.
fn next(
    fs: &Governed,
    reclaim: &Reclaim,
    work: &mut Work,
) -> FsResult<Option<(u64, DetachedRecord)>> {
    if fs.queue.detached() == 0 {
        work.waits.clear();
        reclaim.failures.retain(|_| false);
        return Ok(None);
    }
    let mut held = Vec::new();
    let now = fs.env.clock.monotonic();
    work.failed.retain(|_, until| *until > now);
    let mut round = Round::default();
    while let Some((sequence, record)) = work.waits.next(fs, &mut round)? {
        if work.failed.contains_key(&sequence) {
            continue;
        }
        let free = match record {
            // A flush of many inodes is under way, or the next opening removes them.
            DetachedRecord::Inodes { .. } => continue,
            DetachedRecord::Tree { tree } => {
                !work.pruner.uses(tree) && work.leaving.is_left(tree, now)
            }
            record => !work.waits.holders.hold(fs, &record),
        };
        if free {
            work.waits.put_back(sequence, record);
            return Ok(Some((sequence, record)));
        }
        held.push(record);
    }
    reclaim.failures.retain(|sequence| is_waiting(fs, sequence).unwrap_or(true));
    // Nothing can be removed: what is held may be held only by the caches of front ends.
    work.release.round(fs, &held)?;
    Ok(None)
}

/// What is looked at next.
#[derive(Default)]
struct Waits {
    batch: VecDeque<(u64, DetachedRecord)>,
    /// The number from which the next batch is read.
    from: u64,
    holders: Holders,
    /// The trees that subvolumes have.
    trees: Option<Set<u64>>,
}

/// One look at everything that waits.
#[derive(Default)]
struct Round {
    first: Option<u64>,
    /// Whether the first number was passed again.
    is_second_half: bool,
}

impl Waits {
    /// Forgets what was read.
    fn clear(&mut self) {
        *self = Waits::default();
    }

    /// The next of a round that still waits; `None`: everything was looked at.
    fn next(
        &mut self,
        fs: &Governed,
        round: &mut Round,
    ) -> FsResult<Option<(u64, DetachedRecord)>> {
        loop {
            let Some((sequence, record)) = self.batch.pop_front() else {
                if !self.read(fs, round)? {
                    return Ok(None);
                }
                continue;
            };
            if round.is_second_half && round.first.is_some_and(|first| sequence >= first) {
                self.put_back(sequence, record);
                return Ok(None);
            }
            round.first.get_or_insert(sequence);
            if is_waiting(fs, sequence)? {
                return Ok(Some((sequence, record)));
            }
        }
    }

    /// Has the next round begin with this one.
    fn put_back(&mut self, sequence: u64, record: DetachedRecord) {
        self.batch.push_front((sequence, record));
    }

    /// Reads a batch; `false` if the round has everything.
    fn read(&mut self, fs: &Governed, round: &mut Round) -> FsResult<bool> {
        let batch = waiting(fs, self.from, BATCH)?;
        match batch.last() {
            Some((last, _)) => self.from = last.saturating_add(1),
            None if round.is_second_half => return Ok(false),
            None => (self.from, round.is_second_half) = (0, true),
        }
        self.batch = batch.into();
        (self.holders, self.trees) = (Holders::default(), None);
        Ok(true)
    }

    /// Whether a tree is a subvolume's, or that of a base of the index. What does not decode may
    /// name it, and is an error.
    fn is_named(&mut self, fs: &Governed, tree: u64) -> FsResult<bool> {
        let trees = match &mut self.trees {
            Some(trees) => trees,
            unknown => unknown.insert(trees_of_subvolumes(fs)?),
        };
        let named = tree < key::FIRST_TREE || trees.contains(&tree);
        Ok(named || search_bases::get(fs, tree)?.is_some())
    }
}

fn trees_of_subvolumes(fs: &Governed) -> FsResult<Set<u64>> {
    let mut trees = Set::default();
    fs.visit_volume(&key::SUBVOLUMES_PREFIX, &mut |_, value| {
        let record = SubvolumeRecord::decode(value).map_err(|error| malformed(VOLUME, &error))?;
        trees.insert(record.tree);
        Ok(())
    })?;
    Ok(trees)
}

/// What waits from a number on, the oldest first.
fn waiting(fs: &Governed, from: u64, most: usize) -> FsResult<Vec<(u64, DetachedRecord)>> {
    let to = store::prefix_end(&key::DETACHED_PREFIX);
    let range = KeyRange { from: key::detached(from).to_vec(), to };
    let mut waiting = Vec::new();
    let mut cursor = fs.store.scan(VOLUME, range).map_err(from_store)?;
    while waiting.len() < most {
        let Some(item) = cursor.next().map_err(from_store)? else { break };
        let malformed = |error| malformed(VOLUME, &error);
        let sequence = key::parse_number(item.key).map_err(malformed)?;
        waiting.push((sequence, DetachedRecord::decode(item.value).map_err(malformed)?));
    }
    Ok(waiting)
}

/// Whether something still waits under a number.
fn is_waiting(fs: &Governed, sequence: u64) -> FsResult<bool> {
    fs.store.get_with(VOLUME, &key::detached(sequence), &mut |_| ()).map_err(from_store)
}

/// Which trees front ends hold; the subvolumes are looked for once.
#[derive(Default)]
struct Holders {
    slots: Option<Set<u64>>,
}

impl Holders {
    /// Whether a tree must stay because an inode of it is held.
    fn hold(&mut self, fs: &Governed, record: &DetachedRecord) -> bool {
        match *record {
            DetachedRecord::Directory { subvolume, directory, kept_while_held } => {
                kept_while_held && fs.nodes.is_held(node_of(subvolume, directory))
            }
            DetachedRecord::Subvolume { subvolume } => {
                let held = self.slots.get_or_insert_with(|| fs.nodes.held_slots());
                held.contains(&key::slot(subvolume))
            }
            DetachedRecord::Tree { .. } | DetachedRecord::Inodes { .. } => false,
        }
    }
}

impl Reclaim {
    /// How far the removal of a tree is, by the number that the removal returned.
    pub(crate) fn waits(&self, fs: &Governed, detached: u64) -> FsResult<Waiting> {
        let mut found = Waiting::default();
        let mut holders = Holders::default();
        // A subvolume that was mounted in it is noted before the tree itself is gone.
        let all = waiting(fs, 0, usize::MAX)?;
        let origins = self.origins.lock().clone();
        for (sequence, record) in all {
            if sequence == detached || origins.get(&sequence) == Some(&detached) {
                found.trees += 1;
                found.held += u64::from(holders.hold(fs, &record));
                found.stuck += u64::from(self.failures.is_stuck(sequence));
            }
        }
        Ok(found)
    }
}

fn remove(
    (fs, reclaim): (&Governed, &Reclaim),
    work: &mut Work,
    (sequence, record): (u64, DetachedRecord),
    budget: usize,
) -> FsResult<u64> {
    let (done, finished) = match record {
        DetachedRecord::Directory { subvolume, directory, .. } => {
            let mut emptying = match work.emptying.take() {
                Some((number, emptying)) if number == sequence => emptying,
                _ => Emptying::new(sequence, subvolume, directory),
            };
            let (done, finished) =
                emptying.step(fs, &|detached| reclaim.came_of(detached, sequence), budget)?;
            if !finished {
                work.emptying = Some((sequence, emptying));
            }
            (done, finished)
        }
        DetachedRecord::Subvolume { subvolume } => {
            let (done, finished, came) = subvolume::remove(fs, sequence, subvolume)?;
            for detached in came {
                reclaim.came_of(detached, sequence);
            }
            (done, finished)
        }
        DetachedRecord::Inodes { .. } => (0, false),
        DetachedRecord::Tree { tree } => {
            work.leaving.forget(tree);
            let named = work.waits.is_named(fs, tree)?;
            (subvolume::remove_tree(fs, sequence, (tree, named))?, true)
        }
    };
    if finished {
        fs.queue.add_detached(-1);
        reclaim.origins.lock().remove(&sequence);
    }
    Ok(done.max(1))
}
