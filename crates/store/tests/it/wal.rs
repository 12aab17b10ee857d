//! One suite for the log in every place: segment files on the simulated disk, objects in memory,
//! and objects in a local directory.
//!
//! The place keeps what a manifest keeps: the last record of the checkpoint, and for objects the
//! epoch and where the log continues.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::{Blobs, Env, LocalBlobs, LocalDevice};
use store::{
    Barrier, Durability, Log, LogObjects, LogOptions, LogPosition, LogSpace, Lsn, ObjectPlace,
    Opening, Replay, Result,
};
use testing::{CrashPolicy, FarBlobs, FlatBlobs, SimDevice, SimEnv, fails};

use crate::objects_kit::{VOLUME, append, options, payload, settings};

/// Where a log is, and what is needed to open it.
struct LogSetup {
    env: Env,
    /// The disk of a log in files.
    disk: SimDevice,
    /// The store of a log in objects.
    objects: Option<Arc<dyn Blobs>>,
    /// In memory, and so with a state to copy.
    far: Option<Arc<FarBlobs>>,
    epoch: u64,
    position: Option<LogPosition>,
    from: Lsn,
    options: LogOptions,
}

/// Records as they were replayed.
type Records = Vec<(u64, Vec<u8>)>;

impl LogSetup {
    fn on(
        disk: SimDevice,
        objects: Option<Arc<dyn Blobs>>,
        far: Option<Arc<FarBlobs>>,
    ) -> LogSetup {
        let env = SimEnv::on(disk.clone(), 1).env();
        let options = LogOptions { segment_bytes: 16 << 10, ..options() };
        let (epoch, position, from) = (0, None, Lsn(0));
        LogSetup { env, disk, objects, far, epoch, position, from, options }
    }

    fn opening(&mut self) -> Option<ObjectPlace> {
        self.epoch += 1;
        let opening = Opening { epoch: self.epoch, id: [self.epoch as u8; 16] };
        let blobs = Arc::clone(self.objects.as_ref()?);
        let objects = LogObjects { blobs, settings: settings() };
        Some(ObjectPlace { objects, volume: VOLUME, opening })
    }

    fn create(&mut self) -> Log {
        match self.opening() {
            None => Log::create(&self.env, "log", VOLUME, &self.options).expect("create"),
            Some(place) => {
                let log = Log::create_in_objects(&self.env, &self.options, &place);
                self.position = log.position(Lsn(0));
                log.announce();
                log
            }
        }
    }

    /// Opens the log after the checkpoint. In objects this makes a checkpoint, as a store does.
    fn open_with(&mut self, replay: &mut dyn Replay) -> Result<Log> {
        match self.opening() {
            None => {
                let (env, options) = (&self.env, &self.options);
                Ok(Log::open(env, "log", VOLUME, options, self.from, replay)?.0)
            }
            Some(place) => {
                let from = (self.position.expect("it was created"), self.from);
                let (log, _) =
                    Log::open_in_objects(&self.env, &self.options, &place, from, replay)?;
                (self.from, self.position) = (log.last(), log.position(log.last()));
                log.announce();
                Ok(log)
            }
        }
    }

    fn open(&mut self) -> (Log, Records) {
        let mut records = Vec::new();
        let mut replay = |lsn: Lsn, payload: &[u8]| {
            records.push((lsn.0, payload.to_vec()));
            Ok(())
        };
        let log = self.open_with(&mut replay).expect("open");
        (log, records)
    }

    /// A checkpoint with all records up to this one.
    fn checkpoint(&mut self, log: &Log, up_to: u64) {
        log.sync(Lsn(up_to)).expect("sync");
        (self.from, self.position) = (Lsn(up_to), log.position(Lsn(up_to)));
        log.trim(Lsn(up_to)).expect("trim");
        log.delete_trimmed();
    }

    /// The same place after the process, or its machine, ended now. None if it cannot be copied.
    fn ended(&self, policy: CrashPolicy, seed: u64) -> Option<LogSetup> {
        let far = self.far.as_ref().map(|far| far.copy());
        if self.objects.is_some() && far.is_none() {
            return None;
        }
        let objects = far.as_ref().map(|far| Arc::<FarBlobs>::clone(far) as Arc<dyn Blobs>);
        let (epoch, position, from) = (self.epoch, self.position, self.from);
        let place = LogSetup::on(self.disk.after_crash(policy, seed), objects, far);
        Some(LogSetup { epoch, position, from, ..place })
    }
}

/// Records of this one and the next, as the appended ones.
#[track_caller]
fn assert_from(records: &Records, first: u64, last: u64) {
    let numbers: Vec<u64> = records.iter().map(|(lsn, _)| *lsn).collect();
    assert_eq!(numbers, (first..=last).collect::<Vec<_>>());
    assert!(records.iter().all(|(lsn, bytes)| *bytes == payload(*lsn)));
}

/// Calls a check with a log in every place.
#[expect(clippy::print_stdout, reason = "the harness captures standard output, and only that")]
fn everywhere(check: impl Fn(&mut LogSetup)) {
    println!("in files");
    check(&mut LogSetup::on(SimDevice::new(1), None, None));
    println!("in objects in memory");
    let far = FarBlobs::new();
    let objects: Arc<dyn Blobs> = Arc::<FarBlobs>::clone(&far);
    check(&mut LogSetup::on(SimDevice::new(1), Some(objects), Some(far)));
    println!("in objects in a directory");
    let directory = tempfile::tempdir().expect("a directory");
    let device = Arc::new(LocalDevice::open(directory.path()).expect("open"));
    let blobs = LocalBlobs::open(device, "objects").expect("open");
    check(&mut LogSetup::on(SimDevice::new(1), Some(Arc::new(FlatBlobs(Arc::new(blobs)))), None));
}

#[test]
fn records_are_replayed_in_order_after_the_checkpoint() {
    everywhere(|place| {
        let log = place.create();
        append(&log, 100);
        place.checkpoint(&log, 60);
        log.close().expect("close");
        drop(log);
        let (log, records) = place.open();
        assert_from(&records, 61, 100);
        assert_eq!((log.last(), log.durable()), (Lsn(100), Lsn(100)));
        // Some that are not synced, some that are long.
        append(&log, 30);
        log.append(&vec![7; 30_000], LogSpace::Normal).expect("append");
        append(&log, 3);
        place.checkpoint(&log, 120);
        log.sync(Lsn(134)).expect("sync");
        append(&log, 1);
        drop(log);
        let (log, records) = place.open();
        let numbers: Vec<u64> = records.iter().map(|(lsn, _)| *lsn).collect();
        assert_eq!(numbers, (121..=134).collect::<Vec<_>>(), "what was not synced is not there");
        assert_eq!(records[10].1, vec![7; 30_000]);
        place.checkpoint(&log, 134);
        log.close().expect("close");
        drop(log);
        assert_from(&place.open().1, 1, 0);
    });
}

#[test]
fn synchronous_commits_are_durable_and_asynchronous_ones_when_flushed() {
    everywhere(|place| {
        place.options.durability = Durability::Sync;
        let log = place.create();
        append(&log, 1);
        log.committed(Lsn(1)).expect("commit");
        assert_eq!(log.durable(), Lsn(1));
        drop(log);
        place.options.durability = Durability::Async;
        let (log, records) = place.open();
        assert_from(&records, 1, 1);
        append(&log, 1);
        log.committed(Lsn(2)).expect("commit");
        log.flush_if_due().expect("flush");
        assert_eq!(log.durable(), Lsn(1), "the interval has not passed");
        place.env.clock.sleep(place.options.interval + Duration::from_millis(1));
        log.flush_if_due().expect("flush");
        assert_eq!(log.durable(), Lsn(2));
    });
}

/// Committers of several threads, who each wait for their own records.
#[test]
fn records_of_several_threads_are_durable_when_their_sync_returns() {
    everywhere(|place| {
        let log = place.create();
        let highest = AtomicU64::new(0);
        device::scope(|scope| {
            for thread in 0..4_u8 {
                let (log, highest) = (&log, &highest);
                scope.spawn(move || {
                    for count in 0..50_u64 {
                        let bytes = [&[thread][..], &count.to_le_bytes()].concat();
                        let lsn = log.append(&bytes, LogSpace::Normal).expect("append");
                        log.sync(lsn).expect("sync");
                        assert!(log.durable() >= lsn);
                        highest.fetch_max(lsn.0, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!((log.last(), log.durable()), (Lsn(200), Lsn(200)));
        drop(log);
        let (_, records) = place.open();
        assert_eq!(records.len(), 200);
        let mut next = [0_u64; 4];
        for (_, bytes) in records {
            let (thread, count) = (bytes[0] as usize, bytes[1..].try_into().expect("eight bytes"));
            assert_eq!(u64::from_le_bytes(count), next[thread], "thread {thread}");
            next[thread] += 1;
        }
    });
}

/// The process ends at some moment of a random life, and so does each that follows.
#[test]
fn what_was_durable_survives_every_end() {
    everywhere(|place| {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let Some(mut place) = place.ended(CrashPolicy::LoseAll, seed) else { return };
            let mut log = place.create();
            let (mut durable, mut from) = (0, 0);
            for step in 0..120 {
                let last = log.last().0;
                match random.u8(..8) {
                    0..=3 => append(&log, random.u64(1..9)),
                    4 => {
                        log.sync(Lsn(random.u64(durable..=last))).expect("sync");
                        durable = log.durable().0;
                    }
                    5 if last > 0 => {
                        from = random.u64(from..=last);
                        place.checkpoint(&log, from);
                        durable = log.durable().0;
                    }
                    6 => {
                        log.flush_if_due().expect("flush");
                        durable = log.durable().0;
                    }
                    _ => {
                        let policy = CrashPolicy::ALL[random.usize(..3)];
                        let mut next = place.ended(policy, seed * 1000 + step).expect("a copy");
                        let started = next.from.0;
                        let (again, records) = next.open();
                        let last = again.last().0;
                        assert!(last >= durable, "seed {seed}: {durable} was durable, not {last}");
                        assert_from(&records, started + 1, last);
                        (place, log, durable) = (next, again, last);
                        from = place.from.0;
                    }
                }
            }
        }
    });
}

#[test]
fn a_log_is_verified_beside_its_writers() {
    everywhere(|place| {
        let log = place.create();
        let mut batch = store::Batch::new();
        batch.put(store::TreeId(5), b"key", b"value");
        for _ in 0..50 {
            let lsn = log.append(batch.as_bytes(), LogSpace::Normal).expect("append");
            log.sync(lsn).expect("sync");
        }
        let mut found = Vec::new();
        log.verify_beside(Lsn(0), &mut |error| found.push(error.to_string()));
        assert!(found.is_empty(), "{found:?}");
        append(&log, 1);
        log.sync(Lsn(51)).expect("sync");
        log.verify_beside(Lsn(0), &mut |error| found.push(error.to_string()));
        assert_eq!(found.len(), 1, "the last record is no batch: {found:?}");
    });
}

#[test]
fn changes_are_complete_or_known_not_to_be() {
    everywhere(|place| {
        let log = place.create();
        append(&log, 500);
        log.sync(Lsn(500)).expect("sync");
        let read = |after: u64| {
            let mut seen: Records = Vec::new();
            let whole = log.read(Lsn(after), Lsn(500), &mut |bytes| {
                seen.push((after + 1 + seen.len() as u64, bytes.to_vec()));
                true
            });
            (whole, seen)
        };
        let (whole, seen) = read(100);
        assert!(whole, "nothing was trimmed");
        assert_from(&seen, 101, 500);
        log.keep(&[]).expect("keep");
        log.trim(Lsn(500)).expect("trim");
        append(&log, 1);
        log.sync(Lsn(501)).expect("sync");
        let (whole, seen) = read(100);
        assert!(!whole || seen.len() == 400);
        assert_eq!(log.bytes_behind(Lsn(100)).is_some(), whole);
    });
}

/// Counts its calls, and the durable record at each.
struct Counted(AtomicU64);

impl Barrier for Counted {
    fn reach(&self) -> std::result::Result<(), device::Error> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn the_barrier_is_reached_before_records_are_written() {
    everywhere(|place| {
        let log = place.create();
        let barrier = Arc::new(Counted(AtomicU64::new(0)));
        log.set_barrier(Arc::<Counted>::clone(&barrier) as Arc<dyn Barrier>);
        for lsn in 1..=5 {
            append(&log, 1);
            log.sync(Lsn(lsn)).expect("sync");
            assert_eq!(barrier.0.load(Ordering::Relaxed), lsn);
        }
        log.sync(Lsn(5)).expect("sync");
        assert_eq!(barrier.0.load(Ordering::Relaxed), 5, "there was nothing to write");
    });
}

/// Refusals hold in every place.
#[test]
fn a_log_that_refuses_writes_what_it_accepted() {
    everywhere(|place| {
        let log = place.create();
        append(&log, 3);
        log.fail("the engine could not write");
        fails(log.append(b"more", LogSpace::Normal), "the engine could not write");
        log.sync(Lsn(3)).expect("they have numbers");
        log.append_last(&payload(4)).expect("one more");
        fails(log.append(b"more", LogSpace::Normal), "the engine could not write");
        drop(log);
        let (log, records) = place.open();
        assert_from(&records, 1, 4);
        append(&log, 1);
        log.abandon("the place is another's");
        fails(log.sync(Lsn(5)), "the place is another's");
        drop(log);
        assert_eq!(place.open().0.last(), Lsn(4));
    });
}
