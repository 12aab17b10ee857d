//! A process is killed in a checkpoint, a merge or between commits. The next one opens what is in
//! the page cache, and makes a checkpoint. Power is cut at each operation of its opening and of
//! that checkpoint (decision 0058).
//!
//! The suite of all engines does the same with commits of the next process, at selected operations.
//! Here it is every operation: a manifest whose name was only in memory must not cause the earlier
//! ones to be deleted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::sync::Mutex;
use lsm::{LsmStore, Options};
use store::{Durable, Maintain};
use testing::{CrashPolicy, SimDevice, SimEnv, entries};

use crate::util::{TREE, column, commit, options, settle, store_with};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The tree's content after each commit, and the last commit that must be found.
struct Known {
    states: BTreeMap<u64, Model>,
    least: u64,
}

/// The fate of a disk, with the seed of its random part.
const CUTS: [(CrashPolicy, u64); 5] = [
    (CrashPolicy::LoseAll, 0),
    (CrashPolicy::KeepAll, 0),
    (CrashPolicy::Random, 1),
    (CrashPolicy::Random, 2),
    (CrashPolicy::Random, 3),
];

/// Opens what a cut left, and compares it.
fn recovered(image: &SimDevice, options: &Options, (known, least): (&Known, u64), place: &str) {
    for (policy, seed) in CUTS {
        let sim = SimEnv::on(image.after_crash(policy, seed), seed);
        let store = LsmStore::open(&sim.env(), options)
            .unwrap_or_else(|error| panic!("{place}, {policy:?} {seed}: {error}"));
        let found = store.last_commit().0.0;
        assert!(found >= least, "{place}, {policy:?} {seed}: {found}, and {least} was durable");
        let right = &known.states[&found];
        assert!(entries(&*store, TREE) == *right, "{place}, {policy:?} {seed}: commit {found}");
    }
}

/// The process after one that was killed.
fn next_process(left: &SimDevice, options: &Options, known: &Arc<Mutex<Known>>, killed: &str) {
    let sim = SimEnv::on(left.copy(), 1);
    let least = Arc::new(AtomicU64::new(known.lock().least));
    let (watched, must) = (Arc::clone(known), Arc::clone(&least));
    let (cut_options, place) = (options.clone(), killed.to_owned());
    sim.device.watch(move |image, op| {
        let place = format!("{place}, power cut before operation {op} of the next process");
        recovered(image, &cut_options, (&watched.lock(), must.load(Ordering::Relaxed)), &place);
    });
    let store = LsmStore::open(&sim.env(), options).expect("nothing is damaged");
    let found = store.last_commit();
    assert_eq!(store.durable(), found, "{killed}: what was found is durable");
    least.store(found.0.0, Ordering::Relaxed);
    assert!(store.checkpoint().expect("checkpoint"));
    settle(&store);
    sim.device.unwatch();
}

#[test]
fn nothing_is_dropped_for_unsynced_state_of_a_killed_process() {
    let every = testing::run::rounds(3, 1);
    for (what, mut options) in [("rows", options()), ("column", column())] {
        // So short that each checkpoint makes some superfluous.
        options.common.log_segment_bytes = 8 << 10;
        let (sim, store) = store_with(1, &options);
        let states = BTreeMap::from([(store.last_commit().0.0, Model::new())]);
        store.sync(store.last_commit()).expect("sync");
        let known = Arc::new(Mutex::new(Known { states, least: store.last_commit().0.0 }));
        let (watched, next_options) = (Arc::clone(&known), options.clone());
        let kills = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&kills);
        sim.device.watch(move |image, op| {
            // In the short form at every third, of each of the two layouts at others.
            if counted.fetch_add(1, Ordering::Relaxed) % every != what.len() as u64 % every {
                return;
            }
            let killed = format!("{what}: killed before operation {op}");
            next_process(image, &next_options, &watched, &killed);
        });
        let mut model = Model::new();
        for round in 0..4_u32 {
            for part in 0..2_u32 {
                let keys = (part * 10..part * 10 + 40).step_by(1 + (round % 3) as usize);
                let value = |n: u32| testing::noise(u64::from(round << 16 | n), 70);
                model.extend(keys.clone().map(|n| (n.to_be_bytes().to_vec(), value(n))));
                let last = store.last_commit().0.0;
                // Before it exists, because it may be found as soon as it does.
                known.lock().states.insert(last + 1, model.clone());
                commit(&store, |batch| {
                    for n in keys {
                        batch.put(TREE, &n.to_be_bytes(), &value(n));
                    }
                });
            }
            store.sync(store.last_commit()).expect("sync");
            known.lock().least = store.last_commit().0.0;
            assert!(store.checkpoint().expect("checkpoint"));
            settle(&store);
        }
        sim.device.unwatch();
        let kills = kills.load(Ordering::Relaxed);
        assert!(kills > 60, "killed at {kills} places");
    }
}
