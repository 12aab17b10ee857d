//! One step of reclaiming: picks a detached object that is not held, and removes a bounded part of
//! it. When nothing is detached, it counts copies, and then continues pruning.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use device::Set;
use device::sync::Mutex;
use format::detached_record::DetachedRecord;
use format::key;
use inode::FsError;

use super::count::Count;
use super::directory::Emptying;
use super::prune::Pruner;
use super::release::Release;
use super::stuck::Failures;
use super::subvolume;
use crate::error::malformed;
use crate::subvol::VOLUME;
use crate::{Fs, FsResult};

/// How long an object rests that could not be removed.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(60);
/// The same if the disk was full: other work may free space at any time.
const REST_WITHOUT_ROOM: Duration = Duration::from_secs(1);

/// How long a replaced tree stays for readers that were about to read it.
const GRACE: Duration = Duration::from_secs(2);

/// What reclaiming keeps between steps; nothing of it need survive a crash.
pub(crate) struct Reclaim {
    work: Mutex<Work>,
    removed: AtomicU64,
    pruning: AtomicBool,
    /// Of subvolumes that were detached with the tree that they were mounted in: that tree. By
    /// their numbers among what is detached.
    origins: Mutex<BTreeMap<u64, u64>>,
    /// Whether there may be copies whose contents were not counted.
    pub(super) uncounted: AtomicBool,
    pub(crate) failures: Failures,
}

#[derive(Default)]
pub(super) struct Work {
    /// The detached directory that is being emptied, by its number.
    emptying: Option<(u64, Emptying)>,
    pub(super) pruner: Pruner,
    /// The copy that is being counted.
    pub(super) count: Option<Count>,
    /// What could not be removed, and until when it rests, so that it does not block the rest.
    failed: BTreeMap<u64, Duration>,
    /// Copies that could not be given what they inherit, and until when they rest.
    unfit: BTreeMap<u64, Duration>,
    /// Trees that readers may still be in, and until when.
    leaving: BTreeMap<u64, Duration>,
    release: Release,
}

/// How far the removal of a tree is.
#[derive(Debug, Clone, Default)]
pub struct Waiting {
    /// Of it and the subvolumes that were mounted in it, how many wait to be reclaimed.
    pub trees: u64,
    /// How many of them an open file or a working directory holds.
    pub held: u64,
    /// How many of them cannot be reclaimed.
    pub stuck: u64,
}

impl Reclaim {
    /// Nothing is in progress.
    pub(crate) fn new() -> Reclaim {
        Reclaim {
            work: Mutex::new(Work::default()),
            removed: AtomicU64::new(0),
            pruning: AtomicBool::new(false),
            origins: Mutex::default(),
            uncounted: AtomicBool::new(true),
            failures: Failures::default(),
        }
    }

    /// Names, subvolumes and trees that were removed since the volume was opened.
    pub(crate) fn removed(&self) -> u64 {
        self.removed.load(Ordering::Relaxed)
    }

    /// Whether a subvolume is being pruned.
    pub(crate) fn is_pruning(&self) -> bool {
        self.pruning.load(Ordering::Relaxed)
    }

    /// Notes that something was detached because its parent mount is being removed.
    pub(super) fn came_of(&self, detached: u64, with: u64) {
        let mut origins = self.origins.lock();
        let origin = origins.get(&with).copied().unwrap_or(with);
        origins.insert(detached, origin);
    }

    /// Notes that a copy was made whose contents are not counted.
    pub(crate) fn note_uncounted(&self) {
        self.uncounted.store(true, Ordering::Release);
    }
}

/// Keeps a tree for readers for a while.
pub(super) fn leave(work: &mut Work, fs: &Fs, tree: u64) {
    work.leaving.insert(tree, fs.env.clock.monotonic() + GRACE);
}

/// Removes a bounded part of what was detached; returns how much. Returns at once when another
/// thread is at it.
pub(crate) fn reclaim_step(fs: &Fs, budget: usize) -> FsResult<u64> {
    let Some(mut work) = fs.reclaim.work.try_lock() else { return Ok(0) };
    let done = step(fs, &mut work, budget)?;
    if done > 0 {
        return Ok(done);
    }
    let done = inherit(fs, &mut work)?;
    if done > 0 {
        return Ok(done);
    }
    let done = super::count::step(fs, &mut work, budget)?;
    if done > 0 {
        return Ok(done);
    }
    let done = super::prune::step(fs, &mut work, budget);
    fs.reclaim.pruning.store(work.pruner.is_busy(), Ordering::Relaxed);
    done
}

/// Gives copies a bounded part of what they inherit.
fn inherit(fs: &Fs, work: &mut Work) -> FsResult<u64> {
    let now = fs.env.clock.monotonic();
    work.unfit.retain(|_, until| *until > now);
    let unfit = &work.unfit;
    fs.inherit_step(&|heir| unfit.contains_key(&heir)).map_err(|(heir, error)| {
        let full = matches!(error, FsError::NoSpace);
        let rest = if full { REST_WITHOUT_ROOM } else { REST_AFTER_FAILURE };
        work.unfit.insert(heir, now + rest);
        error
    })
}

/// Removes a bounded part of what was detached, after waiting for a thread that is at it; includes
/// what rests because there was no space. Returns how much.
pub(crate) fn detached_step(fs: &Fs, budget: usize) -> FsResult<u64> {
    let mut work = fs.reclaim.work.lock();
    let soon = fs.env.clock.monotonic() + REST_WITHOUT_ROOM;
    work.failed.retain(|_, until| *until > soon);
    step(fs, &mut work, budget)
}

fn step(fs: &Fs, work: &mut Work, budget: usize) -> FsResult<u64> {
    let Some((sequence, record)) = next(fs, work)? else { return Ok(0) };
    let done = remove(fs, work, sequence, record, budget).inspect_err(|error| {
        let full = matches!(error, FsError::NoSpace);
        let rest = if full { REST_WITHOUT_ROOM } else { REST_AFTER_FAILURE };
        let now = fs.env.clock.monotonic();
        work.failed.insert(sequence, now + rest);
        fs.reclaim.failures.note(sequence, error, now);
    })?;
    fs.reclaim.failures.went_on(sequence);
    fs.reclaim.removed.fetch_add(done, Ordering::Relaxed);
    Ok(done)
}

/// The first detached object that is not held.
fn next(fs: &Fs, work: &mut Work) -> FsResult<Option<(u64, DetachedRecord)>> {
    if fs.queue.detached() == 0 {
        fs.reclaim.failures.retain(&Set::default());
        return Ok(None);
    }
    let waiting = waiting(fs)?;
    fs.reclaim.failures.retain(&waiting.iter().map(|(sequence, _)| *sequence).collect());
    let mut holders = Holders::default();
    let mut held = Vec::new();
    let now = fs.env.clock.monotonic();
    work.failed.retain(|_, until| *until > now);
    for (sequence, record) in waiting {
        if work.failed.contains_key(&sequence) {
            continue;
        }
        let free = match record {
            DetachedRecord::Tree { tree } => {
                !work.pruner.uses(tree) && work.leaving.get(&tree).is_none_or(|&until| now >= until)
            }
            record => !holders.hold(fs, &record),
        };
        if free {
            return Ok(Some((sequence, record)));
        }
        held.push(record);
    }
    // Nothing can be removed: what is held may be held only by the caches of front ends.
    work.release.round(fs, &held)?;
    Ok(None)
}

/// Everything that waits, the oldest first.
fn waiting(fs: &Fs) -> FsResult<Vec<(u64, DetachedRecord)>> {
    let mut waiting = Vec::new();
    fs.visit_volume(&key::DETACHED_PREFIX, &mut |key, value| {
        let malformed = |error| malformed(VOLUME, &error);
        let sequence = key::parse_number(key).map_err(malformed)?;
        waiting.push((sequence, DetachedRecord::decode(value).map_err(malformed)?));
        Ok(())
    })?;
    Ok(waiting)
}

/// Which trees front ends hold; the subvolumes are looked for once.
#[derive(Default)]
struct Holders {
    slots: Option<Set<u64>>,
}

impl Holders {
    /// Whether a tree must stay because an inode of it is held.
    fn hold(&mut self, fs: &Fs, record: &DetachedRecord) -> bool {
        match *record {
            DetachedRecord::Directory { subvolume, directory, kept_while_held } => {
                kept_while_held && fs.nodes.is_held(Fs::node_of(subvolume, directory))
            }
            DetachedRecord::Subvolume { subvolume } => {
                let held = self.slots.get_or_insert_with(|| fs.nodes.held_slots());
                held.contains(&key::slot(subvolume))
            }
            DetachedRecord::Tree { .. } => false,
        }
    }
}

impl Fs {
    /// How far the removal of a tree is, by the number that the removal returned.
    pub fn reclaim_waits(&self, detached: u64) -> FsResult<Waiting> {
        let mut told = Waiting::default();
        let mut holders = Holders::default();
        // A subvolume that was mounted in it is noted before the tree itself is gone.
        let all = waiting(self)?;
        let origins = self.reclaim.origins.lock().clone();
        for (sequence, record) in all {
            if sequence == detached || origins.get(&sequence) == Some(&detached) {
                told.trees += 1;
                told.held += u64::from(holders.hold(self, &record));
                told.stuck += u64::from(self.reclaim.failures.is_stuck(sequence));
            }
        }
        Ok(told)
    }
}

fn remove(
    fs: &Fs,
    work: &mut Work,
    sequence: u64,
    record: DetachedRecord,
    budget: usize,
) -> FsResult<u64> {
    let (done, finished) = match record {
        DetachedRecord::Directory { subvolume, directory, .. } => {
            let mut emptying = match work.emptying.take() {
                Some((number, emptying)) if number == sequence => emptying,
                _ => Emptying::new(sequence, subvolume, directory),
            };
            let (done, finished) = emptying.step(fs, budget)?;
            if !finished {
                work.emptying = Some((sequence, emptying));
            }
            (done, finished)
        }
        DetachedRecord::Subvolume { subvolume } => subvolume::remove(fs, sequence, subvolume)?,
        DetachedRecord::Tree { tree } => {
            work.leaving.remove(&tree);
            (subvolume::remove_tree(fs, sequence, tree)?, true)
        }
    };
    if finished {
        fs.queue.add_detached(-1);
        fs.reclaim.origins.lock().remove(&sequence);
    }
    Ok(done.max(1))
}
