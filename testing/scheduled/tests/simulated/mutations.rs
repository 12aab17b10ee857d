//! Faults planted in the protocol: some seed finds each of them.
//!
//! The code asks `device::mutated` where a mutated protocol would differ. A mutation that no seed
//! finds shows that the simulation does not reach that part of the protocol.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use testing::FarBlobs;
use testing::run::{print_line, rounds};

use crate::run::{Size, run};
use crate::seeds::SIZE;
use crate::world::formatted;

/// Seeds that are tried for each.
const SEEDS: u64 = 400;

/// A run in which all calls are about one name: its file is appended to, and loses its name, by
/// several clients at one time.
const NARROW: Size = Size { parts: 1, names: 1, ..SIZE };

/// Returns how a seed shows that something is wrong.
fn fails(seed: u64, size: Size, objects: &Arc<FarBlobs>, mutation: &'static str) -> Option<String> {
    // A mutated program may find what it calls impossible.
    match catch_unwind(AssertUnwindSafe(|| run(seed, size, objects, Some(mutation)).0.wrong)) {
        Ok(wrong) => wrong,
        Err(panic) => {
            Some(panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".to_owned()))
        }
    }
}

/// Tries seeds from `first` on, then those before it: a mutation that few seeds find begins near a
/// seed that found it. Which seeds do changes with the code; it costs time only.
fn is_found(mutation: &'static str, size: Size, first: u64) {
    let objects = formatted(size.parts);
    let most = rounds(SEEDS, 20 * SEEDS);
    for seed in (first..most).chain(0..first) {
        if let Some(wrong) = fails(seed, size, &objects, mutation) {
            let (right, _) = run(seed, size, &objects, None);
            assert_eq!(right.wrong, None, "seed {seed} without the fault");
            let short: String = wrong.chars().take(200).collect();
            print_line(&format!("{mutation}: found by seed {seed}: {short}"));
            return;
        }
    }
    panic!("no seed below {most} finds: {mutation}");
}

macro_rules! mutations {
    ($often:expr, $size:expr; $($name:ident: $mutation:literal, $first:literal;)*) => {
        $(
            #[test]
            fn $name() {
                if $often || testing::run::slow() {
                    is_found($mutation, $size, $first);
                }
            }
        )*
    };
}

mutations! { true, SIZE;
    answers_before_they_are_durable: "answers before they are durable", 0;
    a_record_before_its_contents: "a record before the contents that it names", 73;
    a_log_that_is_not_sealed: "a log is not sealed", 1;
    a_taken_name_that_counts_as_made: "a taken name counts as made", 6;
    a_lost_answer_that_counts_as_made: "a lost answer counts as made", 219;
    an_answer_forgotten: "the answer of a repeat is forgotten", 234;
    answers_forgotten_by_a_new_connection: "a new connection forgets answers", 219;
    a_repeat_of_what_runs: "a repeat of what runs is executed", 381;
    changes_repeated_in_a_new_session: "changes are repeated in a new session", 4;
    answers_after_the_grant: "answers after the grant", 3;
    an_answer_that_waits_for_another: "an answer waits for the change before its own", 1;
    a_successor_that_repeats: "a successor executes repeats", 2;
    locks_given_too_early:
        "locks are granted before those from before the restart are claimed", 161;
    claims_without_locks: "a client claims no locks", 25;
    sessions_that_end: "no session from before the restart is continued", 1;
}

mutations! { true, NARROW;
    files_without_names_removed: "a server that ends removes files without names", 133;
    an_append_in_two_steps: "an append looks for the end first", 250;
}

// Rare: these take some hundred seeds, or more than were tried.
mutations! { false, SIZE;
    no_listing_after_a_manifest: "no listing after a manifest", 0;
    serves_too_early: "serves within the grant of the one before", 0;
    answers_that_rest_on_what_is_not_durable: "answers rest on what is not durable", 0;
    objects_behind_a_hole: "objects behind a hole are acknowledged", 0;
    no_listing_after_a_claim: "no listing after a claim", 0;
    openings_with_one_id: "openings have one id", 0;
    a_stale_hello: "a stale hello is accepted", 0;
    locks_claimed_too_late: "locks are claimed too late", 0;
    locks_given_away_too_early: "locks are given away before their session ends", 0;
    an_end_within_the_grant: "ends in order within the grant of the one before", 0;
    a_lease_kept: "a lease that ended is kept", 0;
    opened_without_a_question: "a volume is opened without a second question", 0;
    requests_of_an_old_connection: "requests of an old connection are executed", 0;
}
