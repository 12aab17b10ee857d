//! The suite that every engine must pass.

use lsm::{LsmStore, Options};
use store::Durability;
use testing::store_conformance::small;

/// Blocks so small that there are many of them, with several filters.
pub(crate) fn options(durability: Durability) -> Options {
    Options {
        common: small(durability),
        block_bytes: 1 << 10,
        // The suite measures space with values that would pack to nothing.
        compression: 0,
        // So that merges also leave value logs alone, if there are any.
        small_log_bytes: 2 << 10,
        ..Options::default()
    }
}

testing::engine_under_test!(Lsm, "lsm", LsmStore, options, spared: 2);
testing::store_conformance!(Lsm);
testing::store_conformance_tests!(Lsm: the_reserve_for_removing_is_for_batches_that_declare_it);
