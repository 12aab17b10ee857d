//! `store::Log` with several committers: what is acknowledged survives a power cut at any moment,
//! in every order of threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use device::sync::Mutex;
use store::{Durability, Log, LogOptions, LogSpace, Lsn};
use testing::sim::explore;
use testing::{CrashPolicy, SimDevice};

const VOLUME: [u8; 16] = [9; 16];
const COMMITTERS: u8 = 3;
const RECORDS: u8 = 6;

/// Whether a run's commits wait for the disk.
fn is_sync(seed: u64) -> bool {
    seed.is_multiple_of(2)
}

/// Segments and buffers so small that a run fills several.
fn options(seed: u64) -> LogOptions {
    let durability = if is_sync(seed) { Durability::Sync } else { Durability::Async };
    LogOptions {
        durability,
        segment_bytes: 1 << 10,
        write_bytes: 256,
        buffer_bytes_max: 512,
        ..LogOptions::default()
    }
}

fn payload(committer: u8, record: u8) -> Vec<u8> {
    vec![committer * 16 + record; 30 + usize::from(record) * 20]
}

/// Acknowledged records by number, and disks as power cuts left them, each with how many records
/// were acknowledged before.
#[derive(Default)]
struct Seen {
    acknowledged: Vec<(u64, Vec<u8>)>,
    cut: Vec<(usize, SimDevice)>,
}

fn commit(log: &Log, device: &SimDevice, seen: &Mutex<Seen>, committer: u8, seed: u64) {
    for record in 0..RECORDS {
        let payload = payload(committer, record);
        let lsn = log.append(&payload, LogSpace::Normal).unwrap();
        log.committed(lsn).unwrap();
        let synced = is_sync(seed) || record % 3 == 2;
        if synced && !is_sync(seed) {
            log.sync(lsn).unwrap();
        }
        if synced {
            assert!(log.durable() >= lsn);
            seen.lock().acknowledged.push((lsn.0, payload));
        }
    }
    let before = seen.lock().acknowledged.len();
    let cut = device.after_crash(CrashPolicy::Random, seed);
    seen.lock().cut.push((before, cut));
}

/// Opens a disk after a power cut, and compares.
fn check(seed: u64, disk: &SimDevice, acknowledged: &[(u64, Vec<u8>)]) {
    let mut found = BTreeMap::new();
    let mut replay = |lsn: Lsn, payload: &[u8]| {
        found.insert(lsn.0, payload.to_vec());
        Ok(())
    };
    let env = super::env(disk, seed);
    let opened = Log::open(&env, "log", VOLUME, &options(seed), Lsn(0), &mut replay);
    opened.unwrap_or_else(|error| panic!("the log opens after a power cut: {error}"));
    let numbers: Vec<u64> = found.keys().copied().collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "there is no gap");
    for (lsn, payload) in acknowledged {
        assert_eq!(found.get(lsn), Some(payload), "record {lsn} was acknowledged");
    }
}

#[test]
fn acknowledged_records_survive_power_cuts_in_every_order_of_committers() {
    let cuts = AtomicUsize::new(0);
    explore(super::orders(), 20, |seed| {
        let device = SimDevice::new(seed);
        let env = super::env(&device, seed);
        let log = Log::create(&env, "log", VOLUME, &options(seed)).unwrap();
        let seen = Mutex::new(Seen::default());
        device::scope(|scope| {
            let committers: Vec<_> = (0..COMMITTERS)
                .map(|committer| {
                    let (log, device, seen) = (&log, &device, &seen);
                    scope.spawn(move || commit(log, device, seen, committer, seed))
                })
                .collect();
            // The thread that writes what committers leave.
            scope.spawn(|| {
                for _ in 0..6 {
                    let next = log.flush_if_due().unwrap();
                    env.clock.sleep(next.min(Duration::from_millis(1)));
                }
            });
            for committer in committers {
                committer.join().unwrap();
            }
        });
        log.close().unwrap();
        let seen = seen.into_inner();
        let last = device.after_crash(CrashPolicy::LoseAll, seed);
        check(seed, &last, &seen.acknowledged);
        for (acknowledged, disk) in &seen.cut {
            check(seed, disk, &seen.acknowledged[..*acknowledged]);
            cuts.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert!(cuts.into_inner() >= usize::from(COMMITTERS));
}
