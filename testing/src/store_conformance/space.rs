//! A full disk: committed data stays, deleting frees space, and additional space is used at once.

use std::sync::Arc;

use store::{Batch, Durability, Error, Need, Store, TreeId};

use super::compare::must;
use super::engine::{EngineUnderTest, fresh};
use super::history::History;
use super::reopen::open;
use crate::kit::{commit, noise};
use crate::{CrashPolicy, SimEnv};

const TREE: TreeId = TreeId(20);

/// Space for nodes and more log, beyond that of a new store.
const SPACE: u64 = 12 << 20;

/// Puts values until there is no space for one.
fn fill(store: &dyn Store, history: &History) {
    for n in 0..10_000_u64 {
        let mut batch = Batch::new();
        batch.put(TREE, &n.to_be_bytes(), &noise(n, 60_000));
        history.push(&batch);
        match store.commit(&batch) {
            Ok(_) => {}
            Err(error) => {
                assert!(error.is_no_space(), "{error:?}");
                history.pop();
                return;
            }
        }
        if n % 20 == 0
            && let Err(error) = store.checkpoint()
        {
            assert!(error.is_no_space(), "{error:?}");
        }
    }
    panic!("600 MB fit into a full disk");
}

/// Commits a batch, with background work in between until it succeeds.
fn commit_patiently(store: &dyn Store, history: &History, batch: &Batch) {
    for _ in 0..20 {
        match store.commit(batch) {
            Ok(_) => {
                history.push(batch);
                return;
            }
            Err(error) => assert!(error.is_no_space(), "{error:?}"),
        }
        for step in [store.checkpoint().map(drop), store.reclaim_step(1000).map(drop)] {
            if let Err(error) = step {
                assert!(error.is_no_space(), "{error:?}");
            }
        }
    }
    panic!("no space is left for deleting");
}

/// A store on a disk that it has filled.
fn full<E: EngineUnderTest>() -> (SimEnv, Arc<dyn Store>, History) {
    let (sim, store) = fresh::<E>(1);
    let history = History::new();
    let mut batch = Batch::new();
    batch.create_tree(TREE);
    history.push(&batch);
    store.commit(&batch).expect("the batch is valid");
    sim.device.set_capacity(Some(sim.device.used_bytes() + SPACE));
    fill(&*store, &history);
    (sim, store, history)
}

/// A full disk rejects whole commits, answers reads, allows deletions, and opens.
pub fn a_full_disk_stays_readable_and_recovers<E: EngineUnderTest>() {
    let (sim, store, history) = full::<E>();
    must(history.check_from(&*store, history.last()));
    match store.sync(store.last_commit()) {
        Ok(()) => history.set_durable(store.last_commit()),
        Err(error) => assert!(matches!(error, Error::NoSpace(_)), "{error:?}"),
    }
    // It opens on the full disk.
    for policy in CrashPolicy::ALL {
        let crashed = SimEnv::on(sim.device.after_crash(policy, 1), 1);
        must(history.check(&*open::<E>(&crashed, Durability::Async)));
    }
    // Deleting frees space on the same disk.
    let mut batch = Batch::new();
    batch.mark(Need::Removes);
    batch.delete_range(TREE, &0_u64.to_be_bytes(), &10_000_u64.to_be_bytes());
    commit_patiently(&*store, &history, &batch);
    for n in 0..20_u64 {
        let mut batch = Batch::new();
        batch.put(TREE, &n.to_be_bytes(), &noise(n, 60_000));
        commit_patiently(&*store, &history, &batch);
    }
    must(history.check_from(&*store, history.last()));
    // A larger disk also helps.
    fill(&*store, &history);
    sim.device.set_capacity(None);
    commit(&*store, |batch| {
        batch.put(TREE, b"more", b"space");
    });
    assert!(store.checkpoint().expect("checkpoint"));
    store.close().expect("close");
    drop(store);
    let store = open::<E>(&sim, Durability::Async);
    assert_eq!(store.get(TREE, b"more").expect("read").as_deref(), Some(&b"space"[..]));
}

/// The reserve of a full disk is for batches that declare themselves removals, and not for those
/// that delete a key in passing.
pub fn the_reserve_for_removing_is_for_batches_that_declare_it<E: EngineUnderTest>() {
    let (_sim, store, _) = full::<E>();
    let commit = |n: u64, deletes: bool, need: Need| {
        let mut batch = Batch::new();
        batch.put(TREE, &(n % 100).to_be_bytes(), &noise(n, 100));
        if deletes {
            batch.delete(TREE, b"absent");
        }
        batch.mark(need);
        store.commit(&batch)
    };
    let small = (0..100_000).find(|&n| commit(n, false, Need::Adds).is_err());
    let small = small.expect("no space was kept");
    for n in small..small + 500 {
        let refused = commit(n, true, Need::Adds);
        assert!(matches!(&refused, Err(error) if error.is_no_space()), "{n}: {refused:?}");
    }
    commit(small, true, Need::Removes).expect("space is kept for removing");
}
