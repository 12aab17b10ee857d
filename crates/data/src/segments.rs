//! Segments by number: open ones are files of the device, sealed ones are blobs.
//!
//! Readers look a number up here for every read. A segment moves from open to sealed, and from one
//! generation to the next, while readers hold the old location. That either still works (a file
//! descriptor), or returns `NotFound`, and then the lookup is repeated.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use device::sync::{Condvar, Mutex, RwLock};
use device::{Blobs, File};
use format::Corruption;
use format::segment::{MAP_PAGE_BYTES, PAGE_BYTES, PageMap};
use store::{Error, Result};

/// Directory of open segments.
pub(crate) const OPEN_DIRECTORY: &str = "data/open";
/// Directory of sealed segments if the blobs are local; other blobs keep the name for messages.
pub(crate) const SEALED_DIRECTORY: &str = "data/sealed";

/// Bytes that are written to a segment before the disk starts to write them.
const START_BYTES: u64 = 4 << 20;

/// Path of an open segment's file.
pub(crate) fn open_path(segment: u64) -> String {
    format!("{OPEN_DIRECTORY}/{segment:016x}.seg")
}

/// Name of a sealed segment's blob.
pub(crate) fn blob_name(segment: u64, generation: u32) -> String {
    if generation == 0 {
        format!("{segment:016x}.seg")
    } else {
        format!("{segment:016x}.seg.{generation}")
    }
}

/// Segment and generation of a name; `None` when it is not one of ours.
pub(crate) fn parse_name(name: &str) -> Option<(u64, u32)> {
    let (number, rest) = name.split_at_checked(16)?;
    let segment = u64::from_str_radix(number, 16).ok()?;
    let generation = match rest.strip_prefix(".seg")? {
        "" => 0,
        rest => rest.strip_prefix('.')?.parse().ok().filter(|&generation| generation > 0)?,
    };
    (blob_name(segment, generation) == name).then_some((segment, generation))
}

/// A segment that accepts writes, or did and is not sealed yet.
pub(crate) struct OpenSegment {
    pub(crate) id: u64,
    pub(crate) file: Arc<dyn File>,
    /// Bytes whose write has returned.
    written: AtomicU64,
    /// Part of those that is known to be durable.
    synced: AtomicU64,
    /// Held by the thread that syncs, so that waiting threads share its sync. Has the sync's error,
    /// if it failed; otherwise a thread that waited for it would get a success.
    syncing: Mutex<Option<device::Error>>,
    /// Whether its header was verified, or written, in this opening.
    pub(crate) proven: AtomicBool,
    /// Reservations whose pages are not written yet.
    writes: Mutex<u32>,
    /// Signalled when there are none.
    idle: Condvar,
    /// Up to which byte the disk was asked to write.
    started: AtomicU64,
    /// Held by the thread that makes the segment's blob, where only blobs are durable.
    pub(crate) uploading: Mutex<()>,
}

/// A write under way, from the reservation of its pages on.
pub(crate) struct Writing(Arc<OpenSegment>);

impl Writing {
    pub(crate) fn begin(segment: &Arc<OpenSegment>) -> Writing {
        *segment.writes.lock() += 1;
        Writing(Arc::clone(segment))
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let mut writes = self.0.writes.lock();
        *writes -= 1;
        if *writes == 0 {
            self.0.idle.notify_all();
        }
    }
}

impl OpenSegment {
    pub(crate) fn new(id: u64, file: Arc<dyn File>, proven: bool) -> OpenSegment {
        OpenSegment {
            id,
            file,
            proven: AtomicBool::new(proven),
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            syncing: Mutex::new(None),
            writes: Mutex::new(0),
            idle: Condvar::new(),
            started: AtomicU64::new(0),
            uploading: Mutex::new(()),
        }
    }

    /// Returns when no write is under way. No new one may begin.
    pub(crate) fn wait_for_writes(&self) {
        let mut writes = self.writes.lock();
        while *writes > 0 {
            self.idle.wait(&mut writes);
        }
    }

    /// Records that everything written is durable; returns how many bytes were not before.
    pub(crate) fn note_synced(&self) -> u64 {
        let written = self.written.load(Ordering::Acquire);
        written - self.synced.swap(written, Ordering::AcqRel)
    }

    /// Counts bytes whose write has returned.
    pub(crate) fn wrote(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::AcqRel);
    }

    /// From time to time, makes the disk start to write what was written up to an offset. Otherwise
    /// the disk would be idle until a sync of all.
    pub(crate) fn start_write(&self, end: u64) {
        let started = self.started.load(Ordering::Relaxed);
        if end.saturating_sub(started) < START_BYTES {
            return;
        }
        let end = end - end % u64::from(PAGE_BYTES);
        let mine =
            self.started.compare_exchange(started, end, Ordering::Relaxed, Ordering::Relaxed);
        if mine.is_ok() {
            self.file.start_write(started, end - started);
        }
    }

    /// Whether writes have returned that are not known to be durable.
    pub(crate) fn is_dirty(&self) -> bool {
        self.written.load(Ordering::Acquire) > self.synced.load(Ordering::Acquire)
    }

    /// Makes every write durable that returned before the call. Returns how many bytes this thread
    /// made durable.
    pub(crate) fn sync(&self) -> std::result::Result<u64, device::Error> {
        if !self.is_dirty() {
            return Ok(0);
        }
        let wanted = self.written.load(Ordering::Acquire);
        let mut failed = self.syncing.lock();
        if let Some(error) = &*failed {
            return Err(error.clone());
        }
        let before = self.synced.load(Ordering::Acquire);
        if before >= wanted {
            return Ok(0);
        }
        // Loaded before the sync starts: the sync may miss what is written during it.
        let covered = self.written.load(Ordering::Acquire);
        self.file.sync_data().inspect_err(|error| *failed = Some(error.clone()))?;
        self.synced.store(covered, Ordering::Release);
        Ok(covered - before)
    }
}

/// A segment that is a blob.
pub(crate) struct SealedSegment {
    pub(crate) id: u64,
    pub(crate) generation: u32,
    pub(crate) name: String,
    /// Which pages a rewritten segment kept; read when first needed.
    map: OnceLock<PageMap>,
    /// Whether its mark was verified, or written, in this opening.
    pub(crate) proven: AtomicBool,
}

impl SealedSegment {
    pub(crate) fn new(id: u64, generation: u32, proven: bool) -> SealedSegment {
        let name = blob_name(id, generation);
        let proven = AtomicBool::new(proven);
        SealedSegment { id, generation, name, map: OnceLock::new(), proven }
    }

    /// The path for messages.
    pub(crate) fn path(&self) -> String {
        format!("{SEALED_DIRECTORY}/{}", self.name)
    }

    /// The map of a rewritten segment.
    pub(crate) fn map(&self, blobs: &dyn Blobs) -> Result<&PageMap> {
        if let Some(map) = self.map.get() {
            return Ok(map);
        }
        let mut page = vec![0; MAP_PAGE_BYTES];
        let length = blobs.read_at(&self.name, &mut page, 0)?;
        page.truncate(length);
        let (mark, map) =
            PageMap::decode(&page).map_err(|malformed| malformed.located(&self.path(), 0))?;
        if (mark.segment, mark.generation) != (self.id, self.generation) {
            let found = blob_name(mark.segment, mark.generation);
            return Err(damaged(self.path(), 0, format!("the map of {}", self.name), found));
        }
        Ok(self.map.get_or_init(|| map))
    }

    /// Reads whole pages; `buffer` may truncate the last one.
    fn read(&self, blobs: &dyn Blobs, page: u32, buffer: &mut [u8]) -> Result<()> {
        if self.generation == 0 {
            let offset = u64::from(page) * u64::from(PAGE_BYTES);
            let found = blobs.read_at(&self.name, buffer, offset)?;
            return complete(found, buffer.len(), offset, || self.path());
        }
        let map = self.map(blobs)?;
        let mut page = page;
        let mut rest = buffer;
        while !rest.is_empty() {
            let (rank, count) = map.run(page, rest.len().div_ceil(PAGE_BYTES as usize) as u32);
            let bytes = rest.len().min(count as usize * PAGE_BYTES as usize);
            let (now, later) = rest.split_at_mut(bytes);
            match rank {
                // Not kept: it was dead, or all zeros. The checksum shows which.
                None => now.fill(0),
                Some(rank) => {
                    let offset = u64::from(rank + 1) * u64::from(PAGE_BYTES);
                    let found = blobs.read_at(&self.name, now, offset)?;
                    complete(found, now.len(), offset, || self.path())?;
                }
            }
            page += count;
            rest = later;
        }
        Ok(())
    }

    /// Deallocates pages; `false` when the store cannot.
    fn punch(&self, blobs: &dyn Blobs, page: u32, count: u32) -> Result<bool> {
        for (offset, length) in self.places(blobs, page, count)? {
            if !blobs.punch(&self.name, offset, length)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Bytes of pages that occupy the disk.
    fn occupied(&self, blobs: &dyn Blobs, page: u32, count: u32) -> Result<u64> {
        let mut occupied = 0;
        for (offset, length) in self.places(blobs, page, count)? {
            occupied += blobs.occupied(&self.name, offset, length)?;
        }
        Ok(occupied)
    }

    /// Locations of pages in the blob, and the length of each part.
    fn places(&self, blobs: &dyn Blobs, page: u32, count: u32) -> Result<Vec<(u64, u64)>> {
        let bytes = |pages: u32| u64::from(pages) * u64::from(PAGE_BYTES);
        if self.generation == 0 {
            return Ok(vec![(bytes(page), bytes(count))]);
        }
        let map = self.map(blobs)?;
        let (mut page, end) = (page, page + count);
        let mut places = Vec::new();
        while page < end {
            let (rank, count) = map.run(page, end - page);
            if let Some(rank) = rank {
                places.push((bytes(rank + 1), bytes(count)));
            }
            page += count;
        }
        Ok(places)
    }
}

/// Fails if fewer bytes were found than extents name.
fn complete(found: usize, wanted: usize, offset: u64, path: impl Fn() -> String) -> Result<()> {
    if found == wanted {
        return Ok(());
    }
    let at = offset + found as u64;
    Err(damaged(path(), at, format!("{} more bytes", wanted - found), "the end".to_owned()))
}

fn damaged(file: String, offset: u64, expected: String, found: String) -> Error {
    Corruption { file, offset, structure: "segment", expected, found, unread: false }.into()
}

/// Where a segment is.
#[derive(Clone)]
pub(crate) enum SegmentFile {
    Open(Arc<OpenSegment>),
    Sealed(Arc<SealedSegment>),
}

impl SegmentFile {
    fn is(&self, other: &SegmentFile) -> bool {
        match (self, other) {
            (SegmentFile::Open(left), SegmentFile::Open(right)) => Arc::ptr_eq(left, right),
            (SegmentFile::Sealed(left), SegmentFile::Sealed(right)) => Arc::ptr_eq(left, right),
            _ => false,
        }
    }
}

/// All segments.
pub(crate) struct Segments {
    places: RwLock<BTreeMap<u64, SegmentFile>>,
    /// The few open ones, for the barrier.
    open: RwLock<Vec<Arc<OpenSegment>>>,
    blobs: Arc<dyn Blobs>,
    pub(crate) volume: [u8; 16],
    /// Defects of files that are not proven to be their segments.
    pub(crate) doubts: Mutex<BTreeMap<u64, Corruption>>,
    /// Unused duplicates of a segment's file.
    pub(crate) twins: Mutex<Vec<(u64, Corruption)>>,
}

impl Segments {
    pub(crate) fn new(blobs: Arc<dyn Blobs>, volume: [u8; 16]) -> Segments {
        Segments {
            places: RwLock::default(),
            open: RwLock::default(),
            blobs,
            volume,
            doubts: Mutex::default(),
            twins: Mutex::default(),
        }
    }

    pub(crate) fn blobs(&self) -> &dyn Blobs {
        self.blobs.as_ref()
    }

    pub(crate) fn insert_open(&self, segment: Arc<OpenSegment>) {
        self.open.write().push(Arc::clone(&segment));
        self.places.write().insert(segment.id, SegmentFile::Open(segment));
    }

    pub(crate) fn insert_sealed(&self, segment: SealedSegment) {
        let id = segment.id;
        self.places.write().insert(id, SegmentFile::Sealed(Arc::new(segment)));
        self.open.write().retain(|open| open.id != id);
    }

    pub(crate) fn remove(&self, segment: u64) {
        self.places.write().remove(&segment);
    }

    pub(crate) fn get(&self, segment: u64) -> Option<SegmentFile> {
        self.places.read().get(&segment).cloned()
    }

    /// The greatest number, which is never deleted, so that numbers are never used twice.
    pub(crate) fn greatest(&self) -> Option<u64> {
        self.places.read().last_key_value().map(|(&id, _)| id)
    }

    pub(crate) fn all(&self) -> Vec<(u64, SegmentFile)> {
        self.places.read().iter().map(|(&id, place)| (id, place.clone())).collect()
    }

    pub(crate) fn open(&self) -> Vec<Arc<OpenSegment>> {
        self.open.read().clone()
    }

    /// The path of a segment, for messages.
    pub(crate) fn path(&self, segment: u64) -> String {
        match self.get(segment) {
            Some(SegmentFile::Sealed(sealed)) => sealed.path(),
            Some(SegmentFile::Open(_)) => open_path(segment),
            // Each that this opening did not create was sealed, or was to be.
            None => format!("{SEALED_DIRECTORY}/{}", blob_name(segment, 0)),
        }
    }

    /// Reads from the start of a page on, until `buffer` is full.
    pub(crate) fn read(&self, segment: u64, page: u32, buffer: &mut [u8]) -> Result<()> {
        let missing = || Error::Missing { file: self.path(segment), record: None };
        let mut place = self.get(segment).ok_or_else(missing)?;
        loop {
            let result = match &place {
                SegmentFile::Open(open) => {
                    let offset = u64::from(page) * u64::from(PAGE_BYTES);
                    let found = open.file.read_at(buffer, offset)?;
                    complete(found, buffer.len(), offset, || open_path(segment))
                }
                SegmentFile::Sealed(sealed) => sealed.read(self.blobs(), page, buffer),
            };
            match result {
                Err(Error::Device(error)) if error.is_not_found() => {
                    let now = self.get(segment).ok_or_else(missing)?;
                    if now.is(&place) && !self.look_again(segment, &place)? {
                        return Err(missing());
                    }
                    place = self.get(segment).ok_or_else(missing)?;
                }
                other => return other,
            }
        }
    }

    /// Looks for a later generation of a sealed segment whose blob is gone: a process that was
    /// replaced may have rewritten it (`rewrite`). Whether there is one.
    fn look_again(&self, segment: u64, place: &SegmentFile) -> Result<bool> {
        let SegmentFile::Sealed(gone) = place else { return Ok(false) };
        let names = self.blobs.list("")?;
        let generations = names.iter().filter_map(|name| parse_name(name));
        let later = generations.filter(|&(id, of)| id == segment && of > gone.generation);
        let Some(generation) = later.map(|(_, generation)| generation).max() else {
            return Ok(false);
        };
        tracing::warn!(segment, generation, "another process rewrote a segment of contents");
        self.insert_sealed(SealedSegment::new(segment, generation, false));
        Ok(true)
    }

    /// Deallocates pages; `false` when the disk cannot.
    pub(crate) fn punch(&self, segment: u64, page: u32, count: u32) -> Result<bool> {
        let offset = u64::from(page) * u64::from(PAGE_BYTES);
        let length = u64::from(count) * u64::from(PAGE_BYTES);
        loop {
            let Some(place) = self.get(segment) else { return Ok(true) };
            let result = match &place {
                SegmentFile::Open(open) => open.file.punch(offset, length).map_err(Error::from),
                SegmentFile::Sealed(sealed) => sealed.punch(self.blobs(), page, count),
            };
            match result {
                Err(Error::Device(error))
                    if error.is_not_found() && !self.still(segment, &place) => {}
                other => return other,
            }
        }
    }

    /// How many of some pages occupy the disk.
    pub(crate) fn occupied(&self, segment: u64, page: u32, count: u32) -> Result<u32> {
        let offset = u64::from(page) * u64::from(PAGE_BYTES);
        let length = u64::from(count) * u64::from(PAGE_BYTES);
        loop {
            let Some(place) = self.get(segment) else { return Ok(0) };
            let result = match &place {
                SegmentFile::Open(open) => open.file.occupied(offset, length).map_err(Error::from),
                SegmentFile::Sealed(sealed) => sealed.occupied(self.blobs(), page, count),
            };
            match result {
                Err(Error::Device(error))
                    if error.is_not_found() && !self.still(segment, &place) => {}
                // The last page of a file may be written in part.
                other => return other.map(|bytes| bytes.div_ceil(u64::from(PAGE_BYTES)) as u32),
            }
        }
    }

    fn still(&self, segment: u64, place: &SegmentFile) -> bool {
        self.get(segment).is_some_and(|now| now.is(place))
    }

    /// Bytes that a segment occupies on disk.
    pub(crate) fn disk_bytes(&self, segment: u64) -> Result<u64> {
        Ok(match self.get(segment) {
            None => 0,
            Some(SegmentFile::Open(open)) => open.file.disk_bytes()?,
            Some(SegmentFile::Sealed(sealed)) => self.blobs.disk_bytes(&sealed.name)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use testing::{Fault, FaultOn, Op, fails};

    use super::{OpenSegment, blob_name, parse_name};

    /// The kernel reports lost bytes to one sync, and success to the next.
    #[test]
    fn waiters_of_a_failed_sync_get_the_error() {
        let sim = testing::sim_env(1);
        let segment =
            OpenSegment::new(1, sim.env().device.create("segment").expect("a file"), true);
        segment.file.write_at(&[1; 100], 0).expect("there is space");
        segment.wrote(100);
        sim.device.inject(Fault::io(FaultOn::Only(Op::Sync), 0));
        fails(segment.sync(), "sync segment: Input/output error");
        // As if this sync had started before the other one returned.
        fails(segment.sync(), "sync segment: Input/output error");
        assert!(segment.is_dirty());
    }

    #[test]
    fn names_round_trip_and_unknown_ones_are_ignored() {
        for (segment, generation) in [(0, 0), (0xabc, 0), (u64::MAX, 7)] {
            assert_eq!(parse_name(&blob_name(segment, generation)), Some((segment, generation)));
        }
        for name in [
            "",
            "x",
            "0000000000000abc",
            "0000000000000abc.seg.0",
            "0000000000000abc.seg.",
            "0000000000000ABC.seg",
            "+000000000000abc.seg",
            "0000000000000abc.seg.01",
        ] {
            assert_eq!(parse_name(name), None, "{name}");
        }
    }
}
