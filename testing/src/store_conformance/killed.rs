//! A process dies, the next one opens the state in the operating system's page cache, and then
//! power is cut. Commits that the next process acknowledged must not depend on data only in the
//! page cache.
//!
//! `SimDevice::copy` is the state after a killed process: everything written can be read, and
//! nothing is durable that was not synced. After a failed sync, written data can be read as well,
//! and syncing it again makes nothing of it durable.

use std::sync::Arc;

use store::{Durability, Lsn, Store, TreeId};

use super::compare::must;
use super::engine::EngineUnderTest;
use super::faults::step;
use super::history::History;
use super::workload::{Shape, Workload};
use crate::kit::commit;
use crate::run::{Context, slow};
use crate::{CrashPolicy, Fault, FaultOn, SimDevice, SimEnv, sim_env};

/// Segments so short that a script fills many, and checkpoints free some.
const SEGMENT_BYTES: u64 = 8 << 10;

/// A tree that no workload makes.
const LATER: TreeId = TreeId(0xffff_ffff);

/// Opens what is on a disk.
fn open<E: EngineUnderTest>(sim: &SimEnv) -> Arc<dyn Store> {
    match E::open_with_segments(sim, Durability::Async, SEGMENT_BYTES) {
        Ok(store) => store,
        Err(error) => panic!("the store does not open: {error}"),
    }
}

/// Possible results for a disk: everything unsynced is lost, and alternately something else.
fn policies(turn: u64) -> &'static [CrashPolicy] {
    match (slow(), turn % 3) {
        (true, _) => &CrashPolicy::ALL,
        (false, 0) => &[CrashPolicy::LoseAll, CrashPolicy::Random],
        (false, 1) => &[CrashPolicy::LoseAll, CrashPolicy::KeepAll],
        (false, _) => &[CrashPolicy::LoseAll],
    }
}

/// Cuts the power under a store whose commits are all durable: first those of a history up to
/// `found`, then numbers in [`LATER`].
fn cut<E: EngineUnderTest>(device: &SimDevice, history: &History, found: Lsn, later: u64) {
    for &policy in policies(found.0 + later) {
        let _context = Context::new(format!("power cut after {later} later commits, {policy:?}"));
        let sim = SimEnv::on(device.after_crash(policy, found.0), found.0);
        let store = open::<E>(&sim);
        assert_eq!(store.last_commit().0, Lsn(found.0 + later), "what was durable is there");
        assert_eq!(must(history.check_contents(&*store, found)), found);
        for number in 1..=later {
            let value = store.get(LATER, &number.to_be_bytes()).expect("read");
            assert_eq!(value.as_deref(), Some(&b"later"[..]), "commit {number} after opening");
        }
    }
}

/// The next process opens a disk as the previous one left it to the operating system, and works. It
/// must find a state of the history, and the power may be cut at any time.
fn next_process<E: EngineUnderTest>(device: &SimDevice, turn: u64, history: &Arc<History>) {
    let sim = SimEnv::on(device.copy(), turn);
    if slow() || turn.is_multiple_of(5) {
        let watched = Arc::clone(history);
        sim.device.watch(move |image, op| {
            for &policy in policies(op) {
                let what = format!("power cut before operation {op} of opening, {policy:?}");
                let _context = Context::new(what);
                let sim = SimEnv::on(image.after_crash(policy, op), op);
                must(watched.check(&*open::<E>(&sim)));
            }
        });
    }
    let store = open::<E>(&sim);
    sim.device.unwatch();
    let found = must(history.check(&*store));
    assert_eq!(store.durable().0, found, "what was found is durable");
    cut::<E>(&sim.device, history, found, 0);
    for number in 1..=2_u64 {
        let token = commit(&*store, |batch| {
            if number == 1 {
                batch.create_tree(LATER);
            }
            batch.put(LATER, &number.to_be_bytes(), b"later");
        });
        store.sync(token).expect("sync");
        cut::<E>(&sim.device, history, found, number);
        if !slow() && !turn.is_multiple_of(4) {
            break;
        }
        assert!(store.checkpoint().expect("checkpoint"));
        cut::<E>(&sim.device, history, found, number);
    }
}

/// Wherever the process dies, the next one depends only on durable data.
pub fn power_may_be_cut_after_a_process_was_killed<E: EngineUnderTest>() {
    E::for_seeds("killed, then cut", 2, 10, |seed| {
        let sim = sim_env(seed);
        let store = E::create_with_segments(&sim, Durability::Async, SEGMENT_BYTES);
        let store = store.expect("a store is created");
        let history = Arc::new(History::new());
        let watched = Arc::clone(&history);
        sim.device.watch(move |image, op| {
            let _context = Context::new(format!("process killed before operation {op}"));
            next_process::<E>(image, op, &watched);
        });
        let mut work = Workload::new(seed, Shape::SMALL);
        history.run(&*store, &mut work, E::rounds(50, 150));
        store.close().expect("close");
        sim.device.unwatch();
    });
}

/// The same if the process ended because a sync had failed. After that, data that is not durable
/// reads as if it were, and a second sync has nothing to do.
pub fn power_may_be_cut_after_a_sync_failed_and_the_process_ended<E: EngineUnderTest>() {
    E::for_seeds("failed sync, then cut", 2, 20, |seed| {
        let mut after = seed % 2;
        loop {
            let _context = Context::new(format!("fault after {after} syncs"));
            let sim = sim_env(seed);
            let store = E::create_with_segments(&sim, Durability::Async, SEGMENT_BYTES);
            let store = store.expect("a store is created");
            let history = Arc::new(History::new());
            let mut work = Workload::new(seed, Shape::SMALL);
            sim.device.inject(Fault::io(FaultOn::AnySync, after));
            for _ in 0..E::rounds(50, 150) {
                if step(&*store, &history, &mut work).is_err() {
                    break;
                }
            }
            if sim.device.faults_left() {
                break;
            }
            drop(store);
            next_process::<E>(&sim.device, after, &history);
            after += E::stride(2, 1);
        }
    });
}

/// An open that fails because one of its syncs fails may be retried, and depends on no more than
/// the first.
pub fn power_may_be_cut_after_an_opening_failed<E: EngineUnderTest>() {
    E::for_seeds("failed opening, then cut", 2, 10, |seed| {
        let sim = sim_env(seed);
        let store = E::create_with_segments(&sim, Durability::Async, SEGMENT_BYTES);
        let store = store.expect("a store is created");
        let history = Arc::new(History::new());
        let watched = Arc::clone(&history);
        let stride = E::stride(5, 1);
        sim.device.watch(move |image, op| {
            if op % stride != seed % stride {
                return;
            }
            // Data that was never synced, and a torn tail.
            let torn = image.after_crash(CrashPolicy::Random, op);
            for (what, left) in [("killed", image), ("power cut", &torn)] {
                let _context = Context::new(format!("{what} before operation {op}"));
                openings_fail::<E>(left, op, &watched);
            }
        });
        history.run(&*store, &mut Workload::new(seed, Shape::SMALL), E::rounds(50, 150));
        sim.device.unwatch();
    });
}

/// Opens a disk with each of the first syncs failing in turn, and then again.
fn openings_fail<E: EngineUnderTest>(left: &SimDevice, op: u64, history: &Arc<History>) {
    for after in 0.. {
        let _context = Context::new(format!("fault after {after} syncs of opening"));
        let second = SimEnv::on(left.copy(), op);
        second.device.inject(Fault::io(FaultOn::AnySync, after));
        drop(E::open_with_segments(&second, Durability::Async, SEGMENT_BYTES));
        if second.device.faults_left() {
            break;
        }
        // Not a multiple of the number that makes the rest long.
        next_process::<E>(&second.device, 20 * op + 1, history);
    }
}
