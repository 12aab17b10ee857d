//! Pinned states, differences, and visits that see shared parts once.

use std::collections::BTreeSet;

use store::{Batch, KeyRange, Pinned, SharedWalk, TreeId};

use super::compare::{commit_both, must, same_diff, same_tree};
use super::cursors::walk_in;
use super::engine::{EngineUnderTest, fresh};
use super::random::step_beside;
use super::workload::{Shape, Workload};
use crate::kit::commit;
use crate::{MemPinned, MemStore};

/// A pin shows the same state whatever is committed, dropped, reclaimed and checkpointed after it.
pub fn a_pin_shows_its_state<E: EngineUnderTest>() {
    E::for_seeds("pins", 4, 40, |seed| {
        let (_sim, store) = fresh::<E>(seed);
        let oracle = MemStore::new();
        let mut work = Workload::new(seed, Shape { large: seed % 2 == 0, ..Shape::WIDE });
        let mut pins: Vec<(Box<dyn Pinned + '_>, MemPinned, Vec<TreeId>)> = Vec::new();
        for _ in 0..E::rounds(300, 2000) {
            let batch = work.batch();
            commit_both(&*store, &oracle, &batch);
            step_beside(&*store, &oracle, &mut work);
            if work.random.u8(0..12) == 0 {
                let pin = store.pin().expect("pin");
                let expected = oracle.pin_state();
                assert_eq!(pin.commit(), expected.commit());
                pins.push((pin, expected, work.trees().to_vec()));
            }
            if pins.len() > 5 {
                let at = work.random.usize(0..pins.len());
                check_pin(pins.swap_remove(at), &mut work);
            }
        }
        for pin in pins {
            check_pin(pin, &mut work);
        }
    });
}

/// Visits in steps, so that an engine must continue a walk where it stopped.
fn visit_all(
    pinned: &dyn Pinned,
    trees: impl Iterator<Item = TreeId>,
    prefix: &[u8],
    visit: &mut dyn FnMut(&[u8], &[u8]),
) {
    let mut walk = SharedWalk::new(trees, prefix);
    while pinned.visit_shared_step(&mut walk, 7, visit).expect("the trees exist") {}
}

fn check_pin(pin: (Box<dyn Pinned + '_>, MemPinned, Vec<TreeId>), work: &mut Workload) {
    let (pinned, expected, trees) = pin;
    for &tree in &trees {
        must(same_tree(pinned.as_ref(), &expected, tree));
        walk_in(pinned.as_ref(), &expected, tree, work, 30);
    }
    let prefix = work.prefixes().pop().unwrap_or_default();
    let visit = |pinned: &dyn Pinned| {
        let mut seen = BTreeSet::new();
        let mut visit = |key: &[u8], value: &[u8]| {
            seen.insert((key.to_vec(), value.to_vec()));
        };
        visit_all(pinned, trees.iter().copied(), &prefix, &mut visit);
        seen
    };
    assert!(visit(pinned.as_ref()) == visit(&expected), "visits differ");
}

/// Differences are exactly the keys whose values differ, in order; equal trees have none.
pub fn differences_are_exact<E: EngineUnderTest>() {
    E::for_seeds("diff", 4, 40, |seed| {
        let (_sim, store) = fresh::<E>(seed);
        let oracle = MemStore::new();
        let mut work = Workload::new(seed, Shape { large: seed % 2 == 0, ..Shape::WIDE });
        for round in 0..E::rounds(200, 1000) {
            let batch = work.batch();
            commit_both(&*store, &oracle, &batch);
            if round % 60 == 10 {
                store.checkpoint().expect("checkpoint");
            }
            if round % 5 == 0 {
                let (old, new) = (work.tree(), work.tree());
                must(same_diff(&*store, &oracle, old, new));
            }
        }
        let (old, new) = (work.tree(), work.new_tree());
        let mut batch = Batch::new();
        batch.clone_tree(old, new);
        commit_both(&*store, &oracle, &batch);
        assert!(store.diff(old, new).expect("diff").next().expect("diff").is_none());
        for _ in 0..20 {
            let (key, value) = (work.key(), work.value());
            let mut batch = Batch::new();
            batch.put(new, &key, &value);
            commit_both(&*store, &oracle, &batch);
            must(same_diff(&*store, &oracle, old, new));
            must(same_diff(&*store, &oracle, new, old));
        }
    });
}

/// Visiting many clones costs as much as their distinct parts.
pub fn a_visit_of_clones_visits_shared_nodes_once<E: EngineUnderTest>() {
    const KEYS: u64 = 3000;
    const CLONES: u64 = 40;
    let (_sim, store) = fresh::<E>(1);
    let key = |n: u64| [b"X", &n.to_be_bytes()[..]].concat();
    commit(&*store, |batch| {
        batch.create_tree(TreeId(20));
        batch.put(TreeId(20), b"A", b"another prefix");
        batch.put(TreeId(20), b"Y", b"another prefix");
        for n in 0..KEYS {
            batch.put(TreeId(20), &key(n), &[0; 30]);
        }
    });
    for n in 1..CLONES {
        commit(&*store, |batch| batch.clone_tree(TreeId(20), TreeId(20 + n)));
    }
    let visited = |changed: u64| {
        let pinned = store.pin().expect("pin");
        let trees = (0..CLONES).map(|n| TreeId(20 + n));
        let mut visits = 0_u64;
        let mut seen = BTreeSet::new();
        let mut visit = |key: &[u8], value: &[u8]| {
            visits += 1;
            seen.insert((key.to_vec(), value.to_vec()));
        };
        visit_all(&*pinned, trees, b"X", &mut visit);
        assert_eq!(seen.len() as u64, KEYS + changed);
        visits
    };
    assert_eq!(visited(0), KEYS);
    commit(&*store, |batch| batch.put(TreeId(25), &key(KEYS / 2), b"changed"));
    // One changed key copies one path, so one leaf is visited again.
    let visits = visited(1);
    assert!(visits <= 2 * KEYS, "{visits} visits of {KEYS} keys");
    let mut cursor = store.scan(TreeId(25), KeyRange::prefix(b"X")).expect("the tree exists");
    let mut keys = 0;
    while cursor.next().expect("read").is_some() {
        keys += 1;
    }
    assert_eq!(keys, KEYS);
}

/// Commits are numbered from 1, and durable ones never overtake them.
pub fn tokens_are_in_order<E: EngineUnderTest>() {
    let (_sim, store) = fresh::<E>(1);
    assert_eq!(store.last_commit().0.0, 0);
    assert_eq!(store.durable().0.0, 0);
    for number in 1..50_u64 {
        let mut batch = Batch::new();
        batch.create_tree(TreeId(100 + number));
        let token = store.commit(&batch).expect("the batch is valid");
        assert_eq!(token.0.0, number);
        assert_eq!(store.last_commit(), token);
        assert!(store.durable() <= token);
        if number % 7 == 0 {
            store.sync(token).expect("sync");
            assert_eq!(store.durable(), token);
        }
        if number % 20 == 0 {
            assert!(store.checkpoint().expect("checkpoint"));
            assert_eq!(store.durable(), token, "a checkpoint is durable");
        }
    }
    assert_eq!(store.stats().trees, 49);
}

/// Data that a pin reads stays on disk. All of it was dropped, reclaimed and freed elsewhere, and
/// the file of nodes has shrunk as far as it may.
pub fn a_pin_outlives_the_trees_that_it_shows<E: EngineUnderTest>() {
    const TREE: TreeId = TreeId(20);
    const KEYS: u64 = 600;
    let (sim, store) = fresh::<E>(1);
    for n in 0..KEYS {
        commit(&*store, |batch| {
            if n == 0 {
                batch.create_tree(TREE);
            }
            batch.put(TREE, &n.to_be_bytes(), &vec![n as u8; 20_000]);
        });
    }
    store.close().expect("close");
    drop(store);
    // Opened again, so that nothing of it is in memory.
    let store = super::reopen::open::<E>(&sim, store::Durability::Async);
    let pinned = store.pin().expect("pin");
    commit(&*store, |batch| batch.drop_tree(TREE));
    for _ in 0..5 {
        while store.reclaim_step(100).expect("reclaim") {}
        assert!(store.checkpoint().expect("checkpoint"));
    }
    let mut cursor = pinned.scan(TREE, KeyRange::all()).expect("the tree exists");
    for n in 0..KEYS {
        let item = cursor.next().expect("read").expect("present");
        assert!(item.key == n.to_be_bytes() && item.value == vec![n as u8; 20_000]);
    }
    assert!(cursor.next().expect("read").is_none());
}
