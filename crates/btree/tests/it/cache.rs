//! Trees larger than the cache.

use btree::BtreeStore;
use store::{Durable, KeyRange, Maintain, Read};

use crate::util::{TREE, checked, commit, entries, options, store};

/// Much less than the trees of these tests.
const CACHE_BYTES: usize = 1 << 20;

fn value(n: u64) -> Vec<u8> {
    let length = if n.is_multiple_of(97) { 5000 } else { 100 + (n % 50) as usize };
    vec![n as u8; length]
}

#[test]
fn a_tree_larger_than_the_cache_reads_and_writes() {
    let (sim, store) = store(1, CACHE_BYTES);
    let count = 40_000_u64;
    let key = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes();
    for n in 0..count {
        commit(&store, |batch| batch.put(TREE, &key(n), &value(n)));
    }
    let cache = store.engine().cache();
    assert!(cache.peak <= cache.budget, "{cache:?}");
    checked(&store);
    drop(store);
    let store = BtreeStore::open(&sim.env(), &options(CACHE_BYTES)).expect("open");
    for n in (0..count).rev() {
        let found = store.get(TREE, &key(n)).expect("read");
        assert_eq!(found.as_deref(), Some(value(n).as_slice()), "{n}");
        let cache = store.engine().cache();
        assert!(cache.peak <= cache.budget, "{cache:?}");
    }
    for n in (0..count).step_by(3) {
        commit(&store, |batch| batch.delete(TREE, &key(n)));
    }
    assert_eq!(checked(&store).entries, count - count.div_ceil(3) + 1);
    let mut cursor = store.scan(TREE, KeyRange::all()).expect("scan");
    let mut seen = 0;
    while cursor.next().expect("read").is_some() {
        seen += 1;
    }
    assert_eq!(seen, count - count.div_ceil(3));
    let cache = store.engine().cache();
    assert!(cache.peak <= cache.budget, "{cache:?}");
}

#[test]
fn clones_share_memory_after_reopening() {
    let (sim, store) = store(1, 64 << 20);
    for chunk in 0..20_u32 {
        commit(&store, |batch| {
            for n in chunk * 1000..chunk * 1000 + 1000 {
                batch.put(TREE, &n.to_be_bytes(), &[1; 60]);
            }
        });
    }
    for clone in 1..50 {
        commit(&store, |batch| batch.clone_tree(TREE, store::TreeId(TREE.0 + clone)));
    }
    store.close().expect("close");
    drop(store);
    let store = BtreeStore::open(&sim.env(), &options(64 << 20)).expect("open");
    assert_eq!(entries(&*store, TREE).len(), 20_000);
    let one = store.stats().cache_bytes;
    for clone in 1..50 {
        let tree = store::TreeId(TREE.0 + clone);
        assert_eq!(entries(&*store, tree).len(), 20_000);
    }
    let all = store.stats().cache_bytes;
    assert!(all < one + one / 4, "one tree takes {one} bytes, with 49 clones {all}");
}

#[test]
fn interior_nodes_are_evicted_when_they_outgrow_the_cache() {
    let (sim, store) = store(1, CACHE_BYTES);
    let count = 20_000_u32;
    // Keys that differ at their ends only have long separators, so interior nodes are many.
    let key = |n: u32| [[b'k'; 460].as_slice(), &n.to_be_bytes()].concat();
    for chunk in 0..count / 1000 {
        commit(&store, |batch| {
            for n in chunk * 1000..chunk * 1000 + 1000 {
                batch.put(TREE, &key(n), &[n as u8; 300]);
            }
        });
    }
    let report = checked(&store);
    drop(store);
    let cache_bytes = 200 << 10;
    assert!(report.interiors * 16_000 > 3 * cache_bytes as u64, "{report:?}");
    let store = BtreeStore::open(&sim.env(), &options(cache_bytes)).expect("open");
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..10_000 {
        let n = random.u32(0..count);
        let found = store.get(TREE, &key(n)).expect("read");
        assert_eq!(found.as_deref(), Some([n as u8; 300].as_slice()), "{n}");
        let cache = store.engine().cache();
        assert!(cache.peak <= cache.budget, "{cache:?}");
    }
    for n in (0..count).step_by(7) {
        commit(&store, |batch| batch.delete(TREE, &key(n)));
    }
    checked(&store);
}
