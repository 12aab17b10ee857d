//! The log of a shard in an object store.

use models::log::{Bounds, Broken, LOST, LogModel, ONE_OPENING, ONE_READER, SERVES, STALE, ZOMBIE};

use crate::{breaks, holds, slow};

/// Two owners with two records each, two of them in flight at once, a checkpoint, and one late
/// duplicate or lost answer.
const TWO: Bounds = Bounds {
    owners: 2,
    records: 2,
    later_records: 2,
    flights: 2,
    checkpoints: 1,
    repeats: 1,
    reads: 0,
    ends: false,
};

/// Three owners with one record each, and a checkpoint.
const THREE: Bounds = Bounds {
    owners: 3,
    records: 1,
    later_records: 1,
    flights: 1,
    checkpoints: 1,
    repeats: 0,
    reads: 0,
    ends: false,
};

/// Two owners, time and a read. The first has two records in flight.
const READS: Bounds = Bounds {
    owners: 2,
    records: 2,
    later_records: 1,
    flights: 2,
    checkpoints: 0,
    repeats: 0,
    reads: 1,
    ends: false,
};

/// Two owners that may end in order, and a read.
const ENDS: Bounds = Bounds { records: 1, flights: 1, ends: true, ..READS };

/// The protocol as it is. In the short form with less in flight: the broken variants have all.
fn log(bounds: Bounds) -> LogModel {
    let less = Bounds { later_records: 1, flights: 1, ..bounds };
    LogModel { broken: None, bounds: if slow() { bounds } else { less } }
}

/// A variant must be found to violate each property.
fn finds(broken: Broken, bounds: Bounds, properties: &[&'static str]) {
    // These are behind more states in depth than in breadth.
    let shallow = matches!(broken, Broken::GrantBehindHole | Broken::GrantAfterEnd);
    let model = LogModel { broken: Some(broken), bounds };
    breaks(&format!("{broken:?}"), model, properties, shallow);
}

#[test]
fn two_owners_with_two_flights_each_lose_nothing() {
    holds("two owners", log(TWO));
}

#[test]
fn three_owners_lose_nothing() {
    holds("three owners", log(THREE));
}

#[test]
fn reads_within_grants_are_not_stale() {
    holds("reads", log(READS));
}

#[test]
fn a_successor_does_not_wait_for_an_owner_that_ended_in_order() {
    holds("ends in order", LogModel { broken: None, bounds: ENDS });
}

/// A read takes effect when it arrives, so the look at the grant may be there instead of at the
/// answer.
#[test]
fn a_grant_may_be_looked_at_when_a_read_arrives_instead() {
    let bounds = Bounds { records: 1, flights: 1, ..READS };
    holds(
        "reads, checked on arrival",
        LogModel { broken: Some(Broken::CheckWhenArriving), bounds },
    );
}

#[test]
fn a_claim_without_a_list_shares_its_epoch_with_another_opening() {
    finds(Broken::NoListAfterClaim, THREE, &[ONE_OPENING]);
}

#[test]
fn an_opening_without_a_list_acknowledges_writes_that_nobody_finds() {
    finds(Broken::NoListAfterOpening, THREE, &[LOST, ZOMBIE]);
}

#[test]
fn a_checkpoint_without_a_list_deletes_what_its_successor_needs() {
    finds(Broken::NoListAfterCheckpoint, TWO, &[LOST, SERVES]);
}

#[test]
fn one_log_for_all_epochs_loses_writes() {
    finds(Broken::OneLogForAllEpochs, TWO, &[LOST, ZOMBIE]);
}

#[test]
fn collected_seals_let_a_replaced_owner_acknowledge() {
    finds(Broken::SealsCollected, TWO, &[LOST, ZOMBIE]);
}

#[test]
fn equal_bytes_without_a_random_id_let_two_openings_win() {
    finds(Broken::EqualBytesTakenAsWon, TWO, &[ONE_OPENING, LOST]);
}

#[test]
fn a_record_acknowledged_behind_a_hole_is_lost() {
    finds(Broken::AcknowledgedBehindHole, TWO, &[LOST]);
}

#[test]
fn a_successor_that_does_not_wait_makes_reads_stale() {
    finds(Broken::NoWait, READS, &[ONE_READER, STALE]);
}

#[test]
fn a_successor_that_waits_for_the_grant_alone_makes_reads_stale_when_clocks_differ() {
    finds(Broken::NoDrain, READS, &[STALE]);
}

#[test]
fn a_grant_counted_from_its_answer_makes_reads_stale() {
    finds(Broken::GrantFromAnswer, READS, &[STALE]);
}

#[test]
fn a_grant_from_a_record_behind_a_hole_makes_reads_stale() {
    finds(Broken::GrantBehindHole, READS, &[STALE]);
}

#[test]
fn a_grant_from_a_look_beyond_the_records_in_flight_makes_reads_stale() {
    finds(Broken::LookBeyondFlights, READS, &[STALE]);
}

/// A successor replays an object in flight, and deletes it.
#[test]
fn a_grant_from_the_absence_of_the_first_number_alone_makes_reads_stale() {
    finds(Broken::LookFirstAlone, READS, &[STALE]);
}

#[test]
fn a_read_answered_without_a_look_at_the_grant_is_stale() {
    finds(Broken::NoCheckWhenAnswering, READS, &[STALE]);
}

#[test]
fn a_grant_that_outlives_an_end_in_order_makes_reads_stale() {
    finds(Broken::GrantAfterEnd, ENDS, &[STALE]);
}
