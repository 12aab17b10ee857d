//! Changed leaves are pre-flushed where a checkpoint would write little, and where only pins see
//! them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use btree::{BtreeStore, check};
use device::spawn;
use store::{Batch, Commit, Durable, Maintain, Pinned, Snapshot, TreeId};
use testing::{CrashPolicy, Fault, FaultOn, Op, SimEnv, sim_env};

use crate::load::Load;
use crate::util::{TREE, checked, commit, entries, options, reclaim_all, store};

const KEYS: u32 = 40_000;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn put(store: &BtreeStore, model: &mut Model, keys: impl Iterator<Item = u32>, value: u8) {
    let keys: Vec<u32> = keys.collect();
    for keys in keys.chunks(50) {
        commit(store, |batch| {
            for key in keys {
                batch.put(TREE, &key.to_be_bytes(), &[value; 100]);
                model.insert(key.to_be_bytes().to_vec(), vec![value; 100]);
            }
        });
    }
}

/// A tree of about six megabytes, behind a cache of less.
fn large(seed: u64, cache_bytes: usize) -> (SimEnv, Arc<BtreeStore>, Model) {
    let (sim, store) = store(seed, 32 << 20);
    let mut model = Model::new();
    put(&store, &mut model, 0..KEYS, 1);
    store.close().expect("close");
    drop(store);
    let store = BtreeStore::open(&sim.env(), &options(cache_bytes)).expect("open");
    (sim, store, model)
}

#[test]
fn scattered_changes_behind_a_small_cache_need_few_checkpoints() {
    let (sim, store, mut model) = large(1, 1 << 20);
    let mut random = fastrand::Rng::with_seed(1);
    let before = store.stats();
    for n in 0..3000 {
        put(&store, &mut model, [random.u32(..KEYS)].into_iter(), n as u8);
    }
    let after = store.stats();
    let made = after.checkpoints - before.checkpoints;
    // Each leaf takes some 20 KB in memory, and less than 600 KB of them may be changed.
    assert!(made < 10, "{made} checkpoints for 3,000 changes");
    assert!(
        store.engine().cache().peak <= store.engine().cache().budget,
        "{:?}",
        store.engine().cache()
    );
    assert_eq!(entries(&*store, TREE), model);
    checked(&store);
    assert_eq!(entries(&*store, TREE), model);
    // What was pre-flushed and not in a checkpoint is not there after a crash; the log is.
    for n in 0..500 {
        put(&store, &mut model, [random.u32(..KEYS)].into_iter(), n as u8);
    }
    store.sync(store.last_commit()).expect("sync");
    for policy in [CrashPolicy::LoseAll, CrashPolicy::KeepAll] {
        let sim = SimEnv::on(sim.device.after_crash(policy, 1), 1);
        let store = BtreeStore::open(&sim.env(), &options(1 << 20)).expect("open");
        assert_eq!(entries(&*store, TREE), model);
        checked(&store);
    }
}

#[test]
fn nodes_visible_only_to_pins_stay_within_the_budget() {
    // Behind a small cache leaves are pre-flushed in any case, behind a large one for pins only.
    for (cache_bytes, keys, rounds) in [(8 << 20, KEYS / 2, 8), (32 << 20, KEYS * 2, 5)] {
        pins_keep_the_budget(cache_bytes, keys, rounds);
    }
}

fn pins_keep_the_budget(cache_bytes: usize, keys: u32, rounds: u8) {
    let (_sim, store) = store(2, cache_bytes);
    let mut model = Model::new();
    put(&store, &mut model, 0..keys, 0);
    checked(&store);
    let mut pins: Vec<(Box<dyn Pinned>, Model)> = Vec::new();
    for round in 1..rounds {
        // Nearly as much as may be changed at once, not all of which a checkpoint has written when
        // the pin is made. Then the next round changes it again.
        put(&store, &mut model, 0..keys, round);
        pins.push((store.pin().expect("pin"), model.clone()));
    }
    let cache = store.engine().cache();
    assert!(cache.peak <= cache.budget, "{cache:?}");
    for (pin, model) in &pins {
        assert_eq!(&entries(&**pin, TREE), model);
    }
    assert!(store.engine().cache().peak <= cache.budget, "{:?}", store.engine().cache());
    drop(pins);
    for _ in 0..2 {
        checked(&store);
    }
    reclaim_all(&store);
    let (disk, data) = (store.stats().disk_bytes, u64::from(keys) * 110);
    assert!(disk < 3 * data + (4 << 20), "{disk} bytes on disk for {data}");
}

#[test]
fn threads_clones_and_pins_continue_while_leaves_are_pre_flushed() {
    let (_sim, store, _) = large(3, 2 << 20);
    let threads: Vec<_> = (0..3_u32)
        .map(|thread| {
            let store = Arc::clone(&store);
            let work = move || {
                let mut random = fastrand::Rng::with_seed(u64::from(thread));
                let clone = TreeId(TREE.0 + 1 + u64::from(thread));
                commit(&store, |batch| batch.clone_tree(TREE, clone));
                let mut model = Model::new();
                for n in 0..1500 {
                    let (key, value) = (random.u32(..KEYS).to_be_bytes(), vec![n as u8; 90]);
                    commit(&store, |batch| batch.put(clone, &key, &value));
                    model.insert(key.to_vec(), value);
                    if n % 300 == 100 {
                        let pin = store.pin().expect("pin");
                        let all = entries(&*pin, clone);
                        assert!(model.iter().all(|(key, value)| all.get(key) == Some(value)));
                    }
                    if n % 400 == 399 {
                        store.checkpoint().expect("checkpoint");
                    }
                }
                let all = entries(&*store, clone);
                assert!(model.iter().all(|(key, value)| all.get(key) == Some(value)));
                commit(&store, |batch| batch.drop_tree(clone));
            };
            spawn("work", work).expect("a thread")
        })
        .collect();
    for thread in threads {
        thread.join().expect("the work ends");
    }
    assert!(
        store.engine().cache().peak <= store.engine().cache().budget,
        "{:?}",
        store.engine().cache()
    );
    reclaim_all(&store);
    checked(&store);
    assert_eq!(entries(&*store, TREE).len(), KEYS as usize);
}

/// A tree behind a cache of a third of it, and a clone of it.
const SMALL: Load = Load { entries: 12_000, step: 131, long: None };
const SMALL_CACHE: usize = 1 << 20;
const CLONE: TreeId = TreeId(TREE.0 + 1);

fn small(seed: u64) -> (SimEnv, Arc<BtreeStore>) {
    let sim = sim_env(seed);
    let store = BtreeStore::create(&sim.env(), &options(32 << 20)).expect("create");
    SMALL.fill(&store);
    store.close().expect("close");
    drop(store);
    let store = BtreeStore::open(&sim.env(), &options(SMALL_CACHE)).expect("open");
    commit(&store, |batch| batch.clone_tree(TREE, CLONE));
    store.sync(store.last_commit()).expect("sync");
    (sim, store)
}

/// Opens what a crash left; how many changes are there.
fn left(sim: &SimEnv, place: &str) -> u64 {
    let store = BtreeStore::open(&sim.env(), &options(SMALL_CACHE)).expect(place);
    let found = SMALL.whole(&store, place);
    assert_eq!(entries(&*store, CLONE).len() as u64, SMALL.entries, "{place}");
    let report = check(&store).expect(place);
    assert!(report.is_clean(), "{place}: {:#?}", report.findings);
    found
}

#[test]
fn power_may_be_cut_while_leaves_are_pre_flushed() {
    const CHANGES: u64 = 600;
    let (sim, store) = small(4);
    let pin = store.pin().expect("pin");
    let pinned = entries(&*pin, TREE);
    let (synced, cuts) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (least, count) = (Arc::clone(&synced), Arc::clone(&cuts));
    sim.device.watch(move |image, op| {
        if !op.is_multiple_of(testing::run::rounds(4, 2)) {
            return;
        }
        let policy = CrashPolicy::ALL[op as usize / 2 % CrashPolicy::ALL.len()];
        let place = format!("power cut before operation {op}, {policy:?}");
        let least = least.load(Ordering::Relaxed);
        let found = left(&SimEnv::on(image.after_crash(policy, op), op), &place);
        assert!((least..=CHANGES).contains(&found), "{place}: {found} of {least}");
        count.fetch_add(1, Ordering::Relaxed);
    });
    let before = store.stats();
    for change in 1..=CHANGES {
        SMALL.change(&store, change);
        if change.is_multiple_of(50) {
            store.sync(store.last_commit()).expect("sync");
            synced.store(change, Ordering::Relaxed);
        }
    }
    sim.device.unwatch();
    let after = store.stats();
    let (made, early) = (after.checkpoints - before.checkpoints, {
        after.checkpoint_writes - before.checkpoint_writes
    });
    println!("{cuts:?} power cuts, {early} writes beside the log, {made} checkpoints");
    assert!(early > 5 * (made + 1), "{early} writes of {made} checkpoints: none is early");
    assert!(cuts.load(Ordering::Relaxed) > 30, "{cuts:?}");
    assert_eq!(entries(&*pin, TREE), pinned);
    assert_eq!(SMALL.whole(&store, "in the end"), CHANGES);
    drop(pin);
    checked(&store);
}

/// A leaf that cannot be pre-flushed stays in memory, or the store refuses further commits; in
/// any case what was durable is there.
#[test]
fn pre_flushing_a_leaf_may_fail() {
    const CHANGES: u64 = 600;
    let mut failed = 0;
    for fault in [Fault::io, Fault::no_space] {
        for nth in 0..8 {
            let (sim, store) = small(5);
            let fault = fault(FaultOn::Only(Op::Write), nth).below("btree/nodes");
            let place = format!("{fault:?}");
            sim.device.inject(fault);
            let mut synced = 0;
            for change in 1..=CHANGES {
                let mut batch = Batch::new();
                SMALL.fill_change(&mut batch, change);
                if store.commit(&batch).is_err() {
                    break;
                }
                if change.is_multiple_of(50) && store.sync(store.last_commit()).is_ok() {
                    synced = change;
                }
            }
            failed += u32::from(!sim.device.faults_left());
            sim.device.clear_faults();
            drop(store);
            for policy in CrashPolicy::ALL {
                let place = format!("{place}, {policy:?}");
                let found = left(&SimEnv::on(sim.device.after_crash(policy, nth), nth), &place);
                assert!((synced..=CHANGES).contains(&found), "{place}: {found} of {synced}");
            }
        }
    }
    assert!(failed > 8, "{failed} of 16 faults struck");
}
