//! The suite with other layouts: packed blocks, blocks of a few entries each, and long values in
//! value logs.

use lsm::{LsmStore, Options};
use store::Durability;
use testing::store_conformance::small;

/// Blocks that zstd packs.
mod packed {
    use super::*;

    fn options(durability: Durability) -> Options {
        Options { common: small(durability), block_bytes: 4 << 10, ..Options::default() }
    }

    testing::engine_under_test!(Packed, "lsm with packed blocks", LsmStore, options, spared: 6);
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

    testing::engine_under_test!(Tiny, "lsm with tiny blocks", LsmStore, options, spared: 6);
    testing::store_conformance_volatile!(Tiny);
    testing::store_conformance_tests!(Tiny:
        random_operations_survive_reopening,
        power_may_be_cut_at_every_operation,
        power_may_be_cut_while_runs_are_ingested,
        a_flipped_bit_is_found_or_harmless,
        a_stale_or_misplaced_piece_is_found,
        a_full_disk_at_every_operation_loses_nothing,
        a_failed_read_is_an_error_and_no_more,
    );
}

/// Longer values in value logs, some of which are small enough to be merged.
mod column {
    use super::*;

    fn options(durability: Durability) -> Options {
        Options { values_from: 24, ..crate::conformance::options(durability) }
    }

    testing::engine_under_test!(Column, "lsm, column-style", LsmStore, options, spared: 6);
    testing::store_conformance!(Column);
}

/// All values in value logs, with blocks of about two rows, and no log ever merged for being small.
mod far {
    use super::*;

    fn options(durability: Durability) -> Options {
        Options {
            common: small(durability),
            block_bytes: 128,
            values_from: 1,
            small_log_bytes: 0,
            prefix_bytes: 1,
            ..Options::default()
        }
    }

    testing::engine_under_test!(Far, "lsm, all values far", LsmStore, options, spared: 6);
    testing::store_conformance_volatile!(Far);
    testing::store_conformance_tests!(Far:
        random_operations_survive_reopening,
        power_may_be_cut_at_every_operation,
        power_may_be_cut_while_runs_are_ingested,
        a_flipped_bit_is_found_or_harmless,
        a_missing_or_short_file_is_found,
        a_stale_or_misplaced_piece_is_found,
        a_full_disk_at_every_operation_loses_nothing,
        a_failed_operation_loses_nothing,
        a_failed_read_is_an_error_and_no_more,
    );
}
