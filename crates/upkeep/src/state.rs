//! What background work keeps in memory between its steps; none of it needs to survive a crash.
//!
//! It is one value a kind of work, each with its own lock. The steps are in the modules of the
//! work: `collect`, `foreground_reclaim`, `search_upkeep`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use data::{Marked, Marking};
use device::sync::Mutex;
use format::subvolume_record::SubvolumeRecord;
use search::index::Flush;
use store::Pinned;

use crate::rest::Rests;
use crate::search_bases::Recorded;
use crate::search_due::Changes;

/// The collection in progress.
#[derive(Default)]
pub struct Collecting {
    pub(crate) stage: Stage,
    pub(crate) rests: Rests,
}

impl Collecting {
    /// Whether none begins yet, after one with a failure.
    pub fn rests(&self, now: Duration) -> bool {
        !self.rests.may_begin(now, false)
    }

    /// Whether none is in progress.
    pub fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Idle)
    }
}

/// Where it is.
#[derive(Default)]
pub(crate) enum Stage {
    #[default]
    Idle,
    Marking(Box<dyn Pinned>, Marking),
    /// From this segment on, after so many that could not be swept.
    Sweeping(Box<Marked>, u64, u64),
}

/// What is known of the search for space.
pub struct ForegroundReclaim {
    /// Held by the thread that searches for space.
    pub looking: Mutex<()>,
    /// The last commit when a search found nothing.
    pub(crate) nothing_at: AtomicU64,
    /// When that was, in nanoseconds of the clock.
    pub nothing_since: AtomicI64,
}

impl Default for ForegroundReclaim {
    fn default() -> ForegroundReclaim {
        ForegroundReclaim::new()
    }
}

impl ForegroundReclaim {
    /// No search was made yet.
    pub fn new() -> ForegroundReclaim {
        ForegroundReclaim {
            looking: Mutex::new(()),
            nothing_at: AtomicU64::new(u64::MAX),
            nothing_since: AtomicI64::new(i64::MIN),
        }
    }
}

/// What upkeep of the index remembers.
pub(crate) struct IndexUpkeep {
    pub(crate) work: Mutex<Work>,
}

/// What it does, and when.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) job: Option<Job>,
    /// Subvolumes for which a flush was requested, and until when each rests.
    pub(crate) asked: VecDeque<(u64, Duration)>,
    /// Subvolumes that rest until a time.
    pub(crate) resting: BTreeMap<u64, Duration>,
    /// Where the last check ended, and the commit at which the last round began.
    pub(crate) last: u64,
    pub(crate) round_at: u64,
    /// What the store had been given by then, in bytes.
    pub(crate) round_given: u64,
    pub(crate) round_time: Duration,
    /// When to check although nothing changed.
    pub(crate) next_round: Option<Duration>,
    pub(crate) looked: Option<Duration>,
    pub(crate) looks: u32,
    pub(crate) swept: Option<Duration>,
    /// How much differs from bases.
    pub(crate) changes: Changes,
}

/// A base that is being made.
pub(crate) struct Job {
    pub(crate) base: Recorded,
    /// The subvolume when it began.
    pub(crate) before: SubvolumeRecord,
    pub(crate) flush: Flush,
}

impl IndexUpkeep {
    /// Nothing is known.
    pub(crate) fn new() -> IndexUpkeep {
        IndexUpkeep { work: Mutex::default() }
    }
}

impl Work {
    /// Schedules a check of all subvolumes after a time, whether something changes or not.
    pub(crate) fn look_after(&mut self, now: Duration, wait: Duration) {
        let at = now.saturating_add(wait);
        self.next_round = Some(self.next_round.map_or(at, |next| next.min(at)));
    }
}
