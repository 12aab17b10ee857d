//! Closing, dropping without closing, and opening again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use store::{Barrier, Durability, Error, Store, TreeId};

use super::compare::must;
use super::engine::{EngineUnderTest, fresh};
use super::history::History;
use super::random::step_beside;
use super::workload::{Shape, Workload};
use crate::kit::commit;
use crate::{CrashPolicy, SimEnv, sim_env};

const TREE: TreeId = TreeId(20);

/// Opens what is on a disk.
pub(super) fn open<E: EngineUnderTest>(sim: &SimEnv, durability: Durability) -> Arc<dyn Store> {
    match E::open(sim, durability) {
        Ok(store) => store,
        Err(error) => panic!("the store does not open: {error}"),
    }
}

/// After `close`, all data is there, and commits are rejected.
pub fn a_closed_store_opens_again<E: EngineUnderTest>() {
    E::for_seeds("close and open", 5, 30, |seed| {
        let (sim, store) = fresh::<E>(seed);
        let history = History::new();
        let mut work = Workload::new(seed, Shape { large: true, ..Shape::SMALL });
        history.run(&*store, &mut work, 100);
        store.close().expect("close");
        let late = work.batch();
        let refused = store.commit(&late);
        assert!(matches!(refused, Err(Error::ReadOnly(_))), "a closed store: {refused:?}");
        drop(store);
        // Everything committed is on disk, and durable.
        let crashed = SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, seed), seed);
        for sim in [sim, crashed] {
            let store = open::<E>(&sim, Durability::Async);
            must(history.check_from(&*store, history.last()));
            assert_eq!(store.durable(), store.last_commit());
            assert_eq!(store.stats().replayed, 0, "after closing there is nothing to replay");
            drop(store);
            let store = open::<E>(&sim, Durability::Async);
            must(history.check_from(&*store, history.last()));
        }
    });
}

/// A store that is dropped without `close` loses nothing that was synced.
pub fn a_dropped_store_opens_again_with_what_was_synced<E: EngineUnderTest>() {
    E::for_seeds("drop and open", 5, 30, |seed| {
        let (sim, store) = fresh::<E>(seed);
        let history = History::new();
        let mut work = Workload::new(seed, Shape::SMALL);
        history.run(&*store, &mut work, 60);
        drop(store);
        let store = open::<E>(&sim, Durability::Async);
        must(history.check(&*store));
    });
}

/// Random operations continue over many reopenings of every kind.
pub fn random_operations_survive_reopening<E: EngineUnderTest>() {
    E::for_seeds("reopening", 3, 30, |seed| {
        let (mut sim, mut store) = fresh::<E>(seed);
        let history = History::new();
        let mut work = Workload::new(seed, Shape { large: true, ..Shape::SMALL });
        for round in 0..E::rounds(25, 100) {
            history.run(&*store, &mut work, 15);
            for _ in 0..10 {
                step_beside(&*store, history.oracle(), &mut work);
            }
            match round % 3 {
                0 => store.close().expect("close"),
                1 => store.sync(store.last_commit()).expect("sync"),
                _ => assert!(store.checkpoint().expect("checkpoint")),
            }
            drop(store);
            if work.random.bool() {
                let device = sim.device.after_crash(CrashPolicy::Random, seed + round);
                sim = SimEnv::on(device, seed + round);
            }
            store = open::<E>(&sim, Durability::Async);
            must(history.check_from(&*store, history.last()));
        }
    });
}

/// Opening without a store reports what is missing.
pub fn a_store_that_is_not_there_is_missing<E: EngineUnderTest>() {
    let sim = sim_env(1);
    match E::open(&sim, Durability::Async).map(drop) {
        Err(Error::Missing { file, .. }) => assert!(!file.is_empty()),
        other => panic!("expected that a file is missing: {other:?}"),
    }
    assert!(sim.device.files().is_empty(), "opening creates nothing");
}

/// However much is written, checkpoints keep the log and the disk small.
pub fn the_log_is_trimmed_by_checkpoints<E: EngineUnderTest>() {
    let (sim, store) = fresh::<E>(1);
    commit(&*store, |batch| batch.create_tree(TREE));
    let most = 192 << 20;
    for round in 0..E::rounds(40, 200) {
        for part in 0..8_u64 {
            let value = vec![round as u8; 1 << 20];
            commit(&*store, |batch| batch.put(TREE, &part.to_be_bytes(), &value));
        }
        assert!(store.checkpoint().expect("checkpoint"));
        assert!(store.stats().log_bytes <= most, "log of {} bytes", store.stats().log_bytes);
    }
    let used = sim.device.used_bytes();
    assert!(used <= most + (64 << 20), "{used} bytes used for 8 MiB of values");
    drop(store);
    let store = open::<E>(&sim, Durability::Async);
    assert!(store.stats().replayed <= 1);
}

struct CountingBarrier {
    reached: AtomicU64,
    fails: AtomicBool,
}

impl Barrier for CountingBarrier {
    fn reach(&self) -> Result<(), device::Error> {
        self.reached.fetch_add(1, Ordering::SeqCst);
        if self.fails.load(Ordering::SeqCst) {
            let error = std::io::Error::from_raw_os_error(5);
            return Err(device::Error::new("sync", "data", error));
        }
        Ok(())
    }
}

/// No byte of a commit reaches the disk if its barrier fails.
pub fn a_log_record_is_never_written_before_its_barrier<E: EngineUnderTest>() {
    let (sim, store) = fresh::<E>(1);
    let barrier = Arc::new(CountingBarrier { reached: 0.into(), fails: false.into() });
    store.set_barrier(Arc::<CountingBarrier>::clone(&barrier));
    commit(&*store, |batch| batch.create_tree(TREE));
    let token = store.last_commit();
    store.sync(token).expect("sync");
    assert!(barrier.reached.load(Ordering::SeqCst) > 0, "the barrier was not reached");
    barrier.fails.store(true, Ordering::SeqCst);
    commit(&*store, |batch| batch.put(TREE, b"names", b"data"));
    let failed = store.sync(store.last_commit());
    assert!(matches!(failed, Err(Error::Device(_) | Error::ReadOnly(_))), "{failed:?}");
    assert!(store.flush_if_due().is_err() || store.durable() == token);
    let failed = store.checkpoint();
    assert!(
        failed.is_err_and(|error| !matches!(error, Error::Corrupt(_))),
        "it names data as well"
    );
    drop(store);
    for policy in CrashPolicy::ALL {
        let sim = SimEnv::on(sim.device.after_crash(policy, 1), 1);
        let store = open::<E>(&sim, Durability::Async);
        assert_eq!(store.last_commit(), token);
        assert_eq!(store.get(TREE, b"names").expect("read"), None);
    }
}
