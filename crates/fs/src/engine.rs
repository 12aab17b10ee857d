//! Which engine a volume's store is, by the header.

use std::sync::Arc;

use device::Env;
use format::volume::{EngineKind, VolumeHeader};
use store::Store;

use crate::{OpenError, OpenOptions};

/// Directories of a volume that engines and data make.
pub(crate) const DIRECTORIES: [&str; 3] = ["btree", "log", "data"];

/// Makes an empty store.
pub(crate) fn create(_env: &Env, header: &VolumeHeader) -> Result<Arc<dyn Store>, OpenError> {
    match header.engine {
        EngineKind::Btree => Err(OpenError::InvalidOption("this program has no B-tree yet")),
    }
}

/// Opens the store of a volume.
pub(crate) fn open(
    _env: &Env,
    header: &VolumeHeader,
    _options: &OpenOptions,
) -> Result<Arc<dyn Store>, OpenError> {
    match header.engine {
        EngineKind::Btree => Err(OpenError::InvalidOption("this program has no B-tree yet")),
    }
}
