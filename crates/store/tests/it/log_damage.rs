//! Bit rot: damage to what was durable is an error that names the place; damage elsewhere is
//! harmless. Nothing is replayed that was not written.

use std::sync::atomic::Ordering;

use format::log_record;
use store::{LogSpace, Lsn};
use testing::{CrashPolicy, SimDevice};

use crate::log_script::{
    VOLUME, check_records, create, names_damage, open, payload, promises, run,
};

/// Flips every bit of every segment in turn and opens. Returns how many flips were errors, and how
/// many did not matter.
fn flip_all(disk: &SimDevice, from: u64, synced: u64, stride: u64) -> (u64, u64) {
    let whole = open(&disk.copy(), from).expect("undamaged, it opens");
    let last = check_records(&whole.records, from, |_| 1);
    let (mut named, mut harmless) = (0, 0);
    for (path, length) in disk.files() {
        // The header's page is mostly padding.
        for bit in (0..64 * 8).chain((4096 * 8..length * 8).step_by(stride as usize)) {
            let damaged = disk.copy();
            damaged.flip_bit(&path, bit);
            match open(&damaged, from) {
                Ok(opened) => {
                    let found = check_records(&opened.records, from, |_| 1);
                    assert!(found >= synced, "bit {bit} of {path}: {synced} was synced, {found}");
                    assert!(found <= last);
                    harmless += 1;
                }
                Err(error) => {
                    assert!(names_damage(&error), "bit {bit} of {path}: {error}");
                    named += 1;
                }
            }
        }
    }
    (named, harmless)
}

#[test]
fn every_flipped_bit_of_a_small_log_is_named_or_harmless() {
    let stride = if testing::run::slow() { 1 } else { 13 };
    let device = SimDevice::new(1);
    let log = create(&device);
    for lsn in 1..=22 {
        log.append(&payload(1, lsn), LogSpace::Normal).unwrap();
        if lsn % 4 == 0 {
            log.sync(Lsn(lsn)).unwrap();
        }
    }
    log.close().unwrap();
    drop(log);
    let (named, harmless) = flip_all(&device, 0, 22, stride);
    println!("{named} flips were named, {harmless} were harmless");
    assert!(named > harmless / 10 && harmless > 0);
}

#[test]
fn every_flipped_bit_is_named_or_harmless_when_the_tail_is_torn() {
    let stride = if testing::run::slow() { 1 } else { 29 };
    for seed in 0..4 {
        println!("seed {seed}");
        let device = SimDevice::new(seed);
        let log = create(&device);
        let promised = promises();
        run(&log, 1, seed, 60, &promised).unwrap();
        drop(log);
        // The mark behind the last sync may be among what the crash lost, and then damaged last
        // records look like a torn tail. So the mark is kept here.
        let disk = device.after_crash(CrashPolicy::KeepAll, seed);
        let from = promised.checkpoint.load(Ordering::SeqCst);
        let last = open(&disk.copy(), from).unwrap().recovery.replayed + from;
        let synced = promised.synced.load(Ordering::SeqCst);
        assert!(last >= synced);
        if last == from {
            continue;
        }
        let (named, harmless) = flip_all(&disk, from, synced, stride);
        println!("{named} flips were named, {harmless} were harmless");
    }
}

/// The first segment.
fn segment_path(device: &SimDevice) -> String {
    let is_segment = |path: &String| path.starts_with("log/0");
    device.files().into_iter().map(|file| file.0).find(is_segment).expect("a log has one")
}

#[test]
fn a_torn_tail_is_reported_and_stays_dropped() {
    let device = SimDevice::new(5);
    let log = create(&device);
    for lsn in 1..=10 {
        log.append(&payload(1, lsn), LogSpace::Normal).unwrap();
        if lsn == 4 {
            log.sync(Lsn(4)).unwrap();
        }
        log.committed(Lsn(lsn)).unwrap();
    }
    let path = segment_path(&device);
    drop(log);
    let disk = device.after_crash(CrashPolicy::KeepAll, 0);
    let records = open(&disk.copy(), 0).unwrap().records;
    assert!(records.len() > 6, "some unsynced records were written");

    // Record 5 is torn; 6 and what follows it are whole.
    let at: usize = records[..4].iter().map(|(_, bytes)| 20 + bytes.len()).sum();
    disk.overwrite(&path, 4096 + at as u64 + 8, &[0xff; 40]);
    let opened = open(&disk, 0).unwrap();
    assert_eq!(check_records(&opened.records, 0, |_| 1), 4);
    assert!(opened.recovery.torn_bytes > 0);
    // A record as long as the torn one: the old record 6 would be right behind it.
    opened.log.append(&payload(2, 5), LogSpace::Normal).unwrap();
    opened.log.close().unwrap();
    drop(opened);
    let opened = open(&disk, 0).unwrap();
    assert_eq!(check_records(&opened.records, 0, |lsn| if lsn < 5 { 1 } else { 2 }), 5);
    assert_eq!(opened.recovery.torn_bytes, 0);
}

#[test]
fn damage_before_a_synced_record_is_not_a_torn_tail() {
    let device = SimDevice::new(6);
    let log = create(&device);
    for lsn in 1..=6 {
        log.append(&payload(1, lsn), LogSpace::Normal).unwrap();
        log.sync(Lsn(lsn)).unwrap();
    }
    drop(log);
    let path = segment_path(&device);
    let at: u64 = (1..=3).map(|lsn| 20 + payload(1, lsn).len() as u64).sum();
    device.overwrite(&path, 4096 + at + 25, b"rot");
    let error = open(&device, 0).map(|opened| opened.recovery).unwrap_err();
    let store::Error::Corrupt(found) = &error else { panic!("{error}") };
    assert_eq!((found.file.as_str(), found.offset), (path.as_str(), 4096 + at));
    assert!(found.expected.starts_with("record 4"), "{error}");
}

#[test]
fn a_mark_in_user_data_proves_nothing() {
    let device = SimDevice::new(1);
    let log = create(&device);
    log.append(&payload(1, 1), LogSpace::Normal).unwrap();
    log.sync(Lsn(1)).unwrap();
    // What a user can know: the volume's id, and about which record comes next.
    let sum = log_record::sum_payload(log_record::seed(&VOLUME), &[]);
    let mut forged = log_record::encode(sum, 0, 3, 3).to_vec();
    log.append(&payload(1, 2), LogSpace::Normal).unwrap();
    forged.resize(1000, 0);
    log.append(&forged, LogSpace::Normal).unwrap();
    // Written, because the buffer is full, but not synced.
    log.committed(Lsn(3)).unwrap();
    assert_eq!(log.durable(), Lsn(1));
    let path = format!("log/{:016x}.log", 1);
    let second = 4096 + log_record::HEADER_BYTES + payload(1, 1).len();
    drop(log);
    device.flip_bit(&path, (second as u64 + 30) * 8);
    let opened = open(&device, 0).expect("the tail was torn, nothing else");
    assert_eq!(opened.records.len(), 1);
    assert!(opened.recovery.torn_bytes > 1000);
}
