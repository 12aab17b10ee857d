//! A log that changes more than the cache holds is replayed within the cache's budget. What is
//! written meanwhile survives a power cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use btree::{BtreeStore, Options, check};
use store::{Batch, Commit, Durable, Maintain, Read, SliceRun, TreeId};
use testing::run::rounds;
use testing::{CrashPolicy, Fault, FaultOn, SimEnv, sim_env};

use crate::load::{Load, key};
use crate::util::{TREE, checked, entries, options};

/// Holds everything in memory, so that no checkpoint is made.
fn patient() -> Options {
    let mut options = Options { replay_max: Duration::from_secs(3600), ..options(1 << 30) };
    options.common.checkpoint_bytes = 1 << 30;
    options
}

#[test]
fn a_log_of_more_than_the_cache_is_replayed_within_the_budget() {
    // Leaves pre-flushed; those that cannot be; and a cache with which none is.
    for (load, changes, cache_bytes) in [
        (Load { entries: 60_000, step: 331, long: None }, 3000, 1 << 20),
        (Load { entries: 20_000, step: 131, long: Some(20) }, 3000, 2 << 20),
        (Load { entries: 300_000, step: 331, long: None }, 3200, 30 << 20),
    ] {
        println!("{load:?}, {changes} changes, {cache_bytes} bytes");
        let sim = sim_env(1);
        let store = BtreeStore::create(&sim.env(), &patient()).expect("create");
        load.fill(&store);
        (1..=changes).for_each(|count| load.change(&store, count));
        store.sync(store.last_commit()).expect("sync");
        let dirty = store.engine().cache().dirty;
        assert!(dirty > cache_bytes / 10 * 11, "only {dirty} bytes were changed");
        // The process is killed.
        drop(store);
        let store = BtreeStore::open(&sim.env(), &options(cache_bytes)).expect("open");
        let (cache, stats) = (store.engine().cache(), store.stats());
        println!("{cache:?}, {} checkpoints", stats.checkpoints);
        assert!(cache.peak <= cache.budget, "{cache:?}");
        assert_eq!(stats.replayed, changes);
        // What the last of them has is not replayed again.
        if stats.checkpoints > 0 {
            let again = sim.device.copy();
            let again = BtreeStore::open(&SimEnv::on(again, 1).env(), &options(cache_bytes));
            let again = again.expect("open");
            assert!(again.stats().replayed < changes, "{} again", again.stats().replayed);
            assert_eq!(load.whole(&again, "opened again"), changes);
        } else {
            assert!(cache_bytes < 2 << 20, "nothing was written");
        }
        assert_eq!(load.whole(&store, "opened"), changes);
        load.change(&store, changes + 1);
        checked(&store);
        assert_eq!(load.whole(&store, "in the end"), changes + 1);
    }
}

/// A process was killed that had synced a part of what it wrote. Power is cut while the next one
/// replays all of it, and writes what does not fit into its cache.
#[test]
fn power_may_be_cut_while_a_long_log_is_replayed() {
    const CHANGES: u64 = 1500;
    let load = Load { entries: 8000, step: 131, long: Some(20) };
    let sim = sim_env(1);
    let mut wide = patient();
    wide.common.log_write_bytes = 4 << 10;
    let store = BtreeStore::create(&sim.env(), &wide).expect("create");
    load.fill(&store);
    let synced = CHANGES / 10;
    for count in 1..=CHANGES {
        load.change(&store, count);
        if count == synced {
            store.sync(store.last_commit()).expect("sync");
        }
    }
    drop(store);
    let options = options(1 << 20);
    // A killed process loses nothing that it gave to the system, until now.
    let written = {
        let store = BtreeStore::open(&SimEnv::on(sim.device.copy(), 1).env(), &options);
        load.whole(&store.expect("open"), "killed")
    };
    assert!(written > synced + 500, "{written} of {CHANGES} were written");
    let (points, looked) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let lost = Arc::new(AtomicU64::new(0));
    let (all, cut, less) = (Arc::clone(&points), Arc::clone(&looked), Arc::clone(&lost));
    let recovering = options.clone();
    sim.device.watch(move |image, op| {
        let point = all.fetch_add(1, Ordering::Relaxed);
        if !point.is_multiple_of(rounds(18, 4)) {
            return;
        }
        for policy in CrashPolicy::at(point / 6) {
            let place = format!("power cut before operation {op}, {policy:?}");
            let disk = SimEnv::on(image.after_crash(policy, op), op);
            let store = BtreeStore::open(&disk.env(), &recovering).expect(&place);
            let found = load.whole(&store, &place);
            assert!(found >= synced && found <= written, "{place}: {found} of {synced}");
            let report = check(&store).expect(&place);
            assert!(report.is_clean(), "{place}: {:#?}", report.findings);
            cut.fetch_add(1, Ordering::Relaxed);
            less.fetch_add(u64::from(found < written), Ordering::Relaxed);
        }
    });
    let store = BtreeStore::open(&sim.env(), &options).expect("open");
    sim.device.unwatch();
    assert!(store.stats().checkpoints > 3, "{:?}", store.stats());
    println!("{points:?} operations, {looked:?} power cuts, {lost:?} of them lost changes");
    assert!(looked.load(Ordering::Relaxed) > 15, "{looked:?}");
    assert!(lost.load(Ordering::Relaxed) > 0, "all changes were durable from the beginning");
    assert_eq!(load.whole(&store, "in the end"), written);
    checked(&store);
}

/// What a later record of the log names is in space that the map calls free.
#[test]
fn replay_does_not_write_where_a_later_record_has_a_run() {
    const OTHER: TreeId = TreeId(33);
    for long in [None, Some(20)] {
        let load = Load { entries: 20_000, step: 131, long };
        let sim = sim_env(1);
        let store = BtreeStore::create(&sim.env(), &patient()).expect("create");
        load.fill(&store);
        (1..=1000).for_each(|count| load.change(&store, count));
        let run: Vec<_> = (0..5000).map(|n| (key(n).to_vec(), vec![7; 100])).collect();
        store.ingest_new(OTHER, &mut SliceRun::new(&run)).expect("ingest");
        (1001..=2000).for_each(|count| load.change(&store, count));
        store.sync(store.last_commit()).expect("sync");
        drop(store);
        let store = BtreeStore::open(&sim.env(), &options(1 << 20)).expect("open");
        assert_eq!(load.whole(&store, "opened"), 2000);
        assert_eq!(entries(&*store, OTHER), run.iter().cloned().collect());
        checked(&store);
        drop(store);
        let store = BtreeStore::open(&sim.env(), &options(1 << 20)).expect("open");
        assert_eq!(load.whole(&store, "opened again"), 2000);
        assert_eq!(entries(&*store, OTHER), run.into_iter().collect());
        assert!(store.get(OTHER, &key(4999)).expect("read").is_some());
        checked(&store);
    }
}

/// A volume opens however full its disk is: replayed changes then stay in memory.
#[test]
fn a_long_log_is_replayed_on_a_full_disk() {
    let load = Load { entries: 20_000, step: 131, long: Some(20) };
    let sim = sim_env(1);
    let store = BtreeStore::create(&sim.env(), &patient()).expect("create");
    load.fill(&store);
    (1..=2000).for_each(|count| load.change(&store, count));
    store.sync(store.last_commit()).expect("sync");
    drop(store);
    sim.device.set_capacity(Some(sim.device.used_bytes()));
    let store = BtreeStore::open(&sim.env(), &options(2 << 20)).expect("open");
    let cache = store.engine().cache();
    assert!(cache.peak > cache.budget, "there was space to write: {cache:?}");
    assert_eq!(load.whole(&store, "full"), 2000);
    sim.device.set_capacity(None);
    load.change(&store, 2001);
    checked(&store);
    assert_eq!(load.whole(&store, "in the end"), 2001);
    let cache = store.engine().cache();
    assert!(cache.resident <= cache.budget, "{cache:?}");
}

/// A disk with a log of more than a cache of 1 MiB in one place, and how many changes it has.
fn long_log(load: Load, changes: u64) -> SimEnv {
    let sim = sim_env(1);
    let store = BtreeStore::create(&sim.env(), &patient()).expect("create");
    load.fill(&store);
    (1..=changes).for_each(|count| load.change(&store, count));
    store.sync(store.last_commit()).expect("sync");
    sim
}

/// Any call may fail while a long log is replayed, once or from then on, by an error or for lack of
/// space. Nothing is lost by it, neither for a process that continues with what was opened nor for
/// one after a kill or a power cut. After a superblock could not be written, nobody knows which
/// state is on disk, also where the reason was space.
#[test]
fn any_call_may_fail_while_a_long_log_is_replayed() {
    const CHANGES: u64 = 800;
    let load = Load { entries: 8000, step: 131, long: Some(20) };
    let image = long_log(load, CHANGES).device.after_crash(CrashPolicy::ALL[0], 1);
    let options = options(1 << 20);
    let calls = {
        let device = image.copy();
        let before = device.ops();
        let store = BtreeStore::open(&SimEnv::on(device.clone(), 1).env(), &options).expect("open");
        assert!(store.stats().checkpoints > 1, "{:?}", store.stats());
        device.ops() - before
    };
    let (mut opened, mut read_only, mut refused) = (0, 0, 0);
    let every = rounds(48, 4);
    let faults: [fn(FaultOn, u64) -> Fault; 2] = [Fault::io, Fault::no_space];
    for (kind, fault) in faults.into_iter().enumerate() {
        for after in (0..calls).filter(|after| after % every == kind as u64 || *after + 8 > calls) {
            for lasts in [false, true] {
                let place = format!("fault {kind} at change {after} of {calls}, lasting: {lasts}");
                let device = image.copy();
                let fault = fault(FaultOn::AnyChange, after);
                device.inject(if lasts { fault.forever() } else { fault });
                let store = BtreeStore::open(&SimEnv::on(device.clone(), 1).env(), &options);
                let mut last = CHANGES;
                device.clear_faults();
                if let Ok(store) = store {
                    assert_eq!(load.whole(&store, &place), CHANGES, "{place}");
                    // A process that continues writes where it believes space to be free.
                    while last < CHANGES + 200 && put(load, &store, last + 1) {
                        last += 1;
                    }
                    let synced = store.sync(store.last_commit()).is_ok();
                    assert!(synced || last == CHANGES, "{place}: acknowledged, not synced");
                    opened += u64::from(last > CHANGES);
                    read_only += u64::from(last == CHANGES);
                } else {
                    refused += 1;
                }
                // At the last calls each policy, also in the short form.
                let all = after + 8 > calls;
                let short = CrashPolicy::at(after / every);
                for policy in
                    CrashPolicy::ALL.into_iter().filter(|_| all).chain(short.filter(|_| !all))
                {
                    let left = SimEnv::on(device.after_crash(policy, after), after);
                    let store = BtreeStore::open(&left.env(), &options).expect(&place);
                    assert_eq!(load.whole(&store, &place), last, "{place}, {policy:?}");
                    checked(&store);
                }
            }
        }
    }
    println!("{calls} calls: {opened} opened, {read_only} for reading, {refused} refused");
    assert!(opened > 0 && read_only > 0, "{opened}, {read_only}, {refused}");
}

/// No checkpoint is made where the log changes a damaged node, and no leaf was pre-flushed. So all
/// that was replayed after it stayed in memory. What is written is part of no state, so an opening
/// that can read the node again misses nothing, whenever the power was cut.
#[test]
fn a_long_log_over_damage_is_replayed_within_the_budget() {
    const CHANGES: u64 = 3000;
    let loads = [
        (1 << 20, Load { entries: 60_000, step: 331, long: None }, 256),
        (30 << 20, Load { entries: 300_000, step: 331, long: None }, u64::MAX),
    ];
    for (cache_bytes, load, step) in loads.into_iter().take(rounds(1, 2) as usize) {
        let sim = long_log(load, CHANGES);
        let right = {
            let copy = SimEnv::on(sim.device.copy(), 1);
            entries(&*BtreeStore::open(&copy.env(), &options(cache_bytes)).expect("open"), TREE)
        };
        let units = sim.device.read_file("btree/nodes").len() as u64 / 1024;
        let mut random = fastrand::Rng::with_seed(1);
        let (mut missed, mut peak, mut answered) = (0, 0, 0);
        let enough = rounds(1, 3) as usize;
        for _ in 0..60 {
            if missed == enough {
                break;
            }
            let device = sim.device.copy();
            let bit = 8 * (1024 * random.u64(..units) + 300);
            device.flip_bit("btree/nodes", bit);
            let disk = SimEnv::on(device.clone(), 1);
            let (points, images) = (AtomicU64::new(0), Arc::new(device::sync::Mutex::new(vec![])));
            let kept = Arc::clone(&images);
            device.watch(move |image, op| {
                if points.fetch_add(1, Ordering::Relaxed).is_multiple_of(step) {
                    kept.lock().push((image.copy(), op));
                }
            });
            let Ok(store) = BtreeStore::open(&disk.env(), &options(cache_bytes)) else {
                continue;
            };
            device.unwatch();
            if store.unknown().is_empty() {
                continue;
            }
            missed += 1;
            peak = peak.max(store.engine().cache().peak);
            let place = format!("{cache_bytes}, bit {bit}");
            assert!(
                store.engine().cache().peak <= store.engine().cache().budget,
                "{place}: {:?}",
                store.engine().cache()
            );
            for (key, value) in &right {
                if let Ok(found) = store.get(TREE, key) {
                    assert_eq!(found.as_ref(), Some(value), "{place}");
                    answered += 1;
                }
            }
            drop(store);
            images.lock().push((device, 0));
            for (image, op) in images.lock().iter() {
                for policy in CrashPolicy::ALL {
                    let left = image.after_crash(policy, *op);
                    left.flip_bit("btree/nodes", bit);
                    let left = SimEnv::on(left, 1);
                    let store = BtreeStore::open(&left.env(), &options(cache_bytes)).expect("open");
                    assert_eq!(load.whole(&store, &place), CHANGES, "{place}, {policy:?}");
                    checked(&store);
                }
            }
        }
        println!("{cache_bytes} bytes: {missed} that miss something, {peak} bytes at most");
        assert!(missed >= enough && answered > right.len() * missed / 2, "{missed}, {answered}");
    }
}

/// Whether a change is taken.
fn put(load: Load, store: &BtreeStore, count: u64) -> bool {
    let mut batch = Batch::new();
    load.fill_change(&mut batch, count);
    store.commit(&batch).is_ok()
}
