//! Partial snapshots by patterns (BabuDB II.C): they contain the matching entries as of the
//! request, and exist whole or not at all.

use std::sync::Arc;

use store::{
    Batch, Commit, Durability, Error, Item, Matching, Pattern, Patterns, Read, Result, SortedRun,
    Store, TreeId,
};

use super::compare::{commit_both, must};
use super::engine::{EngineUnderTest, fresh};
use super::history::History;
use super::ingest::cut_everywhere;
use super::random::step_beside;
use super::reopen::open;
use super::workload::{Shape, Workload};
use super::{same_store, same_tree};
use crate::kit::{commit, entries};
use crate::run::rounds;
use crate::{MemStore, sim_env};

const TREE: TreeId = TreeId(20);
const PART: TreeId = TreeId(21);

/// A pattern that matches a key of the workload: the key with parts of it left open.
fn pattern(work: &mut Workload) -> Pattern {
    let key = work.key();
    let (mut pattern, mut at) = (Pattern::new(), 0);
    while at < key.len() {
        let length = work.random.usize(1..=4).min(key.len() - at);
        pattern = match work.random.u8(0..6) {
            0 => pattern.any(length),
            1 => pattern.rest(),
            _ => pattern.bytes(&key[at..at + length]),
        };
        at += length;
    }
    if work.random.bool() { pattern.rest() } else { pattern }
}

/// A few patterns; one time in three, patterns that match many keys.
fn patterns(work: &mut Workload) -> Patterns {
    let count = work.random.usize(0..4);
    let mut all: Vec<Pattern> = (0..count).map(|_| pattern(work)).collect();
    if work.random.u8(0..3) == 0 {
        let mut bytes = work.key();
        all.push(match bytes.pop() {
            Some(last) if work.random.bool() => Pattern::new().rest().bytes(&[last]),
            _ => Pattern::new().any(1).rest(),
        });
    }
    Patterns::new(all)
}

/// The batch that turns the oracle's tree into the expected snapshot by patterns.
fn as_batch(oracle: &dyn Read, source: TreeId, target: TreeId, patterns: &Patterns) -> Batch {
    let mut batch = Batch::new();
    batch.create_tree(target);
    for (key, value) in entries(oracle, source).iter().filter(|(key, _)| patterns.matches(key)) {
        batch.put(target, key, value);
    }
    batch
}

/// Adds a tree to the workload that it did not create.
fn adopt(work: &mut Workload, tree: TreeId) {
    let mut trees = work.trees().to_vec();
    trees.push(tree);
    work.set_trees(trees);
}

/// Many puts into a tree, so that a part of it is long enough to be written separately.
fn filling(work: &mut Workload, puts: usize) -> Batch {
    let tree = work.tree();
    let mut batch = Batch::new();
    for _ in 0..puts {
        let key = work.key();
        batch.put(tree, &key, &[work.random.u8(..); 90]);
    }
    batch
}

/// For any patterns, and after any operations on the tree.
pub fn a_snapshot_by_patterns_has_exactly_the_matches<E: EngineUnderTest>() {
    E::for_seeds("snapshots by patterns", 6, 60, |seed| {
        let (_sim, store) = fresh::<E>(seed);
        let oracle = MemStore::new();
        let mut work = Workload::new(seed, Shape { large: false, ..Shape::WIDE });
        let mut long = 0;
        for round in 0..rounds(50, 300) {
            for _ in 0..4 {
                let batch = work.batch();
                commit_both(&*store, &oracle, &batch);
            }
            if round % 10 == 0 {
                let batch = filling(&mut work, 1500);
                commit_both(&*store, &oracle, &batch);
            }
            let (source, target) = (work.tree(), work.new_tree());
            let patterns = patterns(&mut work);
            let batch = as_batch(&oracle, source, target, &patterns);
            long += u32::from(batch.len() > 500);
            let expected = oracle.commit(&batch).expect("the tree is new");
            let found = store.clone_matching(source, target, &patterns).expect("the tree is new");
            assert_eq!(found, expected, "one commit, numbers have no gaps");
            must(same_tree(&*store, &oracle, target));
            adopt(&mut work, target);
            step_beside(&*store, &oracle, &mut work);
            let refused = store.clone_matching(source, target, &patterns);
            assert!(matches!(refused, Err(Error::TreeExists(tree)) if tree == target));
            let (absent, target) = (work.new_tree(), work.new_tree());
            let refused = store.clone_matching(absent, target, &patterns);
            assert!(matches!(refused, Err(Error::NoTree(tree)) if tree == absent));
            assert!(!store.tree_exists(target).expect("read"));
        }
        assert!(long > 0, "no snapshot was long");
        let trees = work.trees().to_vec();
        must(same_store(&*store, &oracle, &trees));
    });
}

/// A run whose source changes while it is read.
struct Beside<'a> {
    run: Matching<'a>,
    store: &'a dyn Store,
    passed: u32,
}

impl SortedRun for Beside<'_> {
    fn next_entry(&mut self) -> Result<Option<Item<'_>>> {
        self.passed += 1;
        if self.passed.is_multiple_of(50) {
            commit(self.store, |batch| {
                // Before and after the run's position: changed, removed, and new keys.
                for n in [3, self.passed + 60, 2900] {
                    batch.put(TREE, &key(n, 1), b"changed meanwhile");
                    batch.delete(TREE, &key(n + 2, 1));
                    batch.put(TREE, &[&key(n, 1)[..], b"new"].concat(), b"came meanwhile");
                }
            });
        }
        if self.passed.is_multiple_of(400) {
            assert!(self.store.checkpoint().expect("checkpoint"));
            self.store.reclaim_step(10).expect("reclaim");
        }
        self.run.next_entry()
    }
}

fn key(n: u32, kind: u8) -> Vec<u8> {
    [&n.to_be_bytes()[..], &[kind]].concat()
}

/// Commits made while a snapshot is written are not in it.
pub fn a_snapshot_by_patterns_is_of_one_moment<E: EngineUnderTest>() {
    let (_sim, store) = fresh::<E>(1);
    commit(&*store, |batch| {
        batch.create_tree(TREE);
        for n in 0..3000 {
            batch.put(TREE, &key(n, (n % 3) as u8), &[n as u8; 60]);
            batch.put(TREE, &key(n, 1), &[n as u8; 30]);
        }
    });
    let patterns = Patterns::new([Pattern::new().any(4).bytes(&[1]).rest()]);
    let mut right = entries(&*store, TREE);
    right.retain(|key, _| key[4] == 1);
    assert_eq!(right.len(), 3000);
    let pin = store.pin_trees(&[TREE]).expect("pin");
    let run = Matching::new(&*pin, TREE, &patterns).expect("the tree exists");
    let mut beside = Beside { run, store: &*store, passed: 0 };
    store.ingest_new(PART, &mut beside).expect("the tree is new");
    assert!(entries(&*store, PART) == right, "it is not of its moment");
    assert!(entries(&*store, TREE).contains_key(&[&key(3, 1)[..], b"new"].concat()));
    // And it is an ordinary tree.
    commit(&*store, |batch| {
        batch.put(PART, b"own", b"no pattern is of this");
        batch.drop_tree(TREE);
    });
    right.insert(b"own".to_vec(), b"no pattern is of this".to_vec());
    assert!(entries(&*store, PART) == right);
}

/// Power is cut while snapshots by patterns are created, changed, cloned and dropped. Wherever that
/// is, a store opens with whole ones only, and with those that were synced.
pub fn power_may_be_cut_while_a_snapshot_by_patterns_is_made<E: EngineUnderTest>() {
    E::for_seeds("power cuts and snapshots by patterns", 3, 16, |seed| {
        let sim = sim_env(seed);
        let store = E::create(&sim, Durability::Async).expect("a store is created");
        let history = Arc::new(History::new());
        cut_everywhere::<E>(&sim, &history, seed);
        let mut work = Workload::new(seed, Shape::SMALL);
        let mut long = 0;
        for round in 0..E::rounds(8, 20) {
            history.run(&*store, &mut work, 3);
            if round % 4 == 0 {
                let batch = filling(&mut work, 300);
                let expected = history.push(&batch);
                assert_eq!(store.commit(&batch).expect("the batch is valid"), expected);
            }
            let (source, target) = (work.tree(), work.new_tree());
            let patterns = patterns(&mut work);
            let batch = as_batch(history.oracle(), source, target, &patterns);
            long += u32::from(batch.as_bytes().len() > 8 << 10);
            let expected = history.push(&batch);
            let token = store.clone_matching(source, target, &patterns).expect("it is new");
            assert_eq!(token, expected);
            adopt(&mut work, target);
        }
        assert!(long > 0, "no snapshot was long");
        sim.device.unwatch();
        store.close().expect("close");
        history.set_durable(store.last_commit());
        drop(store);
        must(history.check(&*open::<E>(&sim, Durability::Async)));
    });
}
