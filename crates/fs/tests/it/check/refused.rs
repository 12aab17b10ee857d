//! A repair that must not cut the log off changes nothing at all.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use format::superblock::{Decoded, Superblock};
use fs::{Fs, Mended, Repair};
use testing::SimDevice;

use super::volume::made;
use super::{env_of, told};

const SUPERBLOCKS: [&str; 2] = ["btree/super-0", "btree/super-1"];

fn repaired(device: &SimDevice, how: Repair) -> Mended {
    let mut go_on = |_, _| ControlFlow::Continue(());
    Fs::repair(&env_of(device), how, &mut go_on).expect("the medium answers")
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

#[test]
fn nothing_is_mended_where_the_log_is_damaged_and_not_cut() {
    let made = made(31);
    let device = made.crashed.copy();
    damage_log(&device);
    let before = files(&device);
    let mended = repaired(&device, Repair::Do);
    assert!(!mended.after.is_clean() && mended.mended.is_empty(), "{}", told(&mended.after));
    assert!(files(&device) == before, "something was written");
    // Cut off, it opens.
    repaired(&device, Repair::DoAndCutLog);
    assert!(super::volume::open(&device).is_ok());
}

#[test]
fn a_refused_cut_leaves_superblocks_as_they_are() {
    let made = made(32);
    let device = made.crashed.copy();
    damage_log(&device);
    let newest = SUPERBLOCKS.into_iter().max_by_key(|path| generation(&device, path));
    device.flip_bit(newest.expect("two superblocks"), 8 * 40);
    let before = files(&device);
    let mended = repaired(&device, Repair::DoAndCutLog);
    assert!(!mended.failed.is_empty(), "the cut is refused: {}", told(&mended.before));
    assert!(mended.mended.is_empty() && !mended.after.is_clean());
    assert!(files(&device) == before, "something was written after the refusal");
}
