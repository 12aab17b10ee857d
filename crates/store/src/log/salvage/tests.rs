//! Logs that are damaged in every way and truncated, also with power cuts.

use std::collections::BTreeMap;

use testing::{CrashPolicy, Fault, FaultOn, Op, SimDevice, SimEnv};

use super::*;
use crate::LogSpace;

pub(in crate::log) const VOLUME: [u8; 16] = [5; 16];
pub(in crate::log) const COUNT: u64 = 1000;

pub(in crate::log) fn options() -> LogOptions {
    LogOptions { segment_bytes: 64 << 10, write_bytes: 4 << 10, ..LogOptions::default() }
}

pub(in crate::log) fn payload(lsn: u64) -> Vec<u8> {
    (0..20 + lsn % 300).map(|at| (at * 7 + lsn) as u8).collect()
}

/// A disk with a log that was closed, and its segments.
pub(in crate::log) fn made(seed: u64) -> (SimDevice, Vec<(u64, String)>) {
    let sim = testing::sim_env(seed);
    let log = Log::create(&sim.env(), "log", VOLUME, &options()).unwrap();
    for lsn in 1..=COUNT {
        assert_eq!(log.append(&payload(lsn), LogSpace::Normal).unwrap(), Lsn(lsn));
    }
    log.close().unwrap();
    let writer = log.writer.lock();
    let segments: Vec<_> = writer.segments.iter().map(|of| (of.first, of.path.clone())).collect();
    assert!(segments.len() >= 3);
    (sim.device.clone(), segments)
}

pub(in crate::log) fn env(device: &SimDevice) -> Env {
    SimEnv::on(device.clone(), 1).env()
}

pub(in crate::log) fn cut(device: &SimDevice, from: u64) -> Result<Cut> {
    let other = device.copy();
    let before = files(&other);
    let cost = Log::cost_of_cut(&env(&other), "log", VOLUME, &options(), Lsn(from), true);
    assert!(files(&other) == before, "asking for the cost changed something");
    let cut = Log::cut_off(&env(device), "log", VOLUME, &options(), Lsn(from), true);
    if let Ok(cut) = &cut {
        assert_eq!(cost.unwrap(), *cut, "what was reported before");
    }
    cut
}

/// The last record replayed, if all from the first one on are replayed unchanged.
pub(in crate::log) fn replayed(device: &SimDevice) -> Result<u64> {
    let mut last = 0;
    let mut replay = |lsn: Lsn, bytes: &[u8]| {
        last += 1;
        assert!(lsn == Lsn(last) && bytes == payload(last));
        Ok(())
    };
    Log::open(&env(device), "log", VOLUME, &options(), Lsn(0), &mut replay)?;
    Ok(last)
}

/// The end offsets of records in the segment that begins with `first`, with their numbers.
pub(in crate::log) fn ends(first: u64, next: u64) -> Vec<(u64, u64)> {
    let mut at = RECORDS_START;
    let end = |lsn: u64| {
        at += HEADER_BYTES as u64 + payload(lsn).len() as u64;
        (at, lsn)
    };
    (first..next).map(end).collect()
}

pub(in crate::log) fn next_of(segments: &[(u64, String)], at: usize) -> u64 {
    segments.get(at + 1).map_or(COUNT + 1, |&(first, _)| first)
}

pub(in crate::log) fn files(device: &SimDevice) -> BTreeMap<String, Vec<u8>> {
    let read = |(path, _): (String, u64)| (path.clone(), device.read_file(&path));
    device.files().into_iter().map(read).collect()
}

/// The whole segment was discarded, with everything after it.
#[test]
fn a_shortened_segment_keeps_what_it_still_has() {
    let (whole, segments) = made(1);
    let mut random = fastrand::Rng::with_seed(1);
    for (at, (first, path)) in segments.iter().enumerate() {
        let next = next_of(&segments, at);
        let ends = ends(*first, next);
        let used = ends.last().unwrap().0;
        let mut lengths: Vec<u64> = (0..12).map(|_| random.u64(RECORDS_START..used)).collect();
        lengths.extend([RECORDS_START, RECORDS_START + 1, ends[2].0, ends[2].0 - 1, used - 1]);
        for length in lengths {
            let device = whole.copy();
            device.truncate(path, length);
            let damaged = replayed(&device);
            assert!(matches!(damaged, Err(Error::Corrupt(_))), "{path}, {length}: {damaged:?}");
            let left = ends.iter().rfind(|end| end.0 <= length);
            let last = left.map_or(first - 1, |end| end.1);
            let start = left.map_or(RECORDS_START, |end| end.0);
            let found = cut(&device, 0).unwrap();
            let what = format!("{path} of {length} bytes: {found:?}");
            assert_eq!(found.last, Lsn(last), "{what}");
            // If nothing is left in the last segment, its records are unknown.
            let known = if at + 1 < segments.len() { COUNT } else { last };
            assert_eq!(found.known, Lsn(known), "{what}");
            assert_eq!(found.missing, (64 << 10) - length, "{what}");
            let begun = length - start;
            assert!(begun < HEADER_BYTES as u64 || found.bytes >= begun, "{what}");
            assert_eq!(replayed(&device).unwrap(), last, "{what}");
            assert_eq!(device.read_file(path).len(), 64 << 10);
        }
    }
}

/// A file that lost only zeros, or became longer, costs no record.
#[test]
fn a_segment_of_another_length_with_all_its_records_loses_nothing() {
    let (whole, segments) = made(2);
    for (at, (first, path)) in segments.iter().enumerate() {
        let used = ends(*first, next_of(&segments, at)).last().unwrap().0;
        for length in [used, used + 1, (64 << 10) + 1, 80 << 10] {
            if length == 64 << 10 {
                continue;
            }
            let device = whole.copy();
            device.truncate(path, length);
            let damaged = replayed(&device);
            assert!(matches!(damaged, Err(Error::Corrupt(_))), "{path}, {length}: {damaged:?}");
            let found = cut(&device, 0).unwrap();
            assert_eq!((found.last, found.known), (Lsn(COUNT), Lsn(COUNT)), "{path}, {length}");
            assert_eq!(replayed(&device).unwrap(), COUNT);
        }
    }
}

#[test]
fn records_lost_behind_damage_are_reported() {
    let (whole, segments) = made(3);
    let (first, path) = &segments[1];
    let ends = ends(*first, next_of(&segments, 1));
    for (before, after) in [(3, 4), (40, 41)] {
        let device = whole.copy();
        device.flip_bit(path, 8 * (ends[before].0 + 20));
        let found = cut(&device, 0).unwrap();
        let Cut { last, known, bytes, missing, .. } = found;
        assert_eq!(missing, 0, "{found:?}");
        assert_eq!((last, known), (Lsn(ends[after].1 - 1), Lsn(COUNT)), "{found:?}");
        let behind: usize = (last.0 + 1..=COUNT).map(|lsn| HEADER_BYTES + payload(lsn).len()).sum();
        // And the mark behind the last one.
        let behind = (behind + HEADER_BYTES) as u64;
        assert_eq!(bytes, behind, "{found:?}");
        assert_eq!(replayed(&device).unwrap(), last.0);
    }
}

/// If any read fails, of kept or of discarded data, nothing is changed.
#[test]
fn an_unreadable_log_is_not_changed() {
    let (whole, segments) = made(4);
    whole.truncate(&segments[1].1, 30 << 10);
    for on in [Op::Read, Op::Look, Op::Open] {
        for after in 0.. {
            let device = whole.copy();
            let before = files(&device);
            device.inject(Fault::io(FaultOn::Only(on), after));
            let found = cut(&device, 0);
            if device.faults_left() {
                assert!(found.is_ok() && after > 2, "{on:?}, call {after}");
                break;
            }
            // The file to be written is opened once more, after the spares were removed.
            device.clear_faults();
            let changed = files(&device) != before;
            assert!(matches!(found, Err(Error::Device(_))), "{on:?}, call {after}");
            assert!(!changed || on == Op::Open, "{on:?}, call {after}");
            assert!(segments.iter().all(|(_, path)| device.read_file(path) == before[path]));
        }
    }
}

#[test]
fn a_truncation_interrupted_by_a_power_cut_repeats_with_the_same_result() {
    let (whole, segments) = made(5);
    for (at, length) in [(1, 30 << 10), (0, 20 << 10), (2, 3000)] {
        let hurt = whole.copy();
        hurt.truncate(&segments[at].1, length);
        let right = hurt.copy();
        let last = cut(&right, 0).unwrap().last;
        let ops = right.ops();
        assert!(ops > hurt.ops() + 4);
        for op in hurt.ops()..ops {
            for policy in CrashPolicy::ALL {
                let device = hurt.copy();
                device.crash_at(op);
                cut(&device, 0).ok();
                let device = device.after_crash(policy, op);
                let again = cut(&device, 0).unwrap().last;
                assert_eq!(again, last, "{at}, cut off at {op}, {policy:?}");
                assert_eq!(replayed(&device).unwrap(), last.0);
            }
        }
    }
}

/// Removals became durable in any order, so later segments alone were left, as if of a later state.
#[test]
fn a_power_cut_in_the_truncation_of_all_segments_is_repeated() {
    let (whole, segments) = made(6);
    // The numbers of what it does begin again.
    let hurt = whole.copy();
    hurt.flip_bit(&segments[0].1, 8 * 20);
    hurt.flip_bit(&segments[0].1, 8 * (RECORDS_START + 20));
    let right = hurt.copy();
    assert_eq!(cut(&right, 0).unwrap().last, Lsn(0));
    for op in hurt.ops()..right.ops() {
        for seed in 0..testing::run::rounds(8, 20) {
            let device = hurt.copy();
            device.crash_at(op);
            cut(&device, 0).ok();
            let device = device.after_crash(CrashPolicy::Random, 100 * op + seed);
            let again = cut(&device, 0).map(|cut| cut.last);
            assert!(matches!(again, Ok(Lsn(0))), "cut off at {op}, seed {seed}: {again:?}");
            assert_eq!(replayed(&device).unwrap(), 0);
        }
    }
}

/// No missing bytes were reported for a segment that lost even its header, nor for a discarded one.
#[test]
fn bytes_missing_from_a_discarded_segment_are_reported() {
    let (whole, segments) = made(7);
    let (first, path) = segments.last().unwrap();
    let before = &segments[segments.len() - 2];
    for (hurts_before, length) in [(false, 0), (false, 40), (true, 0), (true, 5000)] {
        let device = whole.copy();
        if hurts_before {
            device.flip_bit(&before.1, 8 * (RECORDS_START + 20));
        }
        device.truncate(path, length);
        let found = cut(&device, 0).unwrap();
        let last = if hurts_before { before.0 } else { *first } - 1;
        assert_eq!(found.last, Lsn(last), "{found:?}");
        assert_eq!(found.missing, (64 << 10) - length, "{found:?}");
    }
}

/// Bytes missing from a segment counted although the next one shows that it had lost no record.
#[test]
fn a_segment_that_lost_only_zeros_is_complete() {
    let (device, segments) = made(8);
    let (next, path) = (segments[2].0, &segments[1].1);
    let used = ends(segments[1].0, next).last().unwrap().0;
    device.truncate(path, used);
    device.flip_bit(&segments[2].1, 8 * 20);
    device.flip_bit(&segments[2].1, 8 * (RECORDS_START + 20));
    let found = cut(&device, 0).unwrap();
    assert_eq!((found.last, found.known), (Lsn(next - 1), Lsn(COUNT)), "{found:?}");
    assert_eq!(found.missing, 0, "{found:?}");
}

/// A file with a number in its name that no record can reach ended the process.
#[test]
fn a_file_name_that_is_no_segments_proves_nothing_about_records() {
    for number in [u64::MAX, u64::MAX - 1, COUNTED_MAX + 1] {
        let (device, _) = made(9);
        let file = env(&device).device.create(&format!("log/{number:016x}.log")).unwrap();
        file.write_at(&[7; 8000], 0).unwrap();
        let found = cut(&device, 0).unwrap();
        assert_eq!((found.last, found.known), (Lsn(COUNT), Lsn(COUNT)), "{found:?}");
        assert_eq!(replayed(&device).unwrap(), COUNT);
    }
}

/// Damage to a record that the state contains, which is not needed, discarded everything after the
/// state.
#[test]
fn a_damaged_record_already_in_the_state_loses_nothing() {
    for also in [false, true] {
        let (whole, segments) = made(10);
        let hurt = whole.copy();
        let ends = ends(1, segments[1].0);
        hurt.flip_bit(&segments[0].1, 8 * (ends[3].0 + 20));
        if also {
            hurt.flip_bit(&segments[0].1, 8 * (ends[100].0 + 20));
        }
        let left = if also { 101 } else { COUNT };
        let check = |device: &SimDevice, what: &str| {
            let found = cut(device, 20).unwrap();
            assert_eq!((found.last, found.known), (Lsn(left), Lsn(COUNT)), "{what}");
            let mut next = 21;
            let mut replay = |lsn: Lsn, bytes: &[u8]| {
                assert!(lsn == Lsn(next) && bytes == payload(next), "{what}");
                next += 1;
                Ok(())
            };
            Log::open(&env(device), "log", VOLUME, &options(), Lsn(20), &mut replay).unwrap();
            assert_eq!(next, left + 1, "{what}");
        };
        let right = hurt.copy();
        check(&right, "without a crash");
        for op in hurt.ops()..right.ops() {
            for seed in 0..testing::run::rounds(3, 6) {
                let device = hurt.copy();
                device.crash_at(op);
                cut(&device, 20).ok();
                let device = device.after_crash(CrashPolicy::Random, 100 * op + seed);
                let again = cut(&device, 20).unwrap();
                // Discarded data may be gone, so less is known of it.
                assert_eq!(again.last, Lsn(left), "{also}, {op}, {seed}");
                let mut next = 21;
                let mut replay = |lsn: Lsn, bytes: &[u8]| {
                    assert!(lsn == Lsn(next) && bytes == payload(next));
                    next += 1;
                    Ok(())
                };
                Log::open(&env(&device), "log", VOLUME, &options(), Lsn(20), &mut replay).unwrap();
                assert_eq!(next, left + 1, "{also}, {op}, {seed}");
            }
        }
    }
}

/// A file that was missing as a whole left no evidence, so nothing seemed to be lost.
#[test]
fn records_of_a_missing_file_count_as_unknown() {
    let (whole, segments) = made(11);
    let usual = options().segment_bytes;
    // All of them, with and without the directory, also before records that the state contains.
    for from in [0, 20] {
        for (_, path) in &segments[1..] {
            let device = whole.copy();
            device.delete(path);
            let found = cut(&device, from).unwrap();
            if path == &segments.last().unwrap().1 {
                // Nothing shows that one existed.
                assert!(!found.is_file_gone, "{found:?}");
                continue;
            }
            assert!(found.is_file_gone && found.missing == usual, "{path}: {found:?}");
        }
        let device = whole.copy();
        for (path, _) in device.files() {
            device.delete(&path);
        }
        let error =
            Log::verify(&env(&device), "log", VOLUME, &options(), Lsn(from), &mut |_| Ok(()));
        let error = error.end.unwrap_err().to_string();
        assert_eq!(error, format!("log/: the file with record {} is missing", from + 1));
        let found = cut(&device, from).unwrap();
        assert!(found.is_file_gone && found.missing == usual, "{found:?}");
        assert_eq!((found.last, found.known), (Lsn(from), Lsn(from)), "{found:?}");
        // It no longer counts as missing.
        let found = cut(&device, from).unwrap();
        assert!(!found.is_file_gone && found.missing == 0, "{found:?}");
    }
}

/// The name of a file that is no segment counted as if all records before it had existed.
#[test]
fn a_file_name_alone_proves_no_lost_records() {
    let (device, segments) = made(12);
    let file = env(&device).device.create(&format!("log/{:016x}.log", 1_u64 << 40)).unwrap();
    file.write_at(&[7; 8000], 0).unwrap();
    let found = cut(&device, 0).unwrap();
    assert_eq!((found.last, found.known), (Lsn(COUNT), Lsn(COUNT)), "{found:?}");
    assert!(!segments.is_empty() && replayed(&device).unwrap() == COUNT);
}
