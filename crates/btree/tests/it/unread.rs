//! What happens where it is not known that the superblock that reads is the newest. Nothing is
//! written, the content can be read, and the volume opens for writing when it is known again.

use std::collections::BTreeMap;

use btree::{BtreeStore, repair};
use format::log_record::sum_payload;
use format::superblock::SUPERBLOCK_BYTES;
use store::{Batch, Commit, Durable, Error, Maintain};
use testing::run::for_seeds;
use testing::{CrashPolicy, Fault, FaultOn, Op, SimDevice, SimEnv};

use crate::superblocks::{CACHE_BYTES, Model, PATHS, change, cut_in_checkpoints, is_whole, opens};
use crate::util::{TREE, checked, entries, options, reclaim_all, store};

fn files(device: &SimDevice) -> BTreeMap<String, Vec<u8>> {
    device.files().into_iter().map(|(path, _)| (path.clone(), device.read_file(&path))).collect()
}

fn is_refused<T>(refused: &Result<T, Error>) -> bool {
    matches!(refused, Err(Error::ReadOnly(_)))
}

/// Opens what is not to be written, and sees that it is not; whether it could be read.
fn opens_for_reading(device: &SimDevice, bad: &str, model: Option<&Model>, place: &str) -> bool {
    let before = files(device);
    let opened = BtreeStore::open(&SimEnv::on(device.clone(), 1).env(), &options(CACHE_BYTES));
    let reads = match opened {
        Ok(store) => {
            let why = store.read_only().unwrap_or_else(|| panic!("{place}: opened for writing"));
            assert!(why.contains(bad), "{place}: {why}");
            for (tree, expected) in model.into_iter().flatten() {
                assert!(entries(&*store, *tree) == *expected, "{place}: tree {}", tree.0);
            }
            let mut batch = Batch::new();
            batch.put(TREE, b"key", b"value");
            assert!(is_refused(&store.commit(&batch)), "{place}: a commit");
            assert!(!store.checkpoint_due(), "{place}");
            assert!(is_refused(&store.checkpoint()), "{place}: a checkpoint");
            while store.reclaim_step(500).expect(place) {}
            store.give_back().expect(place);
            store.close().expect(place);
            true
        }
        Err(error) => {
            assert!(model.is_none(), "{place}: {error}");
            false
        }
    };
    assert!(files(device) == before, "{place}: something was written");
    reads
}

fn unreadable(path: &str) -> Fault {
    Fault::io(FaultOn::Only(Op::Read), 0).forever().below(path)
}

/// Each superblock in turn cannot be read; not while the power cut has torn the other.
fn reads_with_either(device: &SimDevice, model: &Model, place: &str) -> u32 {
    let mut opened = 0;
    for (path, other) in [(PATHS[0], PATHS[1]), (PATHS[1], PATHS[0])] {
        if !is_whole(device, other) {
            continue;
        }
        let place = format!("{place}, {path} cannot be read");
        let device = device.copy();
        device.inject(unreadable(path));
        assert!(opens_for_reading(&device, path, Some(model), &place));
        // What both contain is unknown, too.
        device.inject(unreadable(other));
        let before = files(&device);
        let env = SimEnv::on(device.clone(), 1).env();
        let refused = BtreeStore::open(&env, &options(CACHE_BYTES));
        assert!(matches!(refused, Err(Error::Device(_))), "{place}: {refused:?}");
        let refused = repair(&env, &options(CACHE_BYTES));
        assert!(matches!(refused, Err(Error::Device(_))), "{place}: {refused:?}");
        assert!(files(&device) == before, "{place}: something was written");
        device.clear_faults();
        opens(device, model, &place);
        opened += 1;
    }
    opened
}

#[test]
fn a_volume_with_an_unreadable_superblock_opens_read_only_after_any_power_cut() {
    for_seeds("unread superblocks", 1, 6, |seed| {
        let opened = cut_in_checkpoints(seed, 1..5, reads_with_either, |_, _, _, _| 0);
        assert!(opened > 50, "opened {opened} times");
    });
}

/// A store with some checkpoints, each of which gave up space of the one before, and changes in the
/// log. With the superblocks of the last but one.
fn aged(seed: u64) -> (SimDevice, Model, [Vec<u8>; 2]) {
    let (sim, store) = store(seed, CACHE_BYTES);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut model = Model::new();
    let mut before = PATHS.map(|_| Vec::new());
    for round in 1..4 {
        change(&store, &mut model, &mut random, round);
        before = PATHS.map(|path| sim.device.read_file(path));
        checked(&store);
        reclaim_all(&store);
    }
    change(&store, &mut model, &mut random, 4);
    (sim.device.after_crash(CrashPolicy::LoseAll, seed), model, before)
}

#[test]
fn repair_rewrites_an_unreadable_superblock() {
    let (device, model, _) = aged(5);
    for path in PATHS {
        let device = device.copy();
        device.inject(unreadable(path));
        repair(&SimEnv::on(device.clone(), 1).env(), &options(CACHE_BYTES)).expect(path);
        device.clear_faults();
        assert_eq!(device.read_file(PATHS[0]), device.read_file(PATHS[1]), "{path}");
        opens(device, &model, path);
    }
}

/// A superblock as programs wrote it that wrote them alternately.
fn in_turns(superblock: &[u8]) -> Vec<u8> {
    let mut bytes = superblock[..SUPERBLOCK_BYTES].to_vec();
    bytes[8..12].copy_from_slice(&1_u32.to_le_bytes());
    let sum = sum_payload(sum_payload(0, &bytes[..12]), &bytes[16..]);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// A disk on which the superblocks were written alternately, the newer one as `newer` of the two.
fn written_in_turns(device: &SimDevice, before: &[Vec<u8>; 2], newer: usize) -> SimDevice {
    let device = device.copy();
    device.overwrite(PATHS[newer], 0, &in_turns(&device.read_file(PATHS[newer])));
    device.overwrite(PATHS[1 - newer], 0, &in_turns(&before[1 - newer]));
    device
}

/// Once, opening wrote the older superblock over the newer one in which a bit had flipped. Yet
/// space of the older state had been used again.
#[test]
fn a_damaged_superblock_is_not_replaced_by_an_older_one_that_was_written_alternately() {
    let mut read = 0;
    for seed in 0..6 {
        let (device, model, before) = aged(seed);
        for newer in [0, 1] {
            let device = written_in_turns(&device, &before, newer);
            // Both are whole, and from then on they are equal.
            let whole = device.copy();
            opens(whole.clone(), &model, "both are whole");
            assert_eq!(whole.read_file(PATHS[0]), whole.read_file(PATHS[1]), "seed {seed}");
            for bad in [newer, 1 - newer] {
                let path = PATHS[bad];
                let place = format!("seed {seed}, {path} of which {} is newer", PATHS[newer]);
                let there = (bad != newer).then_some(&model);
                let (damaged, unread) = (device.copy(), device.copy());
                damaged.flip_bit(path, 8 * 40);
                unread.inject(unreadable(path));
                for device in [&damaged, &unread] {
                    read += u32::from(opens_for_reading(device, path, there, &place));
                }
                unread.clear_faults();
                damaged.flip_bit(path, 8 * 40);
                for device in [damaged, unread] {
                    opens(device, &model, &place);
                }
            }
        }
    }
    // Where the newer one is damaged, the log may not reach back to the older state.
    assert!(read >= 24, "{read} could be read");
}

#[test]
fn repair_uses_an_alternately_written_superblock_unless_the_other_is_readable() {
    let (device, model, before) = aged(2);
    for newer in [0, 1] {
        let device = written_in_turns(&device, &before, newer);
        let path = PATHS[1 - newer];
        let (damaged, unread) = (device.copy(), device.copy());
        damaged.flip_bit(path, 8 * 40);
        repair(&SimEnv::on(damaged.clone(), 1).env(), &options(CACHE_BYTES)).expect(path);
        opens(damaged, &model, path);
        unread.inject(unreadable(path));
        let there = files(&unread);
        let refused = repair(&SimEnv::on(unread.clone(), 1).env(), &options(CACHE_BYTES));
        assert!(matches!(refused, Err(Error::Device(_))), "{refused:?}");
        assert!(files(&unread) == there, "something was written");
    }
}
