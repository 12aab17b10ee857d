//! A repair that must not continue changes nothing: the log is damaged and not truncated, or a
//! superblock stays unreadable.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use format::superblock::{Decoded, Superblock};
use fs::{Engine, FormatOptions, Fs, OpenError, OpenOptions, Repair, RepairReport};
use testing::{Fault, FaultOn, Op, SimDevice, SimEnv};

use super::volume::{look, made};
use super::{env_of, reported};

on_each_engine!(nothing_is_repaired_where_the_log_is_damaged_and_not_cut);

const SUPERBLOCKS: [&str; 2] = ["btree/super-0", "btree/super-1"];

fn repair_with(device: &SimDevice, how: Repair) -> RepairReport {
    let mut proceed = |_, _| ControlFlow::Continue(());
    Fs::repair(&env_of(device), how, &mut proceed).expect("the disk answers")
}

fn files(device: &SimDevice) -> BTreeMap<String, Vec<u8>> {
    device.files().into_iter().map(|(path, _)| (path.clone(), device.read_file(&path))).collect()
}

fn generation(device: &SimDevice, path: &str) -> u64 {
    match Superblock::decode(&device.read_file(path)).expect("it is whole") {
        Decoded::Superblock(superblock) => superblock.generation,
        other => panic!("{other:?}"),
    }
}

/// Damages the log where records are, and zeroes of the tail are not.
fn damage_log(device: &SimDevice) {
    let (path, bytes) = files(device)
        .into_iter()
        .filter(|(path, _)| path.starts_with("log/") && !path.contains("spare"))
        .max_by_key(|(_, bytes)| bytes.iter().filter(|byte| **byte != 0).count())
        .expect("there is a log");
    let start = format::log_segment::RECORDS_START as usize;
    let used = bytes.iter().rposition(|byte| *byte != 0).expect("records");
    device.flip_bit(&path, 8 * (start + (used - start) / 4) as u64);
}

fn nothing_is_repaired_where_the_log_is_damaged_and_not_cut(engine: Engine) {
    let made = made(engine, 31);
    let device = made.crashed.copy();
    damage_log(&device);
    let before = files(&device);
    let repaired = repair_with(&device, Repair::Do);
    assert!(
        !repaired.after.is_clean() && repaired.repaired.is_empty(),
        "{}",
        reported(&repaired.after)
    );
    assert!(files(&device) == before, "something was written");
    // Cut off, it opens.
    repair_with(&device, Repair::DoAndCutLog);
    assert!(super::volume::open(&device).is_ok());
}

/// Only for the B-tree: the log-structured engine opens from the newest manifest or not at all.
#[test]
fn a_refused_cut_leaves_superblocks_as_they_are() {
    let made = made(Engine::Btree, 32);
    let device = made.crashed.copy();
    damage_log(&device);
    let newest = SUPERBLOCKS.into_iter().max_by_key(|path| generation(&device, path));
    device.flip_bit(newest.expect("two superblocks"), 8 * 40);
    let before = files(&device);
    let repaired = repair_with(&device, Repair::DoAndCutLog);
    assert!(!repaired.failed.is_empty(), "the cut is refused: {}", reported(&repaired.before));
    assert!(repaired.repaired.is_empty() && !repaired.after.is_clean());
    assert!(files(&device) == before, "something was written after the refusal");
}

/// It ended in "the volume's records are damaged", with the hint to run this repair again; the
/// counts had been written again.
#[test]
fn a_permanently_unreadable_superblock_is_reported_with_a_remedy() {
    let made = made(Engine::Btree, 33);
    for path in SUPERBLOCKS {
        for calls in [&[Op::Read][..], &[Op::Read, Op::Write], &[Op::Read, Op::Sync]] {
            let device = made.device.copy();
            for call in calls {
                device.inject(Fault::io(FaultOn::Only(*call), 0).forever().below(path));
            }
            let before = files(&device);
            let mut proceed = |_, _| ControlFlow::Continue(());
            let error = Fs::repair(&env_of(&device), Repair::Do, &mut proceed);
            let error = error.expect_err("it cannot be read");
            assert!(
                matches!(&error, OpenError::Unreadable { file, .. } if file == path),
                "{error}"
            );
            let words = error.to_string();
            assert!(words.contains("remove this file") && words.contains(path), "{words}");
            assert!(files(&device) == before, "{path}, {calls:?}: something was written");
            // Done so, it is repaired.
            device.clear_faults();
            device.delete(path);
            let repaired = repair_with(&device, Repair::Do);
            assert!(repaired.after.is_clean(), "{}", reported(&repaired.after));
            assert!(look(&device, &made.right).is_same(), "{path}");
        }
    }
}

fn put(device: &SimDevice, path: &str, from: &SimDevice) {
    let bytes = from.read_file(path);
    device.truncate(path, bytes.len() as u64);
    device.overwrite(path, 0, &bytes);
}

/// A volume with another id: those that are filled have the same.
fn another(seed: u64) -> SimDevice {
    let device = SimDevice::new(seed);
    let env = SimEnv::on(device.clone(), seed).env();
    Fs::format(&env, &FormatOptions::default()).expect("an empty disk");
    let fs = Fs::open(env, &OpenOptions::default()).expect("it was made just now");
    fs.close().expect("there is space");
    device
}

/// It closed the volume, and no repair was named.
#[test]
fn another_volumes_superblock_is_treated_as_torn() {
    let (made, other) = (made(Engine::Btree, 34), another(35));
    for path in SUPERBLOCKS {
        let device = made.crashed.copy();
        put(&device, path, &other);
        assert!(super::volume::open(&device.copy()).is_ok(), "{path}: it opens by the other");
        let repaired = repair_with(&device, Repair::Do);
        let of_it = repaired.before.problems.iter().find(|found| found.file == path);
        let of_it = of_it.unwrap_or_else(|| panic!("{path}: {}", reported(&repaired.before)));
        assert!(of_it.what.contains("of another volume") && of_it.remedy().is_some(), "{of_it:?}");
        assert!(repaired.after.is_clean(), "{path}: {}", reported(&repaired.after));
        assert!(look(&device, &made.right).is_same(), "{path}");
    }
}

/// That a volume with files of another one is neither repaired nor opened nor written to.
fn is_left_alone(paths: &[&str]) {
    let (made, other) = (made(Engine::Btree, 36), another(37));
    let device = made.device.copy();
    for path in paths {
        put(&device, path, &other);
    }
    let before = files(&device);
    let repaired = repair_with(&device, Repair::Do);
    assert!(
        !repaired.after.is_clean() && repaired.repaired.is_empty(),
        "{}",
        reported(&repaired.after)
    );
    assert!(files(&device) == before, "{paths:?}: something was written");
    let opened = super::volume::open(&device).map(drop);
    // A superblock of another volume points to what are no nodes of that one.
    let is_named = |file: &str| paths.contains(&file) || file == "btree/nodes";
    assert!(matches!(&opened, Err(OpenError::Damaged(of)) if is_named(&of.file)), "{opened:?}");
    assert!(files(&device) == before, "{paths:?}: opening has written something");
}

#[test]
fn another_volumes_superblocks_are_never_overwritten() {
    is_left_alone(&SUPERBLOCKS);
}

/// The superblocks do not identify the volume then.
#[test]
fn nothing_is_rewritten_if_a_header_and_a_superblock_are_damaged() {
    is_left_alone(&["volume.pando", "btree/super-0"]);
}

/// All files that name the volume are lost, but for one superblock.
#[test]
fn nothing_is_rewritten_if_only_one_superblock_names_the_volume() {
    is_left_alone(&["volume.pando", "volume.copy", "btree/super-0"]);
}

/// The report announced that a repair repairs both, and that one that was there was missing; where
/// one was not, an empty one was left.
#[test]
fn without_a_valid_superblock_repair_promises_and_changes_nothing() {
    let made = made(Engine::Btree, 38);
    for gone in [None, Some(0), Some(1)] {
        let device = made.device.copy();
        for (at, path) in SUPERBLOCKS.into_iter().enumerate() {
            if gone == Some(at) {
                device.delete(path);
            } else {
                device.flip_bit(path, 8 * 40);
            }
        }
        let before = files(&device);
        let repaired = repair_with(&device, Repair::Do);
        let words = reported(&repaired.after);
        assert!(words.contains("no superblock points to a valid state"), "{words}");
        assert_eq!(repaired.after.remedies_count, 0, "{words}");
        assert!(
            repaired.repaired.is_empty() && repaired.failed.is_empty(),
            "{:?}",
            repaired.failed
        );
        assert!(files(&device) == before, "{gone:?}: something was written");
    }
}

/// Each repair reported that it had repaired the same space, which it keeps.
#[test]
fn space_that_a_repair_keeps_is_not_reported_as_repaired() {
    let made = made(Engine::Btree, 39);
    let whole = made.device.read_file("btree/nodes");
    let is_leaf = |at: &usize| {
        whole[*at..].starts_with(&format::node::MAGIC) && whole[at + 6] == 1 && whole[at + 7] == 0
    };
    let mut kept = 0;
    for at in (0..whole.len()).step_by(format::node::UNIT_BYTES).filter(is_leaf) {
        let device = made.device.copy();
        device.overwrite("btree/nodes", at as u64, &[0; 64]);
        let found = super::check(&device);
        if found.is_clean() {
            continue;
        }
        repair_with(&device, Repair::Do);
        let again = repair_with(&device, Repair::Do);
        let third = super::check(&device);
        let lost = |report: &fs::VolumeReport| {
            report.store.findings.iter().filter(|one| one.remedy == store::Remedy::Keep).count()
        };
        kept += lost(&third);
        let engine = |one: &&fs::Problem| {
            one.file.starts_with("btree") && one.action() == fs::Action::Repair
        };
        assert!(
            !again.repaired.iter().any(|one| engine(&one)),
            "{at}: {}",
            reported(&again.before)
        );
        assert!(!third.problems.iter().any(|one| engine(&one)), "{at}: {}", reported(&third));
    }
    assert!(kept > 0, "no damage hides a node");
}
