//! Partial clones, by prefixes and by patterns (BabuDB II.C). They are states of a part of a tree
//! that stay the same across checkpoints, merges and restarts of every kind. That holds whatever
//! happens to their sources.

use std::collections::BTreeMap;

use store::{Durability, KeyRange, Pattern, Patterns, Read, Store, TreeId};

use super::engine::{EngineUnderTest, fresh};
use super::reopen::open;
use crate::kit::{commit, entries};
use crate::{CrashPolicy, SimEnv};

const TREE: TreeId = TreeId(20);
/// Cloned from a tree on disk, from one partly in memory, and from the first.
const PARTS: [TreeId; 3] = [TreeId(21), TreeId(22), TreeId(23)];
/// The same by patterns; then a clone of the first of these, and a partial one.
const MATCHED: [TreeId; 5] = [TreeId(31), TreeId(32), TreeId(33), TreeId(34), TreeId(35)];

const PREFIXES: [&[u8]; 3] = [&[3], &[7, 2], &[0xff]];

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(n: u64) -> Vec<u8> {
    vec![(n * 37 % 256) as u8, (n / 256 % 4) as u8, (n / 1024) as u8, (n % 251) as u8]
}

fn fill(store: &dyn Store, round: u8) {
    for part in 0..4 {
        commit(store, |batch| {
            for n in (part * 1000..part * 1000 + 1000).filter(|n| n % 3 != u64::from(round % 3)) {
                batch.put(TREE, &key(n), &[round; 40]);
            }
        });
    }
}

/// Keys in some place of the second byte or with some last one, and those with a prefix.
fn patterns() -> Patterns {
    let second = Pattern::new().any(1).bytes(&[2]).rest();
    let last = Pattern::new().rest().bytes(&[9]);
    Patterns::new([second, last, Pattern::prefix(&[7])])
}

/// Creates a snapshot by patterns; returns its expected contents.
fn matched(store: &dyn Store, from: TreeId, to: TreeId) -> Content {
    let mut right = entries(store, from);
    right.retain(|key, _| key[1] == 2 || key[3] == 9 || key[0] == 7);
    store.clone_matching(from, to, &patterns()).expect("the tree is new");
    right
}

/// The entries of a tree that start with one of the prefixes.
fn part_of(tree: &Content, prefixes: &[&[u8]]) -> Content {
    let kept = |key: &[u8]| prefixes.iter().any(|prefix| key.starts_with(prefix));
    let kept = tree.iter().filter(|(key, _)| kept(key));
    kept.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Reads a tree forward, backward, key by key, and by the prefixes of a directory.
fn same(store: &dyn Read, tree: TreeId, expected: &Content) {
    assert!(entries(store, tree) == *expected, "tree {} holds something else", tree.0);
    let mut cursor = store.scan(tree, KeyRange::all()).expect("the tree exists");
    while cursor.next().expect("read").is_some() {}
    for (key, value) in expected.iter().rev() {
        let item = cursor.prev().expect("read").expect("it was there forward");
        assert_eq!((item.key, item.value), (key.as_slice(), value.as_slice()));
    }
    assert!(cursor.prev().expect("read").is_none());
    for n in 0..4000 {
        let found = store.get(tree, &key(n)).expect("read");
        assert_eq!(found.as_ref(), expected.get(&key(n)), "tree {}, key {n}", tree.0);
    }
    for first in 0..=255_u8 {
        let mut cursor = store.scan(tree, KeyRange::prefix(&[first])).expect("the tree exists");
        let mut count = 0;
        while cursor.next().expect("read").is_some() {
            count += 1;
        }
        let right = expected.range(vec![first]..).take_while(|(key, _)| key[0] == first).count();
        assert_eq!(count, right, "tree {}, prefix {first}", tree.0);
    }
}

/// A partial state keeps its entries, and gains no others.
pub fn a_partial_clone_does_not_change<E: EngineUnderTest>() {
    let (mut sim, mut store) = fresh::<E>(1);
    commit(&*store, |batch| batch.create_tree(TREE));
    fill(&*store, 1);
    assert!(store.checkpoint().expect("checkpoint"));
    let mut expected: BTreeMap<TreeId, Content> = BTreeMap::new();
    let clone = |store: &dyn Store, from: TreeId, to: TreeId, prefixes: &[&[u8]]| {
        let before = entries(store, from);
        commit(store, |batch| batch.clone_prefixes(from, to, prefixes));
        part_of(&before, prefixes)
    };
    expected.insert(PARTS[0], clone(&*store, TREE, PARTS[0], &PREFIXES));
    expected.insert(MATCHED[0], matched(&*store, TREE, MATCHED[0]));
    fill(&*store, 2);
    expected.insert(MATCHED[1], matched(&*store, TREE, MATCHED[1]));
    expected.insert(PARTS[1], clone(&*store, TREE, PARTS[1], &PREFIXES[..2]));
    expected.insert(PARTS[2], clone(&*store, PARTS[0], PARTS[2], &[&[7]]));
    expected.insert(MATCHED[2], matched(&*store, PARTS[0], MATCHED[2]));
    commit(&*store, |batch| batch.clone_tree(MATCHED[0], MATCHED[3]));
    expected.insert(MATCHED[3], expected[&MATCHED[0]].clone());
    expected.insert(MATCHED[4], clone(&*store, MATCHED[1], MATCHED[4], &PREFIXES));
    assert!(expected.values().all(|part| !part.is_empty()), "{expected:?}");
    for round in 3..9_u8 {
        // Their sources change, and finally are dropped.
        match round {
            3..6 => fill(&*store, round),
            6 => {
                commit(&*store, |batch| batch.delete_range(TREE, &[0], &[0xff; 5]));
            }
            7 => {
                commit(&*store, |batch| batch.drop_tree(TREE));
            }
            _ => {
                commit(&*store, |batch| {
                    batch.drop_tree(PARTS[0]);
                    batch.drop_tree(MATCHED[0]);
                });
            }
        }
        if round == 8 {
            expected.remove(&PARTS[0]);
            expected.remove(&MATCHED[0]);
        }
        match round % 3 {
            0 => store.close().expect("close"),
            1 => assert!(store.checkpoint().expect("checkpoint")),
            _ => store.sync(store.last_commit()).expect("sync"),
        }
        if round % 3 == 1 {
            while store.reclaim_step(50).expect("reclaim") {}
        }
        for (tree, right) in &expected {
            same(&*store, *tree, right);
        }
        drop(store);
        sim = SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, 1), 1);
        store = open::<E>(&sim, Durability::Async);
        for (tree, right) in &expected {
            same(&*store, *tree, right);
        }
    }
    // It is writable like any other.
    commit(&*store, |batch| batch.put(PARTS[1], &[4], b"own"));
    assert_eq!(store.get(PARTS[1], &[4]).expect("read"), Some(b"own".to_vec()));
}
