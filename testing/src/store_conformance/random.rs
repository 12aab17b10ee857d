//! Long random runs compared with the oracle, with reads of every kind between the commits.

use store::{Error, Read, Store, TreeId};

use super::compare::{commit_both, must, same_diff, same_store, same_tree};
use super::cursors::walk;
use super::engine::{EngineUnderTest, fresh};
use super::workload::{Shape, Workload};
use crate::MemStore;

/// One step of background work or of reading.
pub(super) fn step_beside(store: &dyn Store, oracle: &MemStore, work: &mut Workload) {
    match work.random.u32(0..100) {
        0..30 => {
            let (tree, key) = (work.tree(), work.key());
            let found = store.get(tree, &key).expect("read");
            assert_eq!(found, oracle.get(tree, &key).expect("read"), "tree {}", tree.0);
        }
        30..50 => walk(store, oracle, work, 40),
        50..55 => {
            let (old, new) = (work.tree(), work.tree());
            must(same_diff(store, oracle, old, new));
        }
        55..60 => {
            let tree = work.tree();
            must(same_tree(store, oracle, tree));
        }
        60..65 => refuse(store, work),
        65..75 => store.sync(store.last_commit()).expect("sync"),
        75..80 => {
            store.flush_if_due().expect("flush");
        }
        80..85 => assert!(store.checkpoint().expect("checkpoint"), "no other thread is at it"),
        _ => {
            store.reclaim_step(work.random.usize(1..20)).expect("reclaim");
        }
    }
}

/// A batch that must be rejected, however much of it is valid.
fn refuse(store: &dyn Store, work: &mut Workload) {
    let trees = work.trees().to_vec();
    let mut batch = work.batch();
    work.set_trees(trees);
    let absent = work.new_tree();
    let key = work.key();
    batch.put(absent, &key, b"x");
    assert!(matches!(store.commit(&batch), Err(Error::NoTree(tree)) if tree == absent));
}

/// Every answer equals the oracle's, whatever the order of operations.
pub fn random_operations_agree_with_the_oracle<E: EngineUnderTest>() {
    E::for_seeds("random operations", 6, 60, |seed| {
        let (_sim, store) = fresh::<E>(seed);
        let oracle = MemStore::new();
        let mut work = Workload::new(seed, Shape::WIDE);
        for _ in 0..E::rounds(700, 4000) {
            let batch = work.batch();
            commit_both(&*store, &oracle, &batch);
            step_beside(&*store, &oracle, &mut work);
        }
        let trees: Vec<TreeId> = work.trees().to_vec();
        must(same_store(&*store, &oracle, &trees));
    });
}
