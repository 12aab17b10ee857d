//! Dropped trees free their space: at once, over crashes, and with many clones.

use store::{Batch, Durability, Store, TreeId};

use super::compare::must;
use super::engine::{EngineUnderTest, fresh};
use super::history::History;
use super::reopen::open;
use super::workload::{Shape, Workload};
use crate::kit::{commit, noise};
use crate::{CrashPolicy, SimEnv};

/// Space that a store without trees may use beyond that of a new one, in bytes.
const KEPT_MAX: u64 = 1 << 20;

/// Reclaims everything that was dropped, with checkpoints in between.
fn reclaim_all(store: &dyn Store) {
    let mut steps = 0_u64;
    while store.reclaim_step(100).expect("reclaim") {
        steps += 1;
        assert!(steps < 100_000, "reclaiming does not end");
        if steps.is_multiple_of(10) {
            assert!(store.checkpoint().expect("checkpoint"));
        }
    }
    assert_eq!(store.stats().dropping, 0);
    for _ in 0..2 {
        // The next durable checkpoint returns the space that one frees.
        let mut batch = Batch::new();
        batch.create_tree(TreeId(u64::from(u32::MAX)));
        batch.drop_tree(TreeId(u64::from(u32::MAX)));
        store.commit(&batch).expect("the batch is valid");
        while store.reclaim_step(100).expect("reclaim") {}
        assert!(store.checkpoint().expect("checkpoint"));
    }
}

/// Space used only by dropped trees is free again after reclaiming and checkpointing.
pub fn a_dropped_tree_frees_its_space<E: EngineUnderTest>() {
    let (sim, store) = fresh::<E>(1);
    commit(&*store, |batch| batch.create_tree(TreeId(19)));
    assert!(store.checkpoint().expect("checkpoint"));
    let before = store.stats().disk_bytes;
    for clone in 0..5_u64 {
        commit(&*store, |batch| {
            let tree = TreeId(20 + clone);
            if clone == 0 {
                batch.create_tree(tree);
                for n in 0..20_000_u64 {
                    batch.put(tree, &n.to_be_bytes(), &noise(n, 200));
                }
            } else {
                batch.clone_tree(TreeId(19 + clone), tree);
            }
        });
        commit(&*store, |batch| {
            for n in (0..20_000_u64).step_by(3) {
                batch.put(TreeId(20 + clone), &n.to_be_bytes(), &noise(n + clone, 150));
            }
            batch.put(TreeId(20 + clone), b"large", &noise(clone, 60_000));
        });
        assert!(store.checkpoint().expect("checkpoint"));
    }
    let full = store.stats().disk_bytes;
    assert!(full > before + (4 << 20), "{full} bytes hold 4 MiB and more");
    for clone in 0..5_u64 {
        commit(&*store, |batch| batch.drop_tree(TreeId(20 + clone)));
    }
    reclaim_all(&*store);
    let after = store.stats().disk_bytes;
    assert!(after < before + KEPT_MAX, "{before} bytes became {full} and then {after}");
    drop(store);
    let store = open::<E>(&sim, Durability::Async);
    assert_eq!((store.stats().trees, store.stats().dropping), (1, 0));
}

/// Crashes at any point of dropping and reclaiming leave nothing behind that can never be freed.
pub fn nothing_leaks_over_crashes<E: EngineUnderTest>() {
    E::for_seeds("leaks over crashes", 2, 20, |seed| {
        let (mut sim, mut store) = fresh::<E>(seed);
        let before = store.stats().disk_bytes;
        let history = History::new();
        let mut work = Workload::new(seed, Shape { large: true, ..Shape::SMALL });
        for round in 0..E::rounds(12, 60) {
            history.run(&*store, &mut work, 25);
            store.sync(store.last_commit()).expect("sync");
            drop(store);
            let policy = CrashPolicy::ALL[(round % 3) as usize];
            sim = SimEnv::on(sim.device.after_crash(policy, seed + round), seed + round);
            store = open::<E>(&sim, Durability::Async);
            must(history.check_from(&*store, history.last()));
        }
        let mut batch = Batch::new();
        for &tree in work.trees() {
            batch.drop_tree(tree);
        }
        store.commit(&batch).expect("the batch is valid");
        reclaim_all(&*store);
        assert_eq!(store.stats().trees, 0);
        let after = store.stats().disk_bytes;
        assert!(after < before + KEPT_MAX, "{before} bytes became {after}");
    });
}

/// Hundreds of slightly changed clones cost only the changes; dropped, they cost nothing.
pub fn many_clones_cost_only_their_differences<E: EngineUnderTest>() {
    const KEYS: u64 = 800;
    let clones = E::rounds(300, 3000);
    let (sim, store) = fresh::<E>(1);
    let before = store.stats().disk_bytes;
    let source = TreeId(20);
    commit(&*store, |batch| {
        batch.create_tree(source);
        for n in 0..KEYS {
            batch.put(source, &n.to_be_bytes(), &[0; 100]);
        }
    });
    let key = |n: u64| (n % KEYS).to_be_bytes();
    for n in 1..=clones {
        commit(&*store, |batch| {
            batch.clone_tree(TreeId(20 + n / 2), TreeId(20 + n));
            batch.put(TreeId(20 + n), &key(n * 7), &n.to_be_bytes());
        });
        if n % 100 == 0 {
            assert!(store.checkpoint().expect("checkpoint"));
        }
    }
    store.close().expect("close");
    drop(store);
    let store = open::<E>(&sim, Durability::Async);
    assert_eq!(store.stats().trees, clones + 1);
    for n in (1..=clones).step_by(17) {
        // Each clone has the entries of the clones that it descends from, unless overwritten.
        let mut expected = std::collections::BTreeMap::new();
        let mut at = n;
        while at > 0 {
            expected.entry(key(at * 7)).or_insert(at);
            at /= 2;
        }
        for (key, n_put) in expected {
            let found = store.get(TreeId(20 + n), &key).expect("read");
            assert_eq!(found.as_deref(), Some(&n_put.to_be_bytes()[..]), "clone {n}");
        }
    }
    for first in (0..=clones).step_by(50) {
        commit(&*store, |batch| {
            for n in first..=(first + 49).min(clones) {
                batch.drop_tree(TreeId(20 + n));
            }
        });
        store.reclaim_step(50).expect("reclaim");
    }
    reclaim_all(&*store);
    let after = store.stats().disk_bytes;
    assert!(after < before + KEPT_MAX, "{before} bytes became {after}");
}
