//! The log on a directory of the operating system: order, syncing, segments, trimming.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::Env;
use testing::SetAtEnd;

use super::{Log, LogOptions, LogSpace, Recovery};
use crate::{Barrier, Durability, Error, Lsn, Result};

const VOLUME: [u8; 16] = [9; 16];

fn options() -> LogOptions {
    LogOptions { segment_bytes: 64 << 10, write_bytes: 4 << 10, ..LogOptions::default() }
}

fn create(root: &Path) -> Log {
    Log::create(&Env::system(root).unwrap(), "log", VOLUME, &options()).unwrap()
}

/// Numbers and payloads.
type Records = Vec<(u64, Vec<u8>)>;

/// Opens, and returns the replayed records with the log.
fn open(root: &Path, from: u64) -> Result<(Log, Recovery, Records)> {
    let mut records = Vec::new();
    let mut replay = |lsn: Lsn, payload: &[u8]| {
        records.push((lsn.0, payload.to_vec()));
        Ok(())
    };
    let env = Env::system(root).unwrap();
    let (log, recovery) = Log::open(&env, "log", VOLUME, &options(), Lsn(from), &mut replay)?;
    Ok((log, recovery, records))
}

fn payload(lsn: u64) -> Vec<u8> {
    (0..20 + lsn % 300).map(|at| (at * 7 + lsn) as u8).collect()
}

fn append(log: &Log, count: u64) {
    for _ in 0..count {
        let next = log.last().0 + 1;
        assert_eq!(log.append(&payload(next), LogSpace::Normal).unwrap(), Lsn(next));
    }
}

#[test]
fn records_replay_in_order_over_many_segments_and_reopens() {
    let dir = tempfile::tempdir().unwrap();
    append(&create(dir.path()), 0);
    let mut total = 0;
    for round in 0..4 {
        let (log, recovery, records) = open(dir.path(), 0).unwrap();
        assert_eq!((recovery.replayed, recovery.torn_bytes), (total, 0), "round {round}");
        assert!(records.iter().zip(1..).all(|((lsn, bytes), n)| *lsn == n && *bytes == payload(n)));
        append(&log, 700);
        total += 700;
        log.sync(log.last()).unwrap();
        assert_eq!(log.durable(), Lsn(total));
        assert!(log.stats().segments > round + 1);
    }
}

#[test]
fn unsynced_records_are_not_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let log = create(dir.path());
    append(&log, 3);
    assert_eq!((log.last(), log.durable(), log.stats().writes), (Lsn(3), Lsn(0), 0));
    assert_eq!(open(dir.path(), 0).unwrap().1.replayed, 0);
}

#[test]
fn full_buffer_is_written_by_the_committer_without_a_sync() {
    let dir = tempfile::tempdir().unwrap();
    let log = create(dir.path());
    while log.stats().writes == 0 {
        append(&log, 1);
        log.committed(log.last()).unwrap();
    }
    let stats = log.stats();
    assert!(stats.written_bytes >= 4 << 10 && stats.written_bytes < 5 << 10);
    assert_eq!((stats.syncs, stats.durable), (0, Lsn(0)));
}

#[test]
fn sync_mode_is_durable_when_it_returns() {
    let dir = tempfile::tempdir().unwrap();
    let options = LogOptions { durability: Durability::Sync, ..options() };
    let log = Log::create(&Env::system(dir.path()).unwrap(), "log", VOLUME, &options).unwrap();
    append(&log, 1);
    log.committed(Lsn(1)).unwrap();
    assert_eq!((log.durable(), log.stats().syncs), (Lsn(1), 1));
}

#[test]
fn flush_waits_for_the_interval() {
    let dir = tempfile::tempdir().unwrap();
    let options = LogOptions { interval: Duration::from_millis(30), ..options() };
    let env = Env::system(dir.path()).unwrap();
    let log = Log::create(&env, "log", VOLUME, &options).unwrap();
    assert_eq!(log.flush_if_due().unwrap(), options.interval);
    append(&log, 2);
    let left = log.flush_if_due().unwrap();
    assert!(left <= options.interval);
    env.clock.sleep(options.interval);
    assert_eq!(log.flush_if_due().unwrap(), options.interval);
    assert_eq!(log.durable(), Lsn(2));
}

#[test]
fn trimmed_segments_are_reused_without_their_records() {
    let dir = tempfile::tempdir().unwrap();
    let log = create(dir.path());
    for _ in 0..20 {
        append(&log, 400);
        log.sync(log.last()).unwrap();
        log.trim(log.last()).unwrap();
        let stats = log.stats();
        assert_eq!(stats.segments, 1);
        assert!(stats.disk_bytes <= 3 * (64 << 10), "{stats:?}");
    }
    let last = log.last().0;
    append(&log, 5);
    log.sync(log.last()).unwrap();
    drop(log);
    let (log, recovery, records) = open(dir.path(), last).unwrap();
    assert_eq!((recovery.replayed, log.last()), (5, Lsn(last + 5)));
    assert_eq!(records[0], (last + 1, payload(last + 1)));
    let missing = open(dir.path(), 0).unwrap_err();
    assert!(
        matches!(&missing, Error::Missing { file, record: Some(1) } if file == "log/"),
        "{missing:?}"
    );
    assert_eq!(missing.to_string(), "log/: the file with record 1 is missing");
}

#[test]
fn record_larger_than_a_segment_gets_one_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let log = create(dir.path());
    let large = vec![5; 300 << 10];
    append(&log, 1);
    log.append(&large, LogSpace::Normal).unwrap();
    append(&log, 1);
    log.close().unwrap();
    drop(log);
    let (log, _, records) = open(dir.path(), 0).unwrap();
    assert_eq!(records.iter().map(|record| record.1.len()).collect::<Vec<_>>(), [21, 307200, 23]);
    log.trim(Lsn(3)).unwrap();
    assert!(log.stats().disk_bytes <= 3 * (64 << 10), "{:?}", log.stats());
}

#[test]
fn four_threads_share_syncs_and_every_record_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let log = Arc::new(create(dir.path()));
    let threads: Vec<_> = (0..4_u8)
        .map(|thread| {
            let log = Arc::clone(&log);
            device::spawn("append", move || {
                for number in 0..500_u16 {
                    let [low, high] = number.to_le_bytes();
                    let lsn = log.append(&[thread, low, high], LogSpace::Normal).unwrap();
                    if number % 5 == 0 {
                        log.sync(lsn).unwrap();
                        assert!(log.durable() >= lsn);
                    }
                }
            })
            .unwrap()
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    log.close().unwrap();
    assert!(log.stats().syncs <= 401);
    let (_, recovery, records) = open(dir.path(), 0).unwrap();
    assert_eq!(recovery.replayed, 2000);
    for thread in 0..4 {
        let mut numbers = records.iter().filter(|(_, bytes)| bytes[0] == thread);
        assert!((0..500_u16).all(|n| numbers.next().unwrap().1[1..] == n.to_le_bytes()));
    }
}

/// Counts its calls, and fails on request.
#[derive(Default)]
struct Counting {
    reached: AtomicU64,
    fail: AtomicU64,
}

impl Barrier for Counting {
    fn reach(&self) -> std::result::Result<(), device::Error> {
        self.reached.fetch_add(1, Ordering::SeqCst);
        if self.fail.load(Ordering::SeqCst) == 0 {
            return Ok(());
        }
        Err(device::Error::new("sync", "data", std::io::Error::other("made to fail")))
    }
}

#[test]
fn barrier_is_reached_before_every_write_and_its_failure_latches() {
    let dir = tempfile::tempdir().unwrap();
    let log = create(dir.path());
    let barrier = Arc::new(Counting::default());
    log.set_barrier(Arc::clone(&barrier) as Arc<dyn Barrier>);
    append(&log, 2);
    log.sync(Lsn(2)).unwrap();
    log.sync(Lsn(2)).unwrap();
    assert_eq!((barrier.reached.load(Ordering::SeqCst), log.stats().writes), (1, 1));
    append(&log, 1);
    barrier.fail.store(1, Ordering::SeqCst);
    assert!(matches!(log.sync(Lsn(3)), Err(Error::ReadOnly(_))));
    assert_eq!(log.stats().writes, 1, "nothing was written behind a failed barrier");
    barrier.fail.store(0, Ordering::SeqCst);
    assert!(matches!(log.append(b"x", LogSpace::Normal), Err(Error::ReadOnly(_))));
    assert!(matches!(log.sync(Lsn(3)), Err(Error::ReadOnly(_))));
    assert!(log.sync(Lsn(2)).is_ok(), "what was durable before stays so");
    drop(log);
    assert_eq!(open(dir.path(), 0).unwrap().1.replayed, 2);
}

#[test]
fn missing_segment_and_truncated_segment_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let log = create(dir.path());
    append(&log, 1000);
    log.close().unwrap();
    assert!(log.stats().segments >= 3);
    let second = log.writer.lock().segments[1].path.clone();
    drop(log);
    let path = dir.path().join(&second);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..30 << 10]).unwrap();
    let error = open(dir.path(), 0).unwrap_err();
    assert!(matches!(&error, Error::Corrupt(at) if at.file == second), "{error}");
    std::fs::remove_file(&path).unwrap();
    let error = open(dir.path(), 0).unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
    std::fs::remove_dir_all(dir.path().join("log")).unwrap();
    assert!(matches!(open(dir.path(), 0), Err(Error::Missing { .. })));
}

#[test]
fn log_of_another_volume_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path()).close().unwrap();
    let env = Env::system(dir.path()).unwrap();
    let opened =
        Log::open(&env, "log", [1; 16], &options(), Lsn(0), &mut |_: Lsn, _: &[u8]| Ok(()));
    assert!(matches!(opened, Err(Error::Corrupt(_))));
}

#[test]
fn commits_are_durable_when_the_syncing_thread_waits_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let window = Duration::from_millis(2);
    let options = LogOptions { durability: Durability::Sync, window, ..options() };
    let log = Log::create(&Env::system(dir.path()).unwrap(), "log", VOLUME, &options).unwrap();
    device::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let lsn = log.append(b"record", LogSpace::Normal).unwrap();
                    log.committed(lsn).unwrap();
                    assert!(log.durable() >= lsn);
                }
            });
        }
    });
    assert_eq!(log.durable(), Lsn(40));
    drop(log);
    assert_eq!(open(dir.path(), 0).unwrap().2.len(), 40);
}

fn cut(root: &Path, from: u64, certain: bool) -> Result<Lsn> {
    let env = Env::system(root).unwrap();
    Log::cut_off(&env, "log", VOLUME, &options(), Lsn(from), certain).map(|cut| cut.last)
}

fn names(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root.join("log")).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_log_that_begins_after_the_state_is_not_truncated() {
    let dir = tempfile::tempdir().unwrap();
    let log = create(dir.path());
    append(&log, 1500);
    log.sync(log.last()).unwrap();
    log.trim(Lsn(1400)).unwrap();
    drop(log);
    let before = names(dir.path());
    for certain in [false, true] {
        let error = cut(dir.path(), 10, certain).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
        assert!(error.to_string().contains("record 11"), "{error}");
    }
    assert_eq!(names(dir.path()), before);
    assert_eq!(open(dir.path(), 1400).unwrap().1.replayed, 100, "all of it is there");
}

#[test]
fn a_log_without_the_next_record_is_truncated_only_after_a_verified_state() {
    let dir = tempfile::tempdir().unwrap();
    let log = create(dir.path());
    append(&log, 5);
    log.sync(log.last()).unwrap();
    drop(log);
    for from in [5, 9] {
        let error = cut(dir.path(), from, false).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
    }
    assert_eq!(cut(dir.path(), 4, false).unwrap(), Lsn(5));
    assert_eq!(cut(dir.path(), 5, true).unwrap(), Lsn(5));
    assert_eq!(open(dir.path(), 0).unwrap().1.replayed, 5);
    assert_eq!(cut(dir.path(), 9, true).unwrap(), Lsn(9));
    assert_eq!(open(dir.path(), 9).unwrap().0.last(), Lsn(9));
}

/// A spare's old records have the numbers that follow a cut, and state that they are durable.
#[test]
fn no_spare_segment_survives_truncation() {
    let dir = tempfile::tempdir().unwrap();
    let log = create(dir.path());
    append(&log, 300);
    log.sync(log.last()).unwrap();
    drop(log);
    // As a segment of a later log that was trimmed.
    let path = |name: &str| dir.path().join("log").join(name);
    std::fs::copy(path("0000000000000001.log"), path("spare-77")).unwrap();
    assert_eq!(cut(dir.path(), 300, true).unwrap(), Lsn(300));
    let left = names(dir.path());
    assert!(left.iter().all(|name| !name.starts_with("spare-")), "{left:?}");
    assert_eq!(open(dir.path(), 0).unwrap().1.replayed, 300);
}

/// Syncs of a log with a small buffer, and what is buffered then. Committers have filled the first
/// segment and continued until enough is buffered, or a thread has synced.
fn fill_one_segment(log: &Log, most: u64) -> (u64, u64) {
    let first = payload(0).len() as u64;
    loop {
        append(log, 1);
        log.committed(log.last()).unwrap();
        let stats = log.stats();
        let buffered = stats.appended_bytes - stats.written_bytes;
        let ends = stats.appended_bytes > (64 << 10) + first;
        if stats.syncs > 0 || ends && buffered >= most {
            return (stats.syncs, buffered);
        }
    }
}

/// Ending a segment syncs it. A commit in async mode waited for that, behind everything that a
/// checkpoint was writing to the disk: 0.2 s.
#[test]
fn a_committer_leaves_the_end_of_a_segment_to_the_log_writer() {
    let options = LogOptions { buffer_bytes_max: 64 << 10, ..options() };
    let sim = testing::sim_env(1);
    let log = Log::create(&sim.env(), "log", VOLUME, &options).unwrap();
    // No thread calls `flush_if_due` yet.
    let (syncs, buffered) = fill_one_segment(&log, 16 << 10);
    assert!(syncs > 0 && buffered == 0, "{syncs} syncs, {buffered} bytes left");

    let log = Log::create(&sim.env(), "driven", VOLUME, &options).unwrap();
    log.flush_if_due().unwrap();
    let (syncs, buffered) = fill_one_segment(&log, 16 << 10);
    assert!(syncs == 0 && buffered >= 16 << 10, "{syncs} syncs, {buffered} bytes left");
    log.flush_if_due().unwrap();
    let stats = log.stats();
    assert!(stats.syncs > 0 && stats.appended_bytes == stats.written_bytes, "{stats:?}");
    // Committers write again when a little is buffered.
    let writes = stats.writes;
    append(&log, 60);
    log.committed(log.last()).unwrap();
    assert!(log.stats().writes > writes);

    // If the thread that called `flush_if_due` has gone, committers write before the buffer is
    // full.
    let log = Log::create(&sim.env(), "left", VOLUME, &options).unwrap();
    log.flush_if_due().unwrap();
    let (syncs, buffered) = fill_one_segment(&log, 60 << 10);
    assert!(syncs > 0 && buffered == 0, "{syncs} syncs, {buffered} bytes left");
}

/// The busier committers are, the sooner `flush_if_due` is due again.
#[test]
fn the_log_writer_is_due_before_much_is_buffered() {
    let sim = testing::sim_env(1);
    let options = LogOptions { buffer_bytes_max: 64 << 10, ..options() };
    let log = Log::create(&sim.env(), "log", VOLUME, &options).unwrap();
    assert_eq!(log.flush_if_due().unwrap(), options.interval);
    let mut before = log.stats().appended_bytes;
    for count in [20, 40, 80] {
        append(&log, count);
        log.committed(log.last()).unwrap();
        sim.clock.advance(Duration::from_millis(100));
        let appended = log.stats().appended_bytes - before;
        let due = log.flush_if_due().unwrap();
        // Half of what may be left, which is half of the buffer.
        let half = Duration::from_millis(100).mul_f64((16 << 10) as f64 / appended as f64);
        assert!(due.abs_diff(half) < Duration::from_millis(1), "{due:?} and {half:?}");
        before += appended;
    }
}

/// A log on a simulated disk that is full, except for the log's own segments.
fn full() -> (testing::SimEnv, Log) {
    let sim = testing::sim_env(1);
    let log = Log::create(&sim.env(), "log", VOLUME, &options()).unwrap();
    append(&log, 1);
    sim.device.set_capacity(Some(sim.device.used_bytes()));
    (sim, log)
}

#[test]
fn reserved_space_is_for_records_that_delete() {
    let (sim, log) = full();
    let bytes = vec![7; 1000];
    let mut normal = 0;
    while log.append(&bytes, LogSpace::Normal).is_ok() {
        normal += 1;
    }
    assert!(normal > 0, "a segment has space for some");
    let mut kept = 0;
    while log.append(&bytes, LogSpace::Reserve).is_ok() {
        kept += 1;
        let refused = log.append(&bytes, LogSpace::Normal).unwrap_err();
        assert!(refused.is_no_space(), "after {kept}: {refused}");
    }
    assert!(kept >= 60, "{kept} records of 64 KiB");
    log.sync(log.last()).unwrap();
    // With free space both continue, and another segment is reserved.
    sim.device.set_capacity(None);
    assert_eq!(log.append(&bytes, LogSpace::Normal).unwrap(), Lsn(1 + normal + kept + 1));
    sim.device.set_capacity(Some(sim.device.used_bytes()));
    while log.append(&bytes, LogSpace::Normal).is_ok() {}
    log.append(&bytes, LogSpace::Reserve).unwrap();
    log.close().unwrap();
}

#[test]
fn unused_reserved_space_is_reserved_again_after_reopening() {
    let (sim, log) = full();
    let bytes = vec![7; 1000];
    while log.append(&bytes, LogSpace::Normal).is_ok() {}
    log.append(&bytes, LogSpace::Reserve).unwrap();
    log.close().unwrap();
    drop(log);
    let open = || {
        let mut replay = |_: Lsn, _: &[u8]| Ok(());
        Log::open(&sim.env(), "log", VOLUME, &options(), Lsn(0), &mut replay).unwrap().0
    };
    let log = open();
    let refused = log.append(&bytes, LogSpace::Normal).unwrap_err();
    assert!(refused.is_no_space(), "{refused}");
    let mut kept = 0;
    while log.append(&bytes, LogSpace::Reserve).is_ok() {
        kept += 1;
    }
    assert!(kept >= 50, "{kept} records of 64 KiB");
    log.close().unwrap();
    drop(log);
    // With free space there is another, and any append may use the rest.
    sim.device.set_capacity(None);
    open().append(&bytes, LogSpace::Normal).unwrap();
}

#[test]
fn adding_threads_do_not_take_space_made_for_a_deleting_one() {
    let (_sim, log) = full();
    let bytes = vec![7; 1000];
    while log.append(&bytes, LogSpace::Normal).is_ok() {}
    let (done, added) = (std::sync::atomic::AtomicBool::new(false), AtomicU64::new(0));
    let deleted = device::scope(|scope| {
        let add = || {
            while !done.load(Ordering::Relaxed) {
                let added_one = log.append(&bytes, LogSpace::Normal).is_ok();
                added.fetch_add(u64::from(added_one), Ordering::Relaxed);
            }
        };
        scope.spawn(add);
        scope.spawn(add);
        let _end = SetAtEnd(&done);
        let deletes: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| (0..30).all(|_| log.append(&bytes, LogSpace::Reserve).is_ok())))
            .collect();
        deletes.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<bool>>()
    });
    assert_eq!((deleted, added.into_inner()), (vec![true; 2], 0));
    log.close().unwrap();
}

/// A sync fails, the process ends, the log is opened again and the records are there. They must
/// then survive a power cut too, although the kernel considered them written. The same where they
/// are made durable during a replay.
#[test]
fn data_of_a_failed_sync_is_durable_after_reopening() {
    let mut lost = 0;
    for (seed, settles) in (0..20).flat_map(|seed| [(seed, false), (seed, true)]) {
        let sim = testing::sim_env(seed);
        let log = Log::create(&sim.env(), "log", VOLUME, &options()).unwrap();
        append(&log, 5);
        log.sync(Lsn(5)).unwrap();
        append(&log, 5);
        sim.device.inject(testing::Fault::io(testing::FaultOn::Only(testing::Op::Sync), 0));
        let failed = log.sync(Lsn(10));
        assert!(matches!(failed, Err(Error::Device(_) | Error::ReadOnly(_))), "{failed:?}");
        drop(log);
        let replayed = |sim: &testing::SimEnv| {
            let mut count = 0;
            let mut replay = |_: Lsn, _: &[u8]| {
                count += 1;
                Ok(())
            };
            Log::open(&sim.env(), "log", VOLUME, &options(), Lsn(0), &mut replay).unwrap();
            count
        };
        let cut = |sim: &testing::SimEnv| {
            let policy = testing::CrashPolicy::LoseAll;
            testing::SimEnv::on(sim.device.after_crash(policy, seed), seed)
        };
        lost += u32::from(replayed(&cut(&sim)) == 5);
        if settles {
            let mut seen = Vec::new();
            let mut visit = |lsn: Lsn, _: &[u8]| {
                seen.push(lsn.0);
                Ok(())
            };
            Log::settle(&sim.env(), "log", VOLUME, &options(), Lsn(3), &mut visit).unwrap();
            assert_eq!(seen, (4..=10).collect::<Vec<_>>());
        } else {
            assert_eq!(replayed(&sim), 10);
        }
        assert_eq!(replayed(&cut(&sim)), 10, "seed {seed}, {settles}");
    }
    assert!(lost > 0, "the sync never lost anything");
}

#[test]
fn records_appended_before_an_engine_failure_are_written() {
    for close in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let log = create(dir.path());
        append(&log, 3);
        log.fail("the engine cannot continue");
        let refused = log.append(b"more", LogSpace::Reserve).unwrap_err();
        assert!(matches!(refused, Error::ReadOnly(_)), "{refused}");
        assert!(matches!(log.check(), Err(Error::ReadOnly(_))));
        let written = if close { log.close() } else { log.sync(Lsn(3)) };
        written.unwrap();
        drop(log);
        assert_eq!(open(dir.path(), 0).unwrap().1.replayed, 3);
    }
}

#[test]
fn a_log_whose_directory_another_uses_writes_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    let log = create(dir.path());
    append(&log, 3);
    log.sync(Lsn(3)).unwrap();
    append(&log, 3);
    let writes = log.stats().writes;
    log.abandon("two logs are in one place");
    assert!(matches!(log.append(b"more", LogSpace::Normal), Err(Error::ReadOnly(_))));
    for ended in [log.check(), log.close(), log.flush_if_due().map(drop)] {
        assert!(matches!(ended, Err(Error::ReadOnly(_))), "{ended:?}");
    }
    assert_eq!(log.stats().writes, writes);
    drop(log);
    assert_eq!(open(dir.path(), 0).unwrap().1.replayed, 3);
}

#[test]
fn a_cleanly_closed_log_is_opened_without_rewriting_it() {
    let sim = testing::sim_env(1);
    let log = Log::create(&sim.env(), "log", VOLUME, &options()).unwrap();
    append(&log, 20);
    log.sync(Lsn(10)).unwrap();
    append(&log, 20);
    log.close().unwrap();
    drop(log);
    let writes = || sim.device.counts().of(testing::Op::Write);
    let before = writes();
    let mut replay = |_: Lsn, _: &[u8]| Ok(());
    Log::open(&sim.env(), "log", VOLUME, &options(), Lsn(0), &mut replay).unwrap();
    assert_eq!(writes(), before);
}

/// Threads append while another takes the lock for various reasons: each number is assigned once,
/// none is skipped, and the counters equal what was appended.
#[test]
fn reserved_numbers_are_assigned_once_and_without_gaps() {
    const THREADS: u64 = 4;
    const RECORDS: u64 = 2000;
    for seed in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        let interval = Duration::from_millis(if seed % 2 == 0 { 1 } else { 1000 });
        // Reservations of up to 16 KiB, or none longer than some records.
        let write_bytes = if seed < 2 { 256 << 10 } else { 2 << 10 };
        let options = LogOptions { interval, write_bytes, ..options() };
        let log = Log::create(&Env::system(dir.path()).unwrap(), "log", VOLUME, &options).unwrap();
        let appends = |thread: u64| {
            let mut random = fastrand::Rng::with_seed(seed << 8 | thread);
            let mut given = Vec::new();
            for number in 0..RECORDS {
                let most = if random.u8(..) == 0 { 9000 } else { 300 };
                let mut payload = vec![7; random.usize(16..most)];
                payload[..8].copy_from_slice(&thread.to_le_bytes());
                payload[8..16].copy_from_slice(&number.to_le_bytes());
                let lsn = log.append(&payload, LogSpace::Normal).unwrap();
                assert!(log.last() >= lsn, "seed {seed}");
                log.committed(lsn).unwrap();
                given.push((lsn.0, payload));
            }
            given
        };
        let mut given: Records = device::scope(|scope| {
            let appends = &appends;
            let threads: Vec<_> =
                (0..THREADS).map(|thread| scope.spawn(move || appends(thread))).collect();
            let (mut last, mut bytes) = (Lsn(0), 0);
            while threads.iter().any(|thread| !thread.is_finished()) {
                log.flush_if_due().unwrap();
                let stats = log.stats();
                assert!(stats.last >= last && stats.appended_bytes >= bytes, "seed {seed}");
                (last, bytes) = (log.last(), log.appended_bytes());
                assert!(last >= stats.last && bytes >= stats.appended_bytes, "seed {seed}");
            }
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        given.sort_unstable();
        let total = THREADS * RECORDS;
        assert!(given.iter().map(|record| record.0).eq(1..=total), "seed {seed}");
        let header = format::log_record::HEADER_BYTES;
        let bytes: usize = given.iter().map(|(_, payload)| header + payload.len()).sum();
        assert_eq!(log.stats().appended_bytes, bytes as u64, "seed {seed}");
        assert_eq!(log.last(), Lsn(total));
        log.close().unwrap();
        drop(log);
        assert!(open(dir.path(), 0).unwrap().2 == given, "seed {seed}");
    }
}
