//! Checking contents: every stored range that extents name is read and verified, once however many
//! trees share it; the pages that they name are counted; ranges that lie over one another are
//! found.
//!
//! It runs in steps over a pinned state, beside writers. A page that was freed since the state was
//! pinned may have been punched, so what reads wrong here is a suspicion ([`ContentCheck::bad`]):
//! it is damage where the live tree still has the same extent and [`Data::verify_extent`] fails
//! again.
//!
//! Two ranges overlap when a page begins one and lies inside of the other: views of one range share
//! its first page. So two bits a page tell, 4 KiB of memory for 64 MiB of contents.

use std::collections::BTreeMap;

use format::extent::{CHUNK_BYTES, Extent, Stored, decode};
use format::key;
use format::segment::{MARK_BYTES, Mark, MarkKind, PAGE_BYTES, PAGES_MAX};
use format::{Corruption, Malformed};
use store::{Error, Pinned, Read, Result, SharedWalk, TreeId};

use crate::Data;
use crate::alloc::PageRun;
use crate::clean::live_pages;
use crate::cut::pages_of;
use crate::gc::Bitmap;
use crate::segments::Place;

/// Most suspicions that are kept; beyond it files are read again to be sure.
const BAD_MAX: usize = 100_000;

/// A range of pages that does not read as it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspicion {
    /// Pages from its first on.
    pub pages: u32,
    /// What was wrong, with file and offset.
    pub what: String,
}

/// A check of contents under way.
pub struct ContentCheck {
    walk: SharedWalk,
    starts: BTreeMap<u64, Bitmap>,
    inner: BTreeMap<u64, Bitmap>,
    live: BTreeMap<u64, Bitmap>,
    /// What reads wrong, by segment and first page.
    pub bad: BTreeMap<(u64, u32), Suspicion>,
    /// Whether there was more of that than is kept.
    pub overflowed: bool,
    /// Distinct extents that were read.
    pub extents: u64,
    /// Bytes that were read and verified.
    pub bytes: u64,
    /// The last epoch in which any of them was written.
    pub greatest_birth: u64,
    /// Whether nodes that hold extents could not be read: then not all pages are counted.
    pub incomplete: bool,
}

impl ContentCheck {
    /// A check of the extents of these trees of a pinned state.
    pub fn new(trees: impl IntoIterator<Item = TreeId>) -> ContentCheck {
        ContentCheck {
            walk: SharedWalk::new(trees, &key::EXTENTS_PREFIX),
            starts: BTreeMap::new(),
            inner: BTreeMap::new(),
            live: BTreeMap::new(),
            bad: BTreeMap::new(),
            overflowed: false,
            extents: 0,
            bytes: 0,
            greatest_birth: 0,
            incomplete: false,
        }
    }

    /// Whether a view touches something that read wrong.
    pub fn is_suspect(&self, stored: &Stored) -> bool {
        let run = pages_of(stored);
        self.overflowed
            || self
                .bad
                .range((run.segment, 0)..(run.segment, run.page + run.count))
                .any(|(&(_, page), suspicion)| page + suspicion.pages > run.page)
    }

    /// Pages of a segment that extents name.
    pub fn live_pages(&self, segment: u64) -> u64 {
        self.live.get(&segment).map_or(0, |pages| u64::from(pages.count()))
    }

    /// The segments that extents name.
    pub fn segments(&self) -> impl Iterator<Item = u64> {
        self.live.keys().copied()
    }

    fn suspect(&mut self, run: PageRun, what: String) {
        if self.bad.len() >= BAD_MAX {
            self.overflowed = true;
            return;
        }
        let known = self.bad.entry((run.segment, run.page));
        let known = known.or_insert(Suspicion { pages: run.count, what });
        known.pages = known.pages.max(run.count);
    }

    /// Notes which pages a range and a view of it take; tells where it lies over another one.
    fn place(&mut self, stored: &Stored) -> Option<u32> {
        let first = u32::from(stored.page);
        let count = stored.stored.div_ceil(CHUNK_BYTES);
        let starts = self.starts.entry(stored.segment).or_insert_with(Bitmap::new);
        let inner = self.inner.entry(stored.segment).or_insert_with(Bitmap::new);
        let over = inner.get(first).then_some(first);
        let over = over.or_else(|| (first + 1..first + count).find(|&page| starts.get(page)));
        starts.set(PageRun { segment: stored.segment, page: first, count: 1 });
        let rest = PageRun { segment: stored.segment, page: first + 1, count: count - 1 };
        inner.set(rest);
        self.live.entry(stored.segment).or_insert_with(Bitmap::new).set(pages_of(stored));
        over
    }
}

impl Data {
    /// Checks the extents of about `nodes` nodes; `false` when all were checked. Damaged nodes
    /// are passed over, and make the check incomplete.
    pub fn check_step(
        &self,
        check: &mut ContentCheck,
        pinned: &dyn Pinned,
        nodes: usize,
    ) -> Result<bool> {
        let mut found = Vec::new();
        let more = pinned.visit_shared_step(&mut check.walk, nodes, &mut |_, value| {
            // What does not decode is told with the file that it belongs to.
            if let Ok(Extent::Stored(stored)) = decode(value) {
                found.push(stored);
            }
        });
        let more = match more {
            // A tree that is not there is told with the subvolume whose it is.
            Err(Error::Corrupt(_) | Error::NoTree(_)) => {
                check.incomplete = true;
                true
            }
            more => more?,
        };
        for stored in found {
            check.extents += 1;
            check.greatest_birth = check.greatest_birth.max(stored.birth);
            if let Some(page) = check.place(&stored) {
                let file = self.segments.path(stored.segment);
                let offset = u64::from(page) * u64::from(PAGE_BYTES);
                let what = format!("{file}, byte {offset}: two ranges of contents overlap here");
                check.suspect(pages_of(&stored), what);
            }
            match self.verify_extent(&stored) {
                Ok(()) => check.bytes += u64::from(stored.length),
                Err(error @ (Error::Corrupt(_) | Error::Missing { .. })) => {
                    check.suspect(pages_of(&stored), told(&error));
                }
                Err(Error::Device(error)) if !error.is_not_found() => return Err(error.into()),
                Err(error) => check.suspect(pages_of(&stored), told(&error)),
            }
        }
        Ok(more)
    }

    /// Reads what an extent names and compares its checksums.
    pub fn verify_extent(&self, stored: &Stored) -> Result<()> {
        let mut buffer = vec![0; stored.length as usize];
        self.read_stored(stored, &mut buffer)
    }

    /// The file of a segment.
    pub fn segment_path(&self, segment: u64) -> String {
        self.segments.path(segment)
    }

    /// Where an extent's bytes lie: the segment's file, and the offset in it.
    pub fn extent_place(&self, stored: &Stored) -> (String, u64) {
        let page = u64::from(stored.page) + u64::from(stored.first_chunk());
        (self.segments.path(stored.segment), page * u64::from(PAGE_BYTES))
    }

    /// Pages that the counter of a segment tells are live.
    pub fn counted_pages(&self, store: &dyn Read, segment: u64) -> Result<u64> {
        live_pages(store, segment)
    }

    /// Whether a segment's file is there.
    pub fn has_segment(&self, segment: u64) -> bool {
        self.segments.get(segment).is_some()
    }

    /// Headers, footers and maps of all segments: what is wrong with them. Reading contents needs
    /// none but the maps.
    pub fn check_segments(&self) -> Result<Vec<Corruption>> {
        let mut found = Vec::new();
        for (segment, place) in self.segments.all() {
            match self.check_segment(segment, &place) {
                Ok(()) => {}
                Err(Error::Corrupt(bad)) => found.push((*bad).clone()),
                // Sealed, rewritten or deleted since it was listed.
                Err(Error::Device(error)) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    fn check_segment(&self, segment: u64, place: &Place) -> Result<()> {
        let mut bytes = [0; MARK_BYTES];
        match place {
            Place::Open(open) => {
                let read = open.file.read_at(&mut bytes, 0)?;
                let mark = Mark::decode(&bytes[..read]);
                self.check_mark(segment, (0, MarkKind::Header), mark, 0)
            }
            Place::Sealed(sealed) if sealed.generation > 0 => {
                sealed.map(self.segments.blobs()).map(|_| ())
            }
            Place::Sealed(sealed) => {
                let blobs = self.segments.blobs();
                let read = blobs.read_at(&sealed.name, &mut bytes, 0)?;
                let mark = Mark::decode(&bytes[..read]);
                self.check_mark(segment, (0, MarkKind::Header), mark, 0)?;
                let length = blobs.length(&sealed.name)?.unwrap_or(0);
                let at = length.saturating_sub(MARK_BYTES as u64);
                let read = blobs.read_at(&sealed.name, &mut bytes, at)?;
                let mark = Mark::decode(&bytes[..read]);
                self.check_mark(segment, (0, MarkKind::Footer), mark, at)
            }
        }
    }

    /// Writes header and footer of a segment anew. What is wrong with them is no loss: which page
    /// holds what is told by the extents alone.
    pub fn mend_marks(&self, segment: u64) -> Result<()> {
        let mut mark = Mark {
            kind: MarkKind::Header,
            generation: 0,
            volume: self.options.volume,
            segment,
            pages: 0,
        };
        let path = self.segments.path(segment);
        let file = self.env.device.open(&path)?;
        let mut bytes = Vec::new();
        mark.encode(&mut bytes);
        file.write_at(&bytes, 0)?;
        if matches!(self.segments.get(segment), Some(Place::Sealed(_))) {
            let length = file.len()?.max(u64::from(PAGE_BYTES));
            let pages = length / u64::from(PAGE_BYTES);
            let rest = length % u64::from(PAGE_BYTES);
            // One that was cut in the middle of a page ends with that page.
            let pages = pages + u64::from(rest != 0 && rest != MARK_BYTES as u64);
            if pages > u64::from(PAGES_MAX) {
                // No extent names what lies behind, and no footer may say that there is so much.
                file.set_len(u64::from(PAGES_MAX) * u64::from(PAGE_BYTES))?;
            }
            let pages = pages.min(u64::from(PAGES_MAX));
            (mark.kind, mark.pages) = (MarkKind::Footer, pages as u32);
            bytes.clear();
            mark.encode(&mut bytes);
            file.write_at(&bytes, pages * u64::from(PAGE_BYTES))?;
        }
        Ok(file.sync_data()?)
    }

    fn check_mark(
        &self,
        segment: u64,
        (generation, kind): (u32, MarkKind),
        mark: std::result::Result<Mark, Malformed>,
        offset: u64,
    ) -> Result<()> {
        let file = self.segments.path(segment);
        let mark = mark.map_err(|malformed| malformed.located(&file, offset))?;
        let right = mark.kind == kind
            && mark.segment == segment
            && mark.generation == generation
            && mark.volume == self.options.volume;
        if right {
            return Ok(());
        }
        let expected = format!("{kind:?} of segment {segment:016x} of this volume");
        let found = format!("{:?} of segment {:016x}", mark.kind, mark.segment);
        Err(Corruption { file, offset, structure: "data segment", expected, found }.into())
    }
}

/// An error in words.
fn told(error: &Error) -> String {
    error.to_string()
}
