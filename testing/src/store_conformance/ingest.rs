//! Ingested runs: the result is the same as with puts, or no change.

use std::sync::Arc;

use store::{Batch, Commit, Durability, Error, SliceRun, Store, TreeId};

use super::compare::{commit_both, must};
use super::engine::{EngineUnderTest, fresh};
use super::history::History;
use super::random::step_beside;
use super::reopen::open;
use super::workload::{Shape, Workload};
use super::{same_store, same_tree};
use crate::kit::commit;
use crate::run::Context;
use crate::{CrashPolicy, MemStore, SimEnv, sim_env};

/// Keys and values.
pub(super) type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Entries after some possible key, mostly where there are no others.
pub(super) fn entries(work: &mut Workload, most: usize) -> Entries {
    let mut prefix = work.key();
    prefix.truncate(400);
    prefix.push(work.random.u8(..));
    let count = match work.random.u8(0..4) {
        0 => work.random.usize(0..4),
        1 => work.random.usize(0..most.min(60)),
        _ => work.random.usize(0..most),
    };
    let step = work.random.u32(1..1000);
    let long = work.random.u8(0..3) == 0;
    let number = |n: usize| (n as u32 * step).to_be_bytes();
    let value = |work: &mut Workload| {
        let length = match work.random.u8(0..20) {
            0 if long => work.random.usize(2049..9000),
            _ => work.random.usize(0..120),
        };
        vec![work.random.u8(..); length]
    };
    (0..count).map(|n| ([&prefix[..], &number(n)].concat(), value(work))).collect()
}

fn ingest_both(store: &dyn Store, oracle: &MemStore, tree: TreeId, entries: &Entries) {
    let expected = oracle.ingest(tree, &mut SliceRun::new(entries));
    let found = store.ingest(tree, &mut SliceRun::new(entries));
    match (found, expected) {
        (Ok(found), Ok(expected)) => assert_eq!(found, expected, "numbers have no gaps"),
        (
            Err(Error::RangeNotEmpty { tree, key }),
            Err(Error::RangeNotEmpty { tree: other, key: first }),
        ) => assert_eq!((tree, key), (other, first)),
        (found, expected) => panic!("{found:?}, expected {expected:?}"),
    }
}

/// A run has the same result as puts, in any tree, beside clones of it. If its range contains a
/// key, it is rejected and changes nothing.
pub fn a_run_has_the_effect_of_puts<E: EngineUnderTest>() {
    E::for_seeds("runs", 3, 60, |seed| {
        let (_sim, store) = fresh::<E>(seed);
        let oracle = MemStore::new();
        let mut work = Workload::new(seed, Shape { large: false, ..Shape::WIDE });
        for round in 0..E::rounds(120, 600) {
            let batch = work.batch();
            commit_both(&*store, &oracle, &batch);
            let tree = work.tree();
            let run = entries(&mut work, if round % 10 == 0 { 4000 } else { 300 });
            ingest_both(&*store, &oracle, tree, &run);
            must(same_tree(&*store, &oracle, tree));
            if work.random.u8(0..4) == 0 {
                // Into the entries that were just ingested.
                let mut batch = Batch::new();
                for _ in 0..work.random.usize(1..40) {
                    if let Some((key, _)) = work.random.choice(&run) {
                        let key = key.clone();
                        match work.random.u8(0..3) {
                            0 => batch.delete(tree, &key),
                            _ => batch.put(tree, &key, &[5; 300]),
                        }
                    }
                }
                commit_both(&*store, &oracle, &batch);
            }
            step_beside(&*store, &oracle, &mut work);
        }
        let trees = work.trees().to_vec();
        must(same_store(&*store, &oracle, &trees));
    });
}

/// An unsorted run, or an unknown tree, is rejected and changes nothing.
pub fn an_unsorted_run_is_refused<E: EngineUnderTest>() {
    const TREE: TreeId = TreeId(20);
    let (_sim, store) = fresh::<E>(1);
    commit(&*store, |batch| batch.create_tree(TREE));
    let before = store.last_commit();
    let key = |n: u32| n.to_be_bytes().to_vec();
    for wrong in [0, 5, 2999] {
        // Far enough from the start that leaves were written already.
        let mut run: Entries = (0..3000).map(|n| (key(n), vec![1; 100])).collect();
        run.push((key(wrong), vec![2; 10]));
        let refused = store.ingest(TREE, &mut SliceRun::new(&run));
        assert!(matches!(refused, Err(Error::Unsorted(found)) if found == key(wrong)));
    }
    let run = [(key(1), vec![1])];
    let refused = store.ingest(TreeId(21), &mut SliceRun::new(&run));
    assert!(matches!(refused, Err(Error::NoTree(TreeId(21)))));
    let none = store.ingest(TREE, &mut SliceRun::new(&[])).expect("an empty run");
    assert_eq!((none, store.last_commit()), (before, before), "nothing was committed");
    assert!(store.get(TREE, &key(0)).expect("read").is_none());
    // A cursor over the store itself is a run.
    commit(&*store, |batch| {
        for n in 0..2000 {
            batch.put(TREE, &key(n), &[3; 50]);
        }
        batch.create_tree(TreeId(22));
    });
    let mut cursor = store.scan(TREE, store::KeyRange::all()).expect("scan");
    store.ingest(TreeId(22), &mut cursor).expect("it ascends");
    let mut diff = store.diff(TREE, TreeId(22)).expect("both are there");
    assert!(diff.next().expect("read").is_none());
}

/// Wherever power is cut while runs are ingested, changed, cloned and checkpointed, a store opens
/// with whole runs only, and with those that were synced.
pub fn power_may_be_cut_while_runs_are_ingested<E: EngineUnderTest>() {
    E::for_seeds("power cuts and runs", 4, 16, |seed| {
        let sim = sim_env(seed);
        let store = E::create(&sim, Durability::Async).expect("a store is created");
        let history = Arc::new(History::new());
        cut_everywhere::<E>(&sim, &history, seed);
        let mut work = Workload::new(seed, Shape::SMALL);
        for _ in 0..E::rounds(12, 30) {
            history.run(&*store, &mut work, 3);
            let tree = work.tree();
            let run = entries(&mut work, 600);
            let batch = crate::mem::as_batch(history.oracle().pin_state().trees(), tree, &run);
            let Ok(Some(batch)) = batch else { continue };
            let expected = history.push(&batch);
            let token = store.ingest(tree, &mut SliceRun::new(&run)).expect("the range is empty");
            assert_eq!(token, expected);
        }
        sim.device.unwatch();
        store.close().expect("close");
        history.set_durable(store.last_commit());
        drop(store);
        must(history.check(&*open::<E>(&sim, Durability::Async)));
    });
}

/// Cuts power before each operation of the device from now on, or some of them, and expects a state
/// of the history each time.
pub(super) fn cut_everywhere<E: EngineUnderTest>(sim: &SimEnv, history: &Arc<History>, seed: u64) {
    let (watched, stride) = (Arc::clone(history), E::stride(2, 1));
    sim.device.watch(move |image, op| {
        if op % stride == seed % stride {
            for policy in CrashPolicy::at(op / stride + seed) {
                let what = format!("power cut before operation {op}, {policy:?}");
                let _context = Context::new(what);
                let sim = SimEnv::on(image.after_crash(policy, op), op);
                recovered::<E>(&sim, &watched);
            }
        }
    });
}

/// The recovered state is one of the history, and remains through checkpoints and a second cut.
fn recovered<E: EngineUnderTest>(sim: &SimEnv, history: &History) {
    let store = open::<E>(sim, Durability::Async);
    let found = must(history.check(&*store));
    if found.0.is_multiple_of(3) {
        drop(store);
        let again = SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, found.0), found.0);
        let store = open::<E>(&again, Durability::Async);
        assert_eq!(must(history.check_from(&*store, found)), found);
        for _ in 0..2 {
            assert!(store.checkpoint().expect("checkpoint"));
        }
        assert_eq!(must(history.check_from(&*store, found)), found);
        drop(store);
        let store = open::<E>(&again, Durability::Async);
        assert_eq!(must(history.check_from(&*store, found)), found);
    }
}
