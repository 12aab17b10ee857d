//! A log in objects: lost answers, late requests, holes, seals, other openings, grants.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use device::{Blobs, Clock};
use format::log_object::{Kind, LogObject};
use store::{
    Barrier, Error, Log, LogObjects, LogSpace, Lsn, ObjectLogSettings, ObjectPlace, Opening,
};
use testing::{Call, FarBlobs, Mishap, fails};

use crate::objects_kit::{
    Held, VOLUME, append, assert_records, create, far, name, open, options, payload, settings,
    verified,
};

fn names(far: &FarBlobs) -> Vec<String> {
    far.list("log/").expect("they are in memory")
}

/// Whatever becomes of one request, nothing is lost and nothing latches.
#[test]
fn a_failed_request_is_sent_again() {
    for mishap in [Mishap::LostRequest, Mishap::LostAnswer, Mishap::Late, Mishap::Full] {
        for late in [false, true] {
            let (far, blobs) = far();
            let (opened, mut state) = create(&blobs, settings());
            append(&opened.log, 3);
            far.order(Call::Make, "log/", mishap);
            if mishap == Mishap::LostAnswer {
                opened.log.sync(Lsn(3)).expect("the object is found");
            } else {
                let failed = opened.log.sync(Lsn(3)).expect_err("no answer");
                assert!(matches!(failed, Error::Device(_)), "{mishap:?}: {failed}");
                assert_eq!(opened.log.durable(), Lsn(0), "{mishap:?}");
            }
            if late {
                far.deliver();
            }
            append(&opened.log, 2);
            opened.log.sync(Lsn(5)).expect("there is a way again");
            far.deliver();
            append(&opened.log, 1);
            opened.log.close().expect("close");
            assert_records(&open(&blobs, settings(), &mut state).expect("open"), 1, 6);
        }
    }
}

/// With patience, the thread that waits does not notice that the store was away.
#[test]
fn a_thread_waits_for_the_store_as_long_as_it_may() {
    let (far, blobs) = far();
    let patient = ObjectLogSettings { patience: Duration::from_secs(60), ..settings() };
    let (opened, _) = create(&blobs, patient);
    append(&opened.log, 1);
    for _ in 0..5 {
        far.order(Call::Make, "log/", Mishap::LostRequest);
    }
    opened.log.sync(Lsn(1)).expect("it waits");
    assert_eq!(opened.sim.clock.monotonic(), Duration::from_millis(10 + 20 + 40 + 80 + 160));
    // After that it gets the error, and the record stays.
    far.take_nothing(Some(std::io::ErrorKind::ConnectionRefused));
    append(&opened.log, 1);
    fails(opened.log.sync(Lsn(2)), "connection refused");
    assert!(opened.sim.clock.monotonic() >= Duration::from_secs(60));
    far.take_nothing(None);
    opened.log.flush_if_due().expect("the next caller writes it");
    assert_eq!(opened.log.durable(), Lsn(2));
}

/// A commit in asynchronous mode waits while the store cannot be reached, so that no more than what
/// was buffered before is undurable.
#[test]
fn asynchronous_commits_wait_while_the_store_is_away() {
    let (far, blobs) = far();
    let patient = ObjectLogSettings { patience: Duration::from_secs(60), ..settings() };
    let (opened, _) = create(&blobs, patient);
    append(&opened.log, 1);
    opened.log.committed(Lsn(1)).expect("nothing is written yet");
    far.take_nothing(Some(std::io::ErrorKind::ConnectionRefused));
    fails(opened.log.sync(Lsn(1)), "connection refused");
    append(&opened.log, 1);
    let timed = Arc::clone(&opened.sim.clock);
    let store = Arc::clone(&far);
    // It comes back after some attempts.
    let back = timed.monotonic() + Duration::from_secs(5);
    far.watch(move |_, _| {
        if timed.monotonic() > back {
            store.take_nothing(None);
        }
    });
    opened.log.committed(Lsn(2)).expect("it waits until the store is back");
    assert!(opened.sim.clock.monotonic() > back);
    assert_eq!(opened.log.durable(), Lsn(2));
    append(&opened.log, 1);
    opened.log.committed(Lsn(3)).expect("commit");
    assert_eq!(opened.log.durable(), Lsn(2), "commits do not wait any more");
}

/// Where patience ends, a commit that was applied fails, and its caller relies on it that no other
/// succeeds. It is never reported as one that did not happen.
#[test]
fn a_commit_that_cannot_be_written_is_the_last() {
    let reasons = [
        (std::io::ErrorKind::ConnectionRefused, "connection refused"),
        (std::io::ErrorKind::StorageFull, "no storage space"),
    ];
    for (why, text) in reasons {
        let (far, blobs) = far();
        let (opened, mut state) = create(&blobs, settings());
        append(&opened.log, 1);
        far.take_nothing(Some(why));
        fails(opened.log.sync(Lsn(1)), text);
        append(&opened.log, 1);
        let failed = opened.log.committed(Lsn(2)).expect_err("it has no patience");
        assert!(!failed.is_no_space(), "{failed}");
        let refused = opened.log.append(&payload(3), LogSpace::Normal).expect_err("the last one");
        assert!(matches!(refused, Error::ReadOnly(_)), "{refused}");
        far.take_nothing(None);
        opened.log.close().expect("what was accepted is written");
        assert_records(&open(&blobs, settings(), &mut state).expect("open"), 1, 2);
    }
}

/// An object that exists counts for nothing while one before it is missing.
#[test]
fn records_behind_a_hole_are_not_acknowledged() {
    let (far, blobs) = far();
    let held = Held::new(&blobs);
    let (opened, mut state) = create(&(Arc::<Held>::clone(&held) as Arc<dyn Blobs>), settings());
    let log = &opened.log;
    held.hold(&name(1, 1));
    append(log, 1);
    device::scope(|scope| {
        let first = scope.spawn(|| log.sync(Lsn(1)));
        held.wait_for(1);
        append(log, 1);
        let second = scope.spawn(|| log.sync(Lsn(2)));
        while !names(&far).contains(&name(1, 2)) {
            device::yield_now();
        }
        for _ in 0..100 {
            device::yield_now();
        }
        let (durable, is_finished) = (log.durable(), second.is_finished());
        // What another opening would find now: nothing.
        let copy: Arc<dyn Blobs> = far.copy();
        let other = open(&copy, settings(), &mut state.clone());
        held.release();
        assert_eq!(durable, Lsn(0), "the first object is missing");
        assert!(!is_finished, "it waits for the first object");
        assert_records(&other.expect("open"), 1, 0);
        first.join().expect("join").expect("sync");
        second.join().expect("join").expect("sync");
    });
    assert_eq!(log.durable(), Lsn(2));
    assert_records(&open(&blobs, settings(), &mut state).expect("open"), 1, 2);
}

/// A process pauses in a request. The next opening seals its log; the process then acknowledges
/// nothing, and what it acknowledged before is found.
#[test]
fn a_paused_process_acknowledges_nothing_after_it_was_replaced() {
    for behind in [0, 1, 2] {
        let (far, blobs) = far();
        let held = Held::new(&blobs);
        let (opened, mut state) =
            create(&(Arc::<Held>::clone(&held) as Arc<dyn Blobs>), settings());
        let log = &opened.log;
        append(log, 4);
        log.sync(Lsn(4)).expect("sync");
        held.hold(&name(1, 2));
        append(log, 1);
        device::scope(|scope| {
            let paused = scope.spawn(|| log.sync(Lsn(5)));
            held.wait_for(1);
            // Later objects arrive, and wait for the paused one.
            let others: Vec<_> = (0..behind)
                .map(|at| {
                    append(log, 1);
                    let waits = scope.spawn(move || log.sync(Lsn(6 + at)));
                    while !names(&far).contains(&name(1, 3 + at)) {
                        device::yield_now();
                    }
                    waits
                })
                .collect();
            let next = open(&blobs, settings(), &mut state);
            held.release();
            let next = next.expect("open");
            assert_records(&next, 1, 4);
            for waits in others.into_iter().chain([paused]) {
                let refused = waits.join().expect("join").expect_err("it was replaced");
                assert!(matches!(refused, Error::Replaced(_)), "{refused}");
            }
            assert_eq!(log.durable(), Lsn(4));
            let refused = log.append(&payload(9), LogSpace::Normal).expect_err("it was replaced");
            assert!(refused.to_string().contains("was replaced"), "{refused}");
            assert!(matches!(log.grant(), Err(Error::Replaced(_))));
            append(&next.log, 3);
            next.log.close().expect("close");
        });
        // Objects behind the seal are not read, by any later opening.
        let mut third = open(&blobs, settings(), &mut state).expect("open");
        assert_records(&third, 5, 7);
        third.log.trim(Lsn(7)).expect("trim");
        third.log.delete_trimmed();
        let left = names(&far);
        let expected = [name(1, 2), name(2, 2)];
        assert_eq!(left, expected, "{behind} behind: the seals, and nothing else");
        third = open(&blobs, settings(), &mut state).expect("open");
        assert_records(&third, 8, 7);
    }
}

/// A request that was sent before the seal arrives after it, or after the number was deleted.
#[test]
fn late_requests_of_a_replaced_process_change_nothing() {
    let (far, blobs) = far();
    let (opened, mut state) = create(&blobs, settings());
    append(&opened.log, 2);
    far.order(Call::Make, &name(1, 1), Mishap::Twice);
    opened.log.sync(Lsn(2)).expect("sync");
    append(&opened.log, 1);
    far.order(Call::Make, &name(1, 2), Mishap::Late);
    fails(opened.log.sync(Lsn(3)), "no answer");
    let next = open(&blobs, settings(), &mut state).expect("open");
    assert_records(&next, 1, 2);
    append(&next.log, 1);
    next.log.sync(Lsn(3)).expect("sync");
    next.log.trim(Lsn(2)).expect("trim");
    next.log.delete_trimmed();
    assert_eq!(names(&far), [name(1, 2), name(2, 1)]);
    // The duplicate of the first makes its number again; that of the second meets the seal.
    far.deliver();
    assert_eq!(names(&far), [name(1, 1), name(1, 2), name(2, 1)]);
    let refused = opened.log.sync(Lsn(3)).expect_err("it was replaced");
    assert!(matches!(refused, Error::Replaced(_)), "{refused}");
    let third = open(&blobs, settings(), &mut state).expect("open");
    assert_records(&third, 3, 3);
    third.log.trim(Lsn(3)).expect("trim");
    third.log.delete_trimmed();
    assert_eq!(names(&far), [name(1, 2), name(2, 2)], "what came late is deleted");
}

/// Equal records of another opening under the next number do not count as this opening's.
#[test]
fn equal_records_of_another_opening_are_not_its_own() {
    let (far, blobs) = far();
    let (opened, _) = create(&blobs, settings());
    append(&opened.log, 1);
    // What this opening would make, but for the id of the opening.
    let twin = far.copy() as Arc<dyn Blobs>;
    let (other, _) = create(&twin, settings());
    append(&other.log, 1);
    other.log.sync(Lsn(1)).expect("sync");
    let length = twin.length(&name(1, 1)).expect("length").expect("it is there");
    let mut bytes = vec![0; length as usize];
    twin.read_at(&name(1, 1), &mut bytes, 0).expect("read");
    let decoded = LogObject::decode(&bytes).expect("it is whole");
    let format::log_object::Decoded::Object(object, records) = decoded else { panic!("known") };
    assert_eq!(object.kind, Kind::Records { first: 1, count: 1 });
    assert_eq!((object.volume, object.opening), (VOLUME, opened.opening.id));
    let foreign = LogObject { opening: [99; 16], ..object }.encode(records);
    far.put(&name(1, 1), &foreign);
    let refused = opened.log.sync(Lsn(1)).expect_err("it is another's");
    assert!(refused.to_string().contains("another opening"), "{refused}");
    // Its own object, created by a request whose answer was lost, is.
    far.put(&name(1, 1), &bytes);
    let (own, _) = create(&blobs, settings());
    append(&own.log, 1);
    own.log.sync(Lsn(1)).expect("it is its own");
}

/// An acknowledged object that vanished is not taken for the end of the log.
#[test]
fn a_vanished_object_is_damage() {
    let (far, blobs) = far();
    let (opened, state) = create(&blobs, settings());
    for lsn in 1..=5 {
        append(&opened.log, 1);
        opened.log.sync(Lsn(lsn)).expect("sync");
    }
    for number in 1..=3 {
        let copy = far.copy();
        copy.delete(&name(1, number)).expect("delete");
        let before = names(&copy);
        let copy: Arc<dyn Blobs> = copy;
        let Err(failed) = open(&copy, settings(), &mut state.clone()) else {
            panic!("object {number} is missing, and it was acknowledged")
        };
        assert!(failed.to_string().contains(&name(1, number)), "{failed}");
        assert_eq!(copy.list("log/").expect("list"), before, "nothing is sealed");
    }
    for (number, at) in [(1, 40), (3, 100), (5, 0)] {
        let copy = far.copy();
        let mut bytes = copy.objects()[&name(1, number)].to_vec();
        bytes[at] ^= 1;
        copy.put(&name(1, number), &bytes);
        let copy: Arc<dyn Blobs> = copy;
        let Err(failed) = open(&copy, settings(), &mut state.clone()) else { panic!("damage") };
        assert!(matches!(failed, Error::Corrupt(_)), "{failed}");
        assert!(failed.to_string().contains(&name(1, number)), "{failed}");
    }
}

/// An opening that ends before its manifest leaves a seal; the next one continues from there.
#[test]
fn an_opening_that_ends_early_is_continued() {
    let (far, blobs) = far();
    let (opened, mut state) = create(&blobs, settings());
    append(&opened.log, 2);
    opened.log.sync(Lsn(2)).expect("sync");
    let found = state;
    // It sealed, and its manifest was never made: the state is the one before.
    drop(open(&blobs, settings(), &mut state).expect("open"));
    // A request of the first opening was on its way.
    let stray = LogObject {
        volume: VOLUME,
        opening: opened.opening.id,
        epoch: 1,
        number: 3,
        kind: Kind::Records { first: 4, count: 1 },
    };
    far.put(&name(1, 3), &stray.encode(b"not read"));
    let mut again = crate::objects_kit::State { epoch: state.epoch, ..found };
    let next = open(&blobs, settings(), &mut again).expect("open");
    assert_records(&next, 1, 2);
    // A record written before the manifest would be lost.
    let late = open(&blobs, settings(), &mut crate::objects_kit::State { epoch: 7, ..again });
    assert_records(&late.expect("open"), 3, 2);
}

/// Grants are counted from when a request was sent.
#[test]
fn a_grant_is_counted_from_the_request() {
    let (far, blobs) = far();
    let (opened, mut state) = create(&blobs, settings());
    let (log, clock) = (&opened.log, &opened.sim.clock);
    let length = settings().grant;
    clock.advance(Duration::from_secs(100));
    append(log, 1);
    let timed = Arc::clone(clock);
    // The store takes a second to answer.
    far.watch(move |_, _| timed.advance(Duration::from_secs(1)));
    let sent = clock.monotonic();
    log.sync(Lsn(1)).expect("sync");
    far.unwatch();
    let grant = log.grant().expect("it owns the store").expect("in objects");
    assert_eq!(grant.until(), sent + length);
    assert!(grant.holds(&**clock));
    clock.advance(length.saturating_sub(Duration::from_secs(1)));
    assert!(!grant.holds(&**clock), "it ended");
    // Without a commit, a request for the next number renews it.
    let before = far.objects().len();
    let asked = clock.monotonic();
    let grant = log.grant().expect("it owns the store").expect("in objects");
    assert_eq!((grant.until(), far.objects().len()), (asked + length, before));
    // The next opening seals. The grant holds until it ends, and there is no other.
    let mut next = open(&blobs, settings(), &mut state).expect("open");
    assert_eq!(next.log.serve_from(), length + settings().drain);
    assert!(grant.holds(&**clock));
    clock.advance(length);
    assert!(!grant.holds(&**clock));
    let refused = log.grant().expect_err("it was replaced");
    assert!(matches!(refused, Error::Replaced(_)), "{refused}");
    next.records.clear();
}

/// An owner that ends in order seals its log, and its successor waits for the drain alone.
#[test]
fn an_owner_that_ends_in_order_is_not_waited_for() {
    let (far, blobs) = far();
    let (opened, mut state) = create(&blobs, settings());
    let log = &opened.log;
    append(log, 3);
    // Records that are not durable: there is no end yet.
    log.end_in_order();
    log.sync(Lsn(3)).expect("sync");
    assert!(log.grant().expect("it owns the store").is_some());
    log.end_in_order();
    let refused = log.grant().expect_err("it gave its grant up");
    assert!(matches!(refused, Error::ReadOnly(_)), "{refused}");
    log.end_in_order();
    let (listed, found) = (far.objects(), state);
    let next = open(&blobs, settings(), &mut state).expect("open");
    assert_records(&next, 1, 3);
    assert_eq!(next.log.serve_from(), next.sim.clock.monotonic() + settings().drain);
    assert_eq!(far.objects(), listed, "no other seal");
    // It ends before others can rely on it that grants of its predecessors have ended.
    next.log.end_in_order();
    let third = open(&blobs, settings(), &mut state).expect("open");
    let (whole, now) = (settings().grant + settings().drain, third.sim.clock.monotonic());
    assert_eq!(third.log.serve_from(), now + whole);
    // An earlier opening that ended early is continued in the same way.
    let mut again = crate::objects_kit::State { epoch: state.epoch, ..found };
    let fourth = open(&blobs, settings(), &mut again).expect("open");
    assert_records(&fourth, 1, 3);
    assert_eq!(fourth.log.serve_from(), fourth.sim.clock.monotonic() + settings().drain);
}

/// The seal of an owner that ended arrives late: its successor has sealed, and waits for the grant.
#[test]
fn a_late_end_in_order_changes_nothing() {
    let (far, blobs) = far();
    let held = Held::new(&blobs);
    let (opened, mut state) = create(&(Arc::<Held>::clone(&held) as Arc<dyn Blobs>), settings());
    append(&opened.log, 1);
    opened.log.sync(Lsn(1)).expect("sync");
    held.hold(&name(1, 2));
    device::scope(|scope| {
        scope.spawn(|| opened.log.end_in_order());
        held.wait_for(1);
        let next = open(&blobs, settings(), &mut state).expect("open");
        let now = next.sim.clock.monotonic();
        assert_eq!(next.log.serve_from(), now + settings().grant + settings().drain);
        let listed = far.objects();
        held.release();
        assert_records(&next, 1, 1);
        assert_eq!(far.objects(), listed);
    });
    fails(opened.log.grant(), "this process has closed the volume");
}

/// An object that was created behind the seal proves nothing.
#[test]
fn an_object_behind_a_hole_is_no_proof() {
    let (_, blobs) = far();
    let held = Held::new(&blobs);
    let (opened, mut state) = create(&(Arc::<Held>::clone(&held) as Arc<dyn Blobs>), settings());
    let (log, clock) = (&opened.log, &opened.sim.clock);
    held.hold(&name(1, 1));
    append(log, 1);
    device::scope(|scope| {
        scope.spawn(|| log.sync(Lsn(1)).expect_err("it was replaced"));
        held.wait_for(1);
        open(&blobs, settings(), &mut state).expect("open");
        clock.advance(Duration::from_secs(50));
        append(log, 1);
        scope.spawn(|| log.sync(Lsn(2)).expect_err("it was replaced"));
        while blobs.length(&name(1, 2)).expect("length").is_none() {
            device::yield_now();
        }
        let refused = log.grant();
        held.release();
        let refused = refused.expect_err("the seal is before that object");
        assert!(matches!(refused, Error::Replaced(_)), "{refused}");
    });
}

/// Regression: a read that failed hid the proof of a lost record, and the proof was deleted.
#[test]
fn a_failed_read_hides_no_lost_record() {
    let (far, blobs) = far();
    let (opened, mut state) = create(&blobs, settings());
    for lsn in 1..=2 {
        append(&opened.log, 1);
        opened.log.sync(Lsn(lsn)).expect("sync");
    }
    far.delete(&name(1, 1)).expect("deleted");
    let lost = crate::objects_kit::State { ..state };
    far.order(Call::Read, &name(1, 2), Mishap::LostRequest);
    let failed = open(&blobs, settings(), &mut state).err().expect("it cannot be read");
    assert_eq!(far.take_back(), 0, "{failed}");
    assert!(far.objects().contains_key(&name(1, 2)), "the proof is there: {failed}");
    let failed = open(&blobs, settings(), &mut { lost }).err().expect("a record is missing");
    assert!(failed.to_string().contains("record"), "{failed}");
    assert!(far.objects().contains_key(&name(1, 2)));
}

/// Regression: the seal of an owner that ended in order was no proof of what it had acknowledged. A
/// volume opened in an older state.
#[test]
fn the_own_seal_of_an_owner_proves_what_is_lost() {
    let (far, blobs) = far();
    let (opened, mut state) = create(&blobs, settings());
    for lsn in 1..=2 {
        append(&opened.log, 1);
        opened.log.sync(Lsn(lsn)).expect("sync");
    }
    opened.log.end_in_order();
    far.delete(&name(1, 2)).expect("deleted");
    let kept = far.objects();
    assert!(kept.contains_key(&name(1, 3)), "its own seal");
    let verified = verified(&blobs, &state).expect_err("a record is missing");
    assert!(verified.to_string().contains("record 2"), "{verified}");
    let failed = open(&blobs, settings(), &mut state).err().expect("a record is missing");
    assert!(failed.to_string().contains("record 2"), "{failed}");
    assert_eq!(far.objects(), kept, "no other seal");
}

/// Regression: an object that was made, and whose answer was lost when nobody sent it again, kept
/// a renewal of the grant asking for ever.
#[test]
fn an_object_that_nobody_acknowledges_keeps_no_grant_from_being_renewed() {
    let (far, blobs) = far();
    let (opened, mut state) = create(&blobs, settings());
    let (log, clock) = (&opened.log, &opened.sim.clock);
    append(log, 1);
    far.order(Call::Make, &name(1, 1), Mishap::LostAnswer);
    far.order(Call::Read, &name(1, 1), Mishap::LostRequest);
    fails(log.sync(Lsn(1)), "no answer");
    assert!(far.objects().contains_key(&name(1, 1)) && far.take_back() == 0);
    clock.advance(Duration::from_secs(100));
    let sent = clock.monotonic();
    let grant = log.renew_grant().expect("it owns the store");
    assert_eq!(grant.until(), sent + settings().grant);
    // The seal of the next opening is behind that object.
    open(&blobs, settings(), &mut state).expect("open");
    let refused = log.renew_grant().expect_err("it was replaced");
    assert!(matches!(refused, Error::Replaced(_)), "{refused}");
}

/// Regression: the next opening replayed an object that was never acknowledged, and deleted it. Its
/// absence was then taken as a proof that there is no seal.
#[test]
fn an_object_in_flight_that_a_successor_deleted_is_no_proof() {
    let (far, blobs) = far();
    let (opened, mut state) = create(&blobs, settings());
    let log = &opened.log;
    append(log, 1);
    far.order(Call::Make, &name(1, 1), Mishap::LostAnswer);
    far.order(Call::Read, &name(1, 1), Mishap::LostRequest);
    fails(log.sync(Lsn(1)), "no answer");
    let next = open(&blobs, settings(), &mut state).expect("open");
    assert_records(&next, 1, 1);
    // What it does when its manifest names its own log.
    next.log.delete_trimmed();
    assert!(!far.objects().contains_key(&name(1, 1)), "it is not needed");
    let refused = log.renew_grant().expect_err("it was replaced");
    assert!(matches!(refused, Error::Replaced(_)), "{refused}");
}

/// What commits name can never be made durable.
struct LostContents;

impl Barrier for LostContents {
    fn reach(&self) -> Result<(), device::Error> {
        Err(device::Error::new("sync", "data", std::io::Error::other("it failed before")))
    }

    fn has_failed(&self) -> bool {
        true
    }
}

/// Regression: a thread waited for contents that were lost as long as for a store that is away.
#[test]
fn nobody_waits_for_contents_that_are_lost() {
    let (_, blobs) = far();
    let patient = ObjectLogSettings { patience: Duration::from_secs(600), ..settings() };
    let (opened, _) = create(&blobs, patient);
    opened.log.set_barrier(Arc::new(LostContents));
    append(&opened.log, 1);
    let before = opened.sim.clock.monotonic();
    fails(opened.log.sync(Lsn(1)), "it failed before");
    assert_eq!(opened.sim.clock.monotonic(), before);
}

/// Records of a log that no manifest names would be lost: they are not written.
#[test]
fn nothing_is_written_before_the_manifest() {
    let (far, blobs) = far();
    let sim = testing::sim_env(1);
    let objects = LogObjects { blobs, settings: settings() };
    let opening = Opening { epoch: 1, id: [1; 16] };
    let place = ObjectPlace { objects, volume: VOLUME, opening };
    let log = Log::create_in_objects(&sim.env(), &options(), &place);
    append(&log, 1);
    let refused = log.sync(Lsn(1)).expect_err("there is no manifest");
    assert!(matches!(refused, Error::ReadOnly(_)), "{refused}");
    assert!(far.objects().is_empty());
    log.announce();
    log.sync(Lsn(1)).expect("there is one");
}

/// Between two group commits passes the time that the settings demand.
#[test]
fn the_commit_interval_limits_requests() {
    let (far, blobs) = far();
    let spaced = ObjectLogSettings { commit_interval: Duration::from_secs(1), ..settings() };
    let (opened, _) = create(&blobs, spaced);
    for lsn in 1..=5 {
        append(&opened.log, 1);
        opened.log.sync(Lsn(lsn)).expect("sync");
    }
    assert_eq!(opened.sim.clock.monotonic(), Duration::from_secs(4));
    assert_eq!(far.objects().len(), 5);
}

/// Readers of changes get all records that are left, or learn that some are gone.
#[test]
fn changes_are_read_until_they_are_trimmed() {
    let (far, blobs) = far();
    let (opened, _) = create(&blobs, settings());
    let log = &opened.log;
    for lsn in [10, 20, 30] {
        append(log, 10);
        log.sync(Lsn(lsn)).expect("sync");
    }
    let read = |after: u64, up_to: u64| {
        let mut seen = Vec::new();
        let whole = log.read(Lsn(after), Lsn(up_to), &mut |bytes| {
            seen.push(bytes.to_vec());
            true
        });
        whole.then_some(seen)
    };
    let expected = |from: u64, to: u64| Some((from..=to).map(payload).collect::<Vec<_>>());
    assert_eq!(read(0, 30), expected(1, 30));
    assert_eq!(read(15, 25), expected(16, 25));
    assert_eq!(read(30, 30), expected(31, 30));
    assert!(log.bytes_behind(Lsn(0)) > log.bytes_behind(Lsn(10)));
    log.trim(Lsn(15)).expect("trim");
    log.delete_trimmed();
    assert_eq!(names(&far), [name(1, 2), name(1, 3)]);
    assert_eq!(read(10, 30), expected(11, 30));
    assert_eq!((read(9, 30), log.bytes_behind(Lsn(9))), (None, None));
    let mut found = Vec::new();
    let bytes = far.objects()[&name(1, 3)].to_vec();
    far.put(&name(1, 3), &bytes[..bytes.len() - 1]);
    log.verify_beside(Lsn(20), &mut |error| found.push(error.to_string()));
    assert!(found.len() == 1 && found[0].contains(&name(1, 3)), "{found:?}");
    assert_eq!(read(20, 30), None);
}

/// An owner that makes objects faster than an opening looks at them is stopped nevertheless, and
/// everything that it acknowledged is replayed.
#[test]
fn a_busy_owner_is_sealed() {
    let (far, blobs) = far();
    let (owner, mut state) = create(&blobs, settings());
    append(&owner.log, 1);
    owner.log.sync(Lsn(1)).expect("sync");
    let owner = Arc::new(owner);
    let acknowledged = Arc::new(AtomicU64::new(1));
    let (of_owner, is_busy) = (Arc::clone(&acknowledged), AtomicBool::new(false));
    far.watch(move |_, request| {
        assert!(request < 1000, "the opening chases the owner");
        if is_busy.swap(true, Ordering::SeqCst) {
            return;
        }
        // Before each request of the opening the owner makes three objects.
        for _ in 0..3 {
            let lsn = of_owner.load(Ordering::SeqCst) + 1;
            if owner.log.append(&payload(lsn), LogSpace::Normal).is_err()
                || owner.log.sync(Lsn(lsn)).is_err()
            {
                break;
            }
            of_owner.store(lsn, Ordering::SeqCst);
        }
        is_busy.store(false, Ordering::SeqCst);
    });
    let next = open(&blobs, settings(), &mut state).expect("open");
    far.unwatch();
    let last = acknowledged.load(Ordering::SeqCst);
    assert!(last > 5, "the owner was busy: {last}");
    // What was on its way when it was stopped may be there, too.
    let replayed = next.log.last().0;
    assert!(replayed == last || replayed == last + 1, "{replayed} of {last}");
    assert_records(&next, 1, replayed);
    append(&next.log, 3);
    next.log.close().expect("close");
    let third = open(&blobs, settings(), &mut state).expect("open");
    assert_records(&third, replayed + 1, replayed + 3);
}
