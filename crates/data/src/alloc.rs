//! Page allocation: pages are allocated from the open segment in order, and none twice that may
//! have been written.
//!
//! Reserving takes a mutex; the bytes are written outside of it. A reservation is *in flight*, held
//! by a [`Ticket`], until the commit that names it has returned. Meanwhile its segment is neither
//! sealed nor deleted, and marking counts its pages as live.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::Device;
use device::sync::Mutex;
use format::Corruption;
use format::segment::{FIRST_PAGE, Mark, MarkKind, PAGE_BYTES};
use store::{Error, Result};

use crate::segments::{OPEN_DIRECTORY, OpenSegment, Segments, Writing, open_path};

/// The part of the disk that contents leave to metadata and checkpoints, as a divisor.
const KEPT_SHARE: u64 = 16;
/// Maximum of that part.
const KEPT_BYTES_MAX: u64 = 64 << 20;

/// Contiguous pages of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageRun {
    /// The segment.
    pub segment: u64,
    /// The first page.
    pub page: u32,
    /// Number of pages.
    pub count: u32,
}

impl PageRun {
    /// Whether a page is in the run.
    pub(crate) fn contains(&self, segment: u64, page: u32) -> bool {
        self.segment == segment && page >= self.page && page - self.page < self.count
    }
}

/// Allocates pages.
pub(crate) struct Allocator {
    state: Mutex<AllocState>,
    /// Pages that are reserved and not written yet.
    unwritten: AtomicU64,
    segments: Arc<Segments>,
    device: Arc<dyn Device>,
    volume: [u8; 16],
    segment_pages: u32,
    /// Whether the files of open segments are to survive a power cut.
    durable: bool,
}

#[derive(Default)]
struct AllocState {
    current: Option<Current>,
    next_id: u64,
    /// Segments that accept no more writes, with their page counts.
    sealing: Vec<(Arc<OpenSegment>, u32)>,
    /// Those of them that are being sealed.
    taken: BTreeMap<u64, u32>,
    in_flight: BTreeMap<u64, PageRun>,
    next_ticket: u64,
}

struct Current {
    segment: Arc<OpenSegment>,
    next_page: u32,
}

/// Keeps a reservation in flight until it drops.
pub(crate) struct Ticket {
    allocator: Arc<Allocator>,
    id: u64,
    pub(crate) run: PageRun,
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.run.fmt(f)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.allocator.state.lock().in_flight.remove(&self.id);
    }
}

/// Pages to write to.
pub(crate) struct Reservation {
    pub(crate) segment: Arc<OpenSegment>,
    pub(crate) ticket: Ticket,
    /// Ends when the reservation drops, after the pages were written.
    _writing: Writing,
    /// Also ends then.
    _unwritten: Option<Unwritten>,
}

/// Pages that are reserved and not written yet, for which the disk still has the space.
struct Unwritten {
    allocator: Arc<Allocator>,
    pages: u64,
}

impl Unwritten {
    /// Counts pages, with the allocator's state locked.
    fn begin(allocator: &Arc<Allocator>, pages: u32) -> Unwritten {
        let pages = u64::from(pages);
        allocator.unwritten.fetch_add(pages, Ordering::AcqRel);
        Unwritten { allocator: Arc::clone(allocator), pages }
    }
}

impl Drop for Unwritten {
    fn drop(&mut self) {
        self.allocator.unwritten.fetch_sub(self.pages, Ordering::AcqRel);
    }
}

/// A snapshot of what was allocated.
pub(crate) struct Handed {
    /// Open segments, and the first unallocated page of each.
    pub(crate) open: BTreeMap<u64, u32>,
    pub(crate) in_flight: Vec<PageRun>,
    /// No segment with this number or a greater one was created.
    pub(crate) next_id: u64,
}

impl Allocator {
    pub(crate) fn new(
        device: Arc<dyn Device>,
        segments: Arc<Segments>,
        volume: [u8; 16],
        segment_pages: u32,
        durable: bool,
    ) -> Allocator {
        Allocator {
            state: Mutex::default(),
            unwritten: AtomicU64::new(0),
            segments,
            device,
            volume,
            segment_pages,
            durable,
        }
    }

    /// Sets what opening found: the number of the next segment, and segments to seal.
    pub(crate) fn resume(&self, next_id: u64, sealing: Vec<(Arc<OpenSegment>, u32)>) {
        let mut state = self.state.lock();
        state.next_id = next_id;
        state.sealing = sealing;
    }

    /// Reserves at least one page, and at most `count` contiguous ones, of the open segment.
    /// `unflushed` gives what the next checkpoint of the store needs, from what stays free. `None`
    /// if that is all there is.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        count: u32,
        unflushed: impl FnOnce(u64) -> u64,
    ) -> Result<Option<Reservation>> {
        // Contents stop first, so that metadata can still be changed. Metadata stops before the
        // space for a checkpoint is used up, so that everything can still be deleted.
        let mut state = self.state.lock();
        // First: what is written meanwhile counts twice, not never.
        let unwritten = self.unwritten.load(Ordering::Acquire) * u64::from(PAGE_BYTES);
        let space = self.device.space()?;
        let kept = (space.total_bytes / KEPT_SHARE).min(KEPT_BYTES_MAX);
        let free = space.free_bytes.saturating_sub(unwritten);
        let above = free.saturating_sub(kept) / u64::from(PAGE_BYTES);
        if above == 0 {
            return Err(Error::NoSpace("contents of files"));
        }
        let taken = above.min(u64::from(count));
        let needed = unflushed(free - taken * u64::from(PAGE_BYTES));
        // A large write gets what there is, and no more.
        let left = above.saturating_sub(needed.div_ceil(u64::from(PAGE_BYTES)));
        let count = count.min(u32::try_from(left).unwrap_or(count));
        if count == 0 {
            return Ok(None);
        }
        let full = |current: &Current| current.next_page >= self.segment_pages;
        if state.current.as_ref().is_none_or(full) {
            // The old segment stays the current one until the new one exists, so a full disk
            // changes nothing.
            let segment = self.create(state.next_id)?;
            state.next_id += 1;
            let fresh = Current { segment, next_page: FIRST_PAGE };
            if let Some(old) = state.current.replace(fresh) {
                state.sealing.push((old.segment, old.next_page));
            }
        }
        let current = state.current.as_mut().expect("invariant: a segment was just made current");
        let count = count.clamp(1, self.segment_pages - current.next_page);
        let run = PageRun { segment: current.segment.id, page: current.next_page, count };
        current.next_page += count;
        let segment = Arc::clone(&current.segment);
        let ticket = self.ticket(&mut state, run);
        let unwritten = Some(Unwritten::begin(self, count));
        Ok(Some(Reservation {
            _writing: Writing::begin(&segment),
            _unwritten: unwritten,
            segment,
            ticket,
        }))
    }

    /// Reserves up to `count` pages from `page` of `segment`, if that is the open segment: none if
    /// `page` is not its next free page. The ticket keeps the segment from being sealed.
    pub(crate) fn grow(self: &Arc<Self>, from: PageRun) -> Option<Reservation> {
        let mut state = self.state.lock();
        let current =
            state.current.as_mut().filter(|current| current.segment.id == from.segment)?;
        let space = if current.next_page == from.page {
            self.segment_pages.saturating_sub(current.next_page)
        } else {
            0
        };
        let run = PageRun { count: from.count.min(space), ..from };
        current.next_page += run.count;
        let segment = Arc::clone(&current.segment);
        let ticket = self.ticket(&mut state, run);
        Some(Reservation { _writing: Writing::begin(&segment), _unwritten: None, segment, ticket })
    }

    /// Returns the pages of a reservation behind its first `used` ones, which were not written, to
    /// the open segment. If others reserved pages behind them, they stay unused:
    /// the result is them.
    /// A marking that began before has the whole reservation as in flight, so it takes as live what
    /// is written there later.
    pub(crate) fn return_end(&self, ticket: &mut Ticket, used: u32) -> Option<PageRun> {
        let PageRun { segment, page, count } = ticket.run;
        let unused = PageRun { segment, page: page + used, count: count - used };
        if unused.count == 0 {
            return None;
        }
        let mut state = self.state.lock();
        ticket.run.count = used;
        state.in_flight.insert(ticket.id, ticket.run);
        let last = |current: &&mut Current| {
            current.segment.id == segment && current.next_page == page + count
        };
        match state.current.as_mut().filter(last) {
            Some(current) => {
                current.next_page = unused.page;
                None
            }
            None => Some(unused),
        }
    }

    fn ticket(self: &Arc<Self>, state: &mut AllocState, run: PageRun) -> Ticket {
        let id = state.next_ticket;
        state.next_ticket += 1;
        state.in_flight.insert(id, run);
        Ticket { allocator: Arc::clone(self), id, run }
    }

    /// Creates a segment, durable with its header before a page of it is allocated.
    fn create(&self, id: u64) -> Result<Arc<OpenSegment>> {
        let path = open_path(id);
        if let Some(found) = self.device.metadata(&path)? {
            if found.length > u64::from(PAGE_BYTES) {
                let expected = "no such file".to_owned();
                let (structure, found) = ("data segment", format!("{} bytes", found.length));
                return Err(Corruption {
                    file: path,
                    offset: 0,
                    structure,
                    expected,
                    found,
                    unread: false,
                }
                .into());
            }
            // An earlier attempt ran out of space before a page of it was allocated.
            self.device.remove(&path)?;
        }
        let file = self.device.create(&path)?;
        let mut header = Vec::with_capacity(PAGE_BYTES as usize);
        let mark = Mark {
            kind: MarkKind::Header,
            generation: 0,
            volume: self.volume,
            segment: id,
            pages: 0,
        };
        mark.encode(&mut header);
        header.resize(PAGE_BYTES as usize, 0);
        file.write_at(&header, 0)?;
        if self.durable {
            file.sync_data()?;
            self.device.sync_dir(OPEN_DIRECTORY)?;
        }
        let segment = Arc::new(OpenSegment::new(id, file, true));
        self.segments.insert_open(Arc::clone(&segment));
        Ok(segment)
    }

    /// Segments that wait to be sealed.
    pub(crate) fn backlog(&self) -> usize {
        self.state.lock().sealing.len()
    }

    /// Takes a segment that can be sealed: it is full, and none of its reservations is in flight.
    /// [`Allocator::sealed`] or [`Allocator::put_back`] follows.
    pub(crate) fn take_sealable(&self) -> Option<(Arc<OpenSegment>, u32)> {
        let mut state = self.state.lock();
        let at = state.sealing.iter().position(|(segment, _)| {
            state.in_flight.values().all(|run| run.segment != segment.id)
        })?;
        let (segment, pages) = state.sealing.remove(at);
        state.taken.insert(segment.id, pages);
        Some((segment, pages))
    }

    /// Ends the current segment, if pages of it were allocated: no more are.
    pub(crate) fn close_current(&self) {
        let mut state = self.state.lock();
        if let Some(Current { segment, next_page }) =
            state.current.take_if(|current| current.next_page > FIRST_PAGE)
        {
            state.sealing.push((segment, next_page));
        }
    }

    /// A segment that accepts no more data and waits to be sealed.
    pub(crate) fn closed(&self) -> Option<Arc<OpenSegment>> {
        self.state.lock().sealing.first().map(|(segment, _)| Arc::clone(segment))
    }

    /// Takes such a segment, by number, and returns its page count; its reservations may be in
    /// flight. [`Allocator::sealed`] or [`Allocator::put_back`] follows.
    pub(crate) fn take_closed(&self, segment: u64) -> Option<u32> {
        let mut state = self.state.lock();
        let at = state.sealing.iter().position(|(closed, _)| closed.id == segment)?;
        let (_, pages) = state.sealing.remove(at);
        state.taken.insert(segment, pages);
        Some(pages)
    }

    /// Records that a segment taken for sealing is sealed.
    pub(crate) fn sealed(&self, segment: u64) {
        self.state.lock().taken.remove(&segment);
    }

    /// Returns a segment whose sealing failed, for a retry.
    pub(crate) fn put_back(&self, segment: Arc<OpenSegment>, pages: u32) {
        let mut state = self.state.lock();
        state.taken.remove(&segment.id);
        state.sealing.push((segment, pages));
    }

    /// Whether a segment is the one that takes writes.
    pub(crate) fn is_current(&self, segment: u64) -> bool {
        let state = self.state.lock();
        state.current.as_ref().is_some_and(|current| current.segment.id == segment)
    }

    /// Whether a reservation of the segment is in flight, or could still be made.
    pub(crate) fn is_in_use(&self, segment: u64) -> bool {
        let state = self.state.lock();
        state.current.as_ref().is_some_and(|current| current.segment.id == segment)
            || state.in_flight.values().any(|run| run.segment == segment)
    }

    /// A snapshot of what is allocated so far.
    pub(crate) fn handed(&self) -> Handed {
        let state = self.state.lock();
        let current = state.current.iter().map(|current| (current.segment.id, current.next_page));
        let sealing = state.sealing.iter().map(|(segment, pages)| (segment.id, *pages));
        Handed {
            open: current.chain(sealing).chain(state.taken.clone()).collect(),
            in_flight: state.in_flight.values().copied().collect(),
            next_id: state.next_id,
        }
    }
}
