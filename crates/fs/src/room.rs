//! Reclaims space in the foreground for an operation that finds none (ENOSPC): what was removed
//! before is freed at once, before the background gets to it. Then the oldest hour of a trash is
//! removed, if there is one.
//!
//! A search for space takes a sync and a checkpoint. So it is not repeated if the last one found
//! nothing and nothing was committed since, and rarely if nothing waits: a write to a full disk is
//! refused at once. An operation searches a bounded number of times, for a bounded time; it retries
//! while its searches end only by timeout. Meanwhile nothing of a trash is removed, nor for a
//! thread that merely waits for another's search.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use device::sync::Mutex;
use inode::FsError;

use crate::error::from_store;
use crate::{Fs, FsResult};

/// Most steps of background work that an operation waits for.
const STEPS_MAX: usize = 10_000;
/// How often one of them may fail in a row.
const FAILURES_MAX: usize = 8;
/// Records or nodes of one of those steps.
const STEP_BUDGET: usize = 256;
/// How often an operation searches for space, to the end, before trash is removed.
const ROUNDS_MAX: usize = 8;
/// How long one search may take, besides the step that it is in: the rest is for the background.
const SEARCH: Duration = Duration::from_secs(2);
/// How long an operation may search for space, or wait for threads that do.
const OPERATION: Duration = Duration::from_secs(30);
/// How long no search is made if nothing known waits, in nanoseconds.
const REST: i64 = 1_000_000_000;

/// What is known of the search for space.
pub(crate) struct Room {
    /// Held by the thread that searches for space.
    looking: Mutex<()>,
    /// The last commit when a search found nothing.
    nothing_at: AtomicU64,
    /// When that was, in nanoseconds of the clock.
    nothing_since: AtomicI64,
}

impl Room {
    /// No search was made yet.
    pub(crate) fn new() -> Room {
        Room {
            looking: Mutex::new(()),
            nothing_at: AtomicU64::new(u64::MAX),
            nothing_since: AtomicI64::new(i64::MIN),
        }
    }
}

/// What an operation that finds no space did about it.
#[derive(Default)]
pub(crate) struct Search {
    /// When it began to search, in monotonic time.
    began: Option<Duration>,
    /// How often it searched, to the end, since trash was last removed.
    rounds: usize,
    /// Whether the last search freed nothing.
    hopeless: bool,
    /// Bytes that were free after its last search.
    free: Option<u64>,
    /// How often the log had refused a record for lack of space on a disk of its own, at the last
    /// attempt of the operation.
    refused: Option<u64>,
    /// Whether it found that nothing waits, and that there is no trash.
    exhausted: bool,
}

impl Search {
    /// Whether it found that nothing is left that could free space. Otherwise something may be
    /// left: there was no time to check, or other threads were at it.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.exhausted
    }
}

/// The result of some of the work that frees space.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reclaimed {
    /// Whether there was any.
    pub(crate) any: bool,
    /// Whether the time was over before everything was done.
    pub(crate) more: bool,
}

impl Reclaimed {
    fn and(self, other: Reclaimed) -> Reclaimed {
        Reclaimed { any: self.any || other.any, more: self.more || other.more }
    }
}

/// What happened to the trash for lack of space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purged {
    /// An hour of it was removed.
    Hour,
    /// There is none.
    Empty,
    /// Nothing in it was removed: that would not help, or failed.
    Nothing,
}

impl Fs {
    /// Runs an operation that may need space. If there is none, it is reclaimed from what waits to
    /// be freed, and then from the trash.
    #[inline]
    pub(crate) fn with_room<T>(&self, run: impl Fn() -> FsResult<T>) -> FsResult<T> {
        self.searching(&mut Search::default(), run)
    }

    /// Like [`Fs::with_room`]; the search reports what it found if there is no space in the end.
    #[inline]
    pub(crate) fn searching<T>(
        &self,
        search: &mut Search,
        run: impl Fn() -> FsResult<T>,
    ) -> FsResult<T> {
        loop {
            match run() {
                // Where the object store is full, nothing that frees space can be made durable.
                Err(FsError::NoSpace) if !self.objects_full() && self.relieve(search) => {}
                result => return result,
            }
        }
    }

    /// Reclaims space from what waits, or from the oldest hour of the trash. Returns whether any
    /// may have been freed, or another thread searched meanwhile. Failures here are logged: the
    /// operation's own error is that there is no space.
    #[cold]
    fn relieve(&self, search: &mut Search) -> bool {
        let again = self.look_for_room(search);
        search.refused = Some(self.store.refused_by_log());
        again
    }

    /// Whether the space of the trash would help an operation that found none. It does not help a
    /// log that has a disk of its own. If this is not known yet, the operation must be tried once
    /// more, while the log's refusals are counted.
    fn trash_helps(&self, search: &Search) -> Option<bool> {
        if !self.trash.is_on() {
            return Some(true);
        }
        search.refused.map(|before| self.store.refused_by_log() == before)
    }

    fn look_for_room(&self, search: &mut Search) -> bool {
        if self.options.read_only {
            return false;
        }
        let now = self.env.clock.monotonic();
        let end = *search.began.get_or_insert(now) + OPERATION;
        if now >= end {
            return false;
        }
        let Some(_looking) = self.room.looking.try_lock() else {
            let left = end.saturating_sub(self.env.clock.monotonic());
            return self.room.looking.try_lock_for(left).is_some();
        };
        let until = now + SEARCH;
        let hopeless = std::mem::take(&mut search.hopeless) || search.rounds >= ROUNDS_MAX;
        // What was released since is not what was checked.
        if hopeless && !self.queue.has_new_orphans() || !self.may_come() {
            // What the log keeps for the index is space too, and expendable.
            let free = self.free_bytes();
            went_on(self.store.keep_log(&[]).map_err(from_store));
            if self.free_bytes() > free {
                return true;
            }
            match self.trash_helps(search) {
                Some(true) => {}
                Some(false) => return false,
                None => {
                    search.hopeless = true;
                    return true;
                }
            }
            let purged = self.purge_for_room(until).unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot purge the trash for space");
                Purged::Nothing
            });
            search.exhausted = purged == Purged::Empty;
            search.rounds = 0;
            search.free = self.free_bytes();
            return purged == Purged::Hour;
        }
        let given = self.give_back(until);
        // What a refused operation wrote and left is freed each time, and is no gain. So only what
        // exceeds the last time counts.
        let free = self.free_bytes();
        let before = std::mem::replace(&mut search.free, free);
        if given.more {
            return true;
        }
        search.rounds += 1;
        if !given.any || before.is_some_and(|before| free.is_none_or(|free| free <= before)) {
            search.hopeless = true;
            self.room.nothing_at.store(self.store.last_commit().0.0, Ordering::Release);
            self.room.nothing_since.store(self.env.clock.now().0, Ordering::Release);
        }
        // A checkpoint alone may have freed some.
        true
    }

    /// Bytes that are free on disk, if it reports them.
    fn free_bytes(&self) -> Option<u64> {
        self.env.device.space().ok().map(|space| space.free_bytes)
    }

    /// Whether searching for space is worth its cost.
    fn may_come(&self) -> bool {
        if self.queue.has_new_orphans() {
            // A holder released it just now.
            return true;
        }
        if self.store.last_commit().0.0 == self.room.nothing_at.load(Ordering::Acquire) {
            return false;
        }
        let waits = self.bytes_to_come() > 0
            || self.queue.detached() > 0
            || self.queue.collection_waits()
            || self.store.compaction_may_free_space();
        let since = self.room.nothing_since.load(Ordering::Acquire);
        waits || self.env.clock.now().0.saturating_sub(since) >= REST
    }

    /// Bytes of dead contents that are returned to the disk without further work.
    pub(crate) fn bytes_to_come(&self) -> u64 {
        let data = self.data.stats();
        data.waiting_bytes + data.dead_bytes - data.stuck_bytes
    }

    /// Does the work that frees space, together with other threads and after those that are at it,
    /// until it is done or the monotonic clock reaches `until`. Failures are logged.
    pub(crate) fn give_back(&self, until: Duration) -> Reclaimed {
        // The index gives up its space.
        went_on(self.store.keep_log(&[]).map_err(from_store));
        let now = self.env.clock.monotonic();
        // The rest is for what returns the freed space to the disk.
        let removed = self.remove_detached(now + until.saturating_sub(now) / 2);
        let given = removed.and(self.clean_up(until));
        // What the dropped trees shared: that takes longest, or other threads are long at it. A
        // collection rests after a read error.
        let collected = self.collect_until(until).unwrap_or_else(|error| {
            tracing::debug!(%error, "cannot collect unreferenced data");
            Reclaimed::default()
        });
        let given = given.and(collected);
        if collected.any { given.and(self.clean_up(until)) } else { given }
    }

    /// Space of contents is reclaimed when the commit that freed it is durable, and that of nodes
    /// with a checkpoint.
    fn clean_up(&self, until: Duration) -> Reclaimed {
        if !went_on(self.sync()) {
            return Reclaimed::default();
        }
        // A rewrite takes space before it frees any.
        let cleaned = self.data.clean_now(&*self.store, until).unwrap_or_else(|error| {
            went_on::<()>(Err(from_store(error)));
            data::Cleaned::default()
        });
        went_on(self.store.checkpoint().map_err(from_store));
        Reclaimed { any: cleaned.any, more: cleaned.more }
    }

    /// Removes what was detached or unlinked, and frees its nodes. Failures are left to the
    /// background: they are not errors of the operation that needs space.
    fn remove_detached(&self, until: Duration) -> Reclaimed {
        let (mut any, mut failures) = (false, 0);
        for _ in 0..STEPS_MAX {
            let (mut did, mut failed) = (false, None);
            for work in [Fs::detached_step, Fs::orphans_at_once, Fs::node_step] {
                match work(self, STEP_BUDGET) {
                    Ok(done) => did |= done > 0,
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            any |= did;
            match failed {
                _ if did => failures = 0,
                None => return Reclaimed { any, more: false },
                Some(_) if failures == FAILURES_MAX => return Reclaimed { any, more: false },
                Some(error) => {
                    failures += 1;
                    // What was freed until now may be the space that removing takes.
                    if let (FsError::NoSpace, Err(error)) = (&error, self.sync()) {
                        tracing::debug!(%error, "no space for the removals that would free space");
                    }
                }
            }
            if self.env.clock.monotonic() >= until {
                return Reclaimed { any, more: any };
            }
        }
        Reclaimed { any, more: any }
    }
}

/// Whether the search for space may continue: a lack of space is not its failure. Any other failure
/// is logged.
fn went_on<T>(done: FsResult<T>) -> bool {
    match done {
        Ok(_) | Err(FsError::NoSpace) => true,
        Err(error) => {
            tracing::warn!(%error, "cannot search for space to free");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use device::sync;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use device::{Clock, Env, Timestamp};
    use format::key;
    use inode::{Caller, FsError, Kind, NodeId};
    use store::Batch;
    use testing::{SimDevice, SimEnv};

    use crate::{
        FileSystem, FormatOptions, Fs, FsResult, NewNode, OpenOptions, Removed, RenameMode,
        WalkControl,
    };

    const ROOT: NodeId = NodeId::ROOT;

    /// A clock that advances with each reading.
    struct Looked {
        nanos: AtomicU64,
        step: AtomicU64,
    }

    impl Looked {
        fn step(&self, step: Duration) {
            self.step.store(step.as_nanos() as u64, Ordering::Release);
        }
    }

    impl Clock for Looked {
        fn now(&self) -> Timestamp {
            Timestamp(self.nanos.load(Ordering::Acquire) as i64)
        }

        fn monotonic(&self) -> Duration {
            let step = self.step.load(Ordering::Acquire);
            Duration::from_nanos(self.nanos.fetch_add(step, Ordering::AcqRel))
        }

        fn sleep(&self, duration: Duration) {
            self.nanos.fetch_add(duration.as_nanos() as u64, Ordering::AcqRel);
        }
    }

    struct Volume {
        device: SimDevice,
        clock: Arc<Looked>,
        fs: Arc<Fs>,
    }

    fn volume() -> Volume {
        let device = SimDevice::new(1);
        let nanos = AtomicU64::new(1_700_000_000_000_000_000);
        let clock = Arc::new(Looked { nanos, step: AtomicU64::new(0) });
        let env = SimEnv::on(device.clone(), 7).env();
        let env = Env { clock: Arc::<Looked>::clone(&clock), ..env };
        Fs::format(&env, &FormatOptions::default()).expect("an empty medium");
        let options = OpenOptions {
            cache_bytes: 4 << 20,
            log_segment_bytes: 256 << 10,
            checkpoint_bytes: 1 << 20,
            index: None,
            ..OpenOptions::default()
        };
        Volume { device, clock, fs: Fs::open(env, &options).expect("it was made just now") }
    }

    impl Volume {
        fn file(&self, name: &str, bytes: usize) -> NodeId {
            let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
            let made = self.fs.mknod(&Caller::root(), ROOT, name.as_bytes(), &new);
            let node = made.expect("there is space").node;
            self.write(node, bytes).expect("there is space");
            node
        }

        fn write(&self, node: NodeId, bytes: usize) -> FsResult<()> {
            self.fs.write(&Caller::root(), node, 0, &vec![7; bytes])
        }

        /// Removes a file that is not held.
        fn remove(&self, name: &str, node: NodeId) {
            self.fs.forget(node, 1);
            self.fs.unlink(&Caller::root(), ROOT, name.as_bytes()).expect("it goes");
        }

        /// Leaves less space than contents take.
        fn fill(&self) {
            self.fs.sync().expect("it is written");
            while self.fs.background_step(64).expect("background work").more {}
            let used = self.device.used_bytes();
            self.device.set_capacity(Some(used + used / 32));
        }
    }

    #[test]
    fn a_thread_that_waits_for_anothers_search_deletes_nothing() {
        let v = volume();
        let root = Caller::root();
        v.fs.trash_set(&root, ROOT, Some(86_400)).expect("a trash");
        let node = v.file("f", 100_000);
        v.fs.mkdir(&root, ROOT, b"d", 0o755).expect("there is space");
        v.fs.forget(node, 1);
        v.device.set_capacity(Some(v.device.used_bytes() + (2 << 20)));
        let full = (0..100_000).any(|n| {
            let made = v.fs.mkdir(&root, ROOT, format!("{n:0200}").as_bytes(), 0o755);
            matches!(made, Err(FsError::NoSpace))
        });
        assert!(full, "100,000 directories fit into a small medium");
        // All but a moment of the time goes before it waits.
        v.clock.step(Duration::from_millis(29_900));
        let looking = v.fs.room.looking.lock();
        let removed = v.fs.unlink(&root, ROOT, b"f");
        assert!(matches!(removed, Err(FsError::NoSpace)), "{removed:?}");
        let removed = v.fs.rmr(&root, ROOT, b"d");
        assert!(matches!(removed, Err(FsError::NoSpace)), "{removed:?}");
        drop(looking);
        v.fs.lookup(&root, ROOT, b"f").expect("it is there");
        v.clock.step(Duration::ZERO);
        // A thread that finds itself that there is none, and that the trash is empty, deletes.
        v.fs.unlink(&root, ROOT, b"f").expect("it goes");
        v.fs.rmr(&root, ROOT, b"d").expect("it goes");
    }

    #[test]
    fn a_collection_that_another_thread_finishes_is_not_waited_for() {
        let v = volume();
        let (big, other) = (v.file("big", 1 << 20), v.file("other", 8192));
        v.fill();
        let refused = v.write(other, 65_536);
        assert!(matches!(refused, Err(FsError::NoSpace)), "{refused:?}");
        v.remove("big", big);
        v.fs.queue.request_collection();
        v.clock.step(Duration::from_millis(10));
        let collecting = v.fs.queue.collecting.lock();
        let (tell, told) = sync::channel();
        device::scope(|scope| {
            scope.spawn(|| tell.send(v.write(other, 65_536)));
            let written = told.recv_timeout(Duration::from_secs(100));
            drop(collecting);
            written.expect("it waits for the collection").expect("there is space");
        });
    }

    /// Marking of `pando gc` takes minutes, and its result may be all that is needed.
    #[test]
    fn no_trash_is_purged_while_a_collection_is_requested_or_running() {
        let v = volume();
        let root = Caller::root();
        v.fs.trash_set(&root, ROOT, Some(30 * 86_400)).expect("a trash");
        let (kept, other) = (v.file("kept", 4 << 20), v.file("other", 8192));
        v.remove("kept", kept);
        v.clock.sleep(Duration::from_secs(3600));
        v.fill();
        let removed = || {
            let mut count = 0;
            let mut take = |_: Removed| {
                count += 1;
                WalkControl::Continue
            };
            v.fs.trash_list(&root, (ROOT, &[]), &mut take).expect("a list");
            count
        };
        // Each look at the clock is longer than it waits for the lock.
        v.clock.step(Duration::from_secs(3));
        let collecting = v.fs.queue.collecting.lock();
        let refused = v.write(other, 65_536);
        assert!(matches!(refused, Err(FsError::NoSpace)), "{refused:?}");
        assert_eq!(removed(), 1);
        drop(collecting);
        v.clock.step(Duration::ZERO);
        v.fs.room.nothing_since.store(v.clock.now().0, Ordering::Release);
        assert!(!v.fs.may_come(), "nothing waits");
        v.fs.queue.request_collection();
        assert!(v.fs.may_come(), "what comes of it is not known");
        v.clock.step(Duration::from_millis(10));
        v.write(other, 65_536).expect("a collection frees nothing, and the trash is purged");
        assert_eq!(removed(), 0);
    }

    #[test]
    fn the_background_leaves_the_trash_where_enough_waits_to_be_punched() {
        let v = volume();
        let root = Caller::root();
        let dir = v.fs.mkdir(&root, ROOT, b"dir", 0o755).expect("there is space").node;
        v.fs.trash_set(&root, dir, Some(30 * 86_400)).expect("a trash");
        let (big, kept) = (v.file("big", 8 << 20), v.file("kept", 8192));
        v.fs.rename(&root, (ROOT, b"kept"), (dir, b"kept"), RenameMode::Replace).expect("moves");
        v.fs.forget(kept, 1);
        v.fs.unlink(&root, dir, b"kept").expect("it goes");
        v.fs.sync().expect("it is written");
        while v.fs.background_step(64).expect("background work").more {}
        // More than what the background keeps free blocks nothing but costs time.
        v.device.set_capacity(Some(v.device.used_bytes() + (64 << 10)));
        v.remove("big", big);
        while v.fs.queue.has_new_orphans() {
            v.fs.background_step(64).expect("background work");
        }
        v.clock.sleep(Duration::from_secs(61));
        assert!(v.fs.bytes_to_come() > 1 << 20, "{} wait", v.fs.bytes_to_come());
        assert_eq!(v.fs.trash_step(64).expect("it looks"), 0, "an hour of the trash went");
    }

    #[test]
    fn removed_data_is_punched_before_more_trash_is_purged() {
        let v = volume();
        let root = Caller::root();
        v.fs.trash_set(&root, ROOT, Some(30 * 86_400)).expect("a trash");
        for (hour, count) in [1500, 1, 1].into_iter().enumerate() {
            for n in 0..count {
                let name = format!("f{hour}.{n}");
                let node = v.file(&name, 8192);
                v.remove(&name, node);
            }
            v.clock.sleep(Duration::from_secs(3600));
        }
        let new = v.file("new", 8192);
        v.fill();
        // Removing the first hour takes longer than a search.
        v.clock.step(Duration::from_millis(700));
        v.write(new, 65_536).expect("an hour makes space");
        let mut left = Vec::new();
        let mut take = |removed: Removed| {
            left.push(removed.path.concat());
            WalkControl::Continue
        };
        v.fs.trash_list(&root, (ROOT, &[]), &mut take).expect("a list");
        left.sort();
        assert_eq!(left, [b"f1.0", b"f2.0"], "of the hours after the first");
    }

    /// Contents that cannot be read cannot be removed either.
    #[test]
    fn unremovable_contents_are_not_searched_repeatedly() {
        let v = volume();
        let bad = v.file("bad", 65_536);
        let other = v.file("other", 8192);
        let (subvol, ino) = v.fs.place(bad).expect("it is there");
        let mut batch = Batch::new();
        batch.put(subvol.tree(), &key::extent(ino, 0), b"\x01junk");
        v.fs.store.commit(&batch).expect("there is space");
        v.fill();
        v.remove("bad", bad);
        let refused = || matches!(v.write(other, 65_536), Err(FsError::NoSpace));
        assert!(refused());
        assert!(v.fs.queue.pop_orphan().is_some_and(|orphan| {
            v.fs.queue.put_orphan_back(orphan.0, orphan.1);
            orphan.1 == ino
        }));
        let before = v.device.ops();
        assert!((0..1000).all(|_| refused()));
        let done = v.device.ops() - before;
        assert!(done < 100, "{done} operations for 1000 refused writes");
    }
}
