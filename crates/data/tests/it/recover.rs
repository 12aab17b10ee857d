//! Opening: what is found continues where it stopped.

use data::Options;
use format::segment::{MARK_BYTES, PAGES_MAX};
use store::Durable;
use testing::{Fault, FaultOn, Op};

use crate::support::{Volume, pattern};

fn names(volume: &Volume) -> Vec<String> {
    volume.sim.device.files().into_iter().map(|(path, _)| path).collect()
}

/// Opening alone makes none.
#[test]
fn each_opening_that_writes_begins_a_segment_and_the_others_are_sealed() {
    let mut volume = Volume::new(1);
    for step in 0..5 {
        volume.write(32, step, 0, &pattern(step, 5000)).unwrap();
        volume.reopen().unwrap();
        volume.reopen().unwrap();
    }
    assert_eq!(volume.data.stats().open_segments, 5);
    volume.data.seal_all();
    volume.verify();
    let sealed = |id| format!("data/sealed/{id:016x}.seg");
    assert_eq!(names(&volume), (0..5).map(sealed).collect::<Vec<_>>());
}

/// The pages that a lost or shortened file held are named by what is in it, and freed with it.
#[test]
fn writes_after_a_lost_segment_outlive_its_pages() {
    let damages: [fn(&Volume, &str, u64); 3] = [
        |volume, path, _| volume.sim.device.delete(path),
        |volume, path, _| volume.sim.device.truncate(path, 10),
        |volume, path, length| volume.sim.device.truncate(path, length / 2 / 4096 * 4096),
    ];
    for (case, damage) in damages.into_iter().enumerate() {
        for dead in [0, 1] {
            let mut volume = Volume::new(1);
            // What is dead leaves the count of live pages below that of the pages that are left.
            volume.write(32, 9, 0, &pattern(9, 80_000)).unwrap();
            volume.write(32, 1, 0, &pattern(1, 80_000)).unwrap();
            if dead == 1 {
                volume.release(32, 9).unwrap();
            }
            volume.sync().unwrap();
            let files = volume.sim.device.files();
            let (path, length) = files.last().cloned().unwrap();
            assert!(path.starts_with("data/open/"), "{path}");
            damage(&volume, &path, length);
            volume.reopen().unwrap();
            volume.write(32, 2, 0, &pattern(2, 80_000)).unwrap();
            volume.sync().unwrap();
            volume.release(32, 1).unwrap();
            if dead == 0 {
                volume.release(32, 9).unwrap();
            }
            volume.clean(true).unwrap();
            testing::run::print_line(&format!("case {case}, {dead} files were removed before"));
            volume.verify();
            // And a number whose count went is not met again while anything may name it.
            volume.reopen().unwrap();
            volume.write(32, 3, 0, &pattern(3, 80_000)).unwrap();
            volume.clean(true).unwrap();
            volume.verify();
        }
    }
}

/// The sealing of a full segment was cut short after its footer was written. It is sealed again
/// with as many pages as there may be, and so is one that a footer behind that made too long.
#[test]
fn a_full_segment_with_a_footer_that_was_not_sealed_is_sealed_as_full() {
    let options = Options { segment_pages: PAGES_MAX, ..crate::support::small_options() };
    let mut volume = Volume::with(testing::sim_env(1), options, true);
    for ino in 1..=17 {
        volume.write(32, ino, 0, &pattern(ino, 4 << 20)).unwrap();
    }
    volume.sync().unwrap();
    volume.sim.device.inject(Fault::io(FaultOn::Only(Op::Rename), 0));
    volume.data.seal_all();
    assert!(!volume.sim.device.faults_left(), "the footer is there, the name is not");
    volume.reopen().unwrap();
    volume.data.seal_all();
    assert!(volume.data.check_segments().unwrap().is_empty());
    let (path, length) = volume.sim.device.files().first().cloned().unwrap();
    let sealed = (64 << 20) + MARK_BYTES as u64;
    assert_eq!((path.as_str(), length), ("data/sealed/0000000000000000.seg", sealed));
    // As an older program left it.
    volume.sim.device.overwrite(&path, (64 << 20) + 4096, &[7; 64]);
    volume.data.repair_marks(0).unwrap();
    assert_eq!(volume.sim.device.files().first().unwrap().1, sealed);
    assert!(volume.data.check_segments().unwrap().is_empty());
    volume.verify();
}

/// A file with a number of ours that nobody knows of is not one that an opening began.
#[test]
fn an_unknown_segment_is_not_overwritten() {
    let mut volume = Volume::new(1);
    let file = volume.sim.env().device.create("data/open/0000000000000000.seg").unwrap();
    file.write_at(&[7; 8192], 0).unwrap();
    let refused = volume.write(32, 1, 0, &pattern(1, 80_000));
    assert!(matches!(refused, Err(store::Error::Corrupt(_))), "{refused:?}");
    assert_eq!(volume.sim.device.read_file("data/open/0000000000000000.seg"), [7; 8192]);
}

#[test]
fn unreadable_counters_never_reissue_a_number() {
    let mut volume = Volume::new(1);
    volume.write(32, 1, 0, &pattern(1, 80_000)).unwrap();
    volume.sync().unwrap();
    let (path, _) = volume.sim.device.files().last().cloned().unwrap();
    volume.sim.device.delete(&path);
    let unread = testing::MemStore::new();
    let data =
        crate::support::open_data(&volume.sim, &unread, &volume.options, true, None).unwrap();
    volume.store.set_barrier(std::sync::Arc::<data::Data>::clone(&data));
    volume.data = data;
    volume.write(32, 2, 0, &pattern(2, 80_000)).unwrap();
    volume.sync().unwrap();
    volume.release(32, 1).unwrap();
    volume.clean(true).unwrap();
    volume.verify();
}

#[test]
fn opening_reads_no_data_and_changes_nothing() {
    let mut volume = Volume::new(2);
    for ino in 1..20 {
        volume.write(32, ino, 0, &pattern(ino, 100_000)).unwrap();
    }
    volume.clean(true).unwrap();
    volume.sync().unwrap();
    let before = volume.sim.device.counts();
    volume.reopen().unwrap();
    let after = volume.sim.device.counts();
    assert!(after.read_bytes - before.read_bytes < 100, "one header is read");
    assert_eq!(after.written_bytes, before.written_bytes);
}

#[test]
fn a_number_is_never_used_again() {
    let mut volume = Volume::new(3);
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..6 {
        for ino in 1..4 {
            volume.write(32, ino, 0, &pattern(ino, 250_000)).unwrap();
        }
        for ino in 1..4 {
            volume.release(32, ino).unwrap();
        }
        volume.clean(true).unwrap();
        volume.collect().unwrap();
        let greatest = names(&volume).into_iter().map(|name| name[10..].to_owned()).max();
        let greatest = greatest.expect("the greatest number is always there");
        assert!(seen.insert(greatest.clone()), "{greatest} again in round {round}");
        assert!(volume.data.stats().sealed_segments <= 1);
        volume.reopen().unwrap();
    }
}

#[test]
fn a_file_that_was_sealed_and_not_removed_is_removed() {
    let mut volume = Volume::new(4);
    for ino in 1..4 {
        volume.write(32, ino, 0, &pattern(ino, 200_000)).unwrap();
    }
    volume.clean(true).unwrap();
    let sealed = volume.sim.device.read_file("data/sealed/0000000000000000.seg");
    let device = volume.sim.env().device;
    let left = device.create("data/open/0000000000000000.seg").unwrap();
    left.write_at(&sealed[..sealed.len() / 2], 0).unwrap();
    volume.reopen().unwrap();
    volume.verify();
    assert!(!names(&volume).contains(&"data/open/0000000000000000.seg".to_owned()));
}

#[test]
fn dead_segments_of_an_earlier_run_are_found() {
    let mut volume = Volume::new(5);
    for ino in 1..6 {
        volume.write(32, ino, 0, &pattern(ino, 250_000)).unwrap();
    }
    volume.clean(true).unwrap();
    for ino in 1..6 {
        volume.release(32, ino).unwrap();
    }
    // What was freed is forgotten with the process; the counts are not.
    volume.reopen().unwrap();
    volume.clean(true).unwrap();
    let stats = volume.data.stats();
    assert!(stats.sealed_segments <= 1, "{stats:?}");
    let kept = volume.store.dump(store::TreeId(format::key::VOLUME_TREE)).unwrap();
    assert!(kept.len() <= 2, "counts of deleted segments are deleted");
}

#[test]
fn files_that_are_not_segments_are_left_alone() {
    let mut volume = Volume::new(6);
    let device = volume.sim.env().device;
    device.create("data/open/notes").unwrap();
    device.create("data/sealed/0000000000000abc.seg.0").unwrap();
    volume.reopen().unwrap();
    volume.write(32, 1, 0, &pattern(1, 10_000)).unwrap();
    volume.verify();
    assert!(names(&volume).contains(&"data/open/notes".to_owned()));
}
