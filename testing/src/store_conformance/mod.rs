//! Requirements for every engine, as functions over an engine: one suite for all of them.
//!
//! An engine's crate defines how its stores are created ([`EngineUnderTest`]) and calls
//! [`store_conformance!`](macro@crate::store_conformance) in its `tests/it`. Each function compares
//! the engine with [`crate::MemStore`], on a simulated disk, by printed seeds.

mod killed;
mod faults;
mod damage;
mod patterns;
mod ingest;
mod beside;
mod crash;
mod large;
mod partial;
mod pins;
mod space_given_back;
mod space;
mod threads;
mod reopen;
mod history;
mod diffs;
mod random;
mod cursors;
mod compare;
mod workload;
mod batches;
mod engine;

pub use batches::*;
pub use beside::*;
pub use compare::{Mismatch, same_diff, same_store, same_tree};
pub use crash::*;
pub use cursors::*;
pub use damage::*;
pub use diffs::*;
pub use engine::{Begin, EngineUnderTest, MemUnderTest, small};
pub use faults::*;
pub use history::History;
pub use ingest::*;
pub use killed::*;
pub use large::*;
pub use partial::*;
pub use patterns::*;
pub use pins::*;
pub use random::*;
pub use reopen::*;
pub use space::*;
pub use space_given_back::*;
pub use threads::*;
pub use workload::{Shape, Workload};

/// Generates the tests of a suite: one `#[test]` for each named function.
#[macro_export]
macro_rules! store_conformance_tests {
    ($engine:ty: $($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            $crate::store_conformance::$name::<$engine>();
        })*
    };
}

/// The tests that need no disk.
#[macro_export]
macro_rules! store_conformance_volatile {
    ($engine:ty) => {
        $crate::store_conformance_tests!($engine:
            a_batch_is_applied_in_order,
            an_empty_batch_is_no_commit,
            a_batch_that_names_no_tree_is_refused_whole,
            a_merge_changes_numbers_in_place,
            keys_and_values_of_every_length_round_trip,
            a_clone_and_its_source_do_not_see_each_other,
            a_partial_clone_has_the_prefixes_only,
            a_deleted_range_is_gone,
            a_dropped_tree_is_gone_and_reclaimed,
            random_operations_agree_with_the_oracle,
            cursors_move_as_the_oracle_does,
            a_scan_returns_its_whole_range_and_nothing_else,
            a_live_cursor_skips_nothing_and_repeats_nothing,
            a_pin_shows_its_state,
            differences_are_exact,
            differences_between_pins_are_exact,
            pins_of_two_stores_are_not_compared,
            a_run_has_the_effect_of_puts,
            an_unsorted_run_is_refused,
            a_snapshot_by_patterns_has_exactly_the_matches,
            a_snapshot_by_patterns_is_of_one_moment,
            a_visit_of_clones_visits_shared_nodes_once,
            a_torn_batch_is_never_seen,
            writers_on_several_threads_lose_nothing,
            a_scan_beside_writers_is_complete,
            tokens_are_in_order,
        );
    };
}

/// The tests that need a disk that keeps its data through a power cut or a failed call.
#[macro_export]
macro_rules! store_conformance_kept {
    ($engine:ty) => {
        $crate::store_conformance_resent!($engine);
        $crate::store_conformance_tests!($engine: a_failed_sync_latches);
    };
}

/// The same but that a failed sync latches: of a log that keeps its records and sends them again.
#[macro_export]
macro_rules! store_conformance_resent {
    ($engine:ty) => {
        $crate::store_conformance_tests!($engine:
            a_closed_store_opens_again,
            a_dropped_store_opens_again_with_what_was_synced,
            random_operations_survive_reopening,
            a_partial_clone_does_not_change,
            a_large_tree_grows_and_shrinks,
            a_store_that_is_not_there_is_missing,
            the_log_is_trimmed_by_checkpoints,
            a_dropped_tree_frees_its_space,
            a_pin_outlives_the_trees_that_it_shows,
            nothing_leaks_over_crashes,
            many_clones_cost_only_their_differences,
            a_log_record_is_never_written_before_its_barrier,
            acknowledged_commits_of_many_threads_survive,
            power_may_be_cut_beside_writers_clones_and_runs,
            conflicting_commits_are_applied_in_the_order_of_the_log,
            power_may_be_cut_at_every_operation,
            power_may_be_cut_at_every_operation_in_sync_mode,
            power_may_be_cut_while_a_store_recovers,
            power_may_be_cut_while_runs_are_ingested,
            power_may_be_cut_while_a_snapshot_by_patterns_is_made,
            power_may_be_cut_after_a_process_was_killed,
            power_may_be_cut_after_a_sync_failed_and_the_process_ended,
            power_may_be_cut_after_an_opening_failed,
            a_full_disk_at_every_operation_loses_nothing,
            a_failed_operation_loses_nothing,
            a_failed_read_is_an_error_and_no_more,
        );
    };
}

/// The tests that set the space of a disk, for everything that the engine writes, not for a part of
/// it.
#[macro_export]
macro_rules! store_conformance_bounded {
    ($engine:ty) => {
        $crate::store_conformance_tests!($engine:
            space_runs_out_beside_writers_clones_and_runs,
            a_full_disk_stays_readable_and_recovers,
        );
    };
}

/// The tests that change the data of a disk byte by byte.
#[macro_export]
macro_rules! store_conformance_damaged {
    ($engine:ty) => {
        $crate::store_conformance_tests!($engine:
            a_flipped_bit_is_found_or_harmless,
            a_flipped_bit_in_the_log_of_a_crashed_store_is_found,
            a_missing_or_short_file_is_found,
            a_stale_or_misplaced_piece_is_found,
        );
    };
}

/// All tests, for an engine that keeps its stores on a simulated disk.
#[macro_export]
macro_rules! store_conformance {
    ($engine:ty) => {
        $crate::store_conformance_volatile!($engine);
        $crate::store_conformance_kept!($engine);
        $crate::store_conformance_bounded!($engine);
        $crate::store_conformance_damaged!($engine);
    };
}
