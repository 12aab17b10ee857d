//! Space to be reclaimed: freed pages that wait for their commit to be durable, dead pages that
//! wait to be punched, and dead segments. Decides; `clean` acts.
//!
//! All of it is in memory: what a crash forgets stays on disk until garbage collection, and is
//! never reallocated.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use format::extent::CHUNK_BYTES;
use store::CommitToken;

use crate::Options;
use crate::alloc::PageRun;

/// Runs that may wait for durability; beyond it the cleaner requests a sync.
const WAITING_RUNS_MAX: usize = 64 << 10;
/// Runs beyond which the oldest are forgotten: 24 MB of memory, if the cleaner does not run.
const WAITING_RUNS_LIMIT: usize = 1 << 20;

/// Counters of [`crate::Data::stats`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Segments that accept writes, or wait to be sealed.
    pub open_segments: u64,
    /// Segments that are blobs.
    pub sealed_segments: u64,
    /// Bytes written and not synced.
    pub unsynced_bytes: u64,
    /// Bytes freed by commits that are not known to be durable.
    pub waiting_bytes: u64,
    /// Bytes freed durably and not punched yet.
    pub dead_bytes: u64,
    /// Part of these that could not be freed, or, where the disk cannot punch, that waits until
    /// more of its segment dies. Whether the disk can punch is not known before the first attempt
    /// since opening.
    pub stuck_bytes: u64,
    /// Bytes reclaimed since opening.
    pub reclaimed_bytes: u64,
    /// Bytes whose location was forgotten, for garbage collection to find.
    pub leaked_bytes: u64,
}

/// How long work on a segment, or the look at segments of an earlier opening, rests after a
/// failure.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(60);
/// How long all deletions rest after the first that failed. It doubles with each further one, up
/// to [`REST_AFTER_FAILURE`]: what all of them need may be missing.
const DELETIONS_REST_MIN: Duration = Duration::from_secs(1);

/// A segment that had no live page.
#[derive(Debug, Clone, Copy)]
struct Dying {
    /// The last commit by then.
    commit: CommitToken,
    /// Until when its deletion, which failed, is not tried again.
    rests_until: Duration,
}

#[derive(Default)]
pub(crate) struct Garbage {
    /// Freed by commits, approximately in the order of the tokens.
    waiting: VecDeque<(CommitToken, Vec<PageRun>)>,
    waiting_runs: usize,
    waiting_pages: u64,
    /// Dead pages of each segment.
    dead: BTreeMap<u64, Dead>,
    /// Dead pages that were taken to be freed and are not freed yet.
    at_hand: u64,
    /// Segments without a live page, which are to be deleted.
    dying: BTreeMap<u64, Dying>,
    /// How many deletions failed since the last that did not, and until when none is tried.
    failed_deletions: u32,
    deletions_rest_until: Duration,
    /// Until when no segment is sealed, because that failed.
    seals_rest_until: Duration,
    /// Whether the segments of an earlier opening were looked at.
    is_audited: bool,
    audit_rests_until: Duration,
    reclaimed_pages: u64,
    pub(crate) leaked_pages: u64,
}

#[derive(Default)]
struct Dead {
    runs: Vec<(u32, u32)>,
    pages: u64,
    since: Duration,
    /// Deferred until there are this many pages, regardless of age.
    put_off: Option<u64>,
    /// Cleaning it failed.
    failed: bool,
}

/// Ages from which pages count as old.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Age {
    pub(crate) punch: Duration,
    /// For deferred pages, and those of a segment whose cleaning failed.
    pub(crate) put_off: Duration,
    /// Whether pages can be punched. Where they cannot, age frees no deferred page: the segment is
    /// rewritten once enough of it is dead.
    pub(crate) punches: bool,
}

/// A segment to clean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) segment: u64,
    /// When the first of its dead pages died.
    pub(crate) since: Duration,
    /// Whether they are so old that they are freed even where that is slow.
    pub(crate) old: bool,
}

fn pages(runs: &[PageRun]) -> u64 {
    runs.iter().map(|run| u64::from(run.count)).sum()
}

impl Garbage {
    /// Takes what a commit freed.
    pub(crate) fn wait(&mut self, token: CommitToken, runs: Vec<PageRun>) {
        self.waiting_runs += runs.len();
        self.waiting_pages += pages(&runs);
        self.waiting.push_back((token, runs));
        while self.waiting_runs > WAITING_RUNS_LIMIT {
            let Some((_, runs)) = self.waiting.pop_front() else { break };
            self.waiting_runs -= runs.len();
            self.waiting_pages -= pages(&runs);
            self.leaked_pages += pages(&runs);
        }
    }

    /// Counts as dead what was freed by commits that are durable. `now` is monotonic time.
    pub(crate) fn mature(&mut self, durable: CommitToken, now: Duration) {
        while self.waiting.front().is_some_and(|(token, _)| *token <= durable) {
            let Some((_, runs)) = self.waiting.pop_front() else { break };
            self.waiting_runs -= runs.len();
            self.waiting_pages -= pages(&runs);
            self.bury(&runs, now);
        }
    }

    /// A commit that should be made durable, because too much waits for it.
    pub(crate) fn impatient(&self, options: &Options) -> Option<CommitToken> {
        let (token, _) = self.waiting.back()?;
        let bytes = self.waiting_pages * u64::from(CHUNK_BYTES);
        let too_much = self.waiting_runs > WAITING_RUNS_MAX || bytes > options.waiting_bytes_max;
        too_much.then_some(*token)
    }

    /// The last commit that freed pages wait for.
    pub(crate) fn last_waiting(&self) -> Option<CommitToken> {
        self.waiting.iter().map(|(token, _)| *token).max()
    }

    /// Counts unreferenced pages as dead.
    pub(crate) fn bury(&mut self, runs: &[PageRun], now: Duration) {
        for run in runs {
            let dead = self.touch(run.segment, now);
            dead.runs.push((run.page, run.count));
            dead.pages += u64::from(run.count);
        }
    }

    fn touch(&mut self, segment: u64, now: Duration) -> &mut Dead {
        self.dead.entry(segment).or_insert_with(|| Dead { since: now, ..Dead::default() })
    }

    /// Whether this many more runs may be remembered.
    pub(crate) fn has_space_for(&self, runs: usize) -> bool {
        let dead: usize = self.dead.values().map(|dead| dead.runs.len()).sum();
        dead + runs <= WAITING_RUNS_LIMIT
    }

    /// Schedules a segment for examination, even if none of its pages is to be punched.
    pub(crate) fn examine(&mut self, segment: u64, now: Duration) {
        let dead = self.touch(segment, now);
        (dead.put_off, dead.failed) = (None, false);
    }

    /// Takes back the pages of a segment that could not be cleaned. It is tried again also if it
    /// has none, because it is wholly dead.
    pub(crate) fn put_off_all(&mut self, segment: u64, runs: &[PageRun], now: Duration) {
        self.put_back(runs, Some(u64::MAX), now);
        let dead = self.touch(segment, now);
        (dead.put_off, dead.failed) = (Some(u64::MAX), true);
    }

    /// Schedules the deletion of a segment that had no live page when the commit was the last one.
    /// It has none later: if that was known before, an earlier commit counts.
    pub(crate) fn die(&mut self, segment: u64, commit: CommitToken) {
        self.dying.entry(segment).or_insert(Dying { commit, rests_until: Duration::ZERO });
    }

    /// The last commit that a deletion waits for.
    pub(crate) fn last_death(&self) -> Option<CommitToken> {
        self.dying.values().map(|dying| dying.commit).max()
    }

    /// The segment to delete next: its death is durable, and none has rested for longer. It is none
    /// of those that are skipped. `at_once`: rests do not matter.
    pub(crate) fn next_death(
        &self,
        durable: CommitToken,
        now: Duration,
        at_once: bool,
        skipped: &BTreeSet<u64>,
    ) -> Option<u64> {
        if !at_once && now < self.deletions_rest_until {
            return None;
        }
        let rested = |dying: &Dying| at_once || now >= dying.rests_until;
        let ready = self.dying.iter().filter(|(segment, dying)| {
            dying.commit <= durable && rested(dying) && !skipped.contains(segment)
        });
        ready.min_by_key(|(_, dying)| dying.rests_until).map(|(&segment, _)| segment)
    }

    /// Notes that a segment needs no deletion any more.
    pub(crate) fn buried(&mut self, segment: u64) {
        self.dying.remove(&segment);
        (self.failed_deletions, self.deletions_rest_until) = (0, Duration::ZERO);
    }

    /// Notes that a deletion failed.
    pub(crate) fn not_buried(&mut self, segment: u64, now: Duration) {
        if let Some(dying) = self.dying.get_mut(&segment) {
            dying.rests_until = now + REST_AFTER_FAILURE;
        }
        let rest = DELETIONS_REST_MIN * (1 << self.failed_deletions.min(6));
        self.deletions_rest_until = now + rest.min(REST_AFTER_FAILURE);
        self.failed_deletions += 1;
    }

    /// Whether segments are sealed now.
    pub(crate) fn may_seal(&self, now: Duration) -> bool {
        now >= self.seals_rest_until
    }

    /// Notes that sealing a segment failed.
    pub(crate) fn not_sealed(&mut self, now: Duration) {
        self.seals_rest_until = now + REST_AFTER_FAILURE;
    }

    /// Whether the segments of an earlier opening are to be looked at.
    pub(crate) fn is_audit_due(&self, now: Duration) -> bool {
        !self.is_audited && now >= self.audit_rests_until
    }

    /// Notes how that look ended. One that failed is repeated after a rest.
    pub(crate) fn audited(&mut self, is_done: bool, now: Duration) {
        self.is_audited = is_done;
        self.audit_rests_until = now + REST_AFTER_FAILURE;
    }

    /// Takes a segment's dead pages to free them. They count as dead until they are.
    pub(crate) fn take_to_free(&mut self, segment: u64) -> Vec<PageRun> {
        let runs = self.take(segment);
        self.at_hand = pages(&runs);
        runs
    }

    /// Counts pages as reclaimed.
    pub(crate) fn gave_back(&mut self, pages: u64) {
        self.reclaimed_pages += pages;
        self.at_hand = self.at_hand.saturating_sub(pages);
    }

    /// Ends the freeing: pages taken to be freed are free, or were put back.
    pub(crate) fn end_of_freeing(&mut self) {
        self.at_hand = 0;
    }

    /// Takes back pages that are deferred: they wait until the segment has `pages` of them, or,
    /// with none, are retried at once.
    pub(crate) fn put_back(&mut self, runs: &[PageRun], until: Option<u64>, since: Duration) {
        let Some(first) = runs.first() else { return };
        self.bury(runs, since);
        self.at_hand = self.at_hand.saturating_sub(pages(runs));
        let dead = self.touch(first.segment, since);
        dead.since = dead.since.min(since);
        dead.put_off = until;
    }

    /// The segment to clean next: the one with the most dead pages, if it has enough of them, or
    /// one whose dead pages are old. Enough is what they were deferred until, or else what is worth
    /// a punch. Old is older than `age`, or much older where they were deferred. It is none of
    /// those that are skipped.
    pub(crate) fn pick(
        &self,
        options: &Options,
        now: Duration,
        age: Age,
        skipped: &BTreeSet<u64>,
    ) -> Option<Pick> {
        let least = options.punch_bytes_min / u64::from(CHUNK_BYTES);
        let ready = |dead: &Dead| dead.pages >= dead.put_off.unwrap_or(least);
        let age_of = |dead: &Dead| now.saturating_sub(dead.since);
        let is_old = |dead: &Dead| match dead.put_off {
            None => age_of(dead) >= age.punch,
            Some(_) => (age.punches || dead.failed) && age_of(dead) >= age.put_off,
        };
        let all = || self.dead.iter().filter(|(segment, _)| !skipped.contains(segment));
        let most = all().filter(|(_, dead)| ready(dead));
        let found = most
            .max_by_key(|(_, dead)| dead.pages)
            .or_else(|| all().find(|(_, dead)| is_old(dead)));
        let (&segment, dead) = found?;
        // Where punching is slow, pages wait longer: meanwhile enough of them may die to copy the
        // rest.
        let old = age.punches && age_of(dead) >= age.put_off;
        Some(Pick { segment, since: dead.since, old })
    }

    /// Dead pages of a segment.
    pub(crate) fn dead_pages(&self, segment: u64) -> u64 {
        self.dead.get(&segment).map_or(0, |dead| dead.pages)
    }

    /// Counts pages of a segment that a sweep found as dead, with the maximum age: some may have
    /// been known, and are counted once. Returns how many were not.
    pub(crate) fn bury_found(&mut self, segment: u64, runs: &[PageRun]) -> u64 {
        let known = self.take(segment);
        self.bury(&known, Duration::ZERO);
        self.bury(runs, Duration::ZERO);
        let joined = self.take(segment);
        self.bury(&joined, Duration::ZERO);
        pages(&joined) - pages(&known)
    }

    /// Takes a segment's dead pages, with adjacent runs joined.
    pub(crate) fn take(&mut self, segment: u64) -> Vec<PageRun> {
        let Some(mut dead) = self.dead.remove(&segment) else { return Vec::new() };
        dead.runs.sort_unstable();
        let mut joined: Vec<PageRun> = Vec::new();
        for (page, count) in dead.runs {
            match joined.last_mut() {
                Some(last) if last.page + last.count >= page => {
                    last.count = last.count.max(page + count - last.page);
                }
                _ => joined.push(PageRun { segment, page, count }),
            }
        }
        joined
    }

    /// Pages that cannot be reclaimed on demand. These are pages of segments that failed and, where
    /// the disk cannot punch, pages that wait until more of their segment dies.
    pub(crate) fn stuck_pages(&self, punches: bool) -> u64 {
        let waits = |dead: &Dead| dead.put_off.is_some_and(|least| dead.pages < least);
        let stuck = |dead: &&Dead| dead.failed || (!punches && waits(dead));
        self.dead.values().filter(stuck).map(|dead| dead.pages).sum()
    }

    pub(crate) fn stats(&self) -> Stats {
        let bytes = |pages: u64| pages * u64::from(CHUNK_BYTES);
        Stats {
            waiting_bytes: bytes(self.waiting_pages),
            dead_bytes: bytes(
                self.dead.values().map(|dead| dead.pages).sum::<u64>() + self.at_hand,
            ),
            reclaimed_bytes: bytes(self.reclaimed_pages),
            leaked_bytes: bytes(self.leaked_pages),
            ..Stats::default()
        }
    }
}
