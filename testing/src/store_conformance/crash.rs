//! Power cuts: one run visits every operation on disk, and opens the store from a possible state
//! after a cut at each.

use std::sync::Arc;

use store::{Batch, Durability, Lsn, Store, TreeId};

use super::compare::must;
use super::engine::EngineUnderTest;
use super::history::History;
use super::reopen::open;
use super::workload::{Shape, Workload};
use crate::run::Context;
use crate::{CrashPolicy, SimDevice, SimEnv, sim_env};

/// Opens a disk after a power cut, compares it, and in some cases continues to use it.
fn recover<E: EngineUnderTest>(
    image: &SimDevice,
    op: u64,
    durability: Durability,
    history: &History,
    policies: impl Iterator<Item = CrashPolicy>,
) {
    for policy in policies {
        let _context = Context::new(format!("power cut before operation {op}, {policy:?}"));
        let sim = SimEnv::on(image.after_crash(policy, op), op);
        let store = open::<E>(&sim, durability);
        let found = must(history.check(&*store));
        assert_eq!(store.durable(), store.last_commit(), "what was recovered is durable");
        if (op + policy as u64).is_multiple_of(5) {
            proceed::<E>(&sim, store, durability, history, found);
        }
    }
}

/// A recovered store accepts commits, and keeps the recovered state.
fn proceed<E: EngineUnderTest>(
    sim: &SimEnv,
    store: Arc<dyn Store>,
    durability: Durability,
    history: &History,
    found: Lsn,
) {
    // An immediate second cut loses nothing more.
    let again = SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, found.0), found.0);
    let second = open::<E>(&again, durability);
    assert_eq!(must(history.check_from(&*second, found)), found);
    drop(second);
    let tree = TreeId(u64::from(u32::MAX));
    let mut batch = Batch::new();
    batch.create_tree(tree);
    batch.put(tree, b"after", b"the crash");
    let token = store.commit(&batch).expect("a recovered store takes commits");
    assert_eq!(token.0, Lsn(found.0 + 1), "numbers continue");
    store.sync(token).expect("sync");
    if found.0.is_multiple_of(2) {
        assert!(store.checkpoint().expect("checkpoint"));
        while store.reclaim_step(50).expect("reclaim") {}
        assert!(store.checkpoint().expect("checkpoint"));
    }
    drop(store);
    let again = SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, found.0), found.0);
    let store = open::<E>(&again, durability);
    assert_eq!(store.last_commit(), token);
    let value = store.get(tree, b"after").expect("read");
    assert_eq!(value.as_deref(), Some(&b"the crash"[..]));
    let mut batch = Batch::new();
    batch.drop_tree(tree);
    store.commit(&batch).expect("the batch is valid");
    assert!(must(history.check_contents(&*store, found)) == found);
}

/// One run, watched.
fn enumerate<E: EngineUnderTest>(durability: Durability, seed: u64, commits: u64, stride: u64) {
    let sim = sim_env(seed);
    let creating = sim.device.clone();
    creating.watch(move |image, op| {
        let _context = Context::new(format!("power cut before operation {op} of creation"));
        for policy in CrashPolicy::ALL {
            let sim = SimEnv::on(image.after_crash(policy, op), op);
            // A half-created store may be rejected, but with an error.
            if let Ok(store) = E::open(&sim, durability) {
                must(History::new().check(&*store));
            }
        }
    });
    let store = E::create(&sim, durability).expect("a store is created");
    let history = Arc::new(History::new());
    let watched = Arc::clone(&history);
    sim.device.watch(move |image, op| {
        if op % stride == seed % stride {
            // Of seeds that follow each other, another at the same place.
            let policies = CrashPolicy::at(op / stride + seed);
            recover::<E>(image, op, durability, &watched, policies);
        }
    });
    let mut work = Workload::new(seed, Shape::SMALL);
    history.run(&*store, &mut work, commits);
    store.close().expect("close");
    history.set_durable(store.last_commit());
    sim.device.unwatch();
    let all = CrashPolicy::ALL.into_iter();
    recover::<E>(&sim.device, sim.device.ops(), durability, &history, all);
}

/// Wherever the cut is, the store opens with everything synced and with whole commits only.
pub fn power_may_be_cut_at_every_operation<E: EngineUnderTest>() {
    E::for_seeds("power cuts", 6, 20, |seed| {
        enumerate::<E>(Durability::Async, seed, E::rounds(120, 200), E::stride(3, 1));
    });
}

/// The same when each commit is durable as it returns.
pub fn power_may_be_cut_at_every_operation_in_sync_mode<E: EngineUnderTest>() {
    E::for_seeds("power cuts in sync mode", 3, 10, |seed| {
        enumerate::<E>(Durability::Sync, seed, E::rounds(60, 120), E::stride(4, 1));
    });
}

/// Recovery may itself be cut at every operation, and restarts from the same commits.
pub fn power_may_be_cut_while_a_store_recovers<E: EngineUnderTest>() {
    E::for_seeds("power cuts in recovery", 8, 40, |seed| {
        let sim = sim_env(seed);
        let store = E::create(&sim, Durability::Async).expect("a store is created");
        let history = Arc::new(History::new());
        let mut work = Workload::new(seed, Shape::SMALL);
        history.run(&*store, &mut work, 80);
        let crashed = sim.device.after_crash(CrashPolicy::Random, seed);
        let first = SimEnv::on(crashed.copy(), seed);
        let found = must(history.check(&*open::<E>(&first, Durability::Async)));
        let watched = Arc::clone(&history);
        crashed.watch(move |image, op| {
            for policy in CrashPolicy::at(op + seed) {
                let what = format!("recovery cut before operation {op}, {policy:?}");
                let _context = Context::new(what);
                let sim = SimEnv::on(image.after_crash(policy, op), op);
                let again = must(watched.check(&*open::<E>(&sim, Durability::Async)));
                assert_eq!(again, found, "the same commits are recovered");
            }
        });
        let sim = SimEnv::on(crashed, seed);
        let store = open::<E>(&sim, Durability::Async);
        // The first checkpoint after recovery belongs to it as well.
        assert!(store.checkpoint().expect("checkpoint"));
        while store.reclaim_step(5).expect("reclaim") {}
        assert!(store.checkpoint().expect("checkpoint"));
        sim.device.unwatch();
        assert_eq!(must(history.check(&*store)), found);
    });
}
