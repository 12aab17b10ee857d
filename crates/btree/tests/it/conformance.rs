//! The suite that every engine must pass.

use std::sync::Arc;

use btree::{BtreeStore, Options};
use device::Env;
use store::{Durability, Result, Store};
use testing::store_conformance::EngineUnderTest;

struct Btree;

/// Small enough that cache, log and checkpoints all come into play.
pub(crate) fn options(durability: Durability) -> Options {
    Options {
        volume: [7; 16],
        cache_bytes: 4 << 20,
        durability,
        log_segment_bytes: 256 << 10,
        checkpoint_bytes: 1 << 20,
        ..Options::default()
    }
}

impl EngineUnderTest for Btree {
    const NAME: &'static str = "btree";

    fn create(env: &Env, durability: Durability) -> Result<Arc<dyn Store>> {
        Ok(BtreeStore::create(env, &options(durability))?)
    }

    fn open(env: &Env, durability: Durability) -> Result<Arc<dyn Store>> {
        Ok(BtreeStore::open(env, &options(durability))?)
    }
}

testing::store_conformance!(Btree);
