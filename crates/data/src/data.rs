//! `Data`: the handle of a volume's file contents.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use device::sync::Mutex;
use device::{Blobs, Env, LocalBlobs};
use format::Corruption;
use format::extent::CHUNK_BYTES;
use store::{Error, Read, Result, Store};

use crate::Options;
use crate::alloc::{Allocator, Reservation};
use crate::garbage::{Garbage, Stats};
use crate::hot::Hot;
use crate::segments::{OPEN_DIRECTORY, SEALED_DIRECTORY, SegmentFile, Segments};

/// How often a write looks whether another thread's checkpoint ended.
const ASK_AGAIN: Duration = Duration::from_millis(5);

/// The contents of a volume's files.
///
/// Every method may be called from any thread. Calls that plan into a batch for the same file must
/// not run at the same time. At most one of them may be in one batch. A plan reads what is
/// committed, not what the batch already holds. No method commits by itself, except the cleaning of
/// [`Data::clean_step`] and [`Data::sweep`].
pub struct Data {
    pub(crate) env: Env,
    pub(crate) options: Options,
    pub(crate) segments: Arc<Segments>,
    pub(crate) allocator: Arc<Allocator>,
    /// Bytes whose write has returned but that are not known to be durable.
    pub(crate) unsynced: AtomicU64,
    /// The sync that failed; after it nothing is written.
    pub(crate) failed: Mutex<Option<device::Error>>,
    pub(crate) garbage: Mutex<Garbage>,
    /// Held by the thread that cleans or sweeps.
    pub(crate) cleaning: Mutex<()>,
    /// Completed sweeps; changed under `cleaning`.
    pub(crate) sweeps: AtomicU64,
    pub(crate) hot: Hot,
    /// Duration of a punch, learned from earlier ones.
    pub(crate) punch_nanos: AtomicU64,
    pub(crate) metadata: OnceLock<Weak<dyn Store>>,
    /// Most bytes that the store has in memory and that no checkpoint writes: pins keep them.
    pub(crate) held: AtomicU64,
}

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Data").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Data {
    /// Opens, or creates, the data of a volume, whose `store` knows which segments existed. Costs a
    /// listing of the segments, regardless of the number of files; seals nothing and reads no data.
    pub fn open(
        env: &Env,
        blobs: Arc<dyn Blobs>,
        store: &dyn Read,
        options: Options,
    ) -> Result<Arc<Data>> {
        assert!(
            options.segment_pages > 1 && options.segment_pages <= format::segment::PAGES_MAX,
            "segments of {} pages",
            options.segment_pages
        );
        let segments = Arc::new(Segments::new(blobs, options.volume));
        let allocator = Arc::new(Allocator::new(
            Arc::clone(&env.device),
            Arc::clone(&segments),
            options.volume,
            options.segment_pages,
            options.upload_from.is_none(),
        ));
        let data = Arc::new(Data {
            env: env.clone(),
            options,
            segments,
            allocator,
            unsynced: AtomicU64::new(0),
            failed: Mutex::default(),
            garbage: Mutex::default(),
            cleaning: Mutex::default(),
            sweeps: AtomicU64::new(0),
            hot: Hot::default(),
            punch_nanos: AtomicU64::new(20_000),
            metadata: OnceLock::new(),
            held: AtomicU64::new(0),
        });
        data.recover(store)?;
        Ok(data)
    }

    /// Sets the store that shares the disk with the contents: once, before the first write. They
    /// leave it the space of its next checkpoint. Where there is no space for contents, it gives
    /// back what it holds. Writing threads ask it for that, which may hold their file but nothing
    /// that a commit or a checkpoint waits for.
    pub fn set_metadata(&self, store: Weak<dyn Store>) {
        assert!(self.metadata.set(store).is_ok(), "the store is set once");
    }

    fn store(&self) -> Option<Arc<dyn Store>> {
        self.metadata.get().and_then(Weak::upgrade)
    }

    /// Tries an action that takes disk space; if there is none, retries once after the store has
    /// returned what it holds.
    pub(crate) fn with_relief<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        match (attempt(), self.store()) {
            (Err(error), Some(store)) if error.is_no_space() => {
                if let Err(error) = store.give_back() {
                    tracing::warn!(%error, "cannot free space yet");
                }
                attempt()
            }
            (done, _) => done,
        }
    }

    /// Reserves at least one page and at most `count`. If the space that is left is needed for the
    /// next checkpoint, makes that first, or waits for the thread that does. The caller has no
    /// reservation of which it has not written the pages.
    pub(crate) fn reserve(&self, count: u32) -> Result<Reservation> {
        self.with_relief(|| {
            loop {
                if let Some(reservation) =
                    self.allocator.reserve(count, |free| self.unflushed(free))?
                {
                    return Ok(reservation);
                }
                match self.store() {
                    Some(store) if !store.checkpoint()? => {}
                    _ => break,
                }
                if device::is_interrupted() {
                    let error = std::io::Error::from(std::io::ErrorKind::Interrupted);
                    return Err(device::Error::new("write", OPEN_DIRECTORY, error).into());
                }
                self.env.clock.sleep(ASK_AGAIN);
            }
            if let Some(store) = self.store() {
                self.held.store(store.unflushed_bytes(u64::MAX), Ordering::Relaxed);
            }
            let pages = self.allocator.reserve(count, |free| self.unflushed(free))?;
            pages.ok_or(Error::NoSpace("contents of files"))
        })
    }

    /// Bytes that the next checkpoint may write, without what the last one made here left.
    fn unflushed(&self, free_bytes: u64) -> u64 {
        let all = self.store().map_or(0, |store| store.unflushed_bytes(free_bytes));
        let held = self.held.fetch_min(all, Ordering::Relaxed);
        all.saturating_sub(held)
    }

    /// As [`Data::open`], with the sealed segments in `data/sealed` of the volume directory.
    pub fn open_local(env: &Env, store: &dyn Read, options: Options) -> Result<Arc<Data>> {
        env.device.create_dir("data")?;
        let blobs = LocalBlobs::open(Arc::clone(&env.device), SEALED_DIRECTORY)?;
        Data::open(env, Arc::new(blobs), store, options)
    }

    /// Bytes that all segments occupy on disk. Queries each segment.
    pub fn disk_bytes(&self) -> Result<u64> {
        let mut total = 0;
        for (segment, _) in self.segments.all() {
            total += self.segments.disk_bytes(segment)?;
        }
        Ok(total)
    }

    /// Defects found since opening in segment files, which are therefore not reclaimed because they
    /// do not prove that they are those segments. Also unused duplicate files.
    pub fn held_back(&self) -> Vec<Corruption> {
        let mut found = self.segments.doubts();
        found.extend(self.segments.twins().into_iter().map(|(_, bad)| bad));
        found
    }

    /// Counters, for `status` and for tests.
    pub fn stats(&self) -> Stats {
        let all = self.segments.all();
        let open =
            all.iter().filter(|(_, place)| matches!(place, SegmentFile::Open(_))).count() as u64;
        let garbage = self.garbage.lock();
        let mut stats = garbage.stats();
        stats.stuck_bytes = garbage.stuck_pages(self.can_punch()) * u64::from(CHUNK_BYTES);
        drop(garbage);
        stats.open_segments = open;
        stats.sealed_segments = all.len() as u64 - open;
        stats.unsynced_bytes = self.unsynced_bytes();
        stats
    }
}
