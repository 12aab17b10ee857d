//! Trees larger than the cache.

use btree::BtreeStore;
use store::{KeyRange, Read, Store};

use crate::util::{TREE, checked, commit, entries, options, store};

/// Much less than the trees of these tests.
const CACHE_BYTES: usize = 1 << 20;

fn value(n: u64) -> Vec<u8> {
    let length = if n % 97 == 0 { 5000 } else { 100 + (n % 50) as usize };
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
    let resident = store.stats().cache_bytes;
    assert!(resident < 3 * CACHE_BYTES as u64, "{resident} bytes in memory");
    checked(&store);
    drop(store);
    let store = BtreeStore::open(&sim.env(), &options(CACHE_BYTES)).expect("open");
    for n in (0..count).rev() {
        let found = store.get(TREE, &key(n)).expect("read");
        assert_eq!(found.as_deref(), Some(value(n).as_slice()), "{n}");
        let resident = store.stats().cache_bytes;
        assert!(resident < 2 * CACHE_BYTES as u64, "{resident} bytes in memory");
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
    let resident = store.stats().cache_bytes;
    assert!(resident < 3 * CACHE_BYTES as u64, "{resident} bytes in memory");
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
