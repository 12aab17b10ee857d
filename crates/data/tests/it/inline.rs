//! Small bytes in records, and how they move to segments.

use std::collections::BTreeMap;
use std::sync::Arc;

use data::FileRef;
use store::TreeId;
use testing::Op;

use crate::support::{Volume, check_records, pattern};

fn inline_bytes(volume: &Volume, ino: u64) -> u64 {
    let file = FileRef { tree: TreeId(32), ino };
    let mut cursor = volume.data.extents(&*volume.store, file, (0, u64::MAX)).unwrap();
    let mut total = 0;
    while let Some(extent) = cursor.next().unwrap() {
        total += if extent.inline { extent.length } else { 0 };
    }
    total
}

fn hot(volume: &Volume, ino: u64) -> FileRef {
    let file = FileRef { tree: TreeId(32), ino };
    volume.data.note_fsync(file);
    file
}

#[test]
fn small_writes_between_fsyncs_touch_no_segment() {
    let mut volume = Volume::new(1);
    volume.write(32, 1, 0, &pattern(1, 200_000)).unwrap();
    volume.sync().unwrap();
    let before = volume.sim.device.counts();
    let mut random = fastrand::Rng::with_seed(1);
    for step in 0..50 {
        hot(&volume, 1);
        let at = random.u64(0..190_000);
        volume.write(32, 1, at, &pattern(step, random.usize(1..4096))).unwrap();
        volume.sync().unwrap();
    }
    let after = volume.sim.device.counts();
    assert_eq!(after.of(Op::Write), before.of(Op::Write));
    assert_eq!(after.of(Op::Sync), before.of(Op::Sync));
    volume.verify();
    assert!(inline_bytes(&volume, 1) > 50_000);
    volume.settle(32, 1).unwrap();
    assert_eq!(inline_bytes(&volume, 1), 0);
    volume.verify();
    assert!(check_records(&volume.store));
}

#[test]
fn a_log_that_is_fsynced_line_by_line_moves_to_segments_in_pieces() {
    let mut volume = Volume::new(2);
    let mut at = 0;
    for step in 0..4000 {
        hot(&volume, 1);
        let line = pattern(step, 60 + step as usize % 80);
        volume.write(32, 1, at, &line).unwrap();
        at += line.len() as u64;
        assert!(inline_bytes(&volume, 1) <= 68 << 10);
    }
    volume.verify();
    // Once nobody fsyncs, large writes take the rest along.
    volume.data.forget(FileRef { tree: TreeId(32), ino: 1 });
    volume.write(32, 1, at, &pattern(1, 100_000)).unwrap();
    assert_eq!(inline_bytes(&volume, 1), 0);
    volume.verify();
    assert!(check_records(&volume.store));
}

#[test]
fn tiny_appends_without_fsync_stay_in_few_records() {
    let mut volume = Volume::new(3);
    for step in 0..1000_u64 {
        for ino in 1..3 {
            volume.write(32, ino, step * 100, &pattern(step + ino, 100)).unwrap();
        }
    }
    volume.verify();
    for ino in 1..3 {
        let file = FileRef { tree: TreeId(32), ino };
        let mut cursor = volume.data.extents(&*volume.store, file, (0, u64::MAX)).unwrap();
        let mut count = 0;
        while cursor.next().unwrap().is_some() {
            count += 1;
        }
        assert!(count < 40, "{count} extents");
    }
}

#[test]
fn inline_bytes_of_a_file_are_bounded_however_often_it_is_fsynced() {
    let mut volume = Volume::with(testing::sim_env(4), data::Options::default(), true);
    let mut due = 0;
    for step in 0..1200_u64 {
        let file = hot(&volume, 1);
        // Every second page, so that none joins another.
        volume.write(32, 1, step % 600 * 8192, &pattern(step, 4096)).unwrap();
        if volume.data.settle_due() == Some(file) {
            due += 1;
        }
    }
    assert!(due > 0);
    assert!(inline_bytes(&volume, 1) <= 1 << 20);
    volume.settle(32, 1).unwrap();
    assert_eq!(volume.data.settle_due(), None);
    assert_eq!(inline_bytes(&volume, 1), 0);
    volume.verify();
}

/// Many files are written in turn, all over each. Their bytes do not stay in the tree, though none
/// has many. That holds whether there are more than are known at once or not, and also when they
/// are closed.
#[test]
fn inline_bytes_of_all_files_together_are_bounded() {
    for (closes, files) in [(false, 1100), (true, 1100), (true, 60)] {
        let mut volume = Volume::with(testing::sim_env(5), data::Options::default(), true);
        let mut settled = 0;
        for step in 0..3300_u64 {
            let file = hot(&volume, 1 + step % files);
            // Every second page, so that none joins another.
            volume.write(32, file.ino, step / files * 8192, &pattern(step, 4096)).unwrap();
            volume.history.lock().clear();
            if closes {
                volume.data.closed(file);
            }
            while let Some(file) = volume.data.settle_due() {
                volume.settle(32, file.ino).unwrap();
                settled += 1;
            }
            if step % 300 == 299 {
                let inline: u64 = (1..=files).map(|ino| inline_bytes(&volume, ino)).sum();
                assert!(inline <= 4 << 20, "{inline} bytes are inline after {step} writes");
            }
        }
        assert!(settled > 0);
        volume.verify();
    }
}

/// Where nothing settles, and more files are fsynced than can be known, what is not counted is in
/// segments.
#[test]
fn files_that_are_not_known_use_segments() {
    let mut volume = Volume::with(testing::sim_env(6), data::Options::default(), true);
    for step in 0..9000_u64 {
        let file = hot(&volume, 1 + step % 4500);
        let store = Arc::clone(&volume.store);
        let (mut batch, owner) = (store::Batch::new(), volume.owner(32));
        let at = step / 4500 * 8192;
        let freed = volume.data.write(&*store, file, at, &[7; 4096], owner, &mut batch).unwrap();
        volume.commit(&batch, freed, BTreeMap::new()).unwrap();
        volume.history.lock().clear();
    }
    let inline = |ino: u64| inline_bytes(&volume, ino);
    assert!((1..=4096).all(|ino| inline(ino) == 8192));
    assert!((4097..=4500).all(|ino| inline(ino) == 0));
    while let Some(file) = volume.data.settle_due() {
        volume.settle(32, file.ino).unwrap();
    }
    // One that has settled makes space.
    hot(&volume, 4500);
    volume.write(32, 4500, 1 << 20, &[7; 4096]).unwrap();
    assert_eq!(inline_bytes(&volume, 4500), 4096);
}

/// A file whose inline bytes are too many.
fn with_bytes_to_settle(volume: &mut Volume, ino: u64) -> FileRef {
    for step in 0..80 {
        hot(volume, ino);
        volume.write(32, ino, step * 8192, &pattern(step, 4096)).unwrap();
    }
    FileRef { tree: TreeId(32), ino }
}

/// Bytes are inline until the commit: a file whose commit was refused settles later.
#[test]
fn file_whose_commit_was_refused_is_still_due() {
    let mut volume = Volume::with(testing::sim_env(7), data::Options::default(), true);
    let file = with_bytes_to_settle(&mut volume, 1);
    assert_eq!(volume.data.settle_due(), Some(file));
    let (mut batch, owner) = (store::Batch::new(), volume.owner(32));
    let settled = volume.data.settle(&*volume.store, file, 0, owner, &mut batch).unwrap();
    assert_eq!(settled.next, None);
    volume.data.abandon(settled.freed);
    assert_eq!(volume.data.settle_due(), Some(file));
    volume.settle(32, 1).unwrap();
    assert_eq!(volume.data.settle_due(), None);
    // Nothing is left to move, and the file is found to have settled without a commit.
    volume.write(32, 1, 0, &pattern(1, 700_000)).unwrap();
    volume.verify();
}

/// One that cannot settle does not keep others from it.
#[test]
fn others_settle_while_one_rests() {
    let mut volume = Volume::with(testing::sim_env(8), data::Options::default(), true);
    let most = with_bytes_to_settle(&mut volume, 1);
    hot(&volume, 1);
    volume.write(32, 1, 1 << 20, &pattern(1, 4096)).unwrap();
    let other = with_bytes_to_settle(&mut volume, 2);
    assert_eq!(volume.data.settle_due(), Some(most));
    volume.data.rest_from_settling(most);
    assert_eq!(volume.data.settle_due(), Some(other));
    volume.settle(32, 2).unwrap();
    assert_eq!(volume.data.settle_due(), None);
    volume.sim.clock.advance(std::time::Duration::from_secs(61));
    assert_eq!(volume.data.settle_due(), Some(most));
}
