//! Either superblock is enough: whichever of them rots, and whenever the power was cut, nothing
//! that was durable is lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use btree::{BtreeStore, check, repair};
use device::sync::Mutex;
use format::superblock::{Decoded, SUPERBLOCK_BYTES, Superblock};
use store::{Durable, Maintain, TreeId};
use testing::run::for_seeds;
use testing::{CrashPolicy, SimDevice, SimEnv};

use crate::util::{TREE, checked, commit, entries, options, reclaim_all, store};

pub(crate) const PATHS: [&str; 2] = ["btree/super-0", "btree/super-1"];
const KEYS: u32 = 1200;
pub(crate) const CACHE_BYTES: usize = 8 << 20;

pub(crate) type Model = BTreeMap<TreeId, BTreeMap<Vec<u8>, Vec<u8>>>;

/// Rewrites a part of the tree, and replaces the clone of it that there is. So the next checkpoint
/// frees much of what the last one wrote.
pub(crate) fn change(
    store: &BtreeStore,
    model: &mut Model,
    random: &mut fastrand::Rng,
    round: u64,
) {
    for _ in 0..150 {
        let key = random.u32(..KEYS).to_be_bytes();
        let value = vec![random.u8(..); random.usize(100..2500)];
        commit(store, |batch| batch.put(TREE, &key, &value));
        model.entry(TREE).or_default().insert(key.to_vec(), value);
    }
    let first = random.u32(..KEYS);
    let range = first.to_be_bytes()..(first + 200).to_be_bytes();
    commit(store, |batch| batch.delete_range(TREE, &range.start, &range.end));
    let there = model.entry(TREE).or_default();
    there.retain(|key, _| !(&range.start[..]..&range.end[..]).contains(&&key[..]));
    let clone = TreeId(TREE.0 + round);
    commit(store, |batch| {
        batch.clone_tree(TREE, clone);
        if round > 1 {
            batch.drop_tree(TreeId(clone.0 - 1));
        }
    });
    model.insert(clone, model[&TREE].clone());
    if round > 1 {
        model.remove(&TreeId(clone.0 - 1));
    }
    store.sync(store.last_commit()).expect("sync");
}

/// Opens what a disk holds, and compares.
pub(crate) fn opens(device: SimDevice, model: &Model, place: &str) {
    let sim = SimEnv::on(device, 1);
    let store = BtreeStore::open(&sim.env(), &options(CACHE_BYTES))
        .unwrap_or_else(|error| panic!("{place}: {error}"));
    for (tree, expected) in model {
        assert!(entries(&*store, *tree) == *expected, "{place}: tree {} has changed", tree.0);
    }
    let report = check(&store).expect(place);
    assert!(report.is_clean(), "{place}: {:#?}", report.findings);
}

pub(crate) fn is_whole(device: &SimDevice, path: &str) -> bool {
    let bytes = device.read_file(path);
    bytes.len() >= SUPERBLOCK_BYTES
        && matches!(Superblock::decode(&bytes[..SUPERBLOCK_BYTES]), Ok(Decoded::Superblock(_)))
}

/// Each superblock in turn: zeros, and a flipped bit. Not while the power cut has torn the other.
fn opens_with_either(device: &SimDevice, model: &Model, place: &str) -> u32 {
    let mut opened = 0;
    for (path, other) in [(PATHS[0], PATHS[1]), (PATHS[1], PATHS[0])] {
        if !is_whole(device, other) {
            continue;
        }
        let zeroed = device.copy();
        zeroed.overwrite(path, 0, &[0; SUPERBLOCK_BYTES]);
        opens(zeroed, model, &format!("{place}, {path} is zeros"));
        let flipped = device.copy();
        flipped.flip_bit(path, 8 * 40);
        opens(flipped, model, &format!("{place}, {path} has a flipped bit"));
        opened += 2;
    }
    opened
}

/// Opens what a disk holds, in several ways; returns how often. The text names the case.
pub(crate) type Opens = fn(&SimDevice, &Model, &str) -> u32;

/// Rounds of changes with a checkpoint each. Power is cut before each operation of a checkpoint;
/// what is on the disk then is passed to `opens`. Returns how often that opened it.
pub(crate) fn cut_in_checkpoints(
    seed: u64,
    rounds: std::ops::Range<u64>,
    opens: Opens,
    after_round: impl Fn(&SimEnv, &BtreeStore, &Model, u64) -> u32,
) -> u32 {
    let (sim, store) = store(seed, CACHE_BYTES);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut model = Model::new();
    let opened = Arc::new(Mutex::new(0));
    for round in rounds {
        change(&store, &mut model, &mut random, round);
        let (expected, seen) = (model.clone(), Arc::clone(&opened));
        sim.device.watch(move |disk: &SimDevice, op| {
            let policy = CrashPolicy::ALL[op as usize % CrashPolicy::ALL.len()];
            let place = format!("seed {seed}, round {round}, {policy:?} before {op}");
            let crashed = disk.after_crash(policy, op);
            *seen.lock() += opens(&crashed, &expected, &place);
        });
        assert!(store.checkpoint().expect("checkpoint"));
        sim.device.unwatch();
        // Freed space goes back to the disk, when nobody has committed for a while.
        reclaim_all(&store);
        *opened.lock() += after_round(&sim, &store, &model, round);
    }
    *opened.lock()
}

#[test]
fn either_superblock_suffices_after_any_power_cut() {
    for_seeds("superblocks", 2, 12, |seed| {
        let after_round = |sim: &SimEnv, store: &BtreeStore, model: &Model, round| {
            checked(store);
            let after = sim.device.after_crash(CrashPolicy::LoseAll, round);
            opens_with_either(&after, model, &format!("seed {seed}, after round {round}"))
        };
        let opened = cut_in_checkpoints(seed, 1..6, opens_with_either, after_round);
        assert!(opened > 100, "opened {opened} times");
    });
}

/// Opening makes both the same, so that a second damage, of the other one, finds one that is whole.
#[test]
fn a_damaged_superblock_is_rewritten_by_opening_and_by_repair() {
    let (sim, store) = store(3, CACHE_BYTES);
    let mut random = fastrand::Rng::with_seed(3);
    let mut model = Model::new();
    for round in 1..4 {
        change(&store, &mut model, &mut random, round);
        checked(&store);
    }
    drop(store);
    let crashed = sim.device.after_crash(CrashPolicy::LoseAll, 3);
    for path in PATHS {
        let device = crashed.copy();
        device.flip_bit(path, 8 * 40);
        opens(device.copy(), &model, path);
        let opened = device.copy();
        opens(opened.clone(), &model, path);
        let repaired = device.copy();
        repair(&SimEnv::on(repaired.clone(), 1).env(), &options(CACHE_BYTES)).expect(path);
        for (device, by) in [(opened, "opening"), (repaired, "repairing")] {
            assert_eq!(device.read_file(PATHS[0]), device.read_file(PATHS[1]), "after {by}");
            let after = device.after_crash(CrashPolicy::LoseAll, 4);
            opens_with_either(&after, &model, &format!("{path} rotted, after {by}"));
        }
    }
}
