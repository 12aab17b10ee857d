//! Garbage collection: marks from every live root, then sweeps what no record names.
//!
//! It finds what counting cannot: pages that a clone shared and both sides dropped, pages of trees
//! dropped whole, and pages that a crash forgot. The argument that it deletes nothing live:
//! 1. the [`Horizon`] is taken first: what was allocated by then, and what of that was in flight;
//! 2. then a state of all trees is pinned. A page below the horizon is named in that state, or in
//!    flight at the horizon, or unreferenced: its commit has returned before the pin;
//! 3. no record can name such a page later, because records only copy what records name, and pages
//!    are never allocated twice;
//! 4. the sweep frees pages below the horizon that are neither marked nor were in flight. It does
//!    so after the pinned state is durable, so that no crash restores a record that names one.
//!
//! Space is reported as on disk. A dead page that was punched, in this opening or another, is a
//! hole and is not counted. A page that the cleaner already has is passed to it once.
//!
//! A count is corrected by a difference, so two collections must not correct it by the same one.
//! Each sweep begins a new generation, and marks of an older one are not swept.
//!
//! Any error while marking ends the collection: an unread record is never treated as absent. A
//! segment whose file does not prove that it is that segment is skipped ([`Marked::unproven`]).
//!
//! Segments do not wait for one another: what fails in one is left to the cleaner, whose work on a
//! segment rests after a failure.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use format::Corruption;
use format::extent::{CHUNK_BYTES, Extent, decode};
use format::key;
use format::segment::{FIRST_PAGE, PAGES_MAX};
use store::{Batch, CommitToken, Error, Pinned, Result, SharedWalk, Store, TreeId};

use crate::Data;
use crate::alloc::PageRun;
use crate::clean::live_pages;
use crate::cut::{count_pages, pages_of};
use crate::garbage::Pick;
use crate::pages::Bitmap;
use crate::segments::SegmentFile;

/// Failures in a row after which no further segment is tried: then the store fails, not a segment.
const FAILURES_MAX: usize = 4;

/// What was allocated when a collection began. Take it before the state is pinned.
#[derive(Debug)]
pub struct Horizon {
    /// Segments, and the first unallocated page of each.
    segments: BTreeMap<u64, u32>,
    in_flight: Vec<PageRun>,
    /// Completed sweeps.
    generation: u64,
}

/// A marking in progress, of one pinned state. It runs in steps, concurrently with everything else.
pub struct Marking {
    horizon: Horizon,
    walk: SharedWalk,
    live: BTreeMap<u64, Bitmap>,
}

impl Marking {
    /// Begins to mark: `horizon` was taken before the state with these trees was pinned.
    pub fn new(horizon: Horizon, trees: impl IntoIterator<Item = TreeId>) -> Marking {
        let walk = SharedWalk::new(trees, &key::EXTENTS_PREFIX);
        Marking { horizon, walk, live: BTreeMap::new() }
    }
}

/// The result of marking. Nothing is deleted until [`Data::sweep`].
pub struct Marked {
    commit: CommitToken,
    horizon: Horizon,
    live: BTreeMap<u64, Bitmap>,
    /// The counters in the pinned state.
    counted: BTreeMap<u64, u64>,
    /// The sweep generation of these counters: that of the horizon, and then that of each step of
    /// this collection itself.
    generation: AtomicU64,
    report: Report,
    /// Defects of files that would be reclaimed in part if they were proven to be their segments.
    unproven: Vec<Corruption>,
    /// The first error of a read of a segment, of which nothing is reported.
    unread: Option<device::Error>,
}

/// What a collection found, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Each segment, in order.
    pub segments: Vec<SegmentReport>,
    /// Live bytes of all.
    pub live_bytes: u64,
    /// Bytes that a sweep reclaims.
    pub dead_bytes: u64,
}

/// What a collection found in one segment, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentReport {
    /// Its number.
    pub segment: u64,
    /// Pages that extents name.
    pub live_bytes: u64,
    /// What a sweep reclaims: everything that the segment occupies if it is deleted as a whole,
    /// otherwise its unreferenced pages that are not holes.
    pub dead_bytes: u64,
    /// Whether it is deleted as a whole.
    pub whole: bool,
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Segments deleted.
    pub deleted: u64,
    /// Bytes that those occupied, and of pages that were freed at once.
    pub freed_bytes: u64,
    /// Bytes that the cleaner newly got, to reclaim in its next steps.
    pub dead_bytes: u64,
    /// Segments that could not be swept. The next collection tries them again.
    pub failed: u64,
    /// Nothing was done: another collection swept since this one took its horizon. Mark again.
    pub outdated: bool,
}

/// When a sweep's dead pages in segments that stay are freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Free {
    /// By the cleaner, in its steps.
    Later,
    /// In the sweep.
    Now,
}

impl Marked {
    /// The report.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Defects of segment files of which a sweep reclaims nothing, because they do not prove that
    /// they are those segments.
    pub fn unproven(&self) -> &[Corruption] {
        &self.unproven
    }

    /// An error of a read of a segment, of which therefore nothing is reported.
    pub fn unread(&self) -> Option<&device::Error> {
        self.unread.as_ref()
    }
}

impl Data {
    /// A snapshot of what is allocated now. The first step of a collection, before the state is
    /// pinned.
    pub fn horizon(&self) -> Horizon {
        // Before anything else: all that sweeps of this generation and earlier ones committed is
        // then in the state that is pinned later.
        let generation = self.sweeps.load(Ordering::Acquire);
        // The table last: a segment that is sealed in between is then in both, with its pages. One
        // that is created and sealed in between may have pages in flight, and is left out.
        let handed = self.allocator.handed();
        let all = self.segments.all();
        let mut segments: BTreeMap<u64, u32> = BTreeMap::new();
        for (segment, place) in all {
            if matches!(place, SegmentFile::Sealed(_)) && segment < handed.next_id {
                segments.insert(segment, PAGES_MAX);
            }
        }
        segments.extend(handed.open);
        Horizon { segments, in_flight: handed.in_flight, generation }
    }

    /// Marks the pages that the extents of `trees` name, which must be all trees of the pinned
    /// state that hold extents. Reads the distinct nodes once, regardless of the number of clones.
    pub fn mark(
        &self,
        horizon: Horizon,
        pinned: &dyn Pinned,
        trees: &mut dyn Iterator<Item = TreeId>,
    ) -> Result<Marked> {
        let mut marking = Marking::new(horizon, trees);
        while self.mark_step(&mut marking, pinned, usize::MAX)? {}
        self.marked(marking, pinned)
    }

    /// One part of a marking, about `nodes` nodes; `false` when all are marked. After an error the
    /// marking is unusable: an unread record is never treated as absent.
    pub fn mark_step(
        &self,
        marking: &mut Marking,
        pinned: &dyn Pinned,
        nodes: usize,
    ) -> Result<bool> {
        let Marking { horizon, walk, live } = marking;
        let mut failed: Option<Error> = None;
        let newest = horizon.segments.last_key_value().map(|(&id, _)| id);
        let more = pinned.visit_shared_step(walk, nodes, &mut |key, value| {
            if failed.is_some() {
                return;
            }
            match decode(value) {
                Ok(Extent::Inline(_)) => {}
                Ok(Extent::Stored(stored)) => {
                    // A segment newer than the horizon may have been created and deleted since.
                    let known = newest.is_none_or(|newest| stored.segment > newest)
                        || self.segments.get(stored.segment).is_some();
                    if !known {
                        let file = self.segments.path(stored.segment);
                        failed = Some(Error::Missing { file, record: None });
                    }
                    live.entry(stored.segment).or_insert_with(Bitmap::new).set(pages_of(&stored));
                }
                Err(malformed) => {
                    let file = format!("extent with key {key:02x?}");
                    failed = Some(malformed.located(&file, 0).into());
                }
            }
        })?;
        failed.map_or(Ok(more), Err)
    }

    /// The result of a finished marking.
    pub fn marked(&self, marking: Marking, pinned: &dyn Pinned) -> Result<Marked> {
        let Marking { horizon, live, .. } = marking;
        let (commit, generation) = (pinned.commit(), AtomicU64::new(horizon.generation));
        let (counted, report, unproven) = (BTreeMap::new(), Report::default(), Vec::new());
        let mut marked =
            Marked { commit, horizon, live, counted, generation, report, unproven, unread: None };
        let mut unproven = Vec::new();
        let mut report = Report::default();
        let mut failures = 0;
        for &segment in marked.horizon.segments.keys() {
            marked.counted.insert(segment, live_pages(pinned, segment)?);
            let live_bytes = bytes_of(marked.live_pages(segment));
            let (dead_bytes, whole) = match self.dead_bytes(&marked, segment) {
                Err(Error::Corrupt(bad)) if self.segments.is_doubted(segment) => {
                    unproven.push((*bad).clone());
                    (0, false)
                }
                Err(Error::Device(error)) if failures < FAILURES_MAX => {
                    failures += 1;
                    tracing::warn!(%error, segment, "a data segment cannot be looked at");
                    marked.unread.get_or_insert(error);
                    (0, false)
                }
                dead => {
                    failures = 0;
                    dead?
                }
            };
            report.dead_bytes += dead_bytes;
            report.segments.push(SegmentReport { segment, live_bytes, dead_bytes, whole });
        }
        // Including those of segments newer than the horizon.
        report.live_bytes = marked.live.values().map(|pages| bytes_of(pages.count())).sum();
        (marked.report, marked.unproven) = (report, unproven);
        Ok(marked)
    }

    /// What a sweep would reclaim of a segment, and whether it is deleted as a whole.
    fn dead_bytes(&self, marked: &Marked, segment: u64) -> Result<(u64, bool)> {
        let file = self.segments.get(segment);
        if matches!(file, Some(SegmentFile::Sealed(one)) if one.generation > 0) {
            // Its map determines which pages exist.
            self.segments.prove(segment)?;
        }
        let whole = self.goes_whole(marked, segment);
        let dead = if whole {
            self.segments.disk_bytes(segment)?
        } else {
            self.dead_runs(marked, segment)?.iter().map(|run| bytes_of(run.count)).sum()
        };
        if dead > 0 {
            self.segments.prove(segment)?;
        }
        Ok((dead, whole))
    }

    /// Deletes the segments that marking found dead, corrects the counts of the others, and passes
    /// their dead pages to the cleaner, whose steps are bounded. A crash may interrupt it anywhere:
    /// the next collection finds the rest. Does nothing, and reports that, when another collection
    /// swept since this one began. One marking is swept once: no segment twice.
    pub fn sweep(&self, store: &dyn Store, marked: &Marked) -> Result<Swept> {
        let mut swept = Swept::default();
        self.sweep_some(store, marked, &|_| true, &mut swept)?;
        Ok(swept)
    }

    /// As [`Data::sweep`], for some of the segments.
    pub fn sweep_some(
        &self,
        store: &dyn Store,
        marked: &Marked,
        some: &dyn Fn(u64) -> bool,
        swept: &mut Swept,
    ) -> Result<()> {
        self.sweep_and_free(store, marked, some, Free::Later, swept)
    }

    /// As [`Data::sweep`], for one segment, whose dead pages are freed at once, or, if the disk
    /// cannot punch, when enough of it is dead. The result counts only what was freed.
    pub fn sweep_now(
        &self,
        store: &dyn Store,
        marked: &Marked,
        segment: u64,
        swept: &mut Swept,
    ) -> Result<()> {
        self.sweep_and_free(store, marked, &|other| other == segment, Free::Now, swept)
    }

    fn sweep_and_free(
        &self,
        store: &dyn Store,
        marked: &Marked,
        some: &dyn Fn(u64) -> bool,
        free: Free,
        swept: &mut Swept,
    ) -> Result<()> {
        let _cleaning = self.cleaning.lock();
        self.check_writable()?;
        // Under the lock of sweeps: no other one is running.
        let generation = self.sweeps.load(Ordering::Acquire);
        if marked.generation.load(Ordering::Acquire) != generation {
            swept.outdated = true;
            return Ok(());
        }
        store.sync(marked.commit)?;
        // Pages that waited for that are found here as well.
        let now = self.env.clock.monotonic();
        self.garbage.lock().mature(store.durable(), now);
        let done = self.sweep_each(store, marked, some, free, swept);
        // At the end, whatever the result: a state pinned meanwhile may lack some of it. After an
        // error this marking is not continued either.
        self.sweeps.store(generation + 1, Ordering::Release);
        if done.is_ok() {
            marked.generation.store(generation + 1, Ordering::Release);
        }
        done
    }

    /// Sweeps segments. Where one fails, the others do not wait for it, but a sweep of
    /// one segment returns its failure.
    fn sweep_each(
        &self,
        store: &dyn Store,
        marked: &Marked,
        some: &dyn Fn(u64) -> bool,
        free: Free,
        swept: &mut Swept,
    ) -> Result<()> {
        let mut failures = 0;
        for &segment in marked.horizon.segments.keys().filter(|&&segment| some(segment)) {
            let whole = self.goes_whole(marked, segment);
            if whole && failures >= FAILURES_MAX {
                self.leave_whole(store, marked, segment)?;
                continue;
            }
            let done = match free {
                Free::Later => self.sweep_segment(store, marked, segment, swept),
                Free::Now => self.free_segment(store, marked, segment, swept),
            };
            match done {
                Ok(()) => failures = 0,
                Err(Error::Device(error)) if free == Free::Later && failures < FAILURES_MAX => {
                    failures += 1;
                    tracing::warn!(%error, segment, "unreferenced pages were not freed");
                    if whole && self.segments.get(segment).is_some() {
                        self.leave_whole(store, marked, segment)?;
                    } else {
                        swept.failed += 1;
                    }
                }
                failed => return failed,
            }
        }
        Ok(())
    }

    /// Leaves a segment that no record names to the cleaner. Its count is then what a later opening
    /// finds it by.
    fn leave_whole(&self, store: &dyn Store, marked: &Marked, segment: u64) -> Result<()> {
        marked.correct_count(store, segment)?;
        self.garbage.lock().die(segment, store.last_commit());
        Ok(())
    }

    /// As [`Data::sweep`], for the next `most` segments from number `from` on; returns where the
    /// next step begins, if there is more. There is none when the marking is outdated.
    pub fn sweep_step(
        &self,
        store: &dyn Store,
        marked: &Marked,
        (from, most): (u64, usize),
        swept: &mut Swept,
    ) -> Result<Option<u64>> {
        let segments = &marked.horizon.segments;
        let next = segments.range(from..).nth(most).map(|(&segment, _)| segment);
        let within = |segment| segment >= from && next.is_none_or(|next| segment < next);
        self.sweep_some(store, marked, &within, swept)?;
        Ok(next.filter(|_| !swept.outdated))
    }

    fn sweep_segment(
        &self,
        store: &dyn Store,
        marked: &Marked,
        segment: u64,
        swept: &mut Swept,
    ) -> Result<()> {
        if self.goes_whole(marked, segment) {
            if !self.is_proven(segment)? {
                return Ok(());
            }
            let occupied = self.segments.disk_bytes(segment)?;
            self.delete_segment(store, segment)?;
            swept.deleted += u64::from(occupied > 0);
            swept.freed_bytes += occupied;
            return Ok(());
        }
        if self.segments.is_doubted(segment) {
            // Reported when it was marked.
            return Ok(());
        }
        // The count first. If a crash follows, the next collection finds the pages again, but a
        // count that is too low would let a live segment be deleted.
        marked.correct_count(store, segment)?;
        let runs = self.dead_runs(marked, segment)?;
        // Where the file cannot be read now, the cleaner proves it before it frees anything.
        let unproven = || matches!(self.is_proven(segment), Ok(false));
        if !runs.is_empty() && !unproven() {
            let mut garbage = self.garbage.lock();
            if garbage.has_space_for(runs.len()) {
                // With the maximum age: the cleaner takes them next.
                let pages = garbage.bury_found(segment, &runs);
                swept.dead_bytes += pages * u64::from(CHUNK_BYTES);
            }
        }
        Ok(())
    }

    /// Sweeps a segment, and cleans it as far as the disk allows.
    fn free_segment(
        &self,
        store: &dyn Store,
        marked: &Marked,
        segment: u64,
        swept: &mut Swept,
    ) -> Result<()> {
        let dead = |runs: Vec<PageRun>| runs.iter().map(|run| bytes_of(run.count)).sum::<u64>();
        let (before, occupied) =
            (dead(self.dead_runs(marked, segment)?), self.segments.disk_bytes(segment)?);
        let mut handed = Swept::default();
        self.sweep_segment(store, marked, segment, &mut handed)?;
        swept.deleted += handed.deleted;
        swept.freed_bytes += handed.freed_bytes;
        if handed.deleted > 0 {
            return Ok(());
        }
        loop {
            let (pages, could) = (self.garbage.lock().dead_pages(segment), self.can_punch());
            if pages == 0 {
                break;
            }
            let pick = Pick { segment, since: Duration::ZERO, old: true };
            if let Err(error) = self.clean_segment(store, pick) {
                // The cleaner has them, and will retry: the segments that follow do not wait for
                // that.
                tracing::warn!(%error, segment, "unreferenced pages were not freed");
                break;
            }
            // Only an attempt shows that the disk cannot punch.
            if self.garbage.lock().dead_pages(segment) >= pages && self.can_punch() == could {
                break;
            }
        }
        swept.freed_bytes += match self.segments.get(segment) {
            // Other threads write to it meanwhile.
            Some(SegmentFile::Open(_)) => {
                before.saturating_sub(dead(self.dead_runs(marked, segment)?))
            }
            _ => occupied.saturating_sub(self.segments.disk_bytes(segment)?),
        };
        Ok(())
    }

    /// Whether a segment's file is proven to be its own. If it is not, that was reported.
    fn is_proven(&self, segment: u64) -> Result<bool> {
        match self.segments.prove(segment) {
            Err(Error::Corrupt(_)) => Ok(false),
            proven => proven.map(|()| true),
        }
    }

    /// Whether a segment is deleted as a whole: no record names it, and none will.
    fn goes_whole(&self, marked: &Marked, segment: u64) -> bool {
        // In a segment that was open at the horizon, later pages were not marked.
        let complete = marked.horizon.segments.get(&segment) == Some(&PAGES_MAX);
        let held = marked.horizon.in_flight.iter().any(|run| run.segment == segment);
        complete && !held && marked.live_pages(segment) == 0 && self.is_deletable(segment)
    }

    /// Dead pages of a segment that occupy the disk, with adjacent runs joined.
    fn dead_runs(&self, marked: &Marked, segment: u64) -> Result<Vec<PageRun>> {
        // Live pages take space, and so do header and footer; in a rewritten segment, not all do.
        let others = match self.segments.get(segment) {
            Some(SegmentFile::Open(_)) => 1,
            Some(SegmentFile::Sealed(sealed)) if sealed.generation == 0 => 2,
            _ => 0,
        };
        let least = bytes_of(marked.live_pages(segment) + others);
        if others > 0 && self.segments.disk_bytes(segment)? <= least {
            return Ok(Vec::new());
        }
        let mut found: Vec<PageRun> = Vec::new();
        let mut left = marked.dead_runs(segment, self.end_of_pages(segment)?);
        left.reverse();
        while let Some(run) = left.pop() {
            match self.segments.occupied(segment, run.page, run.count)? {
                0 => {}
                some if some < run.count => {
                    let half = run.count / 2;
                    left.push(PageRun { page: run.page + half, count: run.count - half, ..run });
                    left.push(PageRun { count: half, ..run });
                }
                _ => match found.last_mut() {
                    Some(last) if last.page + last.count == run.page => last.count += run.count,
                    _ => found.push(run),
                },
            }
        }
        Ok(found)
    }
}

/// Bytes of pages.
fn bytes_of(pages: u32) -> u64 {
    u64::from(pages) * u64::from(CHUNK_BYTES)
}

impl Data {
    /// The page after those of a segment. In a segment that was sealed before it was full, that is
    /// its footer, which no extent names and which is not dead. A rewritten one has a map.
    fn end_of_pages(&self, segment: u64) -> Result<u32> {
        let Some(SegmentFile::Sealed(sealed)) = self.segments.get(segment) else {
            return Ok(PAGES_MAX);
        };
        if sealed.generation > 0 {
            return Ok(PAGES_MAX);
        }
        let length = self.segments.blobs().length(&sealed.name)?.unwrap_or(0);
        Ok(u32::try_from(length / u64::from(CHUNK_BYTES)).unwrap_or(PAGES_MAX))
    }
}

impl Marked {
    fn live_pages(&self, segment: u64) -> u32 {
        self.live.get(&segment).map_or(0, Bitmap::count)
    }

    /// Makes the count of a segment that of the pages that were marked.
    fn correct_count(&self, store: &dyn Store, segment: u64) -> Result<()> {
        let pages = self.live_pages(segment);
        let counted = self.counted.get(&segment).copied().unwrap_or(0);
        if u64::from(pages) != counted {
            let mut batch = Batch::new();
            count_pages(&mut batch, segment, i64::from(pages) - counted as i64);
            store.commit(&batch)?;
        }
        Ok(())
    }

    /// Dead pages of a segment before `end`, with adjacent runs joined.
    fn dead_runs(&self, segment: u64, end: u32) -> Vec<PageRun> {
        let end = self.horizon.segments.get(&segment).map_or(0, |&known| known.min(end));
        let mut kept = self.live.get(&segment).cloned().unwrap_or_else(Bitmap::new);
        for held in self.horizon.in_flight.iter().filter(|run| run.segment == segment) {
            kept.set(*held);
        }
        let mut runs: Vec<PageRun> = Vec::new();
        for page in (FIRST_PAGE..end).filter(|&page| !kept.get(page)) {
            match runs.last_mut() {
                Some(last) if last.page + last.count == page => last.count += 1,
                _ => runs.push(PageRun { segment, page, count: 1 }),
            }
        }
        runs
    }
}
