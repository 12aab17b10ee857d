//! Checking contents. Every stored range that extents name is read and verified, once however many
//! trees share it. The pages that they name are counted, and overlapping ranges are found.
//!
//! It runs in steps over a pinned state, concurrently with writers. A page that was freed since the
//! state was pinned may have been punched. So a failed verification here is only a suspicion
//! ([`ContentCheck::bad`]). It is damage if the live tree still has the same extent and
//! [`Data::verify_extent`] fails again.
//!
//! Two ranges overlap when a page begins one and is inside the other: views of one range share its
//! first page. So two bits per page suffice, 4 KiB of memory for 64 MiB of contents.
//!
//! Pages that two inodes name are freed with the inode whose extent lacks the flag for sharing. One
//! byte of the inode's number per page detects the second inode: 18 KiB more for 64 MiB; one of 255
//! such pairs goes unnoticed.

use std::collections::BTreeMap;

use format::Corruption;
use format::extent::{CHUNK_BYTES, Extent, Stored, decode};
use format::key;
use format::segment::{MARK_BYTES, Mark, MarkKind, PAGE_BYTES, PAGES_MAX};
use store::{Error, Pinned, Read, Result, SharedWalk, TreeId};

use crate::Data;
use crate::alloc::PageRun;
use crate::clean::live_pages;
use crate::cut::pages_of;
use crate::pages::Bitmap;
use crate::proof::Right;
use crate::segments::SegmentFile;

/// Maximum number of suspicions kept; beyond it, files are read again.
const BAD_MAX: usize = 100_000;

/// A range of pages that fails verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspicion {
    /// Number of pages from its first on.
    pub pages: u32,
    /// The defect, with file and offset.
    pub what: String,
    /// Whether two ranges of contents overlap here, while each of them may verify.
    pub overlaps: bool,
}

/// A defect in the file of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentFault {
    /// The segment, by the file's name.
    pub segment: u64,
    /// The defect, and where it is.
    pub bad: Corruption,
    /// The kind of defect.
    pub kind: SegmentFaultKind,
}

/// Kinds of defects in the file of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentFaultKind {
    /// A header or footer is damaged, or none.
    Mark {
        /// Whether another mark in the file identifies it as this segment.
        is_named: bool,
    },
    /// A header or footer is intact, but of another segment or volume.
    Another,
    /// The map of a rewritten segment is damaged.
    Map,
    /// It is a second file of the segment, and not used.
    Twin,
    /// The disk does not return the bytes.
    Unread,
}

/// A running check of contents.
pub struct ContentCheck {
    walk: SharedWalk,
    starts: BTreeMap<u64, Bitmap>,
    inner: BTreeMap<u64, Bitmap>,
    live: BTreeMap<u64, Bitmap>,
    owners: BTreeMap<u64, Owners>,
    /// Ranges that fail verification, by segment and first page.
    pub bad: BTreeMap<(u64, u32), Suspicion>,
    /// Whether there were more than are kept.
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
            owners: BTreeMap::new(),
            bad: BTreeMap::new(),
            overflowed: false,
            extents: 0,
            bytes: 0,
            greatest_birth: 0,
            incomplete: false,
        }
    }

    /// Whether a view touches a range that failed verification.
    pub fn is_suspect(&self, stored: &Stored) -> bool {
        let run = pages_of(stored);
        self.overflowed
            || self
                .bad
                .range((run.segment, 0)..(run.segment, run.page + run.count))
                .any(|(&(_, page), suspicion)| page + suspicion.pages > run.page)
    }

    /// Whether another inode also names a page of a view.
    pub fn is_of_two(&self, stored: &Stored) -> bool {
        let run = pages_of(stored);
        let end = run.page.saturating_add(run.count).min(PAGES_MAX);
        self.owners
            .get(&stored.segment)
            .is_some_and(|owners| (run.page..end).any(|page| owners.several.get(page)))
    }

    /// Pages of a segment that extents name.
    pub fn live_pages(&self, segment: u64) -> u64 {
        self.live.get(&segment).map_or(0, |pages| u64::from(pages.count()))
    }

    /// Whether extents name pages of a segment, and all of them verify.
    pub fn reads(&self, segment: u64) -> bool {
        let mut bad = self.bad.range((segment, 0)..=(segment, u32::MAX));
        self.live.contains_key(&segment) && !self.overflowed && bad.next().is_none()
    }

    /// The segments that extents name.
    pub fn segments(&self) -> impl Iterator<Item = u64> {
        self.live.keys().copied()
    }

    fn suspect(&mut self, run: PageRun, what: String, overlaps: bool) {
        if self.bad.len() >= BAD_MAX {
            self.overflowed = true;
            return;
        }
        let known = self.bad.entry((run.segment, run.page));
        let known = known.or_insert(Suspicion { pages: run.count, what, overlaps });
        known.pages = known.pages.max(run.count);
    }

    /// Records which pages a range and a view of it take; returns where it overlaps another one.
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

/// Which inodes name the pages of a segment.
struct Owners {
    /// For each page, a byte of the first inode's number, or 0 for none.
    first: Box<[u8]>,
    /// Whether a second inode was found.
    several: Bitmap,
}

impl Owners {
    fn new() -> Owners {
        let first = vec![0; PAGES_MAX as usize].into_boxed_slice();
        Owners { first, several: Bitmap::new() }
    }

    fn met(&mut self, ino: u64, stored: &Stored) {
        // Files created one after the other have different values.
        let owner = (ino % 255) as u8 + 1;
        let run = pages_of(stored);
        for page in run.page..run.page.saturating_add(run.count).min(PAGES_MAX) {
            let first = &mut self.first[page as usize];
            if *first == 0 {
                *first = owner;
            } else if *first != owner {
                self.several.set(PageRun { page, count: 1, ..run });
            }
        }
    }
}

impl Data {
    /// Checks the extents of about `nodes` nodes; `false` when all were checked. Damaged nodes are
    /// skipped, and make the check incomplete.
    pub fn check_step(
        &self,
        check: &mut ContentCheck,
        pinned: &dyn Pinned,
        nodes: usize,
    ) -> Result<bool> {
        let mut found = Vec::new();
        let more = pinned.visit_shared_step(&mut check.walk, nodes, &mut |key, value| {
            // What does not decode is reported with the file that it belongs to.
            if let Ok(Extent::Stored(stored)) = decode(value) {
                let ino = match key::parse(key) {
                    Ok(key::Parsed::Extent { ino, .. }) => Some(ino),
                    _ => None,
                };
                found.push((ino, stored));
            }
        });
        let more = match more {
            // A missing tree is reported with its subvolume.
            Err(Error::Corrupt(_) | Error::NoTree(_)) => {
                check.incomplete = true;
                true
            }
            more => more?,
        };
        for (ino, stored) in found {
            if let Some(ino) = ino {
                check.owners.entry(stored.segment).or_insert_with(Owners::new).met(ino, &stored);
            }
            check.extents += 1;
            check.greatest_birth = check.greatest_birth.max(stored.birth);
            if let Some(page) = check.place(&stored) {
                let file = self.segments.path(stored.segment);
                let offset = u64::from(page) * u64::from(PAGE_BYTES);
                let what = format!("{file}, byte {offset}: two ranges of contents overlap here");
                check.suspect(pages_of(&stored), what, true);
            }
            match self.verify_extent(&stored) {
                Ok(()) => check.bytes += u64::from(stored.length),
                Err(error @ (Error::Corrupt(_) | Error::Missing { .. })) => {
                    check.suspect(pages_of(&stored), cause(&error), false);
                }
                Err(Error::Device(error)) if !error.is_not_found() && !error.is_unread() => {
                    return Err(error.into());
                }
                Err(error) => check.suspect(pages_of(&stored), cause(&error), false),
            }
        }
        Ok(more)
    }

    /// Reads an extent's stored bytes and verifies their checksums.
    pub fn verify_extent(&self, stored: &Stored) -> Result<()> {
        let mut buffer = vec![0; stored.length as usize];
        self.read_stored(stored, &mut buffer)
    }

    /// The file of a segment.
    pub fn segment_path(&self, segment: u64) -> String {
        self.segments.path(segment)
    }

    /// Location of an extent's bytes: the segment's file, and the offset in it.
    pub fn extent_place(&self, stored: &Stored) -> (String, u64) {
        let page = u64::from(stored.page) + u64::from(stored.first_chunk());
        (self.segments.path(stored.segment), page * u64::from(PAGE_BYTES))
    }

    /// Number of live pages in the counter of a segment.
    pub fn counted_pages(&self, store: &dyn Read, segment: u64) -> Result<u64> {
        live_pages(store, segment)
    }

    /// Whether a segment's file exists.
    pub fn has_segment(&self, segment: u64) -> bool {
        self.segments.get(segment).is_some()
    }

    /// Checks headers, footers and maps of all segments, and finds files that are not used: returns
    /// their defects, including failed reads. Reading contents needs only the maps of these.
    pub fn check_segments(&self) -> Result<Vec<SegmentFault>> {
        let mut found = Vec::new();
        for (segment, place) in self.segments.all() {
            match self.check_segment(segment, &place).map_err(Error::as_damage) {
                Ok(fault) => found.extend(fault),
                Err(Error::Corrupt(bad)) => found.push(SegmentFault {
                    segment,
                    bad: (*bad).clone(),
                    kind: SegmentFaultKind::Unread,
                }),
                // Sealed, rewritten or deleted since it was listed.
                Err(Error::Device(error)) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        let twins = self.segments.twins().into_iter();
        found.extend(twins.map(|(segment, bad)| SegmentFault {
            segment,
            bad,
            kind: SegmentFaultKind::Twin,
        }));
        Ok(found)
    }

    fn check_segment(&self, segment: u64, place: &SegmentFile) -> Result<Option<SegmentFault>> {
        let marks = self.marks(segment, place)?;
        let fault = |bad: &Corruption, kind| SegmentFault { segment, bad: bad.clone(), kind };
        if let Some(bad) = marks.iter().find_map(MarkRead::of_another) {
            return Ok(Some(fault(bad, SegmentFaultKind::Another)));
        }
        let is_named = marks.iter().any(|found| found.is_same);
        if let SegmentFile::Sealed(sealed) = place
            && sealed.generation > 0
        {
            return match sealed.check(self.segments.blobs(), self.options.volume) {
                Err(Error::Corrupt(bad)) => Ok(Some(fault(&bad, SegmentFaultKind::Map))),
                checked => checked.map(|()| None),
            };
        }
        let bad = marks.iter().find_map(|found| found.bad.as_ref());
        Ok(bad.map(|bad| fault(bad, SegmentFaultKind::Mark { is_named })))
    }

    /// The marks of a segment: one at its start, and, if it was sealed and not rewritten, one at
    /// its end.
    fn marks(&self, segment: u64, place: &SegmentFile) -> Result<Vec<MarkRead>> {
        let mut bytes = [0; MARK_BYTES];
        let volume = self.options.volume;
        let file = self.segments.path(segment);
        match place {
            SegmentFile::Open(open) => {
                let right = Right { kind: MarkKind::Header, segment, generation: 0, volume };
                let read = open.file.read_at(&mut bytes, 0)?;
                Ok(vec![MarkRead::new(right, &bytes[..read], &file, 0)])
            }
            SegmentFile::Sealed(sealed) => {
                let (blobs, right) = (self.segments.blobs(), sealed.right(volume));
                let read = blobs.read_at(&sealed.name, &mut bytes, 0)?;
                let mut marks = vec![MarkRead::new(right, &bytes[..read], &file, 0)];
                if sealed.generation == 0 {
                    let length = blobs.length(&sealed.name)?.unwrap_or(0);
                    let at = length.saturating_sub(MARK_BYTES as u64);
                    let read = blobs.read_at(&sealed.name, &mut bytes, at)?;
                    let right = Right { kind: MarkKind::Footer, ..right };
                    marks.push(MarkRead::new(right, &bytes[..read], &file, at));
                }
                Ok(marks)
            }
        }
    }

    /// Rewrites header and footer of a segment. Damage to them loses no data: the extents alone
    /// determine the contents of pages. The caller knows that the file is the segment's; another
    /// segment's mark is not overwritten.
    pub fn repair_marks(&self, segment: u64) -> Result<()> {
        let place = self.segments.get(segment);
        if let Some(place) = &place {
            let marks = self.marks(segment, place)?;
            if let Some(bad) = marks.iter().find_map(MarkRead::of_another) {
                return Err(bad.clone().into());
            }
        }
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
        if matches!(place, Some(SegmentFile::Sealed(_))) {
            let length = file.len()?.max(u64::from(PAGE_BYTES));
            let pages = length / u64::from(PAGE_BYTES);
            let rest = length % u64::from(PAGE_BYTES);
            // A file that was truncated within a page ends with that page.
            let pages = pages + u64::from(rest != 0 && rest != MARK_BYTES as u64);
            if pages > u64::from(PAGES_MAX) {
                // No extent names anything beyond, and no footer may state a greater length.
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
}

/// A mark as read.
struct MarkRead {
    /// Its defect.
    bad: Option<Corruption>,
    /// Whether it is intact, allowed at this place, and of another segment.
    is_other: bool,
    /// Whether it is intact and of this segment, at any place in it.
    is_same: bool,
}

impl MarkRead {
    fn new(right: Right, bytes: &[u8], file: &str, offset: u64) -> MarkRead {
        let mark = Mark::decode(bytes);
        let is_same = mark.as_ref().is_ok_and(|mark| right.is_same_segment(mark));
        // A mark that is never allowed there was not written as this file's mark.
        let may_be_there = |kind: MarkKind| (kind == MarkKind::Footer) == (offset > 0);
        let is_other = mark.as_ref().is_ok_and(|mark| may_be_there(mark.kind) && !is_same);
        MarkRead { bad: right.check(mark, file, offset).err(), is_other, is_same }
    }

    /// The defect of a mark of another segment.
    fn of_another(&self) -> Option<&Corruption> {
        self.bad.as_ref().filter(|_| self.is_other)
    }
}

/// An error as text.
fn cause(error: &Error) -> String {
    error.to_string()
}
