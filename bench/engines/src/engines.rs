//! All engines, by their names.

use std::path::Path;

use crate::engine::{Engine, Result};
use crate::ours::Ours;

/// Makes an empty store in an empty directory.
pub(crate) fn create(name: &str, path: &Path, cache_bytes: usize) -> Result<Box<dyn Engine>> {
    Ok(match name {
        "btree" => Box::new(Ours::btree(path, cache_bytes)?),
        "lsm" => Box::new(Ours::lsm(path, cache_bytes)?),
        "redb" => Box::new(crate::redb::Redb::create(path, cache_bytes, 1000)?),
        "redb-1" => Box::new(crate::redb::Redb::create(path, cache_bytes, 1)?),
        "fjall" => Box::new(crate::fjall::Fjall::create(path, cache_bytes)?),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => Box::new(crate::rocksdb::Rocks::create(path, cache_bytes)?),
        "map" => Box::new(crate::map::Map::default()),
        other => return Err(format!("no engine {other}").into()),
    })
}
