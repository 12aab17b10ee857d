//! Reclaims space in the foreground for an operation that finds none (ENOSPC). What was removed
//! before is freed at once, before the background gets to it. Then the oldest hour of a trash is
//! removed, if there is one.
//!
//! A search for space takes a sync and a checkpoint. So it is not repeated if the last one found
//! nothing and nothing was committed since, and rarely if nothing waits. A write to a full disk is
//! refused at once. An operation searches a bounded number of times, for a bounded time; it retries
//! while its searches end only by timeout. Meanwhile nothing of a trash is removed, nor for a
//! thread that merely waits for another's search.

use std::sync::atomic::Ordering;
use std::time::Duration;

use inode::FsError;
use policy::trash::Purged;
use vfs::FsResult;
use volume::error::from_store;

use crate::Upkeep;

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

/// What an operation that finds no space did about it.
#[derive(Default)]
pub struct Search {
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
pub struct Reclaimed {
    /// Whether there was any.
    pub any: bool,
    /// Whether the time was over before everything was done.
    pub more: bool,
}

impl Reclaimed {
    fn and(self, other: Reclaimed) -> Reclaimed {
        Reclaimed { any: self.any || other.any, more: self.more || other.more }
    }
}

impl Upkeep {
    /// Runs an operation that may need space. If there is none, it is reclaimed from what waits to
    /// be freed, and then from the trash.
    #[inline]
    pub fn with_space<T>(&self, run: impl Fn() -> FsResult<T>) -> FsResult<T> {
        self.searching(&mut Search::default(), run)
    }

    /// Like `with_space`; the search reports what it found if there is no space in the end.
    #[inline]
    pub fn searching<T>(&self, search: &mut Search, run: impl Fn() -> FsResult<T>) -> FsResult<T> {
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
        let again = self.look_for_space(search);
        search.refused = Some(self.store.refused_by_log());
        again
    }

    /// Whether the space of the trash would help an operation that found none. It does not help a
    /// log that has a disk of its own. Nor does it help where the trash is in an object store, and
    /// the host's disk is full. If this is not known yet, the operation must be tried once more,
    /// while the log's refusals are counted.
    fn trash_helps(&self, search: &Search) -> Option<bool> {
        if !self.trash.is_on() {
            return Some(true);
        }
        if self.env.objects.is_some() {
            return Some(false);
        }
        search.refused.map(|before| self.store.refused_by_log() == before)
    }

    fn look_for_space(&self, search: &mut Search) -> bool {
        if self.options.read_only {
            return false;
        }
        let now = self.env.clock.monotonic();
        let end = *search.began.get_or_insert(now) + OPERATION;
        if now >= end {
            return false;
        }
        let Some(_looking) = self.foreground.looking.try_lock() else {
            let left = end.saturating_sub(self.env.clock.monotonic());
            return self.foreground.looking.try_lock_for(left).is_some();
        };
        let until = now + SEARCH;
        let hopeless = std::mem::take(&mut search.hopeless) || search.rounds >= ROUNDS_MAX;
        // What was released since is not what was checked.
        if hopeless && !self.queue.has_new_orphans() || !self.may_come() {
            // What the log keeps for the index is space too, and expendable.
            let free = self.free_bytes();
            succeeded(self.store.keep_log(&[]).map_err(from_store));
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
            let purged = self.purge_oldest().unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot purge the trash for space");
                Purged::Nothing
            });
            if purged == Purged::Hour {
                self.give_back(until);
            }
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
            self.foreground.nothing_at.store(self.store.last_commit().0.0, Ordering::Release);
            self.foreground.nothing_since.store(self.env.clock.now().0, Ordering::Release);
        }
        // A checkpoint alone may have freed some.
        true
    }

    /// Bytes that are free on disk, if it reports them.
    fn free_bytes(&self) -> Option<u64> {
        self.env.device.space().ok().map(|space| space.free_bytes)
    }

    /// Whether searching for space is worth its cost.
    pub fn may_come(&self) -> bool {
        if self.queue.has_new_orphans() {
            // A holder released it just now.
            return true;
        }
        if self.store.last_commit().0.0 == self.foreground.nothing_at.load(Ordering::Acquire) {
            return false;
        }
        let waits = self.bytes_to_come() > 0
            || self.queue.detached() > 0
            || self.collection_waits()
            || self.store.compaction_may_free_space();
        let since = self.foreground.nothing_since.load(Ordering::Acquire);
        waits || self.env.clock.now().0.saturating_sub(since) >= REST
    }

    /// Does the work that frees space, together with other threads and after those that are at it.
    /// Ends when it is done or the monotonic clock reaches `until`. Failures are logged.
    pub fn give_back(&self, until: Duration) -> Reclaimed {
        // The index gives up its space.
        succeeded(self.store.keep_log(&[]).map_err(from_store));
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
        if !succeeded(self.sync()) {
            return Reclaimed::default();
        }
        // A rewrite takes space before it frees any.
        let cleaned = self.data.clean_now(&*self.store, until).unwrap_or_else(|error| {
            succeeded::<()>(Err(from_store(error)));
            data::Cleaned::default()
        });
        succeeded(self.store.checkpoint().map_err(from_store));
        Reclaimed { any: cleaned.any, more: cleaned.more }
    }

    /// Removes what was detached or unlinked, and frees its nodes. Failures are left to the
    /// background: they are not errors of the operation that needs space.
    fn remove_detached(&self, until: Duration) -> Reclaimed {
        let (mut any, mut failures) = (false, 0);
        for _ in 0..STEPS_MAX {
            let (mut did, mut failed) = (false, None);
            for work in [Upkeep::detached_step, Upkeep::orphans_at_once, Upkeep::node_step] {
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
fn succeeded<T>(done: FsResult<T>) -> bool {
    match done {
        Ok(_) | Err(FsError::NoSpace) => true,
        Err(error) => {
            tracing::warn!(%error, "cannot search for space to free");
            false
        }
    }
}
