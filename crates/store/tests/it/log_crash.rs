//! Power is cut before every operation of a script. What was synced comes back, in order and whole,
//! and nothing comes back that was not appended - also after a second crash.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use testing::{CrashPolicy, Fault, FaultOn, SimDevice};

use crate::log_script::{Promises, check_records, create, open, promises, run};

/// Seeds of the script; each visits some hundred crash points.
const SEEDS: std::ops::Range<u64> = 0..12;
/// Ways in which one crash may tear what was not synced, beside losing and keeping all.
const TEARS: u64 = 3;

/// Recovers, continues with other records, crashes again and recovers again.
fn check_crash(disk: &SimDevice, op: u64, promises: &Promises) {
    let from = promises.checkpoint.load(Ordering::SeqCst);
    let synced = promises.synced.load(Ordering::SeqCst);
    let appended = promises.appended.load(Ordering::SeqCst);
    let mut cuts = vec![(CrashPolicy::LoseAll, 0), (CrashPolicy::KeepAll, 0)];
    cuts.extend((0..TEARS).map(|tear| (CrashPolicy::Random, op * 31 + tear)));
    for (policy, seed) in cuts {
        let place = format!("before operation {op}, {policy:?} {seed}");
        let disk = disk.after_crash(policy, seed);
        let opened = open(&disk, from).unwrap_or_else(|error| panic!("{place}: {error}"));
        let last = check_records(&opened.records, from, |_| 1);
        assert!(last >= synced, "{place}: {synced} was synced, {last} came back");
        assert!(last <= appended, "{place}: {last} was never appended");

        // Others take the places of those that were lost.
        let second = promises_at(from, last);
        run(&opened.log, 2, seed, 12, &second).unwrap_or_else(|error| panic!("{place}: {error}"));
        drop(opened);
        let again = disk.after_crash(policy, seed + 1);
        let from = second.checkpoint.load(Ordering::SeqCst);
        let opened = open(&again, from).unwrap_or_else(|error| panic!("{place}, again: {error}"));
        let end = check_records(&opened.records, from, |lsn| if lsn <= last { 1 } else { 2 });
        assert!(end >= second.synced.load(Ordering::SeqCst), "{place}, again: synced is lost");
        assert!(end <= second.appended.load(Ordering::SeqCst), "{place}, again: out of nothing");
    }
}

fn promises_at(checkpoint: u64, last: u64) -> Promises {
    Promises { appended: last.into(), synced: last.into(), checkpoint: checkpoint.into() }
}

#[test]
fn crash_before_every_operation_loses_nothing_that_was_synced() {
    let mut points = 0;
    for seed in SEEDS {
        println!("seed {seed}");
        let device = SimDevice::new(seed);
        let log = create(&device);
        let (promised, seen) = (promises(), promises());
        let (watched, counted) = (Arc::clone(&promised), Arc::clone(&seen));
        device.watch(move |disk, op| {
            counted.appended.fetch_add(1, Ordering::SeqCst);
            check_crash(disk, op, &watched);
        });
        run(&log, 1, seed, 90, &promised).unwrap();
        points += seen.appended.load(Ordering::SeqCst);
    }
    println!("{points} crash points");
    assert!(points > 500, "the script is too short to prove anything: {points}");
}

#[test]
fn failed_operation_latches_and_what_was_synced_before_survives() {
    for after in 0.. {
        let device = SimDevice::new(after);
        let log = create(&device);
        let promised = promises();
        device.inject(Fault::io(FaultOn::AnyChange, after));
        let ended = run(&log, 1, 3, 120, &promised);
        if device.faults_left() {
            assert!(after > 50, "the script does too little: {after} operations");
            break;
        }
        if ended.is_err() && log.check().is_err() {
            let refused = log.append(b"more", store::LogSpace::Normal);
            assert!(matches!(refused, Err(store::Error::ReadOnly(_))), "not latched: {refused:?}");
        }
        drop(log);
        for (policy, seed) in [(CrashPolicy::LoseAll, 0), (CrashPolicy::Random, after)] {
            let disk = device.after_crash(policy, seed);
            let from = promised.checkpoint.load(Ordering::SeqCst);
            let opened = open(&disk, from).unwrap_or_else(|error| panic!("{after}: {error}"));
            let last = check_records(&opened.records, from, |_| 1);
            assert!(last >= promised.synced.load(Ordering::SeqCst), "fault {after}, {policy:?}");
        }
    }
}
