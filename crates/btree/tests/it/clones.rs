//! Clones of clones, dropped in any order.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use btree::BtreeStore;
use store::{Batch, CheckReport, Commit, Durable, Maintain, Read, TreeId};
use testing::run::rounds;
use testing::store_conformance::History;
use testing::{CrashPolicy, Op, SimEnv, sim_env};

use crate::util::{TREE, checked, commit, entries, options, reclaim_all, store, verify};

#[test]
fn a_thousand_clones_of_clones_free_all_space_in_any_order() {
    for seed in [3] {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let (_sim, store) = store(seed, 64 << 20);
        let empty = checked(&store);
        for n in 0..3000_u32 {
            commit(&store, |batch| batch.put(TREE, &n.to_be_bytes(), &[1; 100]));
        }
        let full = checked(&store);
        let mut alive = vec![TREE.0];
        for clone in 0..1000 {
            let source = alive[random.usize(0..alive.len())];
            let target = TREE.0 + 1 + clone;
            let key = random.u32(0..3000).to_be_bytes();
            commit(&store, |batch| {
                batch.clone_tree(TreeId(source), TreeId(target));
                batch.put(TreeId(target), &key, &target.to_be_bytes());
            });
            alive.push(target);
            if clone % 250 == 100 {
                checked(&store);
            }
        }
        checked(&store);
        random.shuffle(&mut alive);
        while let Some(tree) = alive.pop() {
            if tree == TREE.0 {
                continue;
            }
            commit(&store, |batch| batch.drop_tree(TreeId(tree)));
            if alive.len() % 200 == 50 {
                store.reclaim_step(10).expect("reclaim");
                checked(&store);
            }
        }
        reclaim_all(&store);
        let after = checked(&store);
        assert_eq!((after.leaves, after.interiors), (full.leaves, full.interiors));
        assert_eq!(entries(&*store, TREE).len(), 3000);
        commit(&store, |batch| batch.delete_range(TREE, b"", &[0xff; 9]));
        let after = checked(&store);
        assert_eq!((after.leaves, after.units), (empty.leaves, empty.units));
    }
}

#[test]
fn a_clone_costs_nothing_below_its_root() {
    let (_sim, store) = store(1, 256 << 20);
    for chunk in 0..rounds(30, 100) as u32 {
        commit(&store, |batch| {
            for n in chunk * 1000..chunk * 1000 + 1000 {
                batch.put(TREE, &n.to_be_bytes(), &[1; 60]);
            }
        });
    }
    let before = checked(&store);
    for clone in 0..100 {
        commit(&store, |batch| batch.clone_tree(TREE, TreeId(TREE.0 + 1 + clone)));
    }
    let after = checked(&store);
    assert!(after.units < before.units + 32, "{} and {} units", before.units, after.units);
    // One write in a clone copies one path.
    commit(&store, |batch| batch.put(TreeId(TREE.0 + 5), &77_u32.to_be_bytes(), b"new"));
    let written = checked(&store);
    assert!(written.leaves + written.interiors <= after.leaves + after.interiors + 4);
    let old = store.get(TREE, &77_u32.to_be_bytes()).expect("read").expect("there");
    assert_eq!(old, [1; 60]);
}

/// Checks what is on disk only: so many trees in memory are many times the same keys.
fn durable(store: &BtreeStore) -> CheckReport {
    assert!(store.checkpoint().expect("checkpoint"));
    let report = store.check(&mut |_, _| ControlFlow::Continue(())).expect("check");
    assert!(report.is_clean(), "{:#?}", report.findings);
    report
}

#[test]
fn a_node_is_shared_by_more_than_sixteen_bits_count() {
    const CLONES: u64 = 70_000;
    let (_sim, store) = store(2, 256 << 20);
    for n in 0..300_u32 {
        commit(&store, |batch| batch.put(TREE, &n.to_be_bytes(), &[1; 100]));
    }
    let alone = durable(&store);
    let clone = |n: u64| TreeId(TREE.0 + 1 + n);
    for chunk in 0..CLONES / 1000 {
        commit(&store, |batch| {
            for n in chunk * 1000..chunk * 1000 + 1000 {
                // Clones the source, the clone before, or any other.
                let source = match n % 3 {
                    _ if n == 0 => TREE,
                    0 => clone(n - 1),
                    1 => clone(n / 2),
                    _ => TREE,
                };
                batch.clone_tree(source, clone(n));
            }
        });
    }
    // The check counts all references again and compares.
    let shared = durable(&store);
    assert_eq!(shared.trees, CLONES + 1);
    // One node of the tree changes below each pointer to its parent, by any thread's write.
    for n in (0..CLONES).step_by(7000) {
        commit(&store, |batch| batch.put(clone(n), &7_u32.to_be_bytes(), b"changed"));
    }
    durable(&store);
    commit(&store, |batch| {
        // Enough for the count to fall below sixteen bits again.
        for n in (0..CLONES).step_by(14) {
            batch.drop_tree(clone(n));
        }
    });
    let dropped = durable(&store);
    assert_eq!(dropped.trees, CLONES + 1 - CLONES / 14);
    assert!(alone.entries < dropped.entries);
    assert_eq!(entries(&*store, TREE).len(), 300);
}

#[test]
fn a_reclaim_step_frees_at_most_the_requested_nodes() {
    const TREES: u64 = 40;
    let (_sim, store) = store(5, 64 << 20);
    for tree in (0..TREES).map(|n| TreeId(TREE.0 + 1 + n)) {
        commit(&store, |batch| {
            batch.create_tree(tree);
            for n in 0..8000_u32 {
                batch.put(tree, &n.to_be_bytes(), &[1; 100]);
            }
        });
    }
    let full = checked(&store);
    let leaves = full.leaves / TREES;
    assert!(leaves > 40, "{full:?}");
    commit(&store, |batch| (0..TREES).for_each(|n| batch.drop_tree(TreeId(TREE.0 + 1 + n))));
    // What is in memory goes first, and frees nothing on disk.
    let mut steps = 0;
    loop {
        let before = store.stats().dropping;
        let more = store.reclaim_step(10).expect("reclaim");
        let freed = before - store.stats().dropping;
        // Each root counts as eight references, and has one for each leaf.
        assert!(freed <= 80 / (leaves + 8) + 1, "{freed} trees in a step");
        steps += u64::from(freed > 0);
        if !more {
            break;
        }
    }
    assert!(steps >= TREES / 2, "{steps} steps");
    assert!(checked(&store).leaves < 5);
}

#[test]
fn a_removed_range_is_freed_without_reading_its_leaves() {
    let (sim, first) = store(4, 64 << 20);
    for chunk in 0..40_u32 {
        commit(&first, |batch| {
            for n in chunk * 1000..chunk * 1000 + 1000 {
                batch.put(TREE, &n.to_be_bytes(), &[1; 90]);
            }
        });
    }
    let report = checked(&first);
    assert!(report.leaves > 300);
    let clone = TreeId(TREE.0 + 1);
    commit(&first, |batch| batch.clone_tree(TREE, clone));
    first.close().expect("close");
    drop(first);
    // Opened again, so that each node that is looked at is read.
    let store = BtreeStore::open(&sim.env(), &options(64 << 20)).expect("open");
    let reads = || sim.device.counts().of(Op::Read);
    let (from, to) = (500_u32.to_be_bytes(), 39_500_u32.to_be_bytes());
    for tree in [clone, TREE] {
        // First what the other tree shares, then what nobody does.
        let before = reads();
        commit(&store, |batch| batch.delete_range(tree, &from, &to));
        assert!(store.checkpoint().expect("checkpoint"));
        while store.reclaim_step(100).expect("reclaim") {}
        let cost = reads() - before;
        assert!(cost <= 20, "{cost} reads for {} leaves", report.leaves);
    }
    let after = checked(&store);
    assert!(after.leaves < 20, "{after:?}");
    assert_eq!(entries(&*store, TREE).len(), 1000);
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// What is written once to the clone of a number: a value, or none where the key is deleted.
fn written_to(clone: u64, random: &mut fastrand::Rng) -> (Vec<u8>, Option<Vec<u8>>) {
    let key = random.u32(0..1300).to_be_bytes().to_vec();
    let value = match clone % 7 {
        0 => None,
        1 => Some(vec![clone as u8; 2100]),
        _ => Some(clone.to_be_bytes().to_vec()),
    };
    (key, value)
}

#[test]
fn a_chain_of_a_thousand_clones_is_dropped_in_any_order() {
    const CLONES: u64 = 1000;
    for seed in [7] {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let (sim, mut store) = store(seed, 64 << 20);
        for n in 0..1200_u32 {
            commit(&store, |batch| batch.put(TREE, &n.to_be_bytes(), &[1; 150]));
        }
        let alone = checked(&store);
        let base = entries(&*store, TREE);
        let mut writes = Vec::new();
        for clone in 1..=CLONES {
            let (source, target) = (TreeId(TREE.0 + clone - 1), TreeId(TREE.0 + clone));
            let (key, value) = written_to(clone, &mut random);
            commit(&store, |batch| batch.clone_tree(source, target));
            commit(&store, |batch| match &value {
                Some(value) => batch.put(target, &key, value),
                None => batch.delete(target, &key),
            });
            writes.push((key, value));
            if clone % 100 == 50 {
                assert!(store.checkpoint().expect("checkpoint"));
            }
        }
        checked(&store);
        // A clone has what was written to those that it comes from, and nothing else.
        let equal = |store: &BtreeStore, alive: &[u64]| {
            let (mut model, mut made): (Model, u64) = (base.clone(), 0);
            let mut alive = alive.to_vec();
            alive.sort_unstable();
            for clone in alive {
                for (key, value) in &writes[made as usize..clone as usize] {
                    match value {
                        Some(value) => drop(model.insert(key.clone(), value.clone())),
                        None => drop(model.remove(key)),
                    }
                }
                made = clone;
                let found = entries(store, TreeId(TREE.0 + clone));
                assert!(found == model, "seed {seed}: clone {clone} of the chain");
            }
        };
        // The first of them is the tree that all come from.
        let mut alive: Vec<u64> = (0..=CLONES).collect();
        random.shuffle(&mut alive);
        equal(&store, &alive[..40]);
        while let Some(clone) = alive.pop() {
            commit(&store, |batch| batch.drop_tree(TreeId(TREE.0 + clone)));
            if alive.len() % 40 == 3 {
                store.reclaim_step(random.usize(1..60)).expect("reclaim");
            }
            match alive.len() {
                600 | 250 | 90 | 20 | 2 => {
                    equal(&store, &alive);
                    checked(&store);
                }
                // What is in memory goes, so that it is the disk that is compared.
                400 | 120 | 5 => {
                    store.close().expect("close");
                    store = BtreeStore::open(&sim.env(), &options(64 << 20)).expect("open");
                    equal(&store, &alive);
                }
                _ => {}
            }
        }
        reclaim_all(&store);
        let after = checked(&store);
        assert_eq!((after.trees, after.leaves, after.trash), (0, 1, 0), "{after:?}");
        assert!(after.units < alone.units / 10, "{after:?}");
        reclaim_all(&store);
        let bytes = store.stats().disk_bytes;
        assert!(bytes < 1 << 20, "{bytes} bytes for nothing");
    }
}

/// Keys so long that there are many nodes; each node stores their prefix once.
fn long_key(n: u32) -> Vec<u8> {
    [[b'k'; 460].as_slice(), &n.to_be_bytes()].concat()
}

#[test]
fn dropping_a_clone_costs_only_its_own_nodes() {
    const ENTRIES: u32 = 64_000;
    let (sim, first) = store(6, 64 << 20);
    for chunk in 0..ENTRIES / 1000 {
        commit(&first, |batch| {
            for n in chunk * 1000..chunk * 1000 + 1000 {
                batch.put(TREE, &long_key(n), &[1; 30]);
            }
        });
    }
    let alone = checked(&first);
    assert!(alone.leaves > 1900, "{alone:?}");
    let clone = TreeId(TREE.0 + 1);
    commit(&first, |batch| {
        batch.clone_tree(TREE, clone);
        for n in [7, 30_000, 63_000] {
            batch.put(clone, &long_key(n), b"changed");
        }
    });
    let shared = checked(&first);
    let nodes = |report: &CheckReport| report.leaves + report.interiors;
    let own = nodes(&shared) - nodes(&alone);
    let height = 4;
    assert!((own - 1) <= 3 * (height - 1), "a path to each leaf that was written: {own} nodes");
    first.close().expect("close");
    drop(first);
    // Opened again, so that each node that is looked at is read.
    let store = BtreeStore::open(&sim.env(), &options(64 << 20)).expect("open");
    let before = sim.device.counts();
    commit(&store, |batch| batch.drop_tree(clone));
    while store.reclaim_step(1000).expect("reclaim") {}
    assert_eq!(store.stats().dropping, 0);
    let after = sim.device.counts();
    let reads = after.of(Op::Read) - before.of(Op::Read);
    let writes = after.of(Op::Write) - before.of(Op::Write);
    let bytes = after.written_bytes - before.written_bytes;
    println!("{own} of {} nodes: {reads} reads, {writes} writes, {bytes} bytes", nodes(&shared));
    // Beside the nodes that died: the catalog, and pages of the map.
    assert!(reads <= own + height, "{reads} reads for {own} nodes");
    assert!(writes <= own + height, "{writes} writes for {own} nodes");
    let report = checked(&store);
    assert_eq!((nodes(&report), report.units), (nodes(&alone), alone.units));
}

/// A chain of clones, each written, of a tree of some leaves; all of it durable.
fn written_chain(seed: u64, clones: u64) -> (SimEnv, Arc<BtreeStore>, Arc<History>) {
    let (sim, history) = (sim_env(seed), Arc::new(History::new()));
    let store = BtreeStore::create(&sim.env(), &options(8 << 20)).expect("create");
    let mut random = fastrand::Rng::with_seed(seed);
    for clone in 0..=clones {
        commit_to(&store, &history, |batch| {
            let tree = TreeId(TREE.0 + clone);
            if clone == 0 {
                batch.create_tree(tree);
                (0..700_u32).for_each(|n| batch.put(tree, &n.to_be_bytes(), &[1; 100]));
                return;
            }
            batch.clone_tree(TreeId(tree.0 - 1), tree);
            for _ in 0..3 {
                let (key, value) = written_to(clone, &mut random);
                match value {
                    Some(value) => batch.put(tree, &key, &value),
                    None => batch.delete(tree, &key),
                }
            }
        });
        if clone % 4 == 2 {
            assert!(store.checkpoint().expect("checkpoint"));
        }
    }
    store.sync(store.last_commit()).expect("sync");
    history.set_durable(store.last_commit());
    (sim, store, history)
}

/// Commits to the store and, before, to the history that it is compared with.
fn commit_to(store: &BtreeStore, history: &History, fill: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::new();
    fill(&mut batch);
    let expected = history.push(&batch);
    assert_eq!(store.commit(&batch).expect("the batch is valid"), expected);
}

/// The links of a chain are dropped in a random order, and reclaimed in small steps, and the others
/// are written. Wherever power is cut, whole commits are left, with exact counts.
#[test]
fn power_may_be_cut_while_written_clones_of_clones_are_dropped() {
    const CLONES: u64 = 14;
    let (cuts, trash) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    for seed in 0..3 {
        println!("seed {seed}");
        let (sim, store, history) = written_chain(seed, CLONES);
        let mut random = fastrand::Rng::with_seed(seed);
        let (watched, counted) = (Arc::clone(&history), [Arc::clone(&cuts), Arc::clone(&trash)]);
        sim.device.watch(move |image, op| {
            for policy in CrashPolicy::at(op + seed) {
                let sim = SimEnv::on(image.after_crash(policy, op), op);
                let place = format!("cut before {op}, {policy:?}");
                let same = |store: &BtreeStore| {
                    watched.check(store).unwrap_or_else(|wrong| panic!("{place}: {wrong:?}"));
                };
                let found = verify(&sim, 8 << 20, &place, same);
                counted[0].fetch_add(1, Ordering::Relaxed);
                counted[1].fetch_add(u64::from(found.trash > 0), Ordering::Relaxed);
            }
        });
        let mut alive: Vec<u64> = (TREE.0..=TREE.0 + CLONES).collect();
        random.shuffle(&mut alive);
        while let Some(dropped) = alive.pop() {
            commit_to(&store, &history, |batch| {
                batch.drop_tree(TreeId(dropped));
                if let Some(&other) = random.choice(&alive) {
                    let (key, value) = written_to(dropped, &mut random);
                    batch.put(TreeId(other), &key, &value.unwrap_or_default());
                }
            });
            match random.u8(0..10) {
                0..3 => {
                    store.sync(store.last_commit()).expect("sync");
                    history.set_durable(store.last_commit());
                }
                3 => assert!(store.checkpoint().expect("checkpoint")),
                // Several wait until then, more than one step frees.
                4..7 => (0..random.u8(1..5)).for_each(|_| {
                    store.reclaim_step(1).expect("reclaim");
                }),
                _ => {}
            }
        }
        while store.reclaim_step(2).expect("reclaim") {}
        sim.device.unwatch();
        assert_eq!(checked(&store).leaves, 1, "all is given back but the catalog");
    }
    let (cuts, trash) = (cuts.load(Ordering::Relaxed), trash.load(Ordering::Relaxed));
    println!("{cuts} cuts, {trash} in the middle of what one step did not free");
    assert!(cuts > rounds(100, 300) && trash > rounds(7, 20), "{cuts} cuts, {trash} with trash");
}
