//! Selects the engine of a volume's store, by the header.

use std::path::Path;
use std::sync::Arc;

use btree::BtreeStore;
use device::{BlobsBelow, Device, Env, LocalDevice, Objects, PatientBlobs, TimedBlobs};
use format::directory_record;
use format::log_segment::{self, HEADER_BYTES, SegmentHeader};
use format::superblock::{self, SUPERBLOCK_BYTES, Superblock};
use format::volume::{EngineKind, VolumeHeader};
use lsm::LsmStore;
use store::{
    CheckProgress, CheckReport, EngineOptions, LogKey, LogObjects, LogPlace, ObjectLogSettings,
    Store,
};
use volume::{OpenError, OpenOptions};

pub use store::LOG_DIRECTORY;

/// Which engine keeps the trees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Engine {
    /// The copy-on-write B-tree.
    #[default]
    Btree,
    /// The log-structured engine.
    Lsm,
}

impl Engine {
    /// The name used on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Btree => "btree",
            Engine::Lsm => "lsm",
        }
    }

    /// All engines, the default first.
    pub const ALL: [Engine; 2] = [Engine::Btree, Engine::Lsm];
}

/// How the log-structured engine lays records out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Layout {
    /// Whole records in sorted runs, which are merged.
    #[default]
    Rows,
    /// Longer records, such as those of files, in value logs that are not merged. An index of keys,
    /// short records and pointers is merged (IndexFS, II.C).
    Column,
}

impl Layout {
    /// The name used on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Rows => "rows",
            Layout::Column => "column",
        }
    }
}

/// The files of a volume. Its log may be a link to a directory on another disk.
pub fn volume_files(directory: &Path) -> device::Result<LocalDevice> {
    Ok(LocalDevice::open(directory)?.with_link(LOG_DIRECTORY))
}

/// Directories of a volume that engines and data create.
pub const DIRECTORIES: [&str; 4] = ["btree", "lsm", LOG_DIRECTORY, "data"];

/// Where the objects of an engine are, below an object store.
const RUNS: &str = "lsm";

/// The superblocks of the B-tree.
pub const SUPERBLOCKS: [&str; 2] = ["btree/super-0", "btree/super-1"];

/// Least size in bytes of a value that goes to a value log, in a column-style volume. Names with
/// their attributes stay in the runs, so that a path is looked up, permissions and all, without a
/// value log. Those of all directories do, and those of files with names of 60 bytes, whatever is
/// set of them. With names of 100 bytes most do. Contents of small files, targets of links and
/// extended attributes are separate records, and go there.
const COLUMN_VALUES_FROM: u64 = 144;
const _: () = assert!(directory_record::BYTES_MAX < COLUMN_VALUES_FROM as usize);

/// Creates an empty store.
pub fn create(
    env: &Env,
    header: &VolumeHeader,
    layout: Layout,
) -> Result<Arc<dyn Store>, OpenError> {
    let common = common(env, header, &OpenOptions::default())?;
    Ok(match header.engine {
        EngineKind::Btree => BtreeStore::create(env, &btree(common))?,
        EngineKind::Lsm => {
            let values_from = match layout {
                Layout::Rows => 0,
                Layout::Column => COLUMN_VALUES_FROM,
            };
            LsmStore::create(env, &lsm::Options { values_from, ..lsm(env, common) })?
        }
    })
}

/// Opens the store of a volume.
pub fn open(
    env: &Env,
    header: &VolumeHeader,
    options: &OpenOptions,
) -> Result<Arc<dyn Store>, OpenError> {
    let common = common(env, header, options)?;
    if env.objects.is_some() {
        make_directories(&*env.device)?;
    }
    Ok(match header.engine {
        EngineKind::Btree => BtreeStore::open(env, &btree(common))?,
        EngineKind::Lsm => {
            let merge_bytes_per_second = options.merge_bytes_per_second;
            let options = lsm::Options { merge_bytes_per_second, ..lsm(env, common) };
            LsmStore::open(env, &options)?
        }
    })
}

/// Checks the store of a volume that no process has open, without changing anything.
pub fn inspect(
    env: &Env,
    header: &VolumeHeader,
    progress: CheckProgress<'_>,
) -> Result<CheckReport, OpenError> {
    let common = common(env, header, &OpenOptions::default())?;
    Ok(match header.engine {
        EngineKind::Btree => btree::inspect(env, &btree(common), progress)?,
        EngineKind::Lsm => lsm::inspect(env, &lsm(env, common), progress)?,
    })
}

/// Whether the files of the store belong to a volume, by its superblocks or, if none of those can
/// be read, by its log. `false` if nothing identifies it.
pub fn is_of(device: &dyn Device, volume: [u8; 16]) -> Result<bool, OpenError> {
    let mut ids = Vec::new();
    for path in SUPERBLOCKS {
        use superblock::Decoded::{InTurns, Superblock as Whole};
        if let Ok(Whole(found) | InTurns(found)) =
            Superblock::decode(&beginning::<SUPERBLOCK_BYTES>(device, path)?)
        {
            ids.push(found.volume);
        }
    }
    if !ids.is_empty() {
        return Ok(ids.contains(&volume));
    }
    let Ok(names) = device.list(LOG_DIRECTORY) else { return Ok(false) };
    for name in names {
        let bytes = beginning::<HEADER_BYTES>(device, &format!("{LOG_DIRECTORY}/{name}"))?;
        if let Ok(log_segment::Decoded::Header(found)) = SegmentHeader::decode(&bytes) {
            ids.push(found.volume);
        }
    }
    Ok(ids.contains(&volume))
}

/// The first bytes of a file; none if they cannot be read.
fn beginning<const BYTES: usize>(device: &dyn Device, path: &str) -> Result<Vec<u8>, OpenError> {
    let mut bytes = vec![0; BYTES];
    let read = device.open(path).and_then(|file| file.read_at(&mut bytes, 0));
    match read {
        Ok(read) => bytes.truncate(read),
        Err(error) if error.is_shortage() => return Err(error.into()),
        Err(_) => bytes.clear(),
    }
    Ok(bytes)
}

/// Rebuilds the engine's counts, and its superblocks or manifests, in a volume that no process has
/// open.
pub fn repair(env: &Env, header: &VolumeHeader) -> Result<(), OpenError> {
    let common = common(env, header, &OpenOptions::default())?;
    match header.engine {
        EngineKind::Btree => match btree::repair(env, &btree(common))? {
            None => Ok(()),
            Some(error) => {
                let device::Error { path: file, message: why, .. } = error;
                Err(OpenError::Unreadable { file, why })
            }
        },
        EngineKind::Lsm => Ok(lsm::repair(env, &lsm(env, common))?),
    }
}

/// Rebuilds the damaged one of the two trees of the volume's records, in a volume that no process
/// has open. Then rebuilds the engine's counts: what the damaged tree pointed to becomes free.
pub fn renew_volume_records(env: &Env, header: &VolumeHeader) -> Result<(), OpenError> {
    let mut store = open(env, header, &OpenOptions::default())?;
    if volume::record_copies::drop_unknown(&*store)? {
        store.close()?;
        drop(store);
        store = open(env, header, &OpenOptions::default())?;
    }
    volume::record_copies::renew(&*store)?;
    store.close()?;
    drop(store);
    repair(env, header)
}

/// Truncates the log at the damage, in a volume that no process has open.
pub fn cut_log(env: &Env, header: &VolumeHeader) -> Result<store::Cut, OpenError> {
    let common = common(env, header, &OpenOptions::default())?;
    Ok(match header.engine {
        EngineKind::Btree => BtreeStore::cut_log(env, &btree(common))?,
        EngineKind::Lsm => LsmStore::cut_log(env, &lsm(env, common))?,
    })
}

/// Reports what truncating the log would cost, and changes nothing.
pub fn cost_of_cut(env: &Env, header: &VolumeHeader) -> Result<store::Cut, OpenError> {
    let common = common(env, header, &OpenOptions::default())?;
    Ok(match header.engine {
        EngineKind::Btree => BtreeStore::cost_of_cut(env, &btree(common))?,
        EngineKind::Lsm => LsmStore::cost_of_cut(env, &lsm(env, common))?,
    })
}

/// Rewrites headers of the log's files, where only the header is damaged.
pub fn repair_log(env: &Env, header: &VolumeHeader) -> Result<(), OpenError> {
    let common = common(env, header, &OpenOptions::default())?;
    match header.engine {
        EngineKind::Btree => BtreeStore::repair_log(env, &btree(common))?,
        EngineKind::Lsm => LsmStore::repair_log(env, &lsm(env, common))?,
    }
    Ok(())
}

/// Most of the log that is kept for the index. A million files whose modes changed take 200 MB, a
/// million changes of all kinds 500, and as much again where clones are separated meanwhile.
const LOG_KEEP_BYTES_MAX: u64 = 2 << 30;

/// Smallest segment of the log.
const LOG_SEGMENT_BYTES_MIN: u64 = 256 << 10;

/// Options common to all engines. The log is limited to a fraction of a small disk. Its segments,
/// of which two or three are kept, are at most 1/64 each, and what is kept for the index is as
/// much. What a checkpoint frees is at most 1/16.
fn common(
    env: &Env,
    header: &VolumeHeader,
    options: &OpenOptions,
) -> Result<EngineOptions, OpenError> {
    let disk_bytes = env.device.space()?.total_bytes;
    let segment = (disk_bytes / 64).max(LOG_SEGMENT_BYTES_MIN) & !(LOG_SEGMENT_BYTES_MIN - 1);
    Ok(EngineOptions {
        volume: header.volume_id,
        log_key: LogKey(header.hash_key),
        cache_bytes: usize::try_from(options.cache_bytes).unwrap_or(usize::MAX),
        durability: options.durability,
        log_segment_bytes: options.log_segment_bytes.min(segment),
        log_buffer_bytes: options.log_buffer_bytes,
        log_keep_bytes: if options.index.is_some() {
            LOG_KEEP_BYTES_MAX.min(disk_bytes / 64)
        } else {
            0
        },
        checkpoint_bytes: options.checkpoint_bytes.min(disk_bytes / 16),
        isolated_tree: Some(volume::record_copies::COPY),
        log_place: log_place(env, options),
        ..EngineOptions::default()
    })
}

/// Makes the directories of a host directory that engines and contents use.
pub fn make_directories(device: &dyn Device) -> device::Result<()> {
    for directory in ["lsm", "data"] {
        if device.metadata(directory)?.is_none() {
            device.create_dir(directory)?;
        }
    }
    Ok(())
}

/// Where the log is: with everything else, and never in the cache, because it is read only by
/// recovery.
fn log_place(env: &Env, options: &OpenOptions) -> LogPlace {
    let Some(objects) = &env.objects else { return LogPlace::Device };
    let store = Arc::<PatientBlobs>::clone(&objects.store);
    let timed = TimedBlobs { blobs: store, times: Arc::clone(&objects.commits) };
    LogPlace::Objects(LogObjects {
        blobs: Arc::new(BlobsBelow::new(Arc::new(timed), RUNS)),
        settings: ObjectLogSettings {
            commit_interval: options.commit_interval,
            ..ObjectLogSettings::default()
        },
    })
}

fn btree(common: EngineOptions) -> btree::Options {
    btree::Options { common, ..btree::Options::default() }
}

fn lsm(env: &Env, common: EngineOptions) -> lsm::Options {
    let prefix_bytes = format::key::DIRECTORY_PREFIX_BYTES;
    let below = |objects: &Objects| {
        lsm::BlobStore(Arc::new(BlobsBelow::new(Arc::clone(&objects.cached), RUNS)))
    };
    let blobs = env.objects.as_ref().map(below);
    lsm::Options { common, prefix_bytes, blobs, ..lsm::Options::default() }
}
