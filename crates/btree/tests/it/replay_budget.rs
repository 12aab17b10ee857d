//! A log that changes more than the cache holds is replayed within the cache's budget, and what is
//! written meanwhile survives what the power being cut leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use btree::{BtreeStore, Options, check};
use store::{Batch, Read, SliceRun, Store, TreeId};
use testing::{CrashPolicy, Fault, FaultOn, SimEnv, sim_env};

use crate::util::{TREE, checked, commit, entries, options};

/// Holds everything in memory, so that no checkpoint is made.
fn patient() -> Options {
    let mut options = Options { replay_max: Duration::from_secs(3600), ..options(1 << 30) };
    options.common.checkpoint_bytes = 1 << 30;
    options
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// Where the changes are counted.
const COUNTER: [u8; 9] = [0; 9];

/// A tree of so many entries, each of which is changed by one of the later commits.
#[derive(Debug, Clone, Copy)]
struct Load {
    entries: u64,
    /// How far commits lie apart that follow each other. Odd, and no divisor of `entries`.
    step: u64,
    /// One in so many values is in an overflow node, where there are any: no leaf that leads to
    /// such a one is written early.
    long: Option<u64>,
}

impl Load {
    fn value(self, n: u64, count: u64) -> Vec<u8> {
        let long = self.long.is_some_and(|long| n.is_multiple_of(long));
        vec![count as u8; if long { 3000 } else { 100 }]
    }

    fn fill(self, store: &BtreeStore) {
        commit(store, |batch| batch.create_tree(TREE));
        for chunk in 0..self.entries.div_ceil(1000) {
            commit(store, |batch| {
                for n in chunk * 1000..self.entries.min(chunk * 1000 + 1000) {
                    batch.put(TREE, &key(n), &self.value(n, 0));
                }
            });
        }
        checked(store);
    }

    /// The `count`th change, from 1.
    fn change(self, store: &BtreeStore, count: u64) {
        let n = count * self.step % self.entries;
        commit(store, |batch| {
            batch.put(TREE, &key(n), &self.value(n, count));
            batch.put(TREE, &COUNTER, &count.to_be_bytes());
        });
    }

    /// Asserts that the first changes are there, and no others; returns how many.
    fn whole(self, store: &BtreeStore, place: &str) -> u64 {
        let mut found = entries(store, TREE);
        let count = found
            .remove(&COUNTER[..])
            .map_or(0, |bytes| u64::from_be_bytes(bytes[..].try_into().expect("eight bytes")));
        assert_eq!(found.len() as u64, self.entries, "{place}");
        let mut last = vec![0; self.entries as usize];
        for count in 1..=count {
            last[(count * self.step % self.entries) as usize] = count;
        }
        for ((found, value), n) in found.iter().zip(0..) {
            let expected = self.value(n, last[n as usize]);
            assert!(found[..] == key(n) && *value == expected, "{place}: entry {n} of {count}");
        }
        count
    }
}

#[test]
fn a_log_of_more_than_the_cache_is_replayed_within_the_budget() {
    // Leaves written early; those that cannot be; and a cache with which none is.
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
        let dirty = store.cache().dirty;
        assert!(dirty > cache_bytes / 10 * 11, "only {dirty} bytes were changed");
        // The process is killed.
        drop(store);
        let store = BtreeStore::open(&sim.env(), &options(cache_bytes)).expect("open");
        let (cache, stats) = (store.cache(), store.stats());
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

/// A process was killed that had synced a part of what it wrote, and the power is cut while the
/// next one replays all of it, and writes what does not fit into its cache.
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
    // Of a process that was killed, all that it gave to the system is there, until now.
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
        if !point.is_multiple_of(4) {
            return;
        }
        for policy in CrashPolicy::ALL {
            let place = format!("power cut before operation {op}, {policy:?}");
            let medium = SimEnv::on(image.after_crash(policy, op), op);
            let store = BtreeStore::open(&medium.env(), &recovering).expect(&place);
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
    assert!(looked.load(Ordering::Relaxed) > 30, "{looked:?}");
    assert!(lost.load(Ordering::Relaxed) > 0, "all changes were durable from the beginning");
    assert_eq!(load.whole(&store, "in the end"), written);
    checked(&store);
}

/// What a record names that comes later in the log lies in room that the map calls free.
#[test]
fn what_is_written_in_a_replay_is_not_where_a_later_record_has_a_run() {
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

/// A volume opens however full its medium is: then what is replayed stays in memory.
#[test]
fn a_long_log_is_replayed_on_a_full_medium() {
    let load = Load { entries: 20_000, step: 131, long: Some(20) };
    let sim = sim_env(1);
    let store = BtreeStore::create(&sim.env(), &patient()).expect("create");
    load.fill(&store);
    (1..=2000).for_each(|count| load.change(&store, count));
    store.sync(store.last_commit()).expect("sync");
    drop(store);
    sim.device.set_capacity(Some(sim.device.used_bytes()));
    let store = BtreeStore::open(&sim.env(), &options(2 << 20)).expect("open");
    let cache = store.cache();
    assert!(cache.peak > cache.budget, "there was room to write: {cache:?}");
    assert_eq!(load.whole(&store, "full"), 2000);
    sim.device.set_capacity(None);
    load.change(&store, 2001);
    checked(&store);
    assert_eq!(load.whole(&store, "in the end"), 2001);
    let cache = store.cache();
    assert!(cache.resident <= cache.budget, "{cache:?}");
}

/// A medium with a log of more than a cache of 1 MiB in one place, and how many changes it has.
fn long_log(load: Load, changes: u64) -> SimEnv {
    let sim = sim_env(1);
    let store = BtreeStore::create(&sim.env(), &patient()).expect("create");
    load.fill(&store);
    (1..=changes).for_each(|count| load.change(&store, count));
    store.sync(store.last_commit()).expect("sync");
    sim
}

/// Whatever call fails while a long log is replayed, once or from then on, by refusal or for want
/// of room: nothing is lost by it, neither to who goes on with what was opened nor to who comes
/// after a kill or a power cut. A superblock that could not be written means that nobody knows
/// which state is on the medium, also where the reason was room.
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
    let faults: [fn(FaultOn, u64) -> Fault; 2] = [Fault::io, Fault::no_space];
    for (kind, fault) in faults.into_iter().enumerate() {
        for after in (0..calls).filter(|after| after % 4 == kind as u64 || *after + 8 > calls) {
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
                    // What goes on writes where it believes that there is room.
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
                for policy in CrashPolicy::ALL {
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

/// Whether a change is taken.
fn put(load: Load, store: &BtreeStore, count: u64) -> bool {
    let n = count * load.step % load.entries;
    let mut batch = Batch::new();
    batch.put(TREE, &key(n), &load.value(n, count));
    batch.put(TREE, &COUNTER, &count.to_be_bytes());
    store.commit(&batch).is_ok()
}
