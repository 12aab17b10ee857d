//! `Data`: the handle of a volume's file contents.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use device::sync::Mutex;
use device::{Blobs, Env, LocalBlobs};
use format::Corruption;
use format::extent::CHUNK_BYTES;
use store::{Read, Result};

use crate::Options;
use crate::alloc::Allocator;
use crate::garbage::{Garbage, Stats};
use crate::hot::Hot;
use crate::segments::{SEALED_DIRECTORY, SegmentFile, Segments};

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
    pub(crate) relief: OnceLock<Relief>,
}

/// Makes other components return free space that they hold to the disk.
pub type Relief = Box<dyn Fn() + Send + Sync>;

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
            relief: OnceLock::new(),
        });
        data.recover(store)?;
        Ok(data)
    }

    /// Sets a function that is called when the disk has no space for contents, before the error is
    /// returned: once, before the first write. Writing threads call it, which may hold their file
    /// but nothing that a commit or a checkpoint waits for.
    pub fn set_relief(&self, relief: Relief) {
        assert!(self.relief.set(relief).is_ok(), "the relief is set once");
    }

    /// Tries an action that takes disk space; if there is none, retries once after other components
    /// have returned what they hold.
    pub(crate) fn with_relief<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        match (attempt(), self.relief.get()) {
            (Err(error), Some(relief)) if error.is_no_space() => {
                relief();
                attempt()
            }
            (done, _) => done,
        }
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
