//! Which engine a volume's store is, by the header.

use std::sync::Arc;

use btree::BtreeStore;
use device::Env;
use format::volume::{EngineKind, VolumeHeader};
use lsm::LsmStore;
use store::{CheckProgress, CheckReport, Durability, LogKey, Store};

use crate::{OpenError, OpenOptions};

/// Directories of a volume that engines and data make.
pub(crate) const DIRECTORIES: [&str; 4] = ["btree", "lsm", "log", "data"];

/// Makes an empty store.
pub(crate) fn create(env: &Env, header: &VolumeHeader) -> Result<Arc<dyn Store>, OpenError> {
    let limits = Limits::of(env, &OpenOptions::default())?;
    Ok(match header.engine {
        EngineKind::Btree => BtreeStore::create(env, &limits.btree(header))?,
        EngineKind::Lsm => LsmStore::create(env, &limits.lsm(header))?,
    })
}

/// Opens the store of a volume.
pub(crate) fn open(
    env: &Env,
    header: &VolumeHeader,
    options: &OpenOptions,
) -> Result<Arc<dyn Store>, OpenError> {
    let limits = Limits::of(env, options)?;
    Ok(match header.engine {
        EngineKind::Btree => BtreeStore::open(env, &limits.btree(header))?,
        EngineKind::Lsm => LsmStore::open(env, &limits.lsm(header))?,
    })
}

/// Checks the store of a volume that nobody has open, without changing anything.
pub(crate) fn inspect(
    env: &Env,
    header: &VolumeHeader,
    progress: CheckProgress<'_>,
) -> Result<CheckReport, OpenError> {
    let limits = Limits::of(env, &OpenOptions::default())?;
    Ok(match header.engine {
        EngineKind::Btree => btree::inspect(env, &limits.btree(header), progress)?,
        EngineKind::Lsm => lsm::inspect(env, &limits.lsm(header), progress)?,
    })
}

/// Makes what the engine counts anew, and its superblocks, of a volume that nobody has open.
pub(crate) fn mend(env: &Env, header: &VolumeHeader) -> Result<(), OpenError> {
    let limits = Limits::of(env, &OpenOptions::default())?;
    match header.engine {
        EngineKind::Btree => Ok(btree::mend(env, &limits.btree(header))?),
        // It counts nothing, and its manifests say nothing twice.
        EngineKind::Lsm => Ok(()),
    }
}

/// Cuts the log off where it is damaged, of a volume that nobody has open.
pub(crate) fn cut_log(env: &Env, header: &VolumeHeader) -> Result<(), OpenError> {
    let limits = Limits::of(env, &OpenOptions::default())?;
    match header.engine {
        EngineKind::Btree => btree::cut_log(env, &limits.btree(header))?,
        EngineKind::Lsm => lsm::cut_log(env, &limits.lsm(header))?,
    }
    Ok(())
}

/// Least segment of the log.
const LOG_SEGMENT_BYTES_MIN: u64 = 256 << 10;

/// What any engine is told.
struct Limits {
    cache_bytes: usize,
    durability: Durability,
    log_segment_bytes: u64,
    checkpoint_bytes: u64,
}

impl Limits {
    /// The log is held to a part of a small medium: its segments, of which two or three are kept,
    /// to 1/64 each, and what a checkpoint lets go of to 1/16.
    fn of(env: &Env, options: &OpenOptions) -> Result<Limits, OpenError> {
        let medium = env.device.space()?.total_bytes;
        let segment = (medium / 64).max(LOG_SEGMENT_BYTES_MIN) & !(LOG_SEGMENT_BYTES_MIN - 1);
        Ok(Limits {
            cache_bytes: usize::try_from(options.cache_bytes).unwrap_or(usize::MAX),
            durability: options.durability,
            log_segment_bytes: options.log_segment_bytes.min(segment),
            checkpoint_bytes: options.checkpoint_bytes.min(medium / 16),
        })
    }

    fn btree(&self, header: &VolumeHeader) -> btree::Options {
        btree::Options {
            volume: header.volume_id,
            log_key: LogKey(header.hash_key),
            cache_bytes: self.cache_bytes,
            durability: self.durability,
            log_segment_bytes: self.log_segment_bytes,
            checkpoint_bytes: self.checkpoint_bytes,
            ..btree::Options::default()
        }
    }

    fn lsm(&self, header: &VolumeHeader) -> lsm::Options {
        lsm::Options {
            volume: header.volume_id,
            log_key: LogKey(header.hash_key),
            cache_bytes: self.cache_bytes,
            durability: self.durability,
            log_segment_bytes: self.log_segment_bytes,
            checkpoint_bytes: self.checkpoint_bytes,
            prefix_bytes: format::key::DIRECTORY_PREFIX_BYTES,
            ..lsm::Options::default()
        }
    }
}
