//! Reclaiming space, in steps: seal full segments, punch dead pages, delete dead segments.
//!
//! A page is punched only when the commit that freed it is durable: after a crash no record names
//! it. A segment is deleted only when its count of live pages is zero in a durable state and it is
//! sealed. None of its reservations may be in flight, and its number must not be the greatest. A
//! sealed segment gets no new pages, so a count of zero stays zero. And no space of a segment is
//! reclaimed unless its file proves that it is that segment (`proof`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use format::extent::CHUNK_BYTES;
use format::segment::{Mark, MarkKind};
use format::{key, usage};
use store::{Batch, CommitToken, Error, KeyRange, Need, Read, Result, Store};

use crate::alloc::PageRun;
use crate::cut::VOLUME_TREE;
use crate::garbage::{Age, Pick};
use crate::pages::{Bitmap, byte_offset};
use crate::segments::{OpenSegment, SealedSegment, SegmentFile, blob_name, open_path};
use crate::write::name_space;
use crate::{Data, Freed};

/// Maximum time that one step punches.
const PUNCH_STEP_NANOS: u64 = 50_000_000;
/// Deferred dead pages are punched slowly at this multiple of the age of others.
const PUT_OFF_AGES: u32 = 12;
/// Time that a rewrite takes in addition to copying: three syncs and a new file.
const REWRITE_NANOS: u64 = 30_000_000;
/// Time to copy a page: 4 KiB read and written at 200 MB/s.
const COPY_PAGE_NANOS: u64 = 20_000;
/// Stored as the punch time of a store that cannot punch.
const CANNOT_PUNCH: u64 = 1 << 50;
/// How long to wait for the running cleaner when the caller has no more time.
const TURN_WAIT: Duration = Duration::from_millis(100);

/// Progress of a cleaning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Whether anything was cleaned.
    pub any: bool,
    /// Whether the time was over before everything was cleaned.
    pub more: bool,
}

/// How eagerly a step cleans.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// The age from which pages are punched.
    age: Duration,
    /// Whether what failed is tried again at once. Otherwise it rests, and so does not take the
    /// turn of other work.
    at_once: bool,
}

/// Cleans everything possible, regardless of age and of earlier failures.
const AT_ONCE: Pace = Pace { age: Duration::ZERO, at_once: true };

/// What failed in the steps of one cleaning.
#[derive(Default)]
struct Failures {
    /// Segments that are not tried again.
    skipped: BTreeSet<u64>,
    first: Option<Error>,
}

impl Failures {
    fn note(&mut self, error: Error) {
        self.first.get_or_insert(error);
    }
}

/// How a segment's dead pages are freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// This many runs are punched now.
    Punch(usize),
    /// The live pages are copied.
    Rewrite,
    /// Not until there are this many.
    Wait(u64),
}

impl Data {
    /// Takes what a commit freed, to be punched once that commit is durable. Ends the change's
    /// reservations in flight. The caller still holds the files that it changed.
    pub fn reclaim_after(&self, freed: Freed, commit: CommitToken) {
        let Freed { pages, tickets, moved, .. } = freed;
        drop(tickets);
        for (file, bytes) in moved {
            self.hot.moved_along(file, bytes);
        }
        if !pages.is_empty() {
            self.garbage.lock().wait(commit, pages);
        }
    }

    /// Takes back what was written for a commit that was refused, with nothing changed: no record
    /// will ever name it. Never call this for a commit whose outcome is in doubt.
    pub fn abandon(&self, freed: Freed) {
        let now = self.env.clock.monotonic();
        let runs: Vec<_> =
            freed.tickets.iter().map(|ticket| ticket.run).filter(|run| run.count > 0).collect();
        self.garbage.lock().bury(&runs, now);
        drop(freed);
    }

    /// Does one bounded step of cleaning; `false` when nothing is to be done now. A worker calls it
    /// about every second, and again while it returns `true`.
    pub fn clean_step(&self, store: &dyn Store) -> Result<bool> {
        // Another thread cleans: nothing to do here.
        let Some(_cleaning) = self.cleaning.try_lock() else { return Ok(false) };
        let mut failures = Failures::default();
        let pace = Pace { age: self.options.punch_after, at_once: false };
        match (self.step_alone(store, pace, &mut failures)?, failures.first) {
            (false, Some(error)) => Err(error),
            (done, _) => Ok(done),
        }
    }

    /// Cleans everything possible, regardless of age: before closing, and in tests. What fails does
    /// not keep the rest from being cleaned; the first error is returned.
    pub fn clean_all(&self, store: &dyn Store) -> Result<()> {
        let mut failures = Failures::default();
        loop {
            let last = self.garbage.lock().last_waiting();
            if let Some(token) = last {
                store.sync(token)?;
            }
            let Some(_cleaning) = self.cleaning.try_lock() else { break };
            let skipped = failures.skipped.len();
            let done = self.step_alone(store, AT_ONCE, &mut failures)?;
            // After a failure others may remain that were not tried.
            if !done && failures.skipped.len() == skipped {
                break;
            }
        }
        failures.first.map_or(Ok(()), Err)
    }

    /// Cleans everything possible, regardless of age, concurrently with the cleaner: for a full
    /// disk. Runs until the monotonic clock reaches `until`, but at least one step. Skips what is
    /// not durable yet, and segments that fail.
    pub fn clean_now(&self, store: &dyn Store, until: Duration) -> Result<Cleaned> {
        let mut cleaned = Cleaned::default();
        let mut failures = Failures::default();
        loop {
            let left = until.saturating_sub(self.env.clock.monotonic());
            let Some(_cleaning) = self.cleaning.try_lock_for(left.max(TURN_WAIT)) else {
                // A long sweep frees space as well.
                cleaned.more = true;
                break;
            };
            let skipped = failures.skipped.len();
            match self.step_alone(store, AT_ONCE, &mut failures) {
                Ok(true) => cleaned.any = true,
                // Others may remain that were not tried.
                Ok(false) if failures.skipped.len() > skipped => {}
                Ok(false) => break,
                Err(error) => {
                    failures.note(error);
                    break;
                }
            }
            if self.env.clock.monotonic() >= until {
                cleaned.more = true;
                break;
            }
        }
        match failures.first {
            Some(error) if !cleaned.any => Err(error),
            _ => Ok(cleaned),
        }
    }

    /// A step with `cleaning` held; whether it did anything. A failure does not block other work: a
    /// footer takes space where a punch frees some. But of each kind of work, a step ends with the
    /// first failure, which may have taken long.
    fn step_alone(&self, store: &dyn Store, pace: Pace, failures: &mut Failures) -> Result<bool> {
        self.check_writable()?;
        let now = self.env.clock.monotonic();
        if pace.at_once || self.garbage.lock().may_seal(now) {
            match self.seal_one() {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => {
                    self.garbage.lock().not_sealed(now);
                    failures.note(error);
                }
            }
        }
        let now = self.env.clock.monotonic();
        if self.garbage.lock().is_audit_due(now) {
            let audited = self.audit(store);
            self.garbage.lock().audited(audited.is_ok(), now);
            match audited {
                Ok(()) => return Ok(true),
                Err(error) => failures.note(error),
            }
        }
        let impatient = self.garbage.lock().impatient(&self.options);
        if let Some(token) = impatient {
            store.sync(token)?;
        }
        let now = self.env.clock.monotonic();
        let picked = {
            let mut garbage = self.garbage.lock();
            garbage.mature(store.durable(), now);
            let put_off = pace.age.saturating_mul(PUT_OFF_AGES);
            let age = Age { punch: pace.age, put_off, punches: self.can_punch() };
            garbage.pick(&self.options, now, age, &failures.skipped)
        };
        if let Some(pick) = picked {
            match self.clean_segment(store, pick) {
                Ok(()) => return Ok(true),
                Err(error) => failures.note(error),
            }
            failures.skipped.insert(pick.segment);
        }
        self.bury_one(store, pace, failures)
    }

    /// Seals segments that accept no more data: at closing, so that volumes that are opened only
    /// briefly each time do not accumulate unsealed segments. A failure is left to the next
    /// opening.
    pub fn seal_all(&self) {
        let _cleaning = self.cleaning.lock();
        let sealed = || self.check_writable().and_then(|()| self.seal_one());
        loop {
            match sealed() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return tracing::debug!(%error, "cannot seal a segment"),
            }
        }
    }

    /// Seals one segment that accepts no more data; `false` when there is none.
    pub(crate) fn seal_one(&self) -> Result<bool> {
        if self.uploads() {
            return self.upload_one();
        }
        let Some((segment, pages)) = self.allocator.take_sealable() else { return Ok(false) };
        if let Err(error) = self.seal(&segment, pages) {
            if let Error::Corrupt(_) = error {
                // Another file has the name; the next opening examines it again.
                self.allocator.sealed(segment.id);
                let name = SealedSegment::new(segment.id, 0, false).path();
                self.segments.note_twin(segment.id, name, &open_path(segment.id), &error);
            } else {
                self.allocator.put_back(segment, pages);
            }
            return Err(error);
        }
        self.allocator.sealed(segment.id);
        self.garbage.lock().examine(segment.id, self.env.clock.monotonic());
        Ok(true)
    }

    /// The mark at the end of a segment that was not rewritten.
    pub(crate) fn footer(&self, segment: u64, pages: u32) -> Vec<u8> {
        let volume = self.options.volume;
        let mut footer = Vec::new();
        Mark { kind: MarkKind::Footer, generation: 0, volume, segment, pages }.encode(&mut footer);
        footer
    }

    /// Makes a blob of an open segment. A crash leaves the file, or the blob, or both; opening
    /// distinguishes them by the blob's name.
    fn seal(&self, segment: &Arc<OpenSegment>, pages: u32) -> Result<()> {
        let footer = self.footer(segment.id, pages);
        segment.file.write_at(&footer, byte_offset(pages)).map_err(name_space)?;
        self.unsynced.fetch_add(footer.len() as u64, Ordering::AcqRel);
        segment.wrote(footer.len() as u64);
        match segment.sync() {
            Ok(bytes) => self.unsynced.fetch_sub(bytes, Ordering::AcqRel),
            Err(error) => return Err(self.latch(error).into()),
        };
        let (name, path) = (blob_name(segment.id, 0), open_path(segment.id));
        let (device, blobs) = (self.env.device.as_ref(), self.segments.blobs());
        let sealed = SealedSegment::new(segment.id, 0, true);
        if !blobs.adopt(&name, device, &path)? {
            // An earlier attempt made the complete blob, and failed to remove the file.
            sealed.check_whole(blobs, self.options.volume, segment.file.len()?)?;
            device.remove(&path)?;
        }
        self.segments.insert_sealed(sealed);
        Ok(())
    }

    /// Frees a segment's dead pages, or finds that it is wholly dead. On failure they are kept and
    /// retried much later: if forgotten, they would be lost until garbage collection.
    pub(crate) fn clean_segment(&self, store: &dyn Store, pick: Pick) -> Result<()> {
        let segment = pick.segment;
        let runs = self.garbage.lock().take_to_free(segment);
        let done = self.free_runs(store, pick, &runs);
        let now = self.env.clock.monotonic();
        let mut garbage = self.garbage.lock();
        if done.is_err() && self.segments.get(segment).is_some() {
            garbage.put_off_all(segment, &runs, now);
        }
        garbage.end_of_freeing();
        drop(garbage);
        done
    }

    fn free_runs(&self, store: &dyn Store, pick: Pick, runs: &[PageRun]) -> Result<()> {
        let Pick { segment, since, old } = pick;
        if !runs.is_empty() {
            self.segments.prove(segment)?;
        }
        let live = live_pages(store, segment)?;
        if live == 0 && self.is_deletable(segment) && live_pages(store, segment)? == 0 {
            let last = store.last_commit();
            if store.durable() >= last {
                return self.delete_segment(store, segment);
            }
            // The last pages may have died in a commit that is not durable yet; those taken here
            // did not.
            self.garbage.lock().die(segment, last);
        }
        let dead: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
        match self.way_to_free(segment, runs, live, old) {
            Way::Punch(count) => self.punch_some(runs, count, since)?,
            Way::Rewrite => {
                let mut pages = Bitmap::new();
                for run in runs {
                    pages.set(*run);
                }
                match self.rewrite(store, segment, &|page| pages.get(page)) {
                    Ok(_) => self.garbage.lock().gave_back(dead),
                    // A copy takes space before it frees any; a punch takes none.
                    Err(error) if error.is_no_space() => {
                        let nanos = self.punch_nanos.load(Ordering::Relaxed).max(1);
                        if nanos >= CANNOT_PUNCH {
                            let more = dead + dead / 8 + 1;
                            self.garbage.lock().put_back(runs, Some(more), since);
                        } else {
                            let quick = (PUNCH_STEP_NANOS / nanos).max(1) as usize;
                            self.punch_some(runs, quick.min(runs.len()), since)?;
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
            Way::Wait(pages) => self.garbage.lock().put_back(runs, Some(pages), since),
        }
        Ok(())
    }

    /// Punches this many of the runs. The others wait for the next step.
    fn punch_some(&self, runs: &[PageRun], count: usize, since: Duration) -> Result<()> {
        let (first, rest) = runs.split_at(count);
        let rest = if self.punch_runs(first)? { rest } else { runs };
        self.garbage.lock().put_back(rest, None, since);
        Ok(())
    }

    /// Decides how dead pages are freed. A punch costs tens of microseconds on most file systems,
    /// and milliseconds on some; the cost of copying depends on the number of live pages. So a
    /// segment is punched while that is quick, and rewritten where it is not and enough of it is
    /// dead. Old pages are punched slowly, in pieces.
    fn way_to_free(&self, segment: u64, runs: &[PageRun], live: u64, old: bool) -> Way {
        let dead: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
        let each = self.punch_nanos.load(Ordering::Relaxed).max(1);
        let quick = (PUNCH_STEP_NANOS / each).max(1) as usize;
        let punchable = each < CANNOT_PUNCH;
        if runs.is_empty() || (punchable && runs.len() <= quick) {
            return Way::Punch(runs.len());
        }
        let enough = (live + dead) * u64::from(self.options.rewrite_dead_percent) / 100;
        let sealed = matches!(self.segments.get(segment), Some(SegmentFile::Sealed(_)));
        let punching = each.saturating_mul(runs.len() as u64);
        let copying = REWRITE_NANOS + live * COPY_PAGE_NANOS;
        if sealed && dead >= enough.max(1) && punching > copying {
            Way::Rewrite
        } else if punchable && (old || (sealed && punching <= copying)) {
            Way::Punch(quick)
        } else if sealed {
            Way::Wait(enough.max(dead + dead / 8 + 1))
        } else {
            // Sealing causes another examination.
            Way::Wait(u64::MAX)
        }
    }

    /// Punches, and measures the cost; `false` when the store cannot.
    fn punch_runs(&self, runs: &[PageRun]) -> Result<bool> {
        for run in runs {
            let start = self.env.clock.monotonic();
            let punched = self.segments.punch(run.segment, run.page, run.count)?;
            let took = self.env.clock.monotonic().saturating_sub(start).as_nanos() as u64;
            if !punched {
                self.punch_nanos.store(CANNOT_PUNCH, Ordering::Relaxed);
                return Ok(false);
            }
            self.garbage.lock().gave_back(u64::from(run.count));
            let before = self.punch_nanos.load(Ordering::Relaxed);
            self.punch_nanos.store((before * 15 + took) / 16, Ordering::Relaxed);
        }
        Ok(true)
    }

    /// Whether the disk can punch, as far as that was tried.
    pub(crate) fn can_punch(&self) -> bool {
        self.punch_nanos.load(Ordering::Relaxed) < CANNOT_PUNCH
    }

    /// Deletes one dead segment whose death is durable. An age of zero does not wait for that.
    /// After a failure the segment rests: each attempt may be requests that take long to fail.
    fn bury_one(&self, store: &dyn Store, pace: Pace, failures: &mut Failures) -> Result<bool> {
        let last = self.garbage.lock().last_death();
        if let Some(last) = last.filter(|_| pace.age.is_zero()) {
            store.sync(last)?;
        }
        let (durable, now) = (store.durable(), self.env.clock.monotonic());
        let (at_once, skipped) = (pace.at_once, &failures.skipped);
        let next = self.garbage.lock().next_death(durable, now, at_once, skipped);
        let Some(segment) = next else { return Ok(false) };
        match self.bury(store, segment) {
            Err(error) if self.segments.get(segment).is_some() => {
                self.garbage.lock().not_buried(segment, self.env.clock.monotonic());
                failures.skipped.insert(segment);
                failures.note(error);
                return Ok(false);
            }
            // It is deleted, and its count is not.
            Err(error) => failures.note(error),
            Ok(()) => {}
        }
        self.garbage.lock().buried(segment);
        Ok(true)
    }

    /// Deletes a segment if none of its pages is live.
    fn bury(&self, store: &dyn Store, segment: u64) -> Result<()> {
        if self.is_deletable(segment) && live_pages(store, segment)? == 0 {
            self.delete_segment(store, segment)?;
        }
        Ok(())
    }

    /// Whether a segment could be deleted if none of its pages were live.
    pub(crate) fn is_deletable(&self, segment: u64) -> bool {
        matches!(self.segments.get(segment), Some(SegmentFile::Sealed(_)))
            && !self.allocator.is_in_use(segment)
            && self.segments.greatest() != Some(segment)
    }

    /// Deletes a segment that no durable state names, then its count.
    pub(crate) fn delete_segment(&self, store: &dyn Store, segment: u64) -> Result<()> {
        let Some(SegmentFile::Sealed(sealed)) = self.segments.get(segment) else { return Ok(()) };
        self.segments.prove(segment)?;
        let bytes = self.segments.disk_bytes(segment)?;
        self.segments.blobs().delete(&sealed.name)?;
        self.segments.remove(segment);
        let mut garbage = self.garbage.lock();
        garbage.take(segment);
        garbage.gave_back(bytes / u64::from(CHUNK_BYTES));
        drop(garbage);
        let mut batch = Batch::new();
        batch.delete(VOLUME_TREE, &key::segment(segment));
        batch.mark(Need::Removes);
        store.commit(&batch)?;
        Ok(())
    }

    /// Once after opening: finds segments that died before, and counts without a segment.
    fn audit(&self, store: &dyn Store) -> Result<()> {
        let now = self.env.clock.monotonic();
        for (segment, _) in self.segments.all() {
            if self.is_deletable(segment) && live_pages(store, segment)? == 0 {
                self.garbage.lock().examine(segment, now);
            }
        }
        let mut stale = Batch::new();
        let mut cursor = store.scan(VOLUME_TREE, KeyRange::prefix(&key::SEGMENTS_PREFIX))?;
        while let Some(item) = cursor.next()? {
            let Ok(segment) = key::parse_number(item.key) else { continue };
            if self.segments.get(segment).is_none() && usage::decode(item.value) == Ok(0) {
                stale.delete(VOLUME_TREE, item.key);
            }
        }
        drop(cursor);
        if !stale.is_empty() {
            stale.mark(Need::Removes);
            store.commit(&stale)?;
        }
        Ok(())
    }
}

/// Number of live pages in the counter of a segment.
pub(crate) fn live_pages(store: &dyn Read, segment: u64) -> Result<u64> {
    let mut live = Ok(0);
    store.get_with(VOLUME_TREE, &key::segment(segment), &mut |value| {
        live = usage::decode(value);
    })?;
    let file = format!("usage of segment {segment:016x} in tree {}", VOLUME_TREE.0);
    let live = live.map_err(|malformed| malformed.located(&file, 0))?;
    Ok(u64::try_from(live).unwrap_or(0))
}
