//! The suite that every engine must pass.

use std::sync::Arc;

use device::Env;
use lsm::{LsmStore, Options};
use store::{Durability, Result, Store};
use testing::store_conformance::EngineUnderTest;

struct Lsm;

/// Small enough that blocks, filters, the cache and checkpoints all come into play.
pub(crate) fn options(durability: Durability) -> Options {
    Options {
        volume: [7; 16],
        cache_bytes: 4 << 20,
        durability,
        log_segment_bytes: 256 << 10,
        checkpoint_bytes: 1 << 20,
        block_bytes: 1 << 10,
        // The suite measures room with values that would pack to nothing.
        compression: 0,
        ..Options::default()
    }
}

impl EngineUnderTest for Lsm {
    const NAME: &'static str = "lsm";

    fn create(env: &Env, durability: Durability) -> Result<Arc<dyn Store>> {
        Ok(LsmStore::create(env, &options(durability))?)
    }

    fn open(env: &Env, durability: Durability) -> Result<Arc<dyn Store>> {
        Ok(LsmStore::open(env, &options(durability))?)
    }
}

testing::store_conformance!(Lsm);
