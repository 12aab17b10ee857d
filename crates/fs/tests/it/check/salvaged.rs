//! A damaged log that is truncated: changes before the damage are there, what was lost is reported,
//! and the volume is clean.

use std::ops::ControlFlow;

use fs::{Engine, FileSystem, Fs, OpenError, Repair, RepairReport};
use inode::{Caller, NodeId};
use store::{Cut, Durability};
use testing::{Fault, FaultOn, Op, SimDevice};

use super::volume::{bytes, file, open, opened_with};
use super::{assert_clean, env_of, reported};
use crate::subject::{Base, FsSubject};

on_each_engine!(
    what_a_shortened_log_still_has_is_kept,
    what_is_given_up_behind_damage_is_reported,
    a_log_that_cannot_be_read_is_not_cut_off,
    a_damaged_header_of_the_log_costs_nothing,
    what_was_in_a_log_that_is_gone_is_not_known,
    a_copy_beside_the_log_costs_nothing,
);

const FILES: u64 = 200;

fn name(n: u64) -> String {
    format!("file {n}")
}

/// A volume of which all that is in it is in the log only, and the fullest segment of that, with
/// where its records end.
fn crashed(engine: Engine) -> (SimDevice, String, u64) {
    let device = SimDevice::new(41);
    let subject =
        FsSubject::format(&device, &opened_with(Durability::Async), &Base::Engine(engine));
    for n in 0..FILES {
        file(subject.fs(), NodeId::ROOT, &name(n), &bytes(n, 300));
        subject.fs().sync().expect("it is there");
    }
    let crashed = device.copy();
    let used = |path: &str| {
        crashed.read_file(path).iter().rposition(|byte| *byte != 0).map_or(0, |at| at as u64 + 1)
    };
    let segments = crashed.files().into_iter().map(|(path, _)| path);
    let segments = segments.filter(|path| path.starts_with("log/") && !path.contains("spare"));
    let path = segments.max_by_key(|path| used(path)).expect("there is a log");
    let used = used(&path);
    (crashed, path, used)
}

/// Truncates the log; returns how many files are left, which are the first ones, unchanged.
fn cut_off(device: &SimDevice, place: &str) -> (Cut, u64) {
    let mut proceed = |_, _| ControlFlow::Continue(());
    let repaired = Fs::repair(&env_of(device), Repair::DoAndCutLog, &mut proceed);
    let repaired = repaired.expect("the disk answers");
    assert!(repaired.failed.is_empty(), "{place}: {:?}", repaired.failed);
    assert!(repaired.after.is_clean(), "{place}:\n{}", reported(&repaired.after));
    assert_clean(device, place);
    (repaired.cut.expect("the log was damaged"), left(device, place))
}

/// How many files are left, which are the first ones, as they were.
fn left(device: &SimDevice, place: &str) -> u64 {
    let subject = open(device).unwrap_or_else(|error| panic!("{place}: {error}"));
    let (fs, root) = (subject.fs(), Caller::root());
    let find = |n: u64| fs.lookup(&root, NodeId::ROOT, name(n).as_bytes());
    let left = (0..FILES).take_while(|&n| find(n).is_ok()).count() as u64;
    assert!((left..FILES).all(|n| find(n).is_err()), "{place}: not the first ones");
    for n in 0..left.saturating_sub(1) {
        let node = find(n).expect("it was there").node;
        let mut found = [0; 400];
        let length = fs.read(&root, node, 0, &mut found).expect("it can be read");
        assert!(found[..length] == bytes(n, 300), "{place}: contents of {n}");
    }
    left
}

fn repair(device: &SimDevice, how: Repair) -> RepairReport {
    let mut proceed = |_, _| ControlFlow::Continue(());
    Fs::repair(&env_of(device), how, &mut proceed).expect("the disk answers")
}

/// It was given up as a whole.
fn what_a_shortened_log_still_has_is_kept(engine: Engine) {
    let (whole, path, used) = crashed(engine);
    let start = format::log_segment::RECORDS_START;
    let mut before = 0;
    for part in 1..16 {
        let device = whole.copy();
        let length = start + (used - start) * part / 16;
        device.truncate(&path, length);
        let place = format!("{engine:?}, {path} has {length} bytes of {used}");
        let (cut, left) = cut_off(&device, &place);
        assert!(left >= before, "{place}: {left} files, of more {before}");
        assert!(left >= FILES * part / 20, "{place}: only {left} files are left");
        assert!(cut.last.0 >= left && cut.missing > 0, "{place}: {cut:?}");
        before = left;
    }
}

fn what_is_given_up_behind_damage_is_reported(engine: Engine) {
    let (whole, path, used) = crashed(engine);
    let device = whole.copy();
    device.flip_bit(&path, 8 * (used / 2));
    let (cut, left) = cut_off(&device, &format!("{engine:?}, {path} at {}", used / 2));
    assert!(left > FILES / 4 && left < FILES, "{left} files are left");
    assert!(cut.known.0 - cut.last.0 >= FILES - left, "{cut:?}, {left} files are left");
    assert!(cut.bytes > used / 4 && cut.bytes <= used, "{cut:?} of {used}");
}

/// Nothing is deleted, and nothing written, because of a read that failed.
fn a_log_that_cannot_be_read_is_not_cut_off(engine: Engine) {
    let (whole, path, used) = crashed(engine);
    whole.truncate(&path, used / 2);
    let all = |device: &SimDevice| -> Vec<(String, Vec<u8>)> {
        let read = |(path, _): (String, u64)| (path.clone(), device.read_file(&path));
        device.files().into_iter().map(read).collect()
    };
    let mut refused = 0;
    for after in 0..4 {
        let device = whole.copy();
        let fault = Fault::io(FaultOn::Only(Op::Read), after).forever().below("log/");
        device.inject(fault);
        let mut proceed = |_, _| ControlFlow::Continue(());
        let found = Fs::repair(&env_of(&device), Repair::DoAndCutLog, &mut proceed);
        device.clear_faults();
        match found {
            Err(error) => assert!(!matches!(error, OpenError::Damaged(_)), "{error}"),
            Ok(repaired) if repaired.before.unread => {
                assert!(repaired.repaired.is_empty() && repaired.cut.is_none(), "{repaired:?}");
                let report = reported(&repaired.before);
                assert!(report.contains("Input/output error"), "{report}");
            }
            Ok(_) => continue,
        }
        refused += 1;
        assert!(all(&device) == all(&whole), "{after}: something was changed");
        let (_, left) = cut_off(&device, "it can be read again");
        assert!(left > FILES / 4);
    }
    assert!(refused >= 2, "{refused} were refused");
}

/// One bit of it cost all changes in the file, and behind it.
fn a_damaged_header_of_the_log_costs_nothing(engine: Engine) {
    let (whole, path, _) = crashed(engine);
    for byte in (0..format::log_segment::HEADER_BYTES as u64).step_by(5) {
        let device = whole.copy();
        device.flip_bit(&path, 8 * byte + byte % 8);
        let place = format!("{engine:?}, {path} at {byte}");
        let reported = repair(&device, Repair::Report).before;
        assert_eq!(reported.problems_count, 1, "{place}: {:?}", reported.problems);
        let remedy = reported.problems[0].remedy().expect("it can be repaired");
        assert!(
            reported.problems[0].file == path && remedy.contains("header"),
            "{place}: {remedy}"
        );
        let repaired = repair(&device, Repair::Do);
        assert!(repaired.cut.is_none() && repaired.failed.is_empty(), "{place}: {repaired:?}");
        assert_eq!(repaired.repaired.len(), 1, "{place}");
        assert_clean(&device, &place);
        assert_eq!(left(&device, &place), FILES, "{place}");
    }
}

/// The report had nothing as given up.
fn what_was_in_a_log_that_is_gone_is_not_known(engine: Engine) {
    let (whole, path, _) = crashed(engine);
    for also_spares in [false, true] {
        let device = whole.copy();
        for (path, _) in whole.files() {
            if path.starts_with("log/") && (also_spares || !path.contains("spare")) {
                device.delete(&path);
            }
        }
        let reported = repair(&device, Repair::Do);
        assert!(reported.repaired.is_empty(), "{:?}", reported.repaired);
        let problem = &reported.before.problems[0];
        assert!(problem.file == "log/" && problem.what.contains("with record"), "{problem:?}");
        let (cut, _) = cut_off(&device, &format!("{engine:?}, without {path}"));
        assert!(cut.is_file_gone && cut.missing > 0, "{cut:?}");
    }
}

/// It kept the volume from being opened, and a cut gave up what was whole beside it.
fn a_copy_beside_the_log_costs_nothing(engine: Engine) {
    let (whole, path, _) = crashed(engine);
    for number in [1, 5, 1 << 20] {
        let device = whole.copy();
        let copy = format!("log/{number:016x}.log");
        if device.files().iter().any(|(path, _)| *path == copy) {
            continue;
        }
        let file = env_of(&device).device.create(&copy).expect("there is space");
        file.write_at(&device.read_file(&path), 0).expect("there is space");
        let place = format!("{engine:?}, {path} as {copy}");
        let repaired = repair(&device, Repair::DoAndCutLog);
        assert!(repaired.cut.is_none() && repaired.failed.is_empty(), "{place}: {repaired:?}");
        assert_eq!(repaired.after.problems_count, 1, "{place}:\n{}", reported(&repaired.after));
        let problem = &repaired.after.problems[0];
        assert!(problem.file == copy && problem.action() == fs::Action::MoveAway, "{problem:?}");
        assert_eq!(left(&device, &place), FILES, "{place}");
        assert!(device.read_file(&copy) == whole.read_file(&path), "{place}: was changed");
    }
}
