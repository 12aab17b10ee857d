//! What a crash makes replay: bounded by an estimate of its time, and read ahead.

use std::collections::BTreeSet;
use std::time::Duration;

use btree::{BtreeStore, Options};
use store::{Durable, Maintain, Read};
use testing::{fails, sim_env};

use crate::util::{TREE, checked, commit, options};

const ENTRIES: u32 = 100_000;

/// Far from the other bounds, and space for everything in memory.
fn patient(replay_max: Duration) -> Options {
    let mut options = Options { replay_max, ..options(1 << 30) };
    options.common.checkpoint_bytes = 1 << 30;
    options
}

fn fill(store: &BtreeStore) {
    commit(store, |batch| batch.create_tree(TREE));
    for chunk in 0..ENTRIES / 1000 {
        commit(store, |batch| {
            for n in chunk * 1000..chunk * 1000 + 1000 {
                batch.put(TREE, &n.to_be_bytes(), &[1; 100]);
            }
        });
    }
    checked(store);
}

/// Changes entries, `step` apart, until a checkpoint is due; returns how many.
fn change_until_due(store: &BtreeStore, step: u32) -> u32 {
    assert!(!store.checkpoint_due());
    let mut changed = 0;
    while !store.checkpoint_due() {
        let n = changed * step % ENTRIES;
        commit(store, |batch| batch.put(TREE, &n.to_be_bytes(), &[2; 100]));
        changed += 1;
        assert!(changed < ENTRIES, "no checkpoint was due");
    }
    changed
}

#[test]
fn a_checkpoint_is_due_sooner_when_changes_are_scattered() {
    let sim = sim_env(1);
    let store = BtreeStore::create(&sim.env(), &patient(Duration::from_millis(10))).unwrap();
    fill(&store);
    // A leaf has more than fifty entries.
    let scattered = change_until_due(&store, 331);
    checked(&store);
    let clustered = change_until_due(&store, 1);
    assert!(scattered < 200, "{scattered} scattered changes");
    assert!(clustered > scattered * 10, "{clustered} clustered, {scattered} scattered changes");
}

#[test]
fn a_failed_checkpoint_keeps_the_estimate() {
    let sim = sim_env(1);
    let store = BtreeStore::create(&sim.env(), &patient(Duration::from_millis(10))).unwrap();
    fill(&store);
    change_until_due(&store, 331);
    sim.device.set_capacity(Some(sim.device.used_bytes()));
    fails(store.checkpoint(), "write btree/nodes: No space left");
    assert!(store.checkpoint_due());
    sim.device.set_capacity(None);
    checked(&store);
    assert!(!store.checkpoint_due());
}

#[test]
fn a_replay_reads_leaves_ahead() {
    let sim = sim_env(1);
    let options = patient(Duration::from_secs(3600));
    let store = BtreeStore::create(&sim.env(), &options).unwrap();
    fill(&store);
    for n in (0..ENTRIES).step_by(1000) {
        commit(&store, |batch| batch.put(TREE, &n.to_be_bytes(), &[2; 100]));
    }
    store.sync(store.last_commit()).unwrap();
    drop(store);
    let before = sim.device.counts().prefetched.len();
    let store = BtreeStore::open(&sim.env(), &options).unwrap();
    assert_eq!(store.stats().replayed, u64::from(ENTRIES) / 1000);
    let asked = sim.device.counts().prefetched.split_off(before);
    let places: BTreeSet<u64> = asked.iter().map(|(_, offset, _)| *offset).collect();
    assert!(asked.iter().all(|(path, _, length)| path == "btree/nodes" && *length <= 16 << 10));
    // A leaf for each change, and what points there; nothing twice.
    assert!(places.len() as u32 >= ENTRIES / 1000, "{} places", places.len());
    assert_eq!(places.len(), asked.len());
    for n in 0..ENTRIES {
        let value = if n % 1000 == 0 { [2; 100] } else { [1; 100] };
        assert_eq!(store.get(TREE, &n.to_be_bytes()).unwrap().as_deref(), Some(value.as_slice()));
    }
    checked(&store);
}
