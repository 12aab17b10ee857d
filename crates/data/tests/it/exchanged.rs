//! Files of segments whose names were exchanged, or that were doubled. If one may be the only copy,
//! nothing of it is reclaimed, overwritten or removed, so that the names can be put right.

use format::segment::MARK_BYTES;
use testing::{SimEnv, fails};

use crate::support::{Volume, pattern, small_options};

fn sealed(segment: u64) -> String {
    format!("data/sealed/{segment:016x}.seg")
}

fn open(segment: u64) -> String {
    format!("data/open/{segment:016x}.seg")
}

fn rename(sim: &SimEnv, from: &str, to: &str) {
    let device = sim.env().device;
    device.rename(from, to).unwrap();
    for path in [from, to] {
        device.sync_dir(path.rsplit_once('/').unwrap().0).unwrap();
    }
}

/// As an administrator who restores a directory's files under each other's names.
fn exchange(sim: &SimEnv, one: &str, other: &str) {
    rename(sim, one, "data/moved");
    rename(sim, other, one);
    rename(sim, "data/moved", other);
}

/// A file beside what is there.
fn put(sim: &SimEnv, path: &str, bytes: &[u8]) {
    let device = sim.env().device;
    let file = device.create(path).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync_data().unwrap();
    device.sync_dir(path.rsplit_once('/').unwrap().0).unwrap();
}

/// Two full segments of which a part is dead, one of which nothing is live, and some more.
fn filled(punches: bool) -> Volume {
    let options = data::Options { rewrite_dead_percent: 1, ..small_options() };
    let mut volume = Volume::with(testing::sim_env(1), options, punches);
    for ino in 1..40 {
        volume.write(32, ino, 0, &pattern(ino, 21_000)).unwrap();
    }
    volume.sync().unwrap();
    volume.reopen().unwrap();
    volume.data.seal_all();
    volume
}

/// Everything that frees space, whatever its result.
fn give_back(volume: &mut Volume) {
    let clone = volume.clone_tree(32).unwrap();
    for ino in [2, 5, 7, 9, 12, 13, 19, 20, 22].into_iter().chain(24..36) {
        volume.release(32, ino).unwrap();
    }
    volume.drop_tree(clone).unwrap();
    volume.sync().unwrap();
    for _ in 0..3 {
        volume.collect().ok();
        volume.clean(true).ok();
    }
    volume.data.seal_all();
    volume.note_commits();
}

#[test]
fn a_segment_whose_file_is_another_ones_is_not_freed() {
    for punches in [true, false] {
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            let mut volume = filled(punches);
            exchange(&volume.sim, &sealed(one), &sealed(other));
            volume.reopen().unwrap();
            let files = volume.sim.device.files();
            let before = [one, other].map(|segment| volume.sim.device.read_file(&sealed(segment)));
            give_back(&mut volume);
            let after = [one, other].map(|segment| volume.sim.device.read_file(&sealed(segment)));
            assert!(before == after, "{punches}: {one}, {other}: of {files:?}");
            let reported = volume.data.held_back();
            for segment in [one, other] {
                let is_reported = reported.iter().any(|bad| bad.file == sealed(segment));
                assert!(is_reported, "{punches}: {segment} of {reported:?}");
            }
            exchange(&volume.sim, &sealed(one), &sealed(other));
            volume.reopen().unwrap();
            volume.verify();
            // And now they are given back.
            give_back(&mut volume);
            assert_eq!(volume.data.held_back(), []);
            volume.verify();
        }
    }
}

/// Each rest of the segments that others have sealed is one read.
#[test]
fn a_mark_is_read_once_before_its_segment_is_freed() {
    let mut volume = filled(true);
    volume.reopen().unwrap();
    volume.data.clean_all(&*volume.store).unwrap();
    let before = volume.sim.device.counts();
    volume.release(32, 2).unwrap();
    volume.clean(true).unwrap();
    let first = volume.sim.device.counts();
    assert_eq!(first.read_bytes - before.read_bytes, MARK_BYTES as u64);
    volume.release(32, 3).unwrap();
    volume.clean(true).unwrap();
    assert_eq!(volume.sim.device.counts().read_bytes, first.read_bytes);
}

#[test]
fn open_files_that_were_exchanged_are_neither_sealed_nor_punched() {
    let mut volume = Volume::new(1);
    for step in 0..3 {
        for ino in 0..4 {
            volume.write(32, 10 * step + ino, 0, &pattern(10 * step + ino, 21_000)).unwrap();
        }
        volume.reopen().unwrap();
    }
    exchange(&volume.sim, &open(0), &open(1));
    let before = [0, 1].map(|segment| volume.sim.device.read_file(&open(segment)));
    volume.reopen().unwrap();
    for ino in [1, 12] {
        volume.release(32, ino).unwrap();
    }
    volume.collect().ok();
    volume.clean(true).ok();
    volume.data.seal_all();
    volume.note_commits();
    let after = [0, 1].map(|segment| volume.sim.device.read_file(&open(segment)));
    assert!(before == after);
    exchange(&volume.sim, &open(0), &open(1));
    volume.reopen().unwrap();
    volume.clean(true).unwrap();
    volume.data.seal_all();
    assert_eq!(volume.data.stats().open_segments, 0);
    volume.verify();
}

#[test]
fn a_foreign_mark_is_not_overwritten() {
    let mut volume = filled(true);
    exchange(&volume.sim, &sealed(0), &sealed(1));
    volume.reopen().unwrap();
    let before = volume.sim.device.read_file(&sealed(0));
    fails(volume.data.repair_marks(0), "found Header of segment 0000000000000001");
    assert!(volume.sim.device.read_file(&sealed(0)) == before);
    // Half of the evidence is enough: the footer alone proves it.
    volume.sim.device.flip_bit(&sealed(1), 3);
    fails(volume.data.repair_marks(1), "found Footer of segment 0000000000000000");
}

/// A file under the name of a sealed segment need not be that segment.
#[test]
fn an_open_segment_outlives_a_file_with_its_name_that_is_not_it() {
    let whole = filled(true).sim.device.read_file(&sealed(0));
    let mut damaged = whole.clone();
    damaged[60_000] ^= 1;
    let last = damaged.len() - MARK_BYTES;
    damaged[last + 20] ^= 1;
    let junk = [Vec::new(), vec![0; 5000], damaged, whole[..whole.len() / 2].to_vec()];
    for (case, junk) in junk.iter().enumerate() {
        for is_known in [true, false] {
            testing::run::print_line(&format!("case {case}, put there while open: {is_known}"));
            let mut volume = Volume::new(1);
            for ino in 1..4 {
                volume.write(32, ino, 0, &pattern(ino, 40_000)).unwrap();
            }
            volume.reopen().unwrap();
            if is_known {
                put(&volume.sim, &sealed(0), junk);
                volume.data.seal_all();
                volume.verify();
            } else {
                put(&volume.sim, &sealed(0), junk);
            }
            volume.reopen().unwrap();
            volume.verify();
            volume.clean(true).unwrap();
            volume.release(32, 2).unwrap();
            volume.clean(true).unwrap();
            volume.data.seal_all();
            volume.verify();
            let reported = volume.data.held_back();
            assert!(reported.iter().any(|bad| bad.file == sealed(0)), "{reported:?}");
            assert!(volume.sim.device.read_file(&sealed(0)) == *junk);
            // Taken away, all continues.
            volume.sim.device.delete(&sealed(0));
            volume.reopen().unwrap();
            volume.clean(true).unwrap();
            assert_eq!(volume.data.held_back(), []);
            assert_eq!(volume.data.stats().open_segments, 0);
            volume.verify();
        }
    }
}

/// A copy of the file that sealing was to remove goes, for the other is whole.
#[test]
fn leftovers_of_sealing_are_removed() {
    let mut volume = filled(true);
    let left = volume.sim.device.read_file(&sealed(1));
    put(&volume.sim, &open(1), &left);
    volume.reopen().unwrap();
    assert!(volume.sim.device.files().iter().all(|(path, _)| *path != open(1)));
    assert_eq!(volume.data.held_back(), []);
    volume.verify();
}

#[test]
fn an_incomplete_generation_replaces_none() {
    let mut volume = filled(false);
    let later = |segment| sealed(segment) + ".1";
    let whole = volume.sim.device.read_file(&sealed(1));
    // Each in turn, of one segment: none of them is a rewriting of it.
    for junk in [Vec::new(), vec![7; 9000], whole] {
        put(&volume.sim, &later(1), &junk);
        volume.reopen().unwrap();
        volume.verify();
        let reported = volume.data.held_back();
        assert!(reported.iter().any(|bad| bad.file == later(1)), "{reported:?}");
        volume.sim.device.delete(&later(1));
    }
    volume.reopen().unwrap();
    // One that is, and was cut short.
    let old = volume.sim.device.read_file(&sealed(0));
    for ino in [2, 5] {
        volume.release(32, ino).unwrap();
    }
    volume.clean(true).unwrap();
    assert!(volume.sim.device.files().iter().any(|(path, _)| *path == later(0)), "rewritten");
    put(&volume.sim, &sealed(0), &old);
    let rewritten = volume.sim.device.copy();
    let length = rewritten.read_file(&later(0)).len() as u64;
    volume.sim.device.truncate(&later(0), length - 4096);
    volume.reopen().unwrap();
    volume.verify();
    assert_eq!(volume.data.held_back().len(), 1);
    // And whole, it is used, and the older one goes.
    volume.sim.device.overwrite(&later(0), 0, &rewritten.read_file(&later(0)));
    volume.reopen().unwrap();
    volume.verify();
    assert!(volume.sim.device.files().iter().all(|(path, _)| *path != sealed(0)));
    assert_eq!(volume.data.held_back(), []);
}
