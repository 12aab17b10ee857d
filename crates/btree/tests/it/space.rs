//! Space on disk: used again, given back, and kept while a pin reads it.

use store::{Maintain, Snapshot, TreeId};

use crate::util::{TREE, checked, commit, entries, reclaim_all, store};

fn fill(store: &btree::BtreeStore, tree: TreeId, count: u32, byte: u8) {
    for chunk in 0..count / 1000 {
        commit(store, |batch| {
            for n in chunk * 1000..chunk * 1000 + 1000 {
                batch.put(tree, &n.to_be_bytes(), &[byte; 100]);
            }
        });
    }
}

#[test]
fn rewriting_does_not_grow_the_file() {
    let (_sim, store) = store(1, 64 << 20);
    fill(&store, TREE, 20_000, 0);
    checked(&store);
    let once = store.stats().disk_bytes;
    for round in 1..12 {
        fill(&store, TREE, 20_000, round);
        checked(&store);
    }
    let often = store.stats().disk_bytes;
    assert!(often <= once * 3, "{once} bytes became {often}");
}

#[test]
fn the_file_shrinks_when_trees_are_dropped() {
    let (_sim, store) = store(1, 64 << 20);
    let empty = checked(&store);
    for tree in 0..4 {
        let id = TreeId(TREE.0 + 1 + tree);
        commit(&store, |batch| batch.create_tree(id));
        fill(&store, id, 20_000, 1);
        checked(&store);
    }
    let full = store.stats().disk_bytes;
    for tree in 0..4 {
        commit(&store, |batch| batch.drop_tree(TreeId(TREE.0 + 1 + tree)));
    }
    reclaim_all(&store);
    let after = checked(&store);
    assert_eq!(after.units, empty.units);
    reclaim_all(&store);
    let bytes = store.stats().disk_bytes;
    assert!(bytes < full / 8, "{full} bytes became {bytes}");
}

#[test]
fn a_pin_keeps_its_state_over_checkpoints() {
    let (_sim, store) = store(1, 1 << 20);
    fill(&store, TREE, 20_000, 1);
    checked(&store);
    let pin = store.pin().expect("pin");
    for round in 2..6 {
        fill(&store, TREE, 20_000, round);
        checked(&store);
    }
    commit(&store, |batch| batch.drop_tree(TREE));
    reclaim_all(&store);
    checked(&store);
    let all = entries(&*pin, TREE);
    assert_eq!(all.len(), 20_000);
    assert!(all.values().all(|value| value == &[1; 100]));
    drop(pin);
    for _ in 0..2 {
        checked(&store);
    }
    reclaim_all(&store);
    let bytes = store.stats().disk_bytes;
    assert!(bytes < 1 << 20, "{bytes} bytes for nothing");
}
