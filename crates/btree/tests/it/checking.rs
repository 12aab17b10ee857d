//! A check finds damage that was done to a volume, and names the place. It works on a running
//! store, and on one that nobody has open, which it leaves unchanged.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use btree::{BtreeStore, inspect};
use format::node::{HEADER_BYTES, MAGIC, UNIT_BYTES};
use store::{CheckReport, Durable, Finding, FindingKind, Maintain, TreeId};
use testing::{Op, SetAtEnd, SimEnv};

use crate::util::{TREE, commit, options, store};

const CACHE_BYTES: usize = 64 << 20;
/// The value of records that a crash makes replay.
const IN_THE_LOG: &[u8] = b"in the log";

fn inspected(sim: &SimEnv) -> CheckReport {
    let mut proceed = |_, _| ControlFlow::Continue(());
    inspect(&sim.env(), &options(CACHE_BYTES), &mut proceed).expect("the files are there")
}

/// A tree of some hundred leaves with long values among them, clones of it, something dropped, and
/// records in the log. The store is left as by a crash.
fn crashed() -> SimEnv {
    let (sim, store) = store(1, CACHE_BYTES);
    for chunk in 0..30_u32 {
        commit(&store, |batch| {
            for n in chunk * 100..chunk * 100 + 100 {
                batch.put(TREE, &n.to_be_bytes(), &vec![1; if n % 50 == 0 { 5000 } else { 90 }]);
            }
        });
    }
    for clone in 1..20 {
        commit(&store, |batch| {
            batch.clone_tree(TREE, TreeId(TREE.0 + clone));
            batch.put(TreeId(TREE.0 + clone), &(clone as u32).to_be_bytes(), b"changed");
        });
    }
    assert!(store.checkpoint().expect("checkpoint"));
    commit(&store, |batch| batch.drop_tree(TreeId(TREE.0 + 7)));
    assert!(store.checkpoint().expect("checkpoint"));
    for n in 0..10_u32 {
        commit(&store, |batch| batch.put(TREE, &n.to_be_bytes(), IN_THE_LOG));
        // Each record states that the one before was durable.
        store.sync(store.last_commit()).expect("sync");
    }
    sim
}

/// Offsets of the nodes of a kind and level in the file of nodes, newest first. What is there may
/// be dead.
fn nodes(sim: &SimEnv, kind: u8, level: u8) -> Vec<u64> {
    let bytes = sim.device.read_file("btree/nodes");
    let found = (0..bytes.len()).step_by(UNIT_BYTES).filter(|&at| {
        let node = &bytes[at..];
        node.starts_with(&MAGIC) && node[6] == kind && node[7] == level
    });
    let mut found: Vec<u64> = found.map(|at| at as u64).collect();
    found.reverse();
    found
}

/// Offsets of the values of the records that a crash makes replay, in order.
fn records(sim: &SimEnv) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for (path, _) in sim.device.files() {
        let bytes = sim.device.read_file(&path);
        let at = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(IN_THE_LOG));
        if path.starts_with("log/") {
            found.extend(at.map(|at| (path.clone(), at as u64)));
        }
    }
    found
}

fn flip(sim: &SimEnv, path: &str, offset: u64) {
    sim.device.flip_bit(path, offset * 8);
}

#[test]
fn a_crashed_store_is_clean_and_stays_as_it_is() {
    let sim = crashed();
    let before = sim.device.counts();
    let report = inspected(&sim);
    assert!(report.is_clean() && report.underfull == 0, "{:#?}", report.findings);
    assert_eq!(report.trees, 19);
    assert!(report.leaves > 40 && report.overflows >= 60 && report.bytes > 500_000, "{report:?}");
    assert_eq!(report.log_records, 10);
    assert_eq!(report.lost_bytes, 0);
    let after = sim.device.counts();
    for op in [Op::Write, Op::Sync, Op::Create, Op::Remove, Op::Rename, Op::SetLen] {
        assert_eq!(before.of(op), after.of(op), "{op:?}");
    }
}

#[test]
fn a_check_can_be_cancelled() {
    let sim = crashed();
    let mut calls = 0;
    let mut stop = |done: u64, total: u64| {
        calls += 1;
        assert!(done <= total);
        ControlFlow::Break(())
    };
    let report = inspect(&sim.env(), &options(CACHE_BYTES), &mut stop).expect("it is read");
    assert!(report.stopped && report.is_clean());
    assert_eq!(calls, 1);
}

#[test]
fn damage_is_found_and_named_by_file_and_offset() {
    // Kind and level as in a node's header.
    for (kind, level) in [(1, 0), (2, 1), (3, 0)] {
        let sim = crashed();
        let all = nodes(&sim, kind, level);
        assert!(!all.is_empty(), "kind {kind}");
        let mut named = 0;
        for &offset in all.iter().take(12) {
            flip(&sim, "btree/nodes", offset + HEADER_BYTES as u64 + 9);
            let report = inspected(&sim);
            let is_of_it = |f: &&Finding| {
                let is_copy = f.remedy == store::Remedy::Rebuild;
                f.kind == FindingKind::Unreadable || f.kind == FindingKind::Structure && is_copy
            };
            let unreadable: Vec<_> = report.findings.iter().filter(is_of_it).collect();
            if let [finding] = unreadable[..] {
                assert_eq!((finding.file.as_str(), finding.offset), ("btree/nodes", offset));
                named += 1;
            } else {
                // Nothing points to it any more.
                assert!(report.is_clean(), "{:#?}", report.findings);
            }
            flip(&sim, "btree/nodes", offset + HEADER_BYTES as u64 + 9);
        }
        assert!(named > 0, "kind {kind}");
    }
}

#[test]
fn damaged_counts_superblocks_and_logs_are_found() {
    for path in ["btree/super-0", "btree/super-1"] {
        let sim = crashed();
        flip(&sim, path, 40);
        let report = inspected(&sim);
        assert!(report.findings.iter().any(|found| found.file == path), "{:#?}", report.findings);
    }
    // Pages of the map, of which one is current.
    let sim = crashed();
    let pages = nodes(&sim, 5, 0);
    for page in &pages {
        flip(&sim, "btree/nodes", page + 500);
    }
    let report = inspected(&sim);
    assert_eq!(report.findings_count, 1, "{:#?}", report.findings);
    assert_eq!(report.findings[0].kind, FindingKind::Unreadable);
    assert!(pages.contains(&report.findings[0].offset) && report.leaves > 40);
    let sim = crashed();
    // All but the last of the records that are needed: the records that follow state that they were
    // durable.
    let places = records(&sim);
    assert_eq!(places.len(), 10, "{places:?}");
    for (path, offset) in &places[..9] {
        flip(&sim, path, *offset);
        let report = inspected(&sim);
        let found = report.findings.iter().any(|found| found.file == *path);
        assert!(found, "{path} at {offset}: {report:#?}");
        flip(&sim, path, *offset);
    }
    assert!(inspected(&sim).is_clean());
    let sim = crashed();
    sim.device.delete("btree/super-0");
    let report = inspected(&sim);
    let found = report.findings.iter().any(|found| found.file == "btree/super-0");
    assert!(found, "{:#?}", report.findings);
}

#[test]
fn a_check_beside_commits_and_checkpoints_finds_nothing() {
    let (_sim, store) = store(3, 256 << 10);
    for n in 0..20_000_u32 {
        if n % 500 == 0 {
            assert!(store.checkpoint().expect("checkpoint"));
        }
        commit(&store, |batch| batch.put(TREE, &(n % 4000).to_be_bytes(), &[n as u8; 100]));
    }
    let done = AtomicBool::new(false);
    device::scope(|scope| {
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(3);
            let mut next = TREE.0 + 1;
            while !done.load(Ordering::Relaxed) {
                work(&store, &mut random, &mut next);
            }
        });
        let _end = SetAtEnd(&done);
        for _ in 0..15 {
            let mut proceed = |_, _| ControlFlow::Continue(());
            let report = store.check(&mut proceed).expect("check");
            assert!(report.is_clean(), "{:#?}", report.findings);
            assert!(report.leaves > 30);
        }
    });
}

/// Commits, clones, drops, checkpoints.
fn work(store: &BtreeStore, random: &mut fastrand::Rng, next: &mut u64) {
    let key = random.u32(0..4000).to_be_bytes();
    match random.u8(0..60) {
        0 => {
            store.checkpoint().expect("checkpoint");
        }
        1 => {
            store.reclaim_step(20).expect("reclaim");
        }
        2..5 => {
            let clone = TreeId(*next);
            *next += 1;
            commit(store, |batch| {
                batch.clone_tree(TREE, clone);
                batch.delete(clone, &key);
            });
            if random.bool() {
                commit(store, |batch| batch.drop_tree(clone));
            }
        }
        _ => commit(store, |batch| batch.put(TREE, &key, &[1; 120])),
    }
}
