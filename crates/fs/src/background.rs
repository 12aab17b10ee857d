//! Background work, in bounded steps that the daemon's threads drive.
//!
//! One step does the first of these that is due: writing the log, a checkpoint, removing unnamed
//! inodes that nobody holds, emptying expired trash, freeing the nodes of dropped trees, upkeep of
//! the index. A steady load of removals would starve everything later in that list. So every other
//! step begins with one of the others, in turn.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use device::sync::{Mutex, RwLock};
use format::key;
use inode::FsError;

use crate::collect::Collecting;
use crate::error::{from_store, malformed};
use crate::execute::{Context, execute_locked};
use crate::locks::Mode;
use crate::subvol::VOLUME;
use crate::{Fs, FsResult, Progress};

/// How long a worker sleeps at most: work comes without being announced.
const IDLE: Duration = Duration::from_millis(500);
/// How long a thread that needs space waits for another one that is removing an inode.
const TURN_WAIT: Duration = Duration::from_millis(500);

/// Does part of a task, about so many records or nodes; returns how much. 0: nothing is due.
type Work = fn(&Fs, usize) -> FsResult<u64>;

/// Inodes (subvolume, number) that have neither a name nor a holder.
#[derive(Default)]
struct Orphans {
    new: VecDeque<(u64, u64)>,
    /// Those that could not be removed when that was tried last.
    failed: VecDeque<(u64, u64)>,
}

/// What waits to be removed.
pub(crate) struct Queue {
    orphans: Mutex<Orphans>,
    detached: AtomicU64,
    /// Bytes dropped since the last collection that clones may share.
    shared_bytes: AtomicU64,
    collect: AtomicBool,
    /// Steps of background work so far.
    turn: AtomicUsize,
    /// Held by the thread that removes an inode without a name.
    pub(crate) removing: RwLock<()>,
    /// The collection in progress.
    pub(crate) collecting: Mutex<Collecting>,
    /// Trees that no record named when the first collection since opening began.
    pub(crate) unnamed: Mutex<Option<Vec<u64>>>,
}

impl Queue {
    /// Nothing waits.
    pub(crate) fn new() -> Queue {
        Queue {
            orphans: Mutex::default(),
            detached: AtomicU64::new(0),
            shared_bytes: AtomicU64::new(0),
            collect: AtomicBool::new(false),
            turn: AtomicUsize::new(0),
            removing: RwLock::new(()),
            collecting: Mutex::default(),
            unnamed: Mutex::default(),
        }
    }

    /// Finds what was waiting when the volume was last open. Nothing is held yet.
    pub(crate) fn recover(&self, fs: &Fs) -> FsResult<()> {
        let mut orphans = self.orphans.lock();
        fs.visit_volume(&key::ORPHANS_PREFIX, &mut |key, _| {
            let orphan = key::parse_orphan(key).map_err(|error| malformed(VOLUME, &error))?;
            orphans.new.push_back(orphan);
            Ok(())
        })?;
        fs.visit_volume(&key::DETACHED_PREFIX, &mut |_, _| {
            self.detached.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
    }

    /// Adds an inode (subvolume, number) that has neither a name nor a holder.
    pub(crate) fn push_orphan(&self, subvol: u64, ino: u64) {
        self.orphans.lock().new.push_back((subvol, ino));
    }

    /// Puts back an inode that could not be removed.
    pub(crate) fn put_orphan_back(&self, subvol: u64, ino: u64) {
        self.orphans.lock().failed.push_back((subvol, ino));
    }

    /// The next inode to remove; those that failed come last.
    pub(crate) fn pop_orphan(&self) -> Option<(u64, u64)> {
        let mut orphans = self.orphans.lock();
        orphans.new.pop_front().or_else(|| orphans.failed.pop_front())
    }

    /// Whether an inode waits to be removed that was not tried yet.
    pub(crate) fn has_new_orphans(&self) -> bool {
        !self.orphans.lock().new.is_empty()
    }

    /// Whether such an inode waits, or is being removed now.
    pub(crate) fn removes_orphans(&self) -> bool {
        // A thread takes it from the queue while holding this lock.
        self.has_new_orphans() || self.removing.is_locked()
    }

    /// Counts dropped bytes that a clone may still name. Above a threshold a collection looks for
    /// them.
    pub(crate) fn count_shared(&self, bytes: u64, enough: u64) {
        if bytes > 0 && self.shared_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes >= enough {
            self.request_collection();
        }
    }

    /// Requests a collection of what nothing names any more: a tree was dropped.
    pub(crate) fn request_collection(&self) {
        self.collect.store(true, Ordering::Release);
    }

    /// Whether a collection was requested; clears the request, so a later one counts separately.
    pub(crate) fn take_request(&self) -> bool {
        let asked = self.collect.swap(false, Ordering::AcqRel);
        if asked {
            self.shared_bytes.store(0, Ordering::Relaxed);
        }
        asked
    }

    /// Whether a collection was requested or is in progress: its result is not known yet.
    pub(crate) fn collection_waits(&self) -> bool {
        self.collect.load(Ordering::Acquire)
            || self.collecting.try_lock().is_none_or(|collecting| !collecting.is_idle())
    }

    /// Whether a collection is in progress, or was requested and is not resting after a failure.
    pub(crate) fn collection_is_due(&self, now: Duration) -> bool {
        match self.collecting.try_lock() {
            None => true,
            Some(collecting) if !collecting.is_idle() => true,
            Some(collecting) => self.collect.load(Ordering::Acquire) && !collecting.rests(now),
        }
    }

    /// Detached directories that wait.
    pub(crate) fn detached(&self) -> u64 {
        self.detached.load(Ordering::Relaxed)
    }

    /// One more detached directory waits (or one less).
    pub(crate) fn add_detached(&self, change: i64) {
        self.detached.fetch_add(change as u64, Ordering::Relaxed);
    }
}

impl Fs {
    /// One bounded step of background work, about `budget` records or nodes.
    ///
    /// A failure does not keep the rest from being done: on a full disk a checkpoint has no space
    /// until other work frees some. The first failure is returned if nothing was done.
    pub fn background_step(&self, budget: usize) -> FsResult<Progress> {
        let done = self.first_due(budget);
        if matches!(done, Err(FsError::NoSpace)) {
            self.reclaim.failures.note_no_room(self.env.clock.monotonic());
        }
        done
    }

    fn first_due(&self, budget: usize) -> FsResult<Progress> {
        let due_in = self.flush_if_due()?;
        let mut failed = None;
        // The turn is only taken if no checkpoint is made.
        let works = std::iter::once_with(|| self.works()).flatten();
        for work in std::iter::once(Fs::checkpoint_step as Work).chain(works) {
            match work(self, budget) {
                Ok(0) => {}
                Ok(done) => return Ok(Progress { more: true, due_in: Duration::ZERO, done }),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(Progress { more: false, due_in: due_in.min(IDLE), done: 0 }),
        }
    }

    /// What there may be to do, in the order of this step.
    fn works(&self) -> impl Iterator<Item = Work> {
        const WORKS: [Work; 7] = [
            Fs::orphan_and_data_step,
            Fs::removal_step,
            Fs::trash_step,
            Fs::node_step,
            Fs::data_step,
            Fs::adopt_step,
            Fs::index_step,
        ];
        let turn = self.queue.turn.fetch_add(1, Ordering::Relaxed);
        let first = if turn.is_multiple_of(2) { 0 } else { turn / 2 % WORKS.len() };
        WORKS.into_iter().cycle().skip(first).take(WORKS.len())
    }

    /// The part of a step that must not wait for the others, for a dedicated thread: writes the log
    /// if that is due, and returns how long until it next will be.
    pub fn flush_if_due(&self) -> FsResult<Duration> {
        self.store.flush_if_due().map_err(from_store)
    }

    /// Registers `wake`, which is called when there is work to begin at once.
    pub fn set_waker(&self, wake: store::Waker) {
        self.store.set_waker(wake);
    }

    /// A checkpoint, if one is due.
    fn checkpoint_step(&self, _budget: usize) -> FsResult<u64> {
        let done = self.store.checkpoint_due() && self.store.checkpoint().map_err(from_store)?;
        Ok(u64::from(done))
    }

    /// Removes part of an inode, and frees some of what that released. While an inode waits, no
    /// later task of a step runs, and the memory for what waits is bounded.
    fn orphan_and_data_step(&self, budget: usize) -> FsResult<u64> {
        let done = self.orphan_step(budget)?;
        if done > 0 {
            self.data_step(budget)?;
        }
        Ok(done)
    }

    /// Removes part of an inode that nobody holds any more.
    fn orphan_step(&self, budget: usize) -> FsResult<u64> {
        if self.options.read_only { Ok(0) } else { crate::orphan::reclaim_step(self, budget) }
    }

    /// Removes part of a detached tree, counts, or prunes.
    fn removal_step(&self, budget: usize) -> FsResult<u64> {
        if self.options.read_only { Ok(0) } else { crate::reclaim::reclaim_step(self, budget) }
    }

    /// Like `removal_step`, for detached trees only; waits for a thread that is already at it.
    pub(crate) fn detached_step(&self, budget: usize) -> FsResult<u64> {
        if self.options.read_only { Ok(0) } else { crate::reclaim::detached_step(self, budget) }
    }

    /// Like `orphan_step`; waits for a thread that is already at it. A thread that takes long, with
    /// a large file, counts as progress.
    pub(crate) fn orphans_at_once(&self, budget: usize) -> FsResult<u64> {
        let at_it = self.queue.removing.try_write_for(TURN_WAIT).is_none();
        Ok(self.orphan_step(budget)? + u64::from(at_it))
    }

    /// Frees nodes of dropped trees.
    pub(crate) fn node_step(&self, budget: usize) -> FsResult<u64> {
        let went = self.store.reclaim_step(budget).map_err(from_store);
        self.reclaim.failures.note_nodes(&went);
        Ok(if went? { budget as u64 } else { 0 })
    }

    /// One step of cleaning the segments of data.
    fn data_step(&self, _budget: usize) -> FsResult<u64> {
        if self.options.read_only {
            return Ok(0);
        }
        if let Some(file) = self.data.settle_due() {
            self.settle_file(file)?;
            return Ok(1);
        }
        let cleaned = self.data.clean_step(&*self.store);
        if let Ok(true) = cleaned {
            self.reclaim.failures.gave_back();
            return Ok(1);
        }
        // Cleaning may find no space where a collection frees some.
        match (self.collect_step()?, cleaned) {
            (0, Err(error)) => Err(from_store(error)),
            (done, _) => Ok(done),
        }
    }

    /// Moves small writes of a frequently synced file out of the tree.
    fn settle_file(&self, file: data::FileRef) -> FsResult<()> {
        let Some(subvol) = self.subvols.of_tree(file.tree) else {
            self.data.forget(file);
            return Ok(());
        };
        let mut from = Some(0);
        while let Some(at) = from {
            let (entered, policies) = (self.enter(&subvol)?, self.policies());
            if entered.tree != file.tree {
                break;
            }
            let place = Context::new(self, &policies, &subvol, entered.tree);
            let object = [(place.object(file.ino), Mode::Exclusive)];
            from = execute_locked(&place, &object, |_, plan| {
                plan.removes();
                let owner = self.extent_owner(&subvol)?;
                let settled = self
                    .data
                    .settle(&*self.store, file, at, owner, plan.batch())
                    .map_err(from_store)?;
                plan.frees(settled.freed);
                Ok(settled.next)
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use inode::{Caller, Kind, NodeId};
    use testing::{SimDevice, SimEnv};

    use crate::{FileSystem, FormatOptions, Fs, NewNode, OpenOptions};

    /// If checkpoints were due at every other step, the steps between them would all be of one
    /// kind, perhaps only those that begin with removals.
    #[test]
    fn a_checkpoint_skips_no_background_step() {
        let env = SimEnv::on(SimDevice::new(1), 1).env();
        Fs::format(&env, &FormatOptions::default()).expect("an empty medium");
        let options = OpenOptions { checkpoint_bytes: 24 << 10, ..OpenOptions::default() };
        let fs = Fs::open(env, &options).expect("it was made just now");
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let mut number = 0;
        while !fs.store.checkpoint_due() {
            let name = format!("f{number}");
            let made = fs.mknod(&Caller::root(), NodeId::ROOT, name.as_bytes(), &new);
            made.expect("space");
            number += 1;
            assert!(number < 10_000, "a checkpoint is never due");
        }
        let turn = fs.queue.turn.load(Ordering::Relaxed);
        assert!(fs.background_step(64).expect("there is space").more);
        assert!(!fs.store.checkpoint_due(), "it was made");
        assert_eq!(fs.queue.turn.load(Ordering::Relaxed), turn);
    }
}
