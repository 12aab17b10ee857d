//! The suite with next to no cache: every read may evict, and every eviction may be read again.

use std::sync::Arc;

use btree::{BtreeStore, Options};
use device::Env;
use store::{Durability, Result, Store};
use testing::store_conformance::EngineUnderTest;

struct Cramped;

fn options(durability: Durability) -> Options {
    Options {
        volume: [7; 16],
        cache_bytes: 32 << 10,
        durability,
        log_segment_bytes: 16 << 10,
        checkpoint_bytes: 256 << 10,
        ..Options::default()
    }
}

impl EngineUnderTest for Cramped {
    const NAME: &'static str = "btree without cache";

    fn create(env: &Env, durability: Durability) -> Result<Arc<dyn Store>> {
        Ok(BtreeStore::create(env, &options(durability))?)
    }

    fn open(env: &Env, durability: Durability) -> Result<Arc<dyn Store>> {
        Ok(BtreeStore::open(env, &options(durability))?)
    }
}

testing::store_conformance_volatile!(Cramped);

testing::store_conformance_tests!(Cramped:
    random_operations_survive_reopening,
    a_large_tree_grows_and_shrinks,
    acknowledged_commits_of_many_threads_survive,
    nothing_leaks_over_crashes,
    power_may_be_cut_at_every_operation,
    a_failed_read_is_an_error_and_no_more,
    a_full_medium_at_every_operation_loses_nothing,
    a_failed_operation_loses_nothing,
);
