//! Which engine a volume's store is, by the header.

use std::sync::Arc;

use btree::BtreeStore;
use device::Env;
use format::volume::{EngineKind, VolumeHeader};
use store::Store;

use crate::{OpenError, OpenOptions};

/// Directories of a volume that engines and data make.
pub(crate) const DIRECTORIES: [&str; 3] = ["btree", "log", "data"];

/// Makes an empty store.
pub(crate) fn create(env: &Env, header: &VolumeHeader) -> Result<Arc<dyn Store>, OpenError> {
    match header.engine {
        EngineKind::Btree => {
            Ok(BtreeStore::create(env, &options_of(header, &OpenOptions::default()))?)
        }
    }
}

/// Opens the store of a volume.
pub(crate) fn open(
    env: &Env,
    header: &VolumeHeader,
    options: &OpenOptions,
) -> Result<Arc<dyn Store>, OpenError> {
    match header.engine {
        EngineKind::Btree => Ok(BtreeStore::open(env, &options_of(header, options))?),
    }
}

fn options_of(header: &VolumeHeader, options: &OpenOptions) -> btree::Options {
    btree::Options {
        volume: header.volume_id,
        cache_bytes: usize::try_from(options.cache_bytes).unwrap_or(usize::MAX),
        durability: options.durability,
        log_segment_bytes: options.log_segment_bytes,
        checkpoint_bytes: options.checkpoint_bytes,
        ..btree::Options::default()
    }
}
