//! Many clones: merges of the changes of each clone cost in proportion to those changes, and a
//! power cut among them loses nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::sync::Mutex;
use lsm::LsmStore;
use store::{Maintain, TreeId};
use testing::run::for_seeds;
use testing::{CrashPolicy, SimDevice, SimEnv, entries};

use crate::util::{TREE, blobs, checked, commit, inspected, open, settle, store};

pub(crate) type Model = BTreeMap<TreeId, BTreeMap<Vec<u8>, Vec<u8>>>;

/// A tree and clones of it, some of them clones of others, each with four runs of its own.
pub(crate) fn clones(seed: u64, count: u64) -> (SimEnv, Arc<LsmStore>, Model) {
    let (sim, store) = store(seed);
    let mut random = fastrand::Rng::with_seed(seed);
    commit(&store, |batch| batch.put(TREE, b"of all", b"value"));
    assert!(store.checkpoint().expect("checkpoint"));
    let clone = |n: u64| TreeId(TREE.0 + 1 + n);
    commit(&store, |batch| {
        for n in 0..count {
            let source = if n % 3 == 0 { TREE } else { clone(n - 1) };
            batch.clone_tree(source, clone(n));
        }
    });
    for _ in 0..4 {
        commit(&store, |batch| {
            for n in 0..count {
                batch.put(clone(n), &random.u32(..40).to_be_bytes(), &[random.u8(..); 30]);
                batch.delete(clone(n), &random.u32(..40).to_be_bytes());
            }
        });
        assert!(store.checkpoint().expect("checkpoint"));
    }
    let trees = (0..count).map(clone).chain([TREE]);
    let model = trees.map(|tree| (tree, entries(&*store, tree))).collect();
    (sim, store, model)
}

/// The number of the newest manifest.
pub(crate) fn manifest(device: &SimDevice) -> u64 {
    let number = |path: &str| u64::from_str_radix(path.strip_prefix("lsm/manifest-")?, 16).ok();
    device.files().iter().filter_map(|(path, _)| number(path)).max().expect("there is one")
}

#[test]
fn merges_of_small_runs_share_manifests() {
    let (sim, store, model) = clones(1, 100);
    let before = manifest(&sim.device);
    settle(&store);
    let (merges, manifests) =
        (store.stats().merges.expect("it merges").ended, manifest(&sim.device) - before);
    assert!(merges >= 100, "{merges} merges");
    assert!(manifests * 8 <= merges, "{merges} merges made {manifests} manifests");
    // And all of them are durable.
    let crashed = SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, 1), 1);
    let opened = open(&crashed);
    assert_eq!(blobs(&crashed.device), blobs(&sim.device), "nothing was left to be deleted");
    assert_eq!(opened.stats().merges.expect("it merges").next, None);
    for (tree, expected) in &model {
        assert!(entries(&*opened, *tree) == *expected, "tree {}", tree.0);
    }
    checked(&opened);
}

/// A merged run holds its inputs until a manifest lists it. That manifest is written before
/// compaction goes idle, also if the disk has no space for the merge that follows.
#[test]
fn merged_runs_are_freed_when_the_next_merge_is_cancelled() {
    let (sim, store, model) = clones(1, 60);
    let large = TreeId(9000);
    commit(&store, |batch| batch.create_tree(large));
    for round in 0..4_u64 {
        for part in 0..4 {
            commit(&store, |batch| {
                for n in part * 50..part * 50 + 50 {
                    batch.put(large, &(n * 4 + round).to_be_bytes(), &testing::noise(n, 3000));
                }
            });
        }
        assert!(store.checkpoint().expect("checkpoint"));
    }
    // The small ones come first, and the last of them wait for a manifest.
    let merges = || store.stats().merges.expect("it merges");
    while merges().under_way.is_none_or(|(at, _)| at < 1_200_000) {
        assert!(store.reclaim_step(1).expect("reclaim"), "{:?}", merges());
    }
    let (before, ended) = (manifest(&sim.device), merges().ended);
    assert!(ended >= 60, "{:?}", merges());
    sim.device.set_capacity(Some(sim.device.used_bytes() * 32 / 31));
    settle(&store);
    assert_eq!((merges().under_way, merges().ended), (None, ended), "it was given up");
    assert_eq!(manifest(&sim.device), before + 1, "what was merged before is durable");
    assert!(!store.compaction_may_free_space(), "nothing waits");
    sim.device.set_capacity(None);
    for (tree, expected) in &model {
        assert!(entries(&*store, *tree) == *expected, "tree {}", tree.0);
    }
    checked(&store);
}

#[test]
fn the_power_may_be_cut_among_merges_that_share_a_manifest() {
    for_seeds("merges of clones", 1, 8, |seed| {
        let (sim, store, model) = clones(seed, 12);
        let seen = Arc::new(Mutex::new(0));
        let (cuts, expected) = (Arc::clone(&seen), model.clone());
        sim.device.watch(move |disk: &SimDevice, op| {
            let policy = CrashPolicy::ALL[op as usize % CrashPolicy::ALL.len()];
            let place = format!("seed {seed}, {policy:?} before {op}");
            let crashed = SimEnv::on(disk.after_crash(policy, op), 1);
            let report = inspected(&crashed);
            assert!(report.is_clean(), "{place}: {:?}", report.findings);
            let opened = open(&crashed);
            for (tree, expected) in &expected {
                assert!(entries(&*opened, *tree) == *expected, "{place}: tree {}", tree.0);
            }
            *cuts.lock() += 1;
        });
        settle(&store);
        sim.device.unwatch();
        assert!(*seen.lock() > 50, "{} cuts", seen.lock());
        for (tree, expected) in &model {
            assert!(entries(&*store, *tree) == *expected, "seed {seed}: tree {}", tree.0);
        }
        checked(&store);
    });
}
