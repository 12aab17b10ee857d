//! Leaves of a few entries that are split and merged all the time, under readers, scans, clones,
//! checkpoints and eviction.

use device::sync::{Sender, channel};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use btree::BtreeStore;
use device::spawn;
use store::{Maintain, Read, TreeId};

use crate::util::{TREE, checked, commit, entries, reclaim_all, store};

/// Less than what the tree holds when it is full.
const CACHE_BYTES: usize = 1 << 20;
const WRITERS: u8 = 4;
const STEPS: u64 = 10_000;
/// Steps of a writer between its turns from growing to shrinking.
const WAVE: u64 = 500;
const ANCHORS: u64 = 150;
/// Keys of a writer: few, so that writers meet.
const NUMBERS: u64 = 400;
/// Longest time that a thread may take.
const LIMIT: Duration = Duration::from_secs(900);

/// Keys of all threads alternate, so writers meet in leaves.
fn key(n: u64, owner: u8) -> [u8; 9] {
    let mut key = [owner; 9];
    key[..8].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

/// Ten to a leaf, or so.
fn value(n: u64, version: u64) -> Vec<u8> {
    let mut value = vec![n as u8; 900 + (n as usize * 37) % 900];
    value[..8].copy_from_slice(&version.to_le_bytes());
    value
}

fn is_whole(value: &[u8], n: u64) -> bool {
    value.len() == 900 + (n as usize * 37) % 900 && value[8..].iter().all(|&byte| byte == n as u8)
}

/// Inserts and deletes in waves; returns what must be there in the end.
fn write(store: &BtreeStore, owner: u8, seed: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut random = fastrand::Rng::with_seed(seed << 8 | u64::from(owner));
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    for step in 0..STEPS {
        let grows = (step / WAVE).is_multiple_of(2) != random.u8(..).is_multiple_of(8);
        let near = random.u64(0..NUMBERS);
        let there = live.range(near..).next().map(|(n, _)| *n);
        match there {
            Some(n) if !grows => {
                commit(store, |batch| batch.delete(TREE, &key(n, owner)));
                live.remove(&n);
                assert_eq!(store.get(TREE, &key(n, owner)).expect("read"), None);
            }
            _ => {
                commit(store, |batch| batch.put(TREE, &key(near, owner), &value(near, step)));
                live.insert(near, step);
                let found = store.get(TREE, &key(near, owner)).expect("read");
                assert_eq!(found, Some(value(near, step)), "seed {seed}: step {step}");
            }
        }
    }
    let all = live.into_iter();
    all.map(|(n, version)| (key(n, owner).to_vec(), value(n, version))).collect()
}

/// Looks for keys that are never changed, by itself and in order with all others.
fn read(store: &BtreeStore, done: &AtomicBool, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    while !done.load(Ordering::Relaxed) {
        for _ in 0..200 {
            let n = random.u64(0..ANCHORS);
            let found = store.get(TREE, &key(n, 0)).expect("read");
            assert_eq!(found, Some(value(n, 0)), "seed {seed}: a key that nobody changes");
        }
        all_whole(store, TREE, seed);
    }
}

/// Scans a tree: keys ascend, values are whole, and what nobody changes is there.
fn all_whole(store: &dyn Read, tree: TreeId, seed: u64) {
    let found = entries(store, tree);
    let number = |key: &[u8]| {
        let (chunk, _) = key.split_first_chunk::<8>().expect("a key has nine bytes");
        // The inverse of the multiplier.
        u64::from_be_bytes(*chunk).wrapping_mul(0xf1de_83e1_9937_733d)
    };
    for (key, value) in &found {
        assert!(is_whole(value, number(key)), "seed {seed}: a torn value");
    }
    let anchors = found.keys().filter(|key| key[8] == 0).count();
    assert_eq!(anchors as u64, ANCHORS, "seed {seed}: keys that nobody changes");
}

/// Clones, writes into the clone, compares, drops.
fn clone(store: &BtreeStore, done: &AtomicBool, seed: u64) {
    let mut next = TREE.0 + 1;
    while !done.load(Ordering::Relaxed) {
        let tree = TreeId(next);
        commit(store, |batch| batch.clone_tree(TREE, tree));
        all_whole(store, tree, seed);
        let before = entries(store, tree);
        for n in 0..20 {
            commit(store, |batch| batch.delete(tree, &key(n, 0)));
        }
        assert_eq!(entries(store, tree).len() + 20, before.len(), "seed {seed}: a clone");
        commit(store, |batch| batch.drop_tree(tree));
        store.reclaim_step(100).expect("reclaim");
        next += 1;
    }
}

/// What runs beside the writers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    /// Readers only: nobody else has a node, so leaves are split with their tree shared.
    Readers,
    /// Clones, checkpoints and eviction too, so that hardly a node has one owner.
    All,
}

fn race(seed: u64, others: Beside) {
    let all = others == Beside::All;
    let (_sim, store) = store(seed, if all { CACHE_BYTES } else { 32 * CACHE_BYTES });
    for n in 0..ANCHORS {
        commit(&store, |batch| batch.put(TREE, &key(n, 0), &value(n, 0)));
    }
    let done = Arc::new(AtomicBool::new(false));
    let (ended, ends) = channel::<()>();
    let mut beside = Vec::new();
    let mut start = |work: fn(&BtreeStore, &AtomicBool, u64)| {
        let (store, done, ended) = (Arc::clone(&store), Arc::clone(&done), Sender::clone(&ended));
        beside.push(spawn("beside", move || {
            work(&store, &done, seed);
            drop(ended);
        }));
    };
    start(read);
    if all {
        start(clone);
        start(|store, done, _| {
            while !done.load(Ordering::Relaxed) {
                store.checkpoint().expect("checkpoint");
                device::yield_now();
            }
        });
    }
    let writers: Vec<_> = (1..=WRITERS)
        .map(|owner| {
            let (store, ended) = (Arc::clone(&store), Sender::clone(&ended));
            spawn("writer", move || {
                let live = write(&store, owner, seed);
                ended.send(()).expect("the test waits");
                live
            })
        })
        .collect();
    drop(ended);
    for _ in 0..WRITERS {
        ends.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("seed {seed}: a writer does not end"));
    }
    done.store(true, Ordering::Relaxed);
    // Nobody sends any more: it ends when the last of them has ended.
    let left = ends.recv_timeout(LIMIT);
    let all_ended = left == Err(device::sync::RecvTimeoutError::Disconnected);
    assert!(all_ended, "seed {seed}: a thread beside the writers does not end");
    for thread in beside {
        thread.expect("a thread").join().expect("beside the writers");
    }
    let mut expected: BTreeMap<_, _> =
        (0..ANCHORS).map(|n| (key(n, 0).to_vec(), value(n, 0))).collect();
    for writer in writers {
        expected.extend(writer.expect("a thread").join().expect("a writer"));
    }
    reclaim_all(&store);
    checked(&store);
    assert!(entries(&*store, TREE) == expected, "seed {seed}: what is there in the end");
    let loads = store.engine().cache().loads;
    assert!(!all || loads > 100, "seed {seed}: nothing was evicted: {loads} loads");
}

#[test]
fn splits_and_merges_race_readers_clones_checkpoints_and_eviction() {
    for seed in 1..=testing::run::rounds(1, 3) {
        println!("seed {seed}");
        race(seed, Beside::All);
    }
}

#[test]
fn leaves_split_with_their_tree_shared_lose_nothing() {
    for seed in 1..=testing::run::rounds(2, 5) {
        println!("seed {seed}");
        race(seed, Beside::Readers);
    }
}
