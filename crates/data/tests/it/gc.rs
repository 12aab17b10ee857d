//! Collections: what clones shared is found, what is live or in flight stays.

use std::sync::Arc;
use std::time::Duration;

use data::FileRef;
use store::{Batch, Snapshot, TreeId};
use testing::{Fault, FaultOn, Op};

use crate::support::{Volume, check_records, pattern, small_options};

fn volume(punches: bool) -> Volume {
    Volume::with(testing::sim_env(1), small_options(), punches)
}

#[test]
fn a_dropped_clone_frees_its_space() {
    for punches in [true, false] {
        let mut volume = volume(punches);
        for ino in 1..6 {
            volume.write(32, ino, 0, &pattern(ino, 200_000)).unwrap();
        }
        let clone = volume.clone_tree(32).unwrap();
        for ino in 1..5 {
            volume.write(32, ino, 20_000, &pattern(ino + 10, 150_000)).unwrap();
        }
        volume.release(32, 5).unwrap();
        volume.clean(true).unwrap();
        volume.verify();
        let held = volume.data.disk_bytes().unwrap();
        volume.drop_tree(clone).unwrap();
        volume.clean(true).unwrap();
        let (report, swept) = volume.collect().unwrap();
        assert!(report.dead_bytes > 500_000, "{report:?}");
        assert!(swept.freed_bytes + swept.dead_bytes > 500_000, "{swept:?}");
        assert!(check_records(&volume.store), "counts are exact after a collection");
        volume.clean(true).unwrap();
        let freed = held - volume.data.disk_bytes().unwrap();
        assert!(freed > 400_000, "{freed} of {report:?}");
        volume.verify();
        volume.reopen().unwrap();
        volume.verify();
        let (_, swept) = volume.collect().unwrap();
        // Where pages cannot be punched, a few dead ones stay.
        let left = if punches { 0 } else { 300_000 };
        assert!(swept.deleted == 0 && swept.dead_bytes <= left, "{swept:?}");
        volume.verify();
    }
}

#[test]
fn the_footer_of_a_segment_that_was_not_full_is_not_dead() {
    let mut volume = volume(true);
    for ino in 1..4 {
        volume.write(32, ino, 0, &pattern(ino, 10_000)).unwrap();
    }
    let clone = volume.clone_tree(32).unwrap();
    volume.release(32, 1).unwrap();
    volume.sync().unwrap();
    volume.reopen().unwrap();
    volume.data.seal_all();
    assert_eq!(volume.data.stats().open_segments, 0);
    volume.drop_tree(clone).unwrap();
    volume.clean(true).unwrap();
    let (_, swept) = volume.collect().unwrap();
    assert!(swept.dead_bytes > 0, "{swept:?}");
    volume.clean(true).unwrap();
    assert_eq!(volume.data.check_segments().unwrap(), []);
    volume.verify();
}

#[test]
fn marking_alone_deletes_nothing() {
    let mut volume = volume(true);
    volume.write(32, 1, 0, &pattern(1, 200_000)).unwrap();
    let clone = volume.clone_tree(32).unwrap();
    volume.release(32, 1).unwrap();
    volume.drop_tree(clone).unwrap();
    volume.sync().unwrap();
    let before = volume.sim.device.used_bytes();
    let horizon = volume.data.horizon();
    let pinned = volume.store.pin().unwrap();
    let marked = volume.data.mark(horizon, &*pinned, &mut [TreeId(32)].into_iter()).unwrap();
    assert_eq!(marked.report().live_bytes, 0);
    assert!(marked.report().dead_bytes > 190_000);
    assert_eq!(volume.sim.device.used_bytes(), before);
}

#[test]
fn pages_in_flight_or_younger_than_the_mark_are_kept() {
    for punches in [true, false] {
        let mut volume = volume(punches);
        volume.write(32, 1, 0, &pattern(1, 300_000)).unwrap();
        let file = FileRef { tree: TreeId(32), ino: 2 };
        let owner = volume.owner(32);
        let mut batch = Batch::new();
        let bytes = pattern(2, 150_000);
        let planned =
            volume.data.write(&*volume.store, file, 0, &bytes, owner, &mut batch).unwrap();
        let horizon = volume.data.horizon();
        let pinned = volume.store.pin().unwrap();
        volume.release(32, 1).unwrap();
        volume.write(32, 3, 0, &pattern(3, 300_000)).unwrap();
        let marked = volume.data.mark(horizon, &*pinned, &mut [TreeId(32)].into_iter()).unwrap();
        volume.data.sweep(&*volume.store, &marked).unwrap();
        volume.clean(true).unwrap();
        let mut next = volume.now.clone();
        next.insert((32, 2), Arc::new(bytes));
        batch.put(TreeId(32), &crate::support::size_key(2), &150_000_u64.to_le_bytes());
        volume.commit(&batch, planned, next).unwrap();
        volume.clean(true).unwrap();
        volume.collect().unwrap();
        volume.verify();
        assert!(check_records(&volume.store));
    }
}

#[test]
fn a_rewritten_segment_is_rewritten_again_and_old_generations_go() {
    let options = data::Options { rewrite_dead_percent: 1, ..small_options() };
    let mut volume = Volume::with(testing::sim_env(1), options, false);
    for ino in 1..7 {
        volume.write(32, ino, 0, &pattern(ino, 40_000)).unwrap();
    }
    volume.write(32, 9, 0, &pattern(9, 300_000)).unwrap();
    for ino in [1, 3, 5] {
        volume.release(32, ino).unwrap();
        volume.clean(true).unwrap();
        volume.collect().unwrap();
        volume.clean(true).unwrap();
        volume.verify();
    }
    let names: Vec<String> = volume.sim.device.files().into_iter().map(|(path, _)| path).collect();
    assert!(
        names.iter().any(|name| name.ends_with(".seg.2") || name.ends_with(".seg.3")),
        "{names:?}"
    );
    let first = names.iter().filter(|name| name.contains("/0000000000000000.seg")).count();
    assert_eq!(first, 1, "{names:?}");
    volume.reopen().unwrap();
    volume.verify();
}

/// A volume with pages that are counted twice and named once, and a marking of it.
fn counted_twice() -> (Volume, impl Fn(&Volume) -> data::Marked) {
    let mut volume = volume(true);
    for ino in 1..17 {
        volume.write(32, ino, 0, &pattern(ino, 8_000)).unwrap();
    }
    let clone = volume.clone_tree(32).unwrap();
    for ino in 17..80 {
        volume.write(32, ino, 0, &pattern(ino, 8_000)).unwrap();
    }
    for ino in 1..9 {
        volume.release(32, ino).unwrap();
    }
    volume.drop_tree(clone).unwrap();
    volume.clean(true).unwrap();
    volume.verify();
    let mark = |volume: &Volume| {
        let horizon = volume.data.horizon();
        let pinned = volume.store.pin().unwrap();
        volume.data.mark(horizon, &*pinned, &mut [TreeId(32)].into_iter()).unwrap()
    };
    (volume, mark)
}

/// Releases the rest one by one: nothing that is named is deleted on the way.
fn release_rest(volume: &mut Volume) {
    for ino in 17..80 {
        volume.release(32, ino).unwrap();
        volume.clean(true).unwrap();
        crate::support::verify(&*volume.store, &volume.data, &volume.now);
    }
}

#[test]
fn two_collections_at_once_do_not_correct_a_count_twice() {
    let (mut volume, mark) = counted_twice();
    let (one, other) = (mark(&volume), mark(&volume));
    assert!(!volume.data.sweep(&*volume.store, &one).unwrap().outdated);
    let refused = volume.data.sweep(&*volume.store, &other).unwrap();
    assert_eq!(refused, data::Swept { outdated: true, ..Default::default() });
    let again = mark(&volume);
    assert!(!volume.data.sweep(&*volume.store, &again).unwrap().outdated);
    release_rest(&mut volume);
    assert!(check_records(&volume.store), "counts are exact after a collection");
}

#[test]
fn steps_of_one_collection_continue_until_another_sweeps() {
    let (mut volume, mark) = counted_twice();
    let (one, other) = (mark(&volume), mark(&volume));
    let step = |marked: &data::Marked, from: u64| {
        let mut swept = data::Swept::default();
        let next = volume.data.sweep_step(&*volume.store, marked, (from, 1), &mut swept);
        (next.unwrap(), swept.outdated)
    };
    let (second, outdated) = step(&one, 0);
    assert!(!outdated);
    assert_eq!(step(&other, 0), (None, true));
    let (third, outdated) = step(&one, second.expect("there are several segments"));
    assert!(!outdated);
    let third = third.expect("there are several segments");
    let other = mark(&volume);
    assert!(!volume.data.sweep(&*volume.store, &other).unwrap().outdated);
    assert_eq!(step(&one, third), (None, true));
    release_rest(&mut volume);
    assert!(check_records(&volume.store), "counts are exact after a collection");
}

/// A volume of whose files a dropped clone held some whole and parts of others.
fn held_by_a_clone(punches: bool) -> Volume {
    let mut volume = volume(punches);
    for ino in 1..12 {
        volume.write(32, ino, 0, &pattern(ino, 100_000)).unwrap();
    }
    let clone = volume.clone_tree(32).unwrap();
    for ino in 1..7 {
        volume.release(32, ino).unwrap();
    }
    for ino in 7..12 {
        volume.punch(32, ino, (8192, 61_440)).unwrap();
    }
    volume.drop_tree(clone).unwrap();
    volume.clean(true).unwrap();
    volume
}

/// Marks, and frees at once what nothing names. Returns what was reported before, how much was
/// reported as freed, and by how much less the disk has.
fn pass(volume: &Volume) -> (u64, u64, u64) {
    let horizon = volume.data.horizon();
    let pinned = volume.store.pin().unwrap();
    let marked = volume.data.mark(horizon, &*pinned, &mut [TreeId(32)].into_iter()).unwrap();
    let before = volume.data.disk_bytes().unwrap();
    let mut swept = data::Swept::default();
    for found in &marked.report().segments {
        volume.data.sweep_now(&*volume.store, &marked, found.segment, &mut swept).unwrap();
    }
    assert!(!swept.outdated && swept.dead_bytes == 0, "{swept:?}");
    let gained = before - volume.data.disk_bytes().unwrap();
    (marked.report().dead_bytes, swept.freed_bytes, gained)
}

#[test]
fn a_collection_reports_freed_disk_space_once() {
    for punches in [true, false] {
        let mut volume = held_by_a_clone(punches);
        let (reported, freed, gained) = pass(&volume);
        assert_eq!(freed, gained, "{punches}");
        assert!(reported > 700_000 && freed > 400_000, "{punches}: {freed} of {reported}");
        if punches {
            assert_eq!(reported, freed);
        }
        let left = pass(&volume);
        assert_eq!((left.1, left.2), (0, 0), "{punches}: {left:?}");
        assert_eq!(volume.data.stats().dead_bytes, left.0, "{punches}");
        if punches {
            assert_eq!(left.0, 0);
        }
        volume.verify();
        assert!(check_records(&volume.store), "counts are exact after a collection");
        volume.reopen().unwrap();
        // Where pages cannot be punched, what was open before is copied now.
        let (reported, freed, gained) = pass(&volume);
        assert_eq!(freed, gained, "{punches}");
        assert!(reported == left.0 && (freed == 0 || !punches), "{punches}: {freed} of {reported}");
        volume.verify();
    }
}

/// Pages of one segment cannot be freed; the others do not wait for that.
#[test]
fn unfreeable_pages_do_not_keep_others_from_being_freed() {
    let volume = held_by_a_clone(true);
    volume.sim.device.inject(Fault::io(FaultOn::Only(Op::Punch), 0));
    let (reported, freed, gained) = pass(&volume);
    assert!(!volume.sim.device.faults_left(), "it struck");
    assert_eq!(freed, gained);
    assert!(0 < freed && freed < reported, "{freed} of {reported}");
    let (_, later, gained) = pass(&volume);
    assert_eq!((later, gained), (reported - freed, reported - freed), "the rest, when it can be");
    volume.verify();
}

#[test]
fn live_pages_are_listed_for_segments_being_sealed_or_young() {
    let mut volume = volume(true);
    for ino in 1..4 {
        volume.write(32, ino, 0, &pattern(ino, 81_920)).unwrap();
    }
    volume.reopen().unwrap();
    let young = volume.data.horizon();
    volume.write(32, 4, 0, &pattern(4, 40_960)).unwrap();
    let mark = |horizon| {
        let pinned = volume.store.pin().unwrap();
        let marked = volume.data.mark(horizon, &*pinned, &mut [TreeId(32)].into_iter()).unwrap();
        let report = marked.report();
        (report.live_bytes, report.dead_bytes, report.segments.len())
    };
    let all = mark(volume.data.horizon());
    assert_eq!((all.0, all.1), (3 * 81_920 + 40_960, 0));
    assert_eq!(mark(young), (all.0, 0, all.2 - 1));
    let device = &volume.sim.device;
    device.hold(Fault::io(FaultOn::Only(Op::Sync), 0).below("data/open").forever());
    device::scope(|scope| {
        let sealing = scope.spawn(|| volume.data.seal_all());
        let held = device.is_held_within(Duration::from_secs(60));
        let beside = mark(volume.data.horizon());
        device.let_go();
        sealing.join().expect("it ends");
        assert!(held, "it seals");
        assert_eq!(beside, all);
    });
    assert_eq!(mark(volume.data.horizon()), all);
    volume.verify();
}

#[test]
fn pages_being_cleaned_are_counted_once() {
    let volume = held_by_a_clone(true);
    let (_, first) = volume.collect().unwrap();
    assert!(first.dead_bytes > 100_000, "{first:?}");
    assert_eq!(volume.data.stats().dead_bytes, first.dead_bytes);
    for _ in 0..3 {
        let (report, again) = volume.collect().unwrap();
        assert_eq!(report.dead_bytes, first.dead_bytes, "it has that still");
        assert_eq!((again.freed_bytes, again.dead_bytes), (0, 0));
        assert_eq!(volume.data.stats().dead_bytes, first.dead_bytes, "what is free soon");
    }
    let before = volume.data.disk_bytes().unwrap();
    volume.clean(true).unwrap();
    assert_eq!(before - volume.data.disk_bytes().unwrap(), first.dead_bytes);
    assert_eq!(volume.data.stats().dead_bytes, 0);
    let (report, again) = volume.collect().unwrap();
    assert_eq!((report.dead_bytes, again), (0, data::Swept::default()));
    volume.verify();
}
