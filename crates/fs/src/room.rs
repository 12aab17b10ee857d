//! Room for an operation that finds none: what was removed before gives it back at once, and not
//! when the background comes to it. Then the oldest hour of a trash goes, if there is one.
//!
//! Looking for room takes a sync and a checkpoint. So nobody looks again where nothing came of it
//! and nothing was committed since, and rarely where nothing waits: a write to a medium that is
//! full is refused at once.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

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

impl Fs {
    /// Runs an operation that may need room. Where there is none, it is made of what waits to be
    /// given back, and then of the trash.
    #[inline]
    pub(crate) fn with_room<T>(&self, run: impl Fn() -> FsResult<T>) -> FsResult<T> {
        let mut hopeless = false;
        loop {
            match run() {
                Err(FsError::NoSpace) if self.relieve(&mut hopeless)? => {}
                result => return result,
            }
        }
    }

    /// Sees that room comes of what waits, or of the oldest hour of the trash. Tells whether any
    /// may have come, or somebody else looked meanwhile. `hopeless`: whether nothing came the last
    /// time.
    #[cold]
    fn relieve(&self, hopeless: &mut bool) -> FsResult<bool> {
        if self.options.read_only {
            return Ok(false);
        }
        let Some(_looking) = self.room.looking.try_lock() else {
            drop(self.room.looking.lock());
            return Ok(true);
        };
        if std::mem::take(hopeless) || !self.may_come() {
            return self.purge_for_room();
        }
        if !self.give_back()? {
            *hopeless = true;
            self.room.nothing_at.store(self.store.last_commit().0.0, Ordering::Release);
            self.room.nothing_since.store(self.env.clock.now().0, Ordering::Release);
        }
        // A checkpoint alone may have made some.
        Ok(true)
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

    /// Does all the work that room comes of, beside others and after those who are at it. Tells
    /// whether there was any.
    pub(crate) fn give_back(&self) -> FsResult<bool> {
        let removed = self.remove_detached();
        // What the trees shared that were dropped. A collection that cannot read something rests.
        let collected = self.collect_to_the_end().unwrap_or_else(|error| {
            tracing::debug!(%error, "what nothing names any more could not be collected");
            false
        });
        // Room that contents had comes back when the commit is durable that freed it, and that of
        // nodes with a checkpoint.
        without_room(self.sync())?;
        // A rewrite takes room before it gives any.
        let cleaned = without_room(self.data.clean_now(&*self.store).map_err(from_store))?;
        without_room(self.store.checkpoint().map_err(from_store))?;
        Ok(removed || collected || cleaned.unwrap_or(false))
    }

    /// Removes what was detached or unlinked, and gives its nodes back. What fails is left to the
    /// background: it is no fault of who needs room. Tells whether anything was removed.
    fn remove_detached(&self) -> bool {
        let (mut removed, mut failures) = (false, 0);
        for _ in 0..STEPS_MAX {
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

/// That there is no room is no fault of looking for it.
fn without_room<T>(done: FsResult<T>) -> FsResult<Option<T>> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(FsError::NoSpace) => Ok(None),
        Err(error) => Err(error),
    }
}
