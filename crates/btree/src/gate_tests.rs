//! A batch is never torn by a checkpoint: with the gate it cannot be, and a gate that were passed
//! by would be found out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use device::{Clock, SystemClock, spawn};
use parking_lot::Mutex;
use store::{Batch, Read, Store, TreeId};
use testing::{CrashPolicy, SimEnv};

use crate::core::Hook;
use crate::{BtreeStore, Options};

const TREE: TreeId = TreeId(32);
const OTHER: TreeId = TreeId(33);
/// Keys that lie in different leaves, and in another tree; each batch gives all one value.
const PLACES: [(TreeId, u32); 3] = [(TREE, 0), (TREE, 1999), (OTHER, 7)];

fn commit(store: &BtreeStore, value: u8) {
    let mut batch = Batch::new();
    for (tree, key) in PLACES {
        batch.put(tree, &key.to_be_bytes(), &[value; 50]);
    }
    store.commit(&batch).expect("commit");
}

/// Commits a batch, doing something when it is applied up to its `after`th change, and cuts the
/// power when it is through; returns what then stands in the places.
fn after_power_cut(after: u32, hook: fn(&Arc<BtreeStore>) -> Option<JoinHandle<()>>) -> Vec<u8> {
    let sim = testing::sim_env(1);
    let options = Options::default();
    let store = BtreeStore::create(&sim.env(), &options).expect("create");
    let mut batch = Batch::new();
    batch.create_tree(TREE);
    batch.create_tree(OTHER);
    for n in 0..2000_u32 {
        batch.put(TREE, &n.to_be_bytes(), &[0; 50]);
    }
    store.commit(&batch).expect("commit");
    commit(&store, 1);
    assert!(store.checkpoint().expect("checkpoint"));
    let (hooked, begun) = (Arc::clone(&store), Arc::new(Mutex::new(None)));
    let begins = Arc::clone(&begun);
    let act = Box::new(move || *begins.lock() = hook(&hooked));
    *store.core.hook.lock() = Some(Hook { after, act });
    commit(&store, 2);
    assert!(store.core.hook.lock().is_none(), "the hook was called");
    if let Some(thread) = begun.lock().take() {
        thread.join().expect("what the hook began");
    }
    let sim = SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, 1), 1);
    let store = BtreeStore::open(&sim.env(), &options).expect("open");
    let get = |(tree, key): (TreeId, u32)| {
        store.get(tree, &key.to_be_bytes()).expect("read").expect("present")[0]
    };
    PLACES.map(get).to_vec()
}

#[test]
fn a_checkpoint_that_passes_by_the_gate_tears_a_batch() {
    // This is what the gate prevents; a test of the gate must be able to see it.
    for after in 1..3 {
        let found = after_power_cut(after, |store| {
            store.core.freeze_past_gate.store(true, Ordering::Relaxed);
            let beside = Arc::clone(store);
            let thread = spawn("checkpoint", move || {
                assert!(beside.checkpoint().expect("checkpoint"));
            });
            while store.core.in_flight.lock().is_empty() {
                std::thread::yield_now();
            }
            Some(thread.expect("a thread"))
        });
        let torn: Vec<u8> = (0..3).map(|place| if place < after { 2 } else { 1 }).collect();
        assert_eq!(found, torn, "after {after} changes");
    }
}

/// How long a freeze that waits at the gate is watched. One that did not wait would need
/// microseconds.
const WATCHED: Duration = Duration::from_millis(100);

#[test]
fn no_checkpoint_freezes_while_a_batch_is_applied() {
    for after in 0..3 {
        let found = after_power_cut(after, |store| {
            let core = &store.core;
            let begun = core.freezes_begun.load(Ordering::Relaxed);
            let beside = Arc::clone(store);
            let thread = spawn("checkpoint", move || {
                assert!(beside.checkpoint().expect("checkpoint"));
            });
            // It does all that it does before it waits at the gate.
            while core.freezes_begun.load(Ordering::Relaxed) == begun {
                std::thread::yield_now();
            }
            // The simulated clock would not let it run.
            let clock = SystemClock::new();
            while clock.monotonic() < WATCHED {
                assert!(core.in_flight.lock().is_empty(), "a state was taken within a batch");
                clock.sleep(Duration::from_millis(1));
            }
            Some(thread.expect("a thread"))
        });
        // Once it could, it took all of the batch.
        assert_eq!(found, [2, 2, 2], "after {after} changes");
    }
}
