//! A full disk, failing writes and failing syncs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use data::Data;
use device::{Clock, SystemClock};
use store::{Durable, Error};
use testing::run::{Context, for_seeds};
use testing::{Fault, FaultOn, Op};

use crate::model::random_op;
use crate::support::{Volume, open_hooked, pattern};

#[test]
fn a_full_disk_at_any_write_leaves_everything_readable() {
    for_seeds("no space", 4, 40, |seed| {
        for after in 0..40 {
            let _context = Context::new(format!("no space from change {after} on"));
            let mut volume = Volume::new(seed);
            let mut random = fastrand::Rng::with_seed(seed);
            for _ in 0..20 {
                random_op(&mut volume, &mut random).unwrap();
            }
            let fault = Fault::no_space(FaultOn::Only(Op::Write), after).below("data/").forever();
            volume.sim.device.inject(fault);
            for _ in 0..30 {
                match random_op(&mut volume, &mut random) {
                    Ok(()) => {}
                    Err(error) => assert!(error.is_no_space(), "{error}"),
                }
            }
            volume.verify();
            volume.sim.device.clear_faults();
            for _ in 0..10 {
                random_op(&mut volume, &mut random).unwrap();
            }
            volume.verify();
        }
    });
}

#[test]
fn a_failed_write_fails_only_its_caller() {
    for after in 0..10 {
        let mut volume = Volume::new(after);
        volume.sim.device.inject(Fault::io(FaultOn::Only(Op::Write), after));
        let mut failed = 0;
        for step in 0..12 {
            match volume.write(32, step, 0, &pattern(step, 40_000)) {
                Ok(()) => {}
                Err(Error::Device(_)) => failed += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(failed, 1);
        volume.verify();
        volume.sync().unwrap();
        volume.reopen().unwrap();
        volume.verify();
    }
}

#[test]
fn after_a_failed_sync_nothing_is_written_until_the_volume_is_opened_again() {
    let mut volume = Volume::new(1);
    volume.write(32, 1, 0, &pattern(1, 40_000)).unwrap();
    volume.sync().unwrap();
    let durable = volume.now.clone();
    volume.write(32, 2, 0, &pattern(2, 40_000)).unwrap();
    volume.sim.device.inject(Fault::io(FaultOn::Only(Op::Sync), 0));
    let error = volume.sync().unwrap_err();
    assert!(matches!(error, Error::Device(_)), "{error}");
    let error = volume.sync().unwrap_err();
    assert!(matches!(error, Error::Device(_)), "a second sync does not pretend: {error}");
    let error = volume.write(32, 3, 0, &pattern(3, 10)).unwrap_err();
    assert!(matches!(error, Error::ReadOnly(_)), "{error}");
    let error = volume.data.clean_step(&*volume.store).unwrap_err();
    assert!(matches!(error, Error::ReadOnly(_)), "{error}");
    volume.verify();
    let sim =
        testing::SimEnv::on(volume.sim.device.after_crash(testing::CrashPolicy::Random, 1), 1);
    let store = volume.store.after_crash();
    let data = crate::support::open_data(&sim, &store, &volume.options, true, None).unwrap();
    crate::support::verify(&store, &data, &durable);
}

/// The operating system reports a failure to one sync, and success to the next. A thread that
/// waited for the first must not believe the second.
#[test]
fn waiters_of_a_failed_sync_fail_too() {
    let mut volume = Volume::new(1);
    volume.write(32, 1, 0, &pattern(1, 40_000)).unwrap();
    volume.sim.device.inject(Fault::io(FaultOn::Only(Op::Sync), 0).below("data/open"));
    let begun = Arc::new(AtomicBool::new(false));
    let joined = Arc::new(AtomicBool::new(false));
    let (first_began, second_comes) = (Arc::clone(&begun), Arc::clone(&joined));
    // Called by the first thread, before its sync.
    volume.sim.device.watch(move |_, _| {
        first_began.store(true, Ordering::SeqCst);
        wait_for(&second_comes);
        // It has nothing to do between reporting that and waiting.
        SystemClock::new().sleep(Duration::from_millis(100));
    });
    let data = &volume.data;
    device::scope(|scope| {
        let first = scope.spawn(|| data.sync());
        wait_for(&begun);
        let second = scope.spawn(|| {
            joined.store(true, Ordering::SeqCst);
            data.sync()
        });
        let first = first.join().unwrap().unwrap_err();
        assert!(matches!(first, Error::Device(_)), "{first}");
        // No success may be returned to the waiter of lost bytes.
        let second = second.join().unwrap().unwrap_err();
        assert!(matches!(second, Error::Device(_) | Error::ReadOnly(_)), "{second}");
    });
    volume.sim.device.unwatch();
    assert!(data.unsynced_bytes() > 0, "what may be lost is not counted as durable");
    let error = data.sync().unwrap_err();
    assert!(matches!(error, Error::Device(_)), "{error}");
}

/// Waits until a flag is set, but not for ever.
fn wait_for(flag: &AtomicBool) {
    for _ in 0..30_000 {
        if flag.load(Ordering::SeqCst) {
            return;
        }
        SystemClock::new().sleep(Duration::from_millis(1));
    }
    panic!("the other thread does not come");
}

#[test]
fn pages_written_for_a_refused_commit_are_freed() {
    let mut volume = Volume::new(1);
    volume.write(32, 1, 0, &pattern(1, 100_000)).unwrap();
    volume.clean(true).unwrap();
    let before = volume.data.disk_bytes().unwrap();
    volume.store.set_full(true);
    for _ in 0..20 {
        assert!(volume.write(32, 1, 0, &pattern(2, 100_000)).unwrap_err().is_no_space());
    }
    volume.verify();
    volume.store.set_full(false);
    volume.clean(true).unwrap();
    let after = volume.data.disk_bytes().unwrap();
    assert!(after <= before + 20 * 4096, "{before} bytes grew to {after}");
    volume.verify();
    volume.write(32, 1, 0, &pattern(3, 100_000)).unwrap();
    volume.verify();
    assert!(volume.store.durable() <= volume.store.last_commit());
}

/// Two segments of which all is dead but the last pages, the first of them with more that is.
fn dead() -> Volume {
    let mut volume = Volume::new(1);
    for ino in 1..=4 {
        volume.write(32, ino, 0, &pattern(ino, 240_000)).unwrap();
    }
    volume.sync().unwrap();
    volume
}

#[test]
fn dead_pages_are_punched_without_space_for_a_footer() {
    let mut volume = dead();
    let before = volume.sim.device.used_bytes();
    volume.sim.device.set_capacity(Some(before));
    volume.release(32, 1).unwrap();
    volume.sync().unwrap();
    let until = volume.sim.env().clock.monotonic() + Duration::from_secs(1000);
    let cleaned = volume.data.clean_now(&*volume.store, until).unwrap();
    volume.note_commits();
    assert!(cleaned.any && !cleaned.more, "{cleaned:?}");
    let after = volume.sim.device.used_bytes();
    assert!(after + 200_000 < before, "{after} of {before} bytes");
    volume.verify();
}

#[test]
fn a_failed_segment_hides_no_other() {
    let mut volume = dead();
    volume.clean(true).unwrap();
    volume.release(32, 1).unwrap();
    volume.punch(32, 2, (100_000, 140_000)).unwrap();
    volume.sync().unwrap();
    let before = volume.sim.device.used_bytes();
    let fault = Fault::io(FaultOn::Only(Op::Punch), 0).forever();
    volume.sim.device.inject(fault.below("data/sealed/0000000000000000.seg"));
    let until = volume.sim.env().clock.monotonic() + Duration::from_secs(1000);
    let cleaned = volume.data.clean_now(&*volume.store, until).unwrap();
    volume.note_commits();
    assert!(cleaned.any, "{cleaned:?}");
    let after = volume.sim.device.used_bytes();
    assert!(after + 30_000 < before, "{after} of {before} bytes");
    let stats = volume.data.stats();
    assert!(stats.dead_bytes > 0, "{stats:?}");
    assert_eq!(stats.stuck_bytes, stats.dead_bytes, "of what cannot be punched none comes");
    volume.verify();
}

/// They were counted neither as dead nor as given back, and `status` reported that all was done.
#[test]
fn pages_being_freed_count_as_dead_until_they_are() {
    let mut volume = dead();
    volume.clean(true).unwrap();
    let asked: Arc<OnceLock<Weak<Data>>> = Arc::default();
    let least = Arc::new(AtomicU64::new(u64::MAX));
    let (data, reported) = (Arc::clone(&asked), Arc::clone(&least));
    let hook = move || {
        let stats = data.get().and_then(Weak::upgrade).unwrap().stats();
        reported.fetch_min(stats.dead_bytes, Ordering::Relaxed);
        true
    };
    volume.data = open_hooked(&volume.sim, &volume.store, &volume.options, Box::new(hook)).unwrap();
    asked.set(Arc::downgrade(&volume.data)).unwrap();
    volume.punch(32, 2, (100_000, 140_000)).unwrap();
    volume.release(32, 1).unwrap();
    volume.sync().unwrap();
    volume.clean(true).unwrap();
    let least = least.load(Ordering::Relaxed);
    assert!((4096..u64::MAX).contains(&least), "{least} bytes dead while some are freed");
    let stats = volume.data.stats();
    assert_eq!((stats.waiting_bytes, stats.dead_bytes), (0, 0), "{stats:?}");
    volume.verify();
}
