//! Room for an operation that finds none: what was removed before gives it back at once, and not
//! when the background comes to it. Then the oldest hour of a trash goes, if there is one.
//!
//! Looking for room takes a sync and a checkpoint. So nobody looks again where nothing came of it
//! and nothing was committed since, and rarely where nothing waits: a write to a medium that is
//! full is refused at once. An operation looks a bounded number of times, for a bounded time.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use inode::FsError;
use parking_lot::Mutex;

use crate::error::from_store;
use crate::{Fs, FsResult};

/// Most steps of background work that an operation waits for.
const STEPS_MAX: usize = 10_000;
/// How often one of them may fail in a row.
const FAILURES_MAX: usize = 8;
/// Records or nodes of one of those steps.
const STEP_BUDGET: usize = 256;
/// How often an operation looks for room before something of the trash goes, or waits for others.
const ROUNDS_MAX: usize = 8;
/// How long one search may take, beside the step that it is in: the rest is for the background.
const SEARCH: Duration = Duration::from_secs(2);
/// How long an operation may go on to look for room.
const OPERATION: Duration = Duration::from_secs(30);
/// How long nobody looks again where nothing waits that is known of, in nanoseconds.
const REST: i64 = 1_000_000_000;

/// What is known of the search for room.
pub(crate) struct Room {
    /// Held by who looks for room.
    looking: Mutex<()>,
    /// The last commit when nothing came of it.
    nothing_at: AtomicU64,
    /// When that was, in nanoseconds of the clock.
    nothing_since: AtomicI64,
}

impl Room {
    /// Nobody has looked yet.
    pub(crate) fn new() -> Room {
        Room {
            looking: Mutex::new(()),
            nothing_at: AtomicU64::new(u64::MAX),
            nothing_since: AtomicI64::new(i64::MIN),
        }
    }
}

/// What an operation that finds no room did about it.
#[derive(Default)]
pub(crate) struct Search {
    /// When it began to look, in monotonic time.
    began: Option<Duration>,
    /// How often it looked since something of the trash went.
    rounds: usize,
    /// How often it waited for others who look.
    waited: usize,
    /// Whether nothing came the last time.
    hopeless: bool,
    /// Bytes that were free after it looked the last time.
    free: Option<u64>,
}

impl Fs {
    /// Runs an operation that may need room. Where there is none, it is made of what waits to be
    /// given back, and then of the trash.
    #[inline]
    pub(crate) fn with_room<T>(&self, run: impl Fn() -> FsResult<T>) -> FsResult<T> {
        let mut search = Search::default();
        loop {
            match run() {
                Err(FsError::NoSpace) if self.relieve(&mut search) => {}
                result => return result,
            }
        }
    }

    /// Sees that room comes of what waits, or of the oldest hour of the trash. Tells whether any
    /// may have come, or somebody else looked meanwhile. What fails here is told to the log: the
    /// operation's own error is that there is no room.
    #[cold]
    fn relieve(&self, search: &mut Search) -> bool {
        if self.options.read_only {
            return false;
        }
        let now = self.env.clock.monotonic();
        if now.saturating_sub(*search.began.get_or_insert(now)) >= OPERATION {
            return false;
        }
        let Some(_looking) = self.room.looking.try_lock() else {
            search.waited += 1;
            return search.waited <= ROUNDS_MAX
                && self.room.looking.try_lock_for(2 * SEARCH).is_some();
        };
        let until = now + SEARCH;
        let hopeless = std::mem::take(&mut search.hopeless) || search.rounds >= ROUNDS_MAX;
        if hopeless || !self.may_come() {
            let purged = self.purge_for_room(until).unwrap_or_else(|error| {
                tracing::warn!(%error, "the trash could not be emptied for room");
                false
            });
            search.rounds = 0;
            search.free = self.free_bytes();
            return purged;
        }
        search.rounds += 1;
        let any = self.give_back(until);
        // What a refused operation wrote and left comes back each time, and is no room. So only
        // what is more than the last time counts.
        let free = self.free_bytes();
        let before = std::mem::replace(&mut search.free, free);
        if !any || before.is_some_and(|before| free.is_none_or(|free| free <= before)) {
            search.hopeless = true;
            self.room.nothing_at.store(self.store.last_commit().0.0, Ordering::Release);
            self.room.nothing_since.store(self.env.clock.now().0, Ordering::Release);
        }
        // A checkpoint alone may have made some.
        true
    }

    /// Bytes that are free on the medium, if it tells.
    fn free_bytes(&self) -> Option<u64> {
        self.env.device.space().ok().map(|space| space.free_bytes)
    }

    /// Whether looking for room is worth what it takes.
    fn may_come(&self) -> bool {
        if self.queue.has_orphans() {
            // Somebody let go of it just now.
            return true;
        }
        if self.store.last_commit().0.0 == self.room.nothing_at.load(Ordering::Acquire) {
            return false;
        }
        let data = self.data.stats();
        let waits = data.waiting_bytes + data.dead_bytes > 0 || self.queue.detached() > 0;
        let since = self.room.nothing_since.load(Ordering::Acquire);
        waits || self.env.clock.now().0.saturating_sub(since) >= REST
    }

    /// Does the work that room comes of, beside others and after those who are at it, until it is
    /// done or the monotonic clock says `until`. Tells whether there was any. What fails is told
    /// to the log.
    pub(crate) fn give_back(&self, until: Duration) -> bool {
        // The index does without.
        went_on(self.store.keep_log(&[]).map_err(from_store));
        let removed = self.remove_detached(until);
        // What the trees shared that were dropped. A collection that cannot read something rests.
        let collected = self.collect_until(until).unwrap_or_else(|error| {
            tracing::debug!(%error, "what nothing names any more could not be collected");
            false
        });
        // Room that contents had comes back when the commit is durable that freed it, and that of
        // nodes with a checkpoint.
        if !went_on(self.sync()) {
            return removed || collected;
        }
        // A rewrite takes room before it gives any.
        let cleaned = self.data.clean_now(&*self.store, until).unwrap_or_else(|error| {
            went_on::<()>(Err(from_store(error)));
            false
        });
        went_on(self.store.checkpoint().map_err(from_store));
        removed || collected || cleaned
    }

    /// Removes what was detached or unlinked, and gives its nodes back. What fails is left to the
    /// background: it is no fault of who needs room. Tells whether anything was removed.
    fn remove_detached(&self, until: Duration) -> bool {
        let (mut removed, mut failures) = (false, 0);
        for _ in 0..STEPS_MAX {
            if self.env.clock.monotonic() >= until {
                break;
            }
            let work = [Fs::detached_step, Fs::orphans_at_once, Fs::node_step];
            let done = work.iter().find_map(|work| match work(self, STEP_BUDGET) {
                Ok(0) => None,
                done => Some(done),
            });
            match done {
                None => break,
                Some(Ok(_)) => (removed, failures) = (true, 0),
                Some(Err(_)) if failures == FAILURES_MAX => break,
                Some(Err(error)) => {
                    failures += 1;
                    // What was freed until now may be the room that removing takes.
                    if let (FsError::NoSpace, Err(error)) = (&error, self.sync()) {
                        tracing::debug!(%error, "no room to remove what room would come of");
                    }
                }
            }
        }
        removed
    }
}

/// Whether looking for room may go on: that there is none is no fault of it. Any other failure is
/// told to the log.
fn went_on<T>(done: FsResult<T>) -> bool {
    match done {
        Ok(_) | Err(FsError::NoSpace) => true,
        Err(error) => {
            tracing::warn!(%error, "looking for room failed");
            false
        }
    }
}
