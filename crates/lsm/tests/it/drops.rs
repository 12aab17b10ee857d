//! Dropped trees share checkpoints, and their space is reclaimed once no more are dropped, or when
//! enough of it waits. A step that fails does not report that there is more to do.

use std::sync::Arc;

use device::sync::Mutex;
use lsm::LsmStore;
use store::{Commit, Durable, Maintain, SliceRun, Snapshot, TreeId};
use testing::run::for_seeds;
use testing::{CrashPolicy, Fault, FaultOn, Op, SimDevice, SimEnv, entries, numbered};

use crate::many::{clones, manifest};
use crate::util::{TREE, blobs, checked, commit, inspected, open, settle, store};

fn clone(n: u64) -> TreeId {
    TreeId(TREE.0 + 1 + n)
}

/// Drops a tree, and makes one step of reclaiming.
fn drop_and_step(store: &LsmStore, tree: TreeId) {
    commit(store, |batch| batch.drop_tree(tree));
    assert!(store.reclaim_step(100).expect("reclaim"), "there is more to do");
}

/// Background work drops a tree in each step, and reclaims in between.
#[test]
fn trees_that_are_dropped_one_by_one_share_checkpoints() {
    let (sim, store, mut model) = clones(3, 200);
    settle(&store);
    let (before, made) = (manifest(&sim.device), store.stats().checkpoints);
    let bytes = store.stats().disk_bytes;
    for n in 0..200 {
        drop_and_step(&store, clone(n));
        model.remove(&clone(n));
    }
    assert_eq!(store.stats().dropping, 200, "all of them wait");
    settle(&store);
    assert_eq!(store.stats().dropping, 0);
    // One for the drops, and one for merges of what is left.
    let (manifests, checkpoints) =
        (manifest(&sim.device) - before, store.stats().checkpoints - made);
    assert!(manifests <= 2 && checkpoints == 1, "{manifests} manifests, {checkpoints} checkpoints");
    assert!(store.stats().disk_bytes < bytes / 4, "{} of {bytes}", store.stats().disk_bytes);
    let crashed = SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, 1), 1);
    let opened = open(&crashed);
    assert!(model.iter().all(|(tree, all)| &entries(&*opened, *tree) == all));
    assert!(!opened.tree_exists(clone(0)).expect("it answers"));
    checked(&opened);
}

/// What does not change the layers of the durable state is no reason for a checkpoint.
#[test]
fn a_dropped_tree_without_layers_of_its_own_needs_no_checkpoint() {
    let (sim, store) = store(1);
    commit(&store, |batch| batch.put(TREE, b"of all", b"value"));
    commit(&store, |batch| (0..100).for_each(|n| batch.clone_tree(TREE, clone(n))));
    assert!(store.checkpoint().expect("checkpoint"));
    settle(&store);
    // As do those that no durable state has.
    commit(&store, |batch| (100..150).for_each(|n| batch.clone_tree(TREE, clone(n))));
    commit(&store, |batch| batch.put(clone(149), b"key", b"value"));
    let before = manifest(&sim.device);
    for n in 0..150 {
        commit(&store, |batch| batch.drop_tree(clone(n)));
        assert!(!store.reclaim_step(100).expect("reclaim"), "nothing is left to do");
        assert_eq!(store.stats().dropping, 0);
    }
    assert_eq!(manifest(&sim.device), before);
    store.sync(store.last_commit()).expect("sync");
    let crashed = SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, 1), 1);
    assert_eq!(open(&crashed).stats().trees, 1);
    // The last one that has the layers does.
    commit(&store, |batch| batch.clone_tree(TREE, clone(200)));
    assert!(store.checkpoint().expect("checkpoint"));
    settle(&store);
    for tree in [clone(200), TREE] {
        commit(&store, |batch| batch.drop_tree(tree));
    }
    settle(&store);
    assert_eq!(blobs(&sim.device), Vec::<String>::new());
}

/// Space that is worth it does not wait for further trees to be dropped.
#[test]
fn a_large_dropped_tree_is_reclaimed_while_others_are_dropped() {
    let (sim, store, _) = clones(4, 20);
    let large = TreeId(9000);
    commit(&store, |batch| batch.create_tree(large));
    for n in 0..1500_u64 {
        commit(&store, |batch| batch.put(large, &n.to_be_bytes(), &testing::noise(n, 1000)));
    }
    assert!(store.checkpoint().expect("checkpoint"));
    settle(&store);
    let before = sim.device.used_bytes();
    drop_and_step(&store, clone(0));
    assert_eq!(store.stats().dropping, 1);
    commit(&store, |batch| batch.drop_tree(large));
    store.reclaim_step(100).expect("reclaim");
    assert_eq!(store.stats().dropping, 0);
    drop_and_step(&store, clone(1));
    let after = sim.device.used_bytes();
    assert!(after + 1_400_000 < before, "{after} of {before} bytes");
}

/// A run that was ingested and dropped before any manifest listed it is held for a replay.
#[test]
fn what_was_ingested_and_dropped_is_reclaimed() {
    let (sim, store) = store(1);
    settle(&store);
    let run = numbered(0..2000, 50);
    let mut run = SliceRun::new(&run);
    store.ingest_new(clone(1), &mut run).expect("ingest");
    commit(&store, |batch| batch.drop_tree(clone(1)));
    assert_eq!(blobs(&sim.device).len(), 1);
    settle(&store);
    assert_eq!(blobs(&sim.device), Vec::<String>::new());
    assert_eq!(store.stats().dropping, 0);
}

/// A thread that looks for space repeats steps while they report that there is more to do. A step
/// that reported this after a failed one had it repeat failing checkpoints for ever.
#[test]
fn a_step_after_a_failed_checkpoint_fails_too() {
    let (sim, store, _) = clones(5, 40);
    settle(&store);
    drop_and_step(&store, clone(39));
    sim.device.inject(Fault::no_space(FaultOn::Only(Op::Write), 0).forever().below("lsm/"));
    let waited = (0..100).take_while(|_| store.reclaim_step(100).is_ok()).count();
    assert!((1..100).contains(&waited), "a checkpoint is tried after {waited} steps");
    for n in 0..39 {
        let failed = store.reclaim_step(100).expect_err("no space left");
        assert!(failed.is_no_space(), "{failed}");
        // Also if more is dropped meanwhile.
        commit(&store, |batch| batch.drop_tree(clone(n)));
    }
    assert_eq!(store.stats().dropping, 40);
    sim.device.clear_faults();
    settle(&store);
    assert_eq!(store.stats().dropping, 0);
    checked(&store);
}

/// On a disk that is nearly full every step makes the checkpoint, as a commit waits for the space.
#[test]
fn on_a_full_disk_a_dropped_tree_is_reclaimed_at_once() {
    let (sim, store, _) = clones(6, 20);
    settle(&store);
    // Enough for a checkpoint, and less than is kept for what follows it.
    sim.device.set_capacity(Some(sim.device.used_bytes() + (64 << 10)));
    let mut batch = store::Batch::new();
    batch.mark(store::Need::Removes);
    batch.drop_tree(clone(19));
    store.commit(&batch).expect("there is space to remove");
    let made = store.stats().checkpoints;
    store.reclaim_step(100).expect("reclaim");
    assert_eq!((store.stats().checkpoints, store.stats().dropping), (made + 1, 0));
}

#[test]
fn the_power_may_be_cut_among_drops_that_share_a_checkpoint() {
    for_seeds("drops of clones", 1, 8, |seed| {
        let (sim, store, model) = clones(seed, 12);
        let gone: Arc<Mutex<Vec<TreeId>>> = Arc::default();
        let (cuts, durably_gone) = (Arc::new(Mutex::new(0)), Arc::clone(&gone));
        let (seen, expected) = (Arc::clone(&cuts), model.clone());
        sim.device.watch(move |disk: &SimDevice, op| {
            let policy = CrashPolicy::ALL[op as usize % CrashPolicy::ALL.len()];
            let place = format!("seed {seed}, {policy:?} before {op}");
            let crashed = SimEnv::on(disk.after_crash(policy, op), 1);
            let report = inspected(&crashed);
            assert!(report.is_clean(), "{place}: {:?}", report.findings);
            let opened = open(&crashed);
            let durably_gone = durably_gone.lock();
            for (tree, expected) in &expected {
                if opened.tree_exists(*tree).expect("it answers") {
                    assert!(!durably_gone.contains(tree), "{place}: tree {} is back", tree.0);
                    assert!(entries(&*opened, *tree) == *expected, "{place}: tree {}", tree.0);
                }
            }
            let gone = durably_gone.len();
            assert!(opened.stats().trees as usize + gone + 1 >= expected.len(), "{place}");
            *seen.lock() += 1;
        });
        for n in [3, 0, 7, 11, 1, 2] {
            commit(&store, |batch| batch.drop_tree(clone(n)));
            store.sync(store.last_commit()).expect("sync");
            gone.lock().push(clone(n));
            store.reclaim_step(100).expect("reclaim");
        }
        settle(&store);
        sim.device.unwatch();
        assert!(*cuts.lock() > 50, "{} cuts", cuts.lock());
        for (tree, expected) in model.iter().filter(|(tree, _)| !gone.lock().contains(tree)) {
            assert!(entries(&*store, *tree) == *expected, "seed {seed}: tree {}", tree.0);
        }
        checked(&store);
    });
}
