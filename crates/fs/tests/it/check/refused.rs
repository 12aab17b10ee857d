//! A repair that must not go on changes nothing: where the log is damaged and not cut off, where a
//! superblock stays unreadable.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use format::superblock::{Decoded, Superblock};
use fs::{Engine, Fs, Mended, OpenError, Repair};
use testing::{Fault, FaultOn, Op, SimDevice};

use super::volume::{look, made};
use super::{env_of, told};

on_each_engine!(nothing_is_mended_where_the_log_is_damaged_and_not_cut);

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

fn nothing_is_mended_where_the_log_is_damaged_and_not_cut(engine: Engine) {
    let made = made(engine, 31);
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

/// Of the B-tree alone: the log-structured engine stands on the newest manifest or on none.
#[test]
fn a_refused_cut_leaves_superblocks_as_they_are() {
    let made = made(Engine::Btree, 32);
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

/// It ended in "the volume's records are damaged", and said that this repair would mend it; the
/// counts had been written anew.
#[test]
fn a_superblock_that_stays_unreadable_is_told_with_what_to_do() {
    let made = made(Engine::Btree, 33);
    for path in SUPERBLOCKS {
        for calls in [&[Op::Read][..], &[Op::Read, Op::Write], &[Op::Read, Op::Sync]] {
            let device = made.device.copy();
            for call in calls {
                device.inject(Fault::io(FaultOn::Only(*call), 0).forever().below(path));
            }
            let before = files(&device);
            let mut go_on = |_, _| ControlFlow::Continue(());
            let error = Fs::repair(&env_of(&device), Repair::Do, &mut go_on);
            let error = error.expect_err("it cannot be read");
            assert!(
                matches!(&error, OpenError::Unreadable { file, .. } if file == path),
                "{error}"
            );
            let words = error.to_string();
            assert!(words.contains("remove this file") && words.contains(path), "{words}");
            assert!(files(&device) == before, "{path}, {calls:?}: something was written");
            // Done so, it is mended.
            device.clear_faults();
            device.delete(path);
            let mended = repaired(&device, Repair::Do);
            assert!(mended.after.is_clean(), "{}", told(&mended.after));
            assert!(look(&device, &made.right).is_same(), "{path}");
        }
    }
}
