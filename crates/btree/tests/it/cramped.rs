//! The suite with next to no cache: every read may evict, and every eviction may be read again.

use btree::{BtreeStore, Options};
use store::{Durability, EngineOptions};
use testing::store_conformance::small;

fn options(durability: Durability) -> Options {
    let common = EngineOptions {
        cache_bytes: 32 << 10,
        log_segment_bytes: 16 << 10,
        checkpoint_bytes: 256 << 10,
        ..small(durability)
    };
    Options { common, ..Options::default() }
}

testing::engine_under_test!(Cramped, "btree without cache", BtreeStore, options, spared: 4);
testing::store_conformance_volatile!(Cramped);

testing::store_conformance_tests!(Cramped:
    random_operations_survive_reopening,
    a_large_tree_grows_and_shrinks,
    acknowledged_commits_of_many_threads_survive,
    nothing_leaks_over_crashes,
    power_may_be_cut_at_every_operation,
    a_failed_read_is_an_error_and_no_more,
    a_full_disk_at_every_operation_loses_nothing,
    a_failed_operation_loses_nothing,
);
