//! Failing calls of the disk: each in turn, once or from then on.

use store::{CommitToken, Durability, Error, SliceRun, Store};

use super::compare::must;
use super::engine::EngineUnderTest;
use super::history::History;
use super::ingest::entries;
use super::reopen::open;
use super::workload::{Shape, Workload};
use crate::run::Context;
use crate::{CrashPolicy, Fault, FaultOn, Op, SimEnv, sim_env};

/// Commits a batch that may fail, and keeps the history correct.
fn commit(store: &dyn Store, history: &History, work: &mut Workload) -> Result<(), Error> {
    let trees = work.trees().to_vec();
    let batch = work.batch();
    let token = history.push(&batch);
    settle(store, history, token, store.commit(&batch)).inspect_err(|_| {
        if store.last_commit() < token {
            work.set_trees(trees);
        }
    })
}

/// Ingests a run in the same way.
fn ingest(store: &dyn Store, history: &History, work: &mut Workload) -> Result<(), Error> {
    let tree = work.tree();
    let run = entries(work, 600);
    let batch = crate::mem::as_batch(history.oracle().pin_state().trees(), tree, &run);
    let Ok(Some(batch)) = batch else { return Ok(()) };
    let token = history.push(&batch);
    settle(store, history, token, store.ingest(tree, &mut SliceRun::new(&run)))
}

/// Records the outcome of the last commit.
fn settle(
    store: &dyn Store,
    history: &History,
    token: CommitToken,
    done: Result<CommitToken, Error>,
) -> Result<(), Error> {
    match done {
        Ok(found) => {
            assert_eq!(found, token, "numbers have no gaps");
            if store.stats().durability == Durability::Sync {
                history.set_durable(token);
            }
            Ok(())
        }
        Err(error) => {
            if error.is_no_space() {
                assert!(store.last_commit() < token, "without space, nothing happens");
            }
            if store.last_commit() < token {
                history.pop();
            }
            Err(error)
        }
    }
}

/// One step of a run in which calls may fail.
pub(super) fn step(store: &dyn Store, history: &History, work: &mut Workload) -> Result<(), Error> {
    commit(store, history, work)?;
    let token = store.last_commit();
    match work.random.u32(0..100) {
        0..30 => {
            store.sync(token)?;
            history.set_durable(token);
        }
        30..40 => {
            assert!(store.checkpoint()?, "no other thread is at it");
            history.set_durable(token);
        }
        40..50 => {
            store.reclaim_step(5)?;
        }
        50..58 => ingest(store, history, work)?,
        _ => {}
    }
    Ok(())
}

/// A run in which one call fails; `false` if the run ended before it. In any case the store returns
/// what it has committed, and after a power cut it has everything durable.
fn run_with<E: EngineUnderTest>(seed: u64, durability: Durability, fault: &Fault) -> bool {
    let sim = sim_env(seed);
    let store = E::create(&sim, durability).expect("a store is created");
    let history = History::new();
    let mut work = Workload::new(seed, Shape::SMALL);
    sim.device.inject(fault.clone());
    let mut errors = 0;
    for _ in 0..60 {
        if step(&*store, &history, &mut work).is_err() {
            errors += 1;
            must(history.check_from(&*store, history.last()));
            if errors > 3 {
                break;
            }
        }
    }
    must(history.check_from(&*store, history.last()));
    let struck = !sim.device.faults_left();
    let policy = CrashPolicy::ALL[(fault.after % 3) as usize];
    let crashed = SimEnv::on(sim.device.after_crash(policy, seed), seed);
    let recovered = open::<E>(&crashed, durability);
    must(history.check(&*recovered));
    // The process may also restart with the disk as it is.
    let closed = store.close().is_ok();
    if closed {
        history.set_durable(store.last_commit());
    }
    drop(store);
    sim.device.clear_faults();
    must(history.check(&*open::<E>(&sim, durability)));
    if closed {
        let crashed = SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, seed), seed);
        must(history.check(&*open::<E>(&crashed, durability)));
    }
    struck
}

fn each_operation<E: EngineUnderTest>(name: &str, fault: impl Fn(u64) -> Fault) {
    E::for_seeds(name, 2, 20, |seed| {
        let durability = if seed % 2 == 0 { Durability::Sync } else { Durability::Async };
        let mut after = seed % 2;
        loop {
            let _context = Context::new(format!("fault after {after} operations"));
            if !run_with::<E>(seed, durability, &fault(after)) {
                break;
            }
            after += E::stride(5, 1);
        }
    });
}

/// ENOSPC once, at every operation in turn.
pub fn a_full_disk_at_every_operation_loses_nothing<E: EngineUnderTest>() {
    each_operation::<E>("no space", |after| Fault::no_space(FaultOn::AnyChange, after));
}

/// EIO once, at every operation in turn.
pub fn a_failed_operation_loses_nothing<E: EngineUnderTest>() {
    each_operation::<E>("failed operation", |after| Fault::io(FaultOn::AnyChange, after));
}

/// A failed read returns an error; the next one may succeed, and is then correct.
pub fn a_failed_read_is_an_error_and_no_more<E: EngineUnderTest>() {
    E::for_seeds("failed reads", 2, 20, |seed| {
        let sim = sim_env(seed);
        let store = E::create(&sim, Durability::Async).expect("a store is created");
        let history = History::new();
        let mut work = Workload::new(seed, Shape::SMALL);
        history.run(&*store, &mut work, 80);
        store.sync(store.last_commit()).expect("sync");
        drop(store);
        let mut after = 0;
        loop {
            let _context = Context::new(format!("fault after {after} reads"));
            let sim = SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, 1), 1);
            sim.device.inject(Fault::io(FaultOn::Only(Op::Read), after));
            match E::open(&sim, Durability::Async) {
                Ok(store) => {
                    if let Err(super::Mismatch::Wrong(what)) = history.check(&*store) {
                        panic!("wrong data beside a failed read: {what}");
                    }
                    if sim.device.faults_left() {
                        break;
                    }
                    must(history.check_from(&*store, history.last()));
                }
                Err(error) => assert!(matches!(error, Error::Device(_)), "{error:?}"),
            }
            must(history.check_from(&*open::<E>(&sim, Durability::Async), history.last()));
            after += 1;
        }
    });
}

/// After a failed sync it is unknown what is durable: no more commits, but reads continue.
pub fn a_failed_sync_latches<E: EngineUnderTest>() {
    E::for_seeds("failed sync", 5, 50, |seed| {
        let sim = sim_env(seed);
        let store = E::create(&sim, Durability::Async).expect("a store is created");
        let history = History::new();
        let mut work = Workload::new(seed, Shape::SMALL);
        history.run(&*store, &mut work, 20);
        commit(&*store, &history, &mut work).expect("commit");
        sim.device.inject(Fault::io(FaultOn::Only(Op::Sync), 0));
        let token = store.last_commit();
        let failed = store.sync(token);
        assert!(matches!(failed, Err(Error::Device(_) | Error::ReadOnly(_))), "{failed:?}");
        let again = store.sync(token);
        assert!(
            matches!(again, Err(Error::ReadOnly(_))),
            "a second sync cannot know better: {again:?}"
        );
        assert!(store.durable() < token);
        let refused = commit(&*store, &history, &mut work);
        assert!(matches!(refused, Err(Error::ReadOnly(_))), "{refused:?}");
        must(history.check_from(&*store, history.last()));
        for refused in [store.checkpoint().map(drop), store.close()] {
            assert!(matches!(refused, Err(Error::ReadOnly(_))), "{refused:?}");
        }
        drop(store);
        for policy in CrashPolicy::ALL {
            let sim = SimEnv::on(sim.device.after_crash(policy, seed), seed);
            must(history.check(&*open::<E>(&sim, Durability::Async)));
        }
    });
}
