//! The blobs of the engine: reading them, verified, through a cache of blocks.
//!
//! Every block and index that is read is compared with the checksum stored in its pointer. The
//! checksum starts with the place of the block, so a whole block in the wrong place is rejected.

use std::collections::BTreeSet;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::sync::Mutex;
use device::{Blobs, Env, FastHasher};
use format::run_block::{Block, unpack};
use format::run_index::{BLOB_HEAD_BYTES, BlockPlace, check_blob_head, checksum};
use format::{Corruption, Malformed};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use store::{Error, Result};

use crate::names::{BLOB_PREFIX, COPY_PREFIX, MANIFEST_PREFIX, NUMBER_MAX};
use crate::nested::Nested;
use crate::options::Options;

/// The directory of the engine's blobs.
pub(crate) const DIRECTORY: &str = "lsm";

/// The number of blocks that the cache is sized for, from its capacity in bytes.
const BLOCK_BYTES: usize = 16 << 10;

/// Where a block is: its blob and offset.
type BlockId = (u64, u64);

#[derive(Debug, Clone)]
struct ByBytes;

impl Weighter<BlockId, Arc<Block>> for ByBytes {
    fn weight(&self, _: &BlockId, block: &Arc<Block>) -> u64 {
        block.memory_bytes() as u64
    }
}

type Hash = BuildHasherDefault<FastHasher>;

/// Blobs and the cache of their blocks.
pub(crate) struct Files {
    pub(crate) blobs: Arc<dyn Blobs>,
    pub(crate) volume: [u8; 16],
    cache: Cache<BlockId, Arc<Block>, ByBytes, Hash>,
    /// Memory of the indexes of runs; they stay in memory.
    pub(crate) index_bytes: AtomicU64,
    /// Blocks read from the disk.
    pub(crate) loads: AtomicU64,
    /// Numbers of runs that nothing holds any more, collected since the last query.
    let_go: Mutex<Vec<u64>>,
}

/// The name of a blob of runs.
pub(crate) fn blob_name(number: u64) -> String {
    format!("{BLOB_PREFIX}{number:016x}")
}

/// The number of the blob of runs that a path names.
pub(crate) fn blob_number(path: &str) -> Option<u64> {
    let name = path.rsplit('/').next()?;
    u64::from_str_radix(name.strip_prefix(BLOB_PREFIX)?, 16).ok()
}

/// The path of a blob below the volume directory, for messages.
pub(crate) fn path(name: &str) -> String {
    format!("{DIRECTORY}/{name}")
}

impl Files {
    pub(crate) fn new(blobs: Arc<dyn Blobs>, volume: [u8; 16], cache_bytes: usize) -> Files {
        let blocks = (cache_bytes / BLOCK_BYTES).max(16);
        let cache = Cache::with(
            blocks,
            cache_bytes as u64,
            ByBytes,
            Hash::default(),
            quick_cache::sync::DefaultLifecycle::default(),
        );
        Files {
            blobs,
            volume,
            cache,
            index_bytes: AtomicU64::new(0),
            loads: AtomicU64::new(0),
            let_go: Mutex::default(),
        }
    }

    /// Registers a run that nothing holds any more.
    pub(crate) fn let_go(&self, number: u64) {
        self.let_go.lock().push(number);
    }

    /// The numbers of runs that nothing holds any more, each once; includes runs that never were on
    /// the disk.
    pub(crate) fn take_let_go(&self) -> Vec<u64> {
        std::mem::take(&mut *self.let_go.lock())
    }

    /// Memory of cached blocks and of indexes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.cache.weight() + self.index_bytes.load(Ordering::Relaxed)
    }

    /// A block, from the cache or the disk.
    #[inline]
    pub(crate) fn block(&self, blob: u64, place: &BlockPlace) -> Result<Arc<Block>> {
        let key = (blob, place.offset);
        if let Some(block) = self.cache.get(&key) {
            return Ok(block);
        }
        let block = Arc::new(self.load(blob, place)?);
        self.cache.insert(key, Arc::clone(&block));
        Ok(block)
    }

    /// A block from the disk, bypassing the cache, which keeps what readers need.
    pub(crate) fn load(&self, blob: u64, place: &BlockPlace) -> Result<Block> {
        let stored = self.read(blob, place.offset, place.stored as usize, "block of a run")?;
        let sum = checksum(&self.volume, blob, place.offset, &stored);
        if sum != place.checksum {
            return Err(wrong_sum(blob, place.offset, "block of a run", place.checksum, sum));
        }
        self.loads.fetch_add(1, Ordering::Relaxed);
        let packed = place.stored < place.raw;
        let bytes = if packed { unpack(&stored, place.raw as usize) } else { Ok(stored) };
        let block =
            bytes.and_then(Block::decode).map_err(|bad| located(bad, blob, place.offset))?;
        // A falsified block has a right checksum. A cursor that seeks in keys without an order may
        // return the same keys again and again.
        match (1..block.len()).find(|&at| block.suffix(at - 1) >= block.suffix(at)) {
            None => Ok(block),
            Some(at) => Err(out_of_order(blob, place.offset, format!("entry {at} is not"))),
        }
    }

    /// Bytes of a blob, which must be that long.
    pub(crate) fn read(
        &self,
        blob: u64,
        offset: u64,
        length: usize,
        structure: &'static str,
    ) -> Result<Vec<u8>> {
        let name = blob_name(blob);
        let mut bytes = vec![0; length];
        let (read, gone) = match self.blobs.read_at(&name, &mut bytes, offset) {
            // Reported as damage of everything that was in it.
            Err(error) if error.is_not_found() => (0, true),
            read => (read?, false),
        };
        if read < length {
            let found = if gone { "no file".to_owned() } else { read.to_string() };
            let expected = format!("{length} bytes");
            return Err(Corruption {
                file: path(&name),
                offset,
                structure,
                expected,
                found,
                unread: false,
            }
            .into());
        }
        Ok(bytes)
    }

    /// Checks that a blob exists, has the right length, and is the one that its name gives.
    pub(crate) fn check_blob(&self, number: u64, length: u64) -> Result<()> {
        self.check_length(number, length)?;
        self.check_head(number)
    }

    /// Checks that a blob exists and has the stated length.
    pub(crate) fn check_length(&self, number: u64, length: u64) -> Result<()> {
        let name = blob_name(number);
        let Some(found) = self.blobs.length(&name)? else {
            return Err(Error::Missing { file: path(&name), record: None });
        };
        if found != length {
            let (expected, found) = (format!("{length} bytes"), format!("{found}"));
            let (file, structure) = (path(&name), "blob of runs");
            return Err(
                Corruption { file, offset: 0, structure, expected, found, unread: false }.into()
            );
        }
        Ok(())
    }

    /// The same for a blob that is being opened: damage blocks access to its content, and to
    /// nothing else. A manifest of a known version names no blob of a newer version, so such a blob
    /// is damage, too.
    pub(crate) fn look_at_blob(&self, number: u64, length: u64) -> Result<()> {
        match self.check_blob(number, length) {
            Err(
                error @ (Error::Corrupt(_) | Error::Missing { .. } | Error::NewerFormat { .. }),
            ) => {
                tracing::error!(%error, number, "a blob is damaged");
                Ok(())
            }
            looked => looked,
        }
    }

    /// Checks that a blob belongs to this volume and is the one that its name gives.
    pub(crate) fn check_head(&self, number: u64) -> Result<()> {
        let head = self.read(number, 0, BLOB_HEAD_BYTES, "blob of runs")?;
        match check_blob_head(&head, self.volume, number) {
            Ok(()) => Ok(()),
            Err(Ok(found)) => {
                Err(Error::NewerFormat { file: path(&blob_name(number)), found, known: 1 })
            }
            Err(Err(bad)) => Err(located(bad, number, 0)),
        }
    }
}

/// The numbers of the blobs whose names begin with a prefix, ascending. Only names in this engine's
/// form count.
pub(crate) fn numbers(files: &Files, prefix: &str) -> Result<Vec<u64>> {
    let names = files.blobs.list(prefix)?;
    let own = |name: &String| {
        let number = u64::from_str_radix(name.strip_prefix(prefix)?, 16).ok()?;
        (number <= NUMBER_MAX && format!("{prefix}{number:016x}") == *name).then_some(number)
    };
    let mut numbers: Vec<u64> = names.iter().filter_map(own).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The numbers of all existing manifests, with one copy or two, ascending.
pub(crate) fn manifest_numbers(files: &Files) -> Result<BTreeSet<u64>> {
    let mut all = BTreeSet::from_iter(numbers(files, MANIFEST_PREFIX)?);
    all.extend(numbers(files, COPY_PREFIX)?);
    Ok(all)
}

/// Reports where in which blob something is malformed.
pub(crate) fn located(bad: Malformed, blob: u64, offset: u64) -> Error {
    bad.located(&path(&blob_name(blob)), offset).into()
}

/// The keys of a block contradict one another, or its index.
pub(crate) fn out_of_order(blob: u64, offset: u64, found: String) -> Error {
    let (file, structure) = (path(&blob_name(blob)), "block of a run");
    let expected = "keys that ascend, from the first one in the index".to_owned();
    Corruption { file, offset, structure, expected, found, unread: false }.into()
}

/// The bytes differ from those that were written.
pub(crate) fn wrong_sum(
    blob: u64,
    offset: u64,
    structure: &'static str,
    expected: u32,
    found: u32,
) -> Error {
    let file = path(&blob_name(blob));
    let (expected, found) = (format!("checksum {expected:08x}"), format!("{found:08x}"));
    Corruption { file, offset, structure, expected, found, unread: false }.into()
}

/// The blobs of a store: those that the caller passed, or those of the volume's directory. The
/// directory is made in any case, for what is being written.
pub(crate) fn open_blobs(env: &Env, options: &Options) -> Result<Arc<dyn Blobs>> {
    let local = device::LocalBlobs::open(Arc::clone(&env.device), DIRECTORY)?;
    let is_in_objects = options.common.log_place.objects().is_some();
    Ok(match &options.blobs {
        Some(blobs) if is_in_objects => Arc::new(Nested(Arc::clone(&blobs.0))),
        Some(blobs) => Arc::clone(&blobs.0),
        None if is_in_objects => {
            // Manifests on a device of one process fence nobody.
            let why = "a log in an object store needs its manifests and runs there, too";
            let error = std::io::Error::new(std::io::ErrorKind::InvalidInput, why);
            return Err(device::Error::new("open", DIRECTORY, error).into());
        }
        None => Arc::new(local),
    })
}
