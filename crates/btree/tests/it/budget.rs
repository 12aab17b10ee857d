//! The budget is kept at any load, and a scan does not flush what is used.

use std::sync::Arc;

use btree::BtreeStore;
use device::spawn;
use store::{Durable, KeyRange, Maintain, Read, Snapshot, TreeId};

use crate::util::{TREE, checked, commit, options, reclaim_all, store};

fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn scan(read: &dyn Read, tree: TreeId) -> u64 {
    let mut cursor = read.scan(tree, KeyRange::all()).expect("scan");
    let mut seen = 0;
    while cursor.next().expect("read").is_some() {
        seen += 1;
    }
    seen
}

/// Random operations of all kinds; `clones` are trees of its own.
fn load(store: &Arc<BtreeStore>, seed: u64, operations: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut clones = Vec::new();
    let mut next = 1000 * (seed + 1);
    for _ in 0..operations {
        let tree = clones.get(random.usize(0..8)).copied().unwrap_or(TREE);
        let n = random.u64(0..20_000);
        match random.u32(0..1000) {
            0..600 => {
                let length = if random.u32(0..200) == 0 { 6000 } else { random.usize(20..200) };
                commit(store, |batch| batch.put(tree, &key(n), &vec![n as u8; length]));
            }
            600..750 => commit(store, |batch| batch.delete(tree, &key(n))),
            750..985 => drop(store.get(tree, &key(n)).expect("read")),
            985..990 => {
                commit(store, |batch| batch.clone_tree(tree, TreeId(next)));
                clones.push(TreeId(next));
                next += 1;
            }
            990..994 if clones.len() > 4 => {
                let gone = clones.swap_remove(random.usize(0..clones.len()));
                commit(store, |batch| batch.drop_tree(gone));
                store.reclaim_step(50).expect("reclaim");
            }
            994..996 => drop(store.checkpoint().expect("checkpoint")),
            996 => {
                scan(&**store, tree);
            }
            997 => {
                let pin = store.pin().expect("pin");
                scan(&*pin, TREE);
            }
            _ => {
                let from = key(n);
                let mut to = from;
                to[1] = to[1].saturating_add(1);
                commit(store, |batch| batch.delete_range(tree, &from, &to));
            }
        }
    }
}

#[test]
fn no_read_exceeds_the_budget() {
    for (seed, budget) in [(1, 1 << 20), (2, 2 << 20), (3, 4 << 20)] {
        println!("seed {seed}, {budget} bytes");
        let (_sim, store) = store(seed, budget);
        let threads: Vec<_> = (0..2)
            .map(|thread| {
                let store = Arc::clone(&store);
                spawn("load", move || load(&store, seed * 10 + thread, 8000)).expect("a thread")
            })
            .collect();
        for thread in threads {
            thread.join().expect("a load ends");
        }
        let cache = store.engine().cache();
        assert!(cache.peak <= budget, "{cache:?}");
        assert!(cache.peak > budget / 2, "the load was too small: {cache:?}");
        reclaim_all(&store);
        checked(&store);
    }
}

/// Entries of the trees of these tests: about six times the cache.
const ENTRIES: u64 = 100_000;
const CACHE_BYTES: usize = 2 << 20;
/// What is used most is one part in so many.
const HOT_SHARE: u64 = 25;

/// A store with a large tree, opened again.
fn large() -> Arc<BtreeStore> {
    let (sim, store) = store(1, 16 << 20);
    for chunk in 0..ENTRIES / 1000 {
        commit(&store, |batch| {
            for n in chunk * 1000..chunk * 1000 + 1000 {
                batch.put(TREE, &n.to_be_bytes(), &[n as u8; 100]);
            }
        });
    }
    store.close().expect("close");
    drop(store);
    BtreeStore::open(&sim.env(), &options(CACHE_BYTES)).expect("open")
}

fn get(store: &BtreeStore, n: u64) {
    assert!(store.get(TREE, &n.to_be_bytes()).expect("read").is_some());
}

/// What a leaf of these tests takes in memory, at most.
const LEAF_BYTES: usize = 24 << 10;

/// While a batch is applied nothing may be missing, so all its leaves are in memory, whatever the
/// budget; but no longer than that.
#[test]
fn memory_a_batch_takes_beyond_the_budget_is_freed_at_its_commit() {
    let store = large();
    let before = store.engine().cache();
    let changed = || (0..ENTRIES).step_by(50);
    commit(&store, |batch| {
        changed().for_each(|n| batch.put(TREE, &n.to_be_bytes(), &[9; 100]));
    });
    let after = store.engine().cache();
    let leaves = (after.loads - before.loads) as usize;
    println!("{leaves} nodes were read, {after:?}");
    assert!(after.peak > 3 * after.budget, "the batch was too small: {after:?}");
    assert!(after.peak <= after.budget + leaves * LEAF_BYTES, "{leaves} nodes, {after:?}");
    assert!(after.resident <= after.budget, "{after:?}");
    assert!(after.dirty <= after.budget / 8 * 5, "{after:?}");
    for n in changed() {
        let found = store.get(TREE, &n.to_be_bytes()).expect("read");
        assert_eq!(found.as_deref(), Some([9; 100].as_slice()), "{n}");
    }
    checked(&store);
}

#[test]
fn a_scan_does_not_evict_used_pages() {
    let store = large();
    // Together less than half of the cache.
    let hot = 0..ENTRIES / HOT_SHARE;
    let warm = || {
        let before = store.engine().cache().loads;
        hot.clone().for_each(|n| get(&store, n));
        store.engine().cache().loads - before
    };
    let cold = warm();
    warm();
    assert_eq!(scan(&*store, TREE), ENTRIES);
    let after = warm();
    println!("leaves read for the hot set: {cold} at first, {after} after a scan");
    assert!(cold > 15 && after <= cold / 20, "{after} of {cold} were flushed");
    let pin = store.pin().expect("pin");
    assert_eq!(scan(&*pin, TREE), ENTRIES);
    let after = warm();
    assert!(after <= cold / 20, "{after} of {cold} were flushed by a scan of a pin");
}

#[test]
fn unused_trees_are_closed() {
    let (_sim, store) = store(1, 4 << 20);
    for n in 0..2000_u64 {
        commit(&store, |batch| batch.put(TREE, &key(n), &[1; 50]));
    }
    for clone in 0..4000 {
        commit(&store, |batch| batch.clone_tree(TREE, TreeId(100 + clone)));
    }
    assert!(store.checkpoint().expect("checkpoint"));
    let cache = store.engine().cache();
    assert!(cache.trees <= 1100, "{cache:?}");
    for clone in (0..4000).rev() {
        let tree = TreeId(100 + clone);
        assert!(store.get(tree, &key(clone % 2000)).expect("read").is_some());
        commit(&store, |batch| batch.put(tree, &key(clone), &clone.to_be_bytes()));
    }
    assert!(store.checkpoint().expect("checkpoint"));
    let cache = store.engine().cache();
    assert!(cache.trees <= 1100 && cache.peak <= cache.budget, "{cache:?}");
    for clone in 0..4000_u64 {
        let found = store.get(TreeId(100 + clone), &key(clone)).expect("read");
        assert_eq!(found.as_deref(), Some(clone.to_be_bytes().as_slice()));
    }
    checked(&store);
}

#[test]
fn many_clones_with_private_paths_stay_within_the_budget() {
    // What a write copies of a clone is mostly an interior node, which no eviction gives up while
    // it is changed.
    let (_sim, store) = store(1, 8 << 20);
    for chunk in 0..60 {
        commit(&store, |batch| {
            for n in chunk * 1000..chunk * 1000 + 1000 {
                batch.put(TREE, &key(n), &[1; 100]);
            }
        });
    }
    for clone in 0..2000 {
        let tree = TreeId(100 + clone);
        commit(&store, |batch| {
            batch.clone_tree(if clone % 100 == 0 { TREE } else { TreeId(99 + clone) }, tree);
            batch.put(tree, &key(clone), &clone.to_be_bytes());
        });
    }
    let cache = store.engine().cache();
    assert!(cache.peak <= cache.budget, "{cache:?}");
    for clone in 0..2000_u64 {
        let found = store.get(TreeId(100 + clone), &key(clone)).expect("read");
        assert_eq!(found.as_deref(), Some(clone.to_be_bytes().as_slice()));
    }
    checked(&store);
}
