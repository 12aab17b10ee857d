//! The cost of commits, pins and cursors in memory, counted in entries. A tree that is pinned while
//! it is written has few layers, and entries are copied a few times each.

use std::collections::BTreeMap;

use store::{Batch, KeyRange, Maintain, Pinned, Read, Snapshot};

use crate::util::{TREE, checked, commit, options, store, store_with};

/// Which pins are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    /// The last one, as a search holds it until the next.
    Last,
    All,
}

fn value(round: u64) -> [u8; 8] {
    round.to_be_bytes()
}

/// Commits of this many entries each, with a pin after each; returns the tree's content.
fn write_and_pin(held: Held, commits: u64, entries: u64) {
    let mut options = options();
    // No checkpoint comes between.
    options.common.cache_bytes = 1 << 30;
    let (_sim, store) = store_with(1, &options);
    let mut random = fastrand::Rng::with_seed(commits);
    let mut model = BTreeMap::new();
    let mut pins: Vec<(Box<dyn Pinned>, u64)> = Vec::new();
    let before = store.engine().entries_copied(TREE);
    let mut deepest = 0;
    for round in 0..commits {
        commit(&store, |batch: &mut Batch| {
            for _ in 0..entries {
                let key = random.u64(0..1 << 20).to_be_bytes();
                batch.put(TREE, &key, &value(round));
                model.insert(key, value(round));
            }
            batch.put(TREE, b"round", &value(round));
        });
        pins.push((store.pin().expect("a store in memory"), round));
        if held == Held::Last {
            pins.drain(..pins.len() - 1);
        }
        deepest = deepest.max(store.engine().layers_in_memory(TREE));
    }
    let written = commits * (entries + 1);
    let copied = store.engine().entries_copied(TREE) - before;
    assert!(copied <= 32 * written, "{held:?}: {copied} entries copied for {written} written");
    assert!(deepest <= 24, "{held:?}: {deepest} layers after {commits} commits of {entries}");
    for (pin, round) in &pins {
        assert_eq!(
            pin.get(TREE, b"round").expect("a store in memory").expect("a store in memory"),
            value(*round)
        );
    }
    drop(pins);
    let mut cursor = store
        .scan(TREE, KeyRange { from: vec![], to: Some(b"r".to_vec()) })
        .expect("a store in memory");
    for (key, value) in &model {
        let item = cursor.next().expect("a store in memory").expect("all that was written");
        assert_eq!((item.key, item.value), (&key[..], &value[..]));
    }
    assert!(cursor.next().expect("a store in memory").is_none());
    drop(cursor);
    store.checkpoint().expect("a store in memory");
    checked(&store);
}

#[test]
fn small_commits_between_pins_leave_few_layers() {
    for held in [Held::Last, Held::All] {
        write_and_pin(held, 3000, 1);
    }
}

#[test]
fn large_commits_between_pins_leave_few_layers() {
    write_and_pin(Held::Last, 60, 3000);
}

#[test]
fn clones_of_a_tree_that_is_written_leave_few_layers() {
    let (_sim, store) = store(2);
    for round in 0..1000 {
        commit(&store, |batch| {
            batch.put(TREE, &value(round), b"");
            batch.clone_tree(TREE, store::TreeId(100 + round));
        });
    }
    assert!(
        store.engine().layers_in_memory(TREE) <= 24,
        "{} layers",
        store.engine().layers_in_memory(TREE)
    );
    for round in [0, 500, 999] {
        let clone = store::TreeId(100 + round);
        assert!(store.get(clone, &value(round)).unwrap().is_some());
        assert!(store.get(clone, &value(round + 1)).unwrap().is_none());
    }
}

#[test]
fn a_short_scan_copies_nothing_beside_its_range() {
    const KEYS: u64 = 10_000;
    let (_sim, store) = store(3);
    commit(&store, |batch| (0..KEYS).for_each(|key| batch.put(TREE, &value(key), b"old")));
    store.checkpoint().unwrap();
    // Every other one is a tombstone over the run, and every other a newer value.
    commit(&store, |batch| {
        for key in 0..KEYS {
            if key % 2 == 0 {
                batch.delete(TREE, &value(key));
            } else {
                batch.put(TREE, &value(key), b"new");
            }
        }
    });
    let before = store.engine().entries_copied(TREE);
    let mut scans = 0;
    for key in (1..KEYS - 2).step_by(100) {
        let range = KeyRange::between(&value(key), &value(key + 2));
        let mut cursor = store.scan(TREE, range).unwrap();
        assert_eq!(cursor.next().unwrap().map(|item| item.key.to_vec()), Some(value(key).to_vec()));
        assert!(cursor.next().unwrap().is_none());
        cursor.seek(&value(key + 2)).unwrap();
        assert_eq!(cursor.prev().unwrap().map(|item| item.key.to_vec()), Some(value(key).to_vec()));
        assert!(cursor.prev().unwrap().is_none());
        scans += 1;
    }
    let copied = store.engine().entries_copied(TREE) - before;
    assert!(copied <= 8 * scans, "{copied} entries copied by {scans} scans of two keys");
}

#[test]
fn a_scan_skips_adjacent_deleted_ranges() {
    let (_sim, store) = store(4);
    commit(&store, |batch| (0..4000).for_each(|key| batch.put(TREE, &value(key), b"")));
    store.checkpoint().unwrap();
    for key in (0..4000).step_by(4) {
        commit(&store, |batch| batch.delete_range(TREE, &value(key), &value(key + 2)));
        let mut cursor = store.scan(TREE, KeyRange::all()).unwrap();
        assert_eq!(cursor.next().unwrap().unwrap().key, value(2));
    }
    let mut cursor = store.scan(TREE, KeyRange::all()).unwrap();
    let mut found = 0;
    while let Some(item) = cursor.next().unwrap() {
        assert!(item.key[7] % 4 >= 2, "{:?}", item.key);
        found += 1;
    }
    assert_eq!(found, 2000);
}
