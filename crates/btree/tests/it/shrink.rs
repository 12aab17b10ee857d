//! What is dropped gives its space back to the disk, whenever the power fails.

use std::collections::BTreeMap;
use std::sync::Arc;

use btree::{BtreeStore, check};
use device::Env;
use device::sync::Mutex;
use store::{Commit, Durable, Maintain, SliceRun, Snapshot, TreeId};
use testing::run::rounds;
use testing::{CrashPolicy, Fault, FaultOn, Op, SimDevice, SimEnv, fails, has_exactly};

use crate::util::{TREE, checked, commit, entries, options, reclaim_all, store};

const OTHER: TreeId = TreeId(TREE.0 + 1);
const CACHE_BYTES: usize = 64 << 20;

/// Fills two trees alternately, so that their nodes alternate in the file.
fn fill(store: &BtreeStore, chunks: u32) {
    fill_with(store, chunks, |n| n.to_be_bytes().to_vec());
}

fn fill_with(store: &BtreeStore, chunks: u32, key: impl Fn(u32) -> Vec<u8>) {
    commit(store, |batch| batch.create_tree(OTHER));
    for chunk in 0..chunks {
        for tree in [TREE, OTHER] {
            commit(store, |batch| {
                for n in chunk * 500..chunk * 500 + 500 {
                    batch.put(tree, &key(n), &[tree.0 as u8; 100]);
                }
            });
        }
        if chunk % 8 == 7 {
            assert!(store.checkpoint().expect("checkpoint"));
        }
    }
    assert!(store.checkpoint().expect("checkpoint"));
}

fn drop_other(store: &BtreeStore) {
    commit(store, |batch| batch.drop_tree(OTHER));
    reclaim_all(store);
    for _ in 0..2 {
        assert!(store.checkpoint().expect("checkpoint"));
    }
    reclaim_all(store);
}

#[test]
fn dropped_nodes_free_blocks_on_a_real_disk() {
    let directory = tempfile::tempdir().unwrap();
    let env = Env::system(directory.path()).unwrap();
    let store = BtreeStore::create(&env, &options(CACHE_BYTES)).unwrap();
    commit(&store, |batch| batch.create_tree(TREE));
    let punches = {
        let file = env.device.create("probe").unwrap();
        file.set_len(1 << 20).unwrap();
        file.punch(0, 1 << 20).unwrap()
    };
    fill(&store, 100);
    let full = store.stats().disk_bytes;
    drop_other(&store);
    let half = store.stats().disk_bytes;
    if punches {
        assert!(half < full / 10 * 7, "{full} bytes became {half}");
    }
    commit(&store, |batch| batch.drop_tree(TREE));
    reclaim_all(&store);
    for _ in 0..3 {
        checked(&store);
    }
    reclaim_all(&store);
    let empty = store.stats().disk_bytes;
    assert!(empty < full / 8, "{full} bytes became {empty}");
    let length = env.device.open("btree/nodes").unwrap().len().unwrap();
    assert!(length < full / 2, "the file has {length} bytes still, of {full}");
}

#[test]
fn free_space_is_returned_when_idle_and_in_bulk() {
    let (_sim, store) = store(5, CACHE_BYTES);
    fill(&store, 40);
    reclaim_all(&store);
    let rest = store.stats().disk_bytes;
    let mut most = 0;
    for round in 0..20_u8 {
        for n in (0..20_000_u32).step_by(40) {
            commit(&store, |batch| batch.put(TREE, &n.to_be_bytes(), &[round; 100]));
        }
        assert!(store.checkpoint().expect("checkpoint"));
        // Somebody has committed since the last look.
        assert!(!store.reclaim_step(500).expect("reclaim"));
        most = most.max(store.stats().disk_bytes);
    }
    // Each round writes all of one tree: the replaced nodes stay for a while, and not for ever.
    assert!(most > rest * 3 / 2, "{most} bytes at most, {rest} when idle");
    assert!(most < rest + (24 << 20), "{most} bytes at most, {rest} when idle");
    reclaim_all(&store);
    let end = store.stats().disk_bytes;
    assert!(end < rest * 5 / 4, "{rest} bytes became {end}");
}

/// Opens what a power cut left, and checks all of it; returns how much trash there is.
fn look(disk: &SimDevice, place: &str, kept: &BTreeMap<Vec<u8>, Vec<u8>>) -> u64 {
    let store = BtreeStore::open(&SimEnv::on(disk.clone(), 1).env(), &options(CACHE_BYTES))
        .unwrap_or_else(|error| panic!("{place}: {error}"));
    let opened = store.stats();
    // What the log drops is not trash yet.
    let trash = if opened.replayed == 0 { opened.dropping } else { 0 };
    assert!(store.checkpoint().expect("checkpoint"));
    let report = check(&store).unwrap_or_else(|error| panic!("{place}: {error}"));
    assert!(report.is_clean(), "{place}: {:#?}", report.findings);
    assert!(has_exactly(&*store, TREE, kept), "{place}: the tree that stays has changed");
    if store.tree_exists(OTHER).expect("look") {
        let other = entries(&*store, OTHER);
        assert_eq!(other.len(), kept.len(), "{place}: a part of the dropped tree is there");
    }
    trash
}

#[test]
fn power_cuts_while_space_is_freed_leave_a_whole_store() {
    let (sim, store) = store(1, CACHE_BYTES);
    // Keys that differ at their ends only have long separators, so interior nodes are several.
    fill_with(&store, 60, |n| [[b'k'; 400].as_slice(), &n.to_be_bytes()].concat());
    let kept = entries(&*store, TREE);
    let expected = Arc::new(kept.clone());
    // How many there were, and how many of them found trash.
    let cuts = Arc::new(Mutex::new((0, 0)));
    let count = Arc::clone(&cuts);
    sim.device.watch(move |disk, op| {
        // In the short form every fourth; that is each policy in turn.
        if !op.is_multiple_of(rounds(4, 1)) {
            return;
        }
        let policy = CrashPolicy::ALL[op as usize / 2 % CrashPolicy::ALL.len()];
        let place = format!("{policy:?} before {op}");
        let trash = look(&disk.after_crash(policy, op), &place, &expected);
        let mut count = count.lock();
        *count = (count.0 + 1, count.1 + u32::from(trash > 0));
    });
    commit(&store, |batch| batch.drop_tree(OTHER));
    let mut steps = 0;
    while store.reclaim_step(1).expect("reclaim") && store.stats().dropping > 0 {
        steps += 1;
    }
    reclaim_all(&store);
    for _ in 0..2 {
        assert!(store.checkpoint().expect("checkpoint"));
    }
    reclaim_all(&store);
    sim.device.unwatch();
    let (cuts, with_trash) = *cuts.lock();
    println!("{steps} steps, {cuts} cuts, {with_trash} with trash");
    assert!(steps > 2, "{steps} steps");
    assert!(cuts > 20 && with_trash > 10, "{cuts} cuts, {with_trash} with trash");
    checked(&store);
    assert!(entries(&*store, TREE) == kept);
}

/// After a superblock that could not be synced, it is not known which of two states a crash would
/// leave. So nothing that is free in one of them may be punched.
#[test]
fn nothing_is_freed_after_a_failed_superblock_write() {
    for close in [false, true] {
        let (sim, store) = store(5, CACHE_BYTES);
        fill(&store, 40);
        reclaim_all(&store);
        for round in 0..6_u8 {
            for n in (0..20_000_u32).step_by(40) {
                commit(&store, |batch| batch.put(TREE, &n.to_be_bytes(), &[round; 100]));
            }
            if round < 5 {
                assert!(store.checkpoint().expect("checkpoint"));
            }
        }
        let kept = entries(&*store, TREE);
        let fault = Fault::no_space(FaultOn::Only(Op::Sync), 0).below("btree/super");
        sim.device.inject(fault);
        if close {
            // Whether it returns an error or not.
            drop(store.close());
        } else {
            fails(store.checkpoint(), "sync btree/super-0: No space left");
            for _ in 0..3 {
                while store.reclaim_step(500).unwrap_or(false) {}
            }
        }
        for (seed, policy) in (0..).zip(CrashPolicy::ALL) {
            let disk = sim.device.after_crash(policy, seed);
            let opened = BtreeStore::open(&SimEnv::on(disk, 1).env(), &options(CACHE_BYTES));
            let opened = opened.unwrap_or_else(|error| panic!("{close} {policy:?}: {error}"));
            assert!(entries(&*opened, TREE) == kept, "{close} {policy:?}");
        }
    }
}

/// Space that a checkpoint took before it ran out is free again, also directly after leaves that
/// the map does not have yet. Those leaves stay.
#[test]
fn a_failed_checkpoint_beside_ingested_leaves_frees_only_its_own_space() {
    let (sim, store) = store(9, CACHE_BYTES);
    fill(&store, 40);
    reclaim_all(&store);
    // In space of their own at the end of the file, which the checkpoint continues with.
    let run: Vec<_> =
        (1_000_000..1_020_000_u32).map(|n| (n.to_be_bytes().to_vec(), vec![7; 100])).collect();
    store.ingest(TREE, &mut SliceRun::new(&run)).expect("the range is empty");
    for n in 0..20_000_u32 {
        commit(&store, |batch| batch.put(TREE, &n.to_be_bytes(), &[1; 100]));
    }
    store.sync(store.last_commit()).expect("sync");
    let kept = entries(&*store, TREE);
    let before = store.stats().disk_bytes;
    // Nor is there any when it is tried with less.
    let fault = Fault::no_space(FaultOn::Only(Op::Write), 2).below("btree/nodes").forever();
    sim.device.inject(fault);
    let writes = sim.device.counts().of(Op::Write);
    fails(store.checkpoint(), "write btree/nodes: No space left");
    let writes = sim.device.counts().of(Op::Write) - writes;
    assert!(writes > 2, "{writes} writes: nothing was written");
    sim.device.clear_faults();
    // At once, and not only when somebody asks.
    let failed = store.stats().disk_bytes;
    assert!(failed <= before, "{before} bytes became {failed}");
    store.give_back().expect("punch");
    let after = store.stats().disk_bytes;
    assert!(after <= before, "{before} bytes became {failed}, and {after} when given back");
    for (seed, policy) in (0..).zip(CrashPolicy::ALL) {
        let disk = sim.device.after_crash(policy, seed);
        let opened = BtreeStore::open(&SimEnv::on(disk, 1).env(), &options(CACHE_BYTES));
        let opened = opened.unwrap_or_else(|error| panic!("{policy:?}: {error}"));
        assert!(entries(&*opened, TREE) == kept, "{policy:?}");
        checked(&opened);
    }
    checked(&store);
    assert!(entries(&*store, TREE) == kept);
}
