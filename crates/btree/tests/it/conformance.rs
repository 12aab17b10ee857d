//! The suite that every engine must pass.

use btree::{BtreeStore, Options};
use store::Durability;
use testing::store_conformance::small;

pub(crate) fn options(durability: Durability) -> Options {
    Options { common: small(durability), ..Options::default() }
}

testing::engine_under_test!(Btree, "btree", BtreeStore, options, spared: 2);
testing::store_conformance!(Btree);
testing::store_conformance_tests!(Btree: the_reserve_for_removing_is_for_batches_that_declare_it);
