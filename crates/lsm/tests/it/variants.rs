//! The suite with other layouts of blocks: packed ones, and ones of a few entries each.

use lsm::{LsmStore, Options};
use store::Durability;
use testing::store_conformance::small;

/// Blocks that zstd packs.
mod packed {
    use super::*;

    fn options(durability: Durability) -> Options {
        Options { common: small(durability), block_bytes: 4 << 10, ..Options::default() }
    }

    testing::engine_under_test!(Packed, "lsm with packed blocks", LsmStore, options);
    testing::store_conformance!(Packed);
}

/// Blocks of about two entries, each run with many of them, and short directories.
mod tiny {
    use super::*;

    fn options(durability: Durability) -> Options {
        Options {
            common: small(durability),
            block_bytes: 128,
            compression: 19,
            prefix_bytes: 1,
            ..Options::default()
        }
    }

    testing::engine_under_test!(Tiny, "lsm with tiny blocks", LsmStore, options);
    testing::store_conformance_volatile!(Tiny);
    testing::store_conformance_tests!(Tiny:
        random_operations_survive_reopening,
        power_may_be_cut_at_every_operation,
        power_may_be_cut_while_runs_are_ingested,
        a_flipped_bit_is_found_or_harmless,
        a_stale_or_misplaced_piece_is_found,
        a_full_medium_at_every_operation_loses_nothing,
        a_failed_read_is_an_error_and_no_more,
    );
}
