//! Contents in an object store. The host, with its files, is lost before any request that changes
//! something, and what was durable is in the objects. Requests and answers are lost, too.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use data::{Data, Options};
use device::{Clock, PatientBlobs};
use store::{Barrier, Durable, TreeId};
use testing::run::{Context, for_seeds, rounds};
use testing::{Call, FarBlobs, Fault, FaultOn, MemStore, Mishap, Op, fails};

use crate::model::random_op;
use crate::support::{
    History, Subvolume, Volume, check_records, open_data, pattern, small_options, verify,
};

/// Numbers that one opening may use.
const RANGE: u64 = 1 << 20;

fn options(opening: u64) -> Options {
    Options {
        upload_from: Some(opening * RANGE),
        inline_file_bytes: 16 << 10,
        segment_pages: 16,
        ..small_options()
    }
}

fn fresh(seed: u64) -> Volume {
    Volume::over(testing::sim_env(seed), options(1), false, Some(FarBlobs::new()))
}

/// Opens objects on another host, and compares them with the model of the last durable commit.
fn opened(volume: &Volume, store: MemStore, objects: Arc<FarBlobs>, opening: u64) -> Volume {
    let store = Arc::new(store);
    let expected = volume.history.lock().get(&store.durable().0).cloned().expect("a known commit");
    let (sim, options) = (testing::sim_env(opening), options(opening));
    let data = open_data(&sim, &store, &options, false, Some(&objects)).unwrap();
    verify(&*store, &data, &expected);
    check_records(&store);
    store.set_barrier(Arc::<Data>::clone(&data));
    let last_clone = volume.epoch + 9;
    let trees = store.trees().into_iter().filter(|tree| tree.0 >= 32);
    let trees = trees.map(|tree| (tree.0, Subvolume { last_clone })).collect();
    Volume {
        sim,
        trees,
        epoch: volume.epoch + 10,
        next_tree: volume.next_tree + 100,
        now: expected,
        history: History::default(),
        options,
        punches: false,
        objects: Some(objects),
        store,
        data,
    }
}

/// What another host finds, before and after requests of the lost one arrive late.
fn check_lost_host(volume: &Volume, objects: &FarBlobs, late: &FarBlobs) {
    let objects = objects.copy();
    let mut again = opened(volume, volume.store.after_crash(), Arc::clone(&objects), 2);
    let Some(&tree) = again.trees.keys().next() else { return };
    again.write(tree, 2, 1000, &pattern(7, 40_000)).unwrap();
    for (name, bytes) in late.objects() {
        if !objects.objects().contains_key(&name) {
            objects.put(&name, &bytes);
        }
    }
    again.write(tree, 3, 0, &pattern(8, 40_000)).unwrap();
    again.clean(true).unwrap();
    again.sync().unwrap();
    again.collect().unwrap();
    again.verify();
    let third = opened(&again, again.store.after_crash(), objects.copy(), 3);
    third.verify();
}

/// Runs a script; the host is lost before each request that changes something.
fn enumerate(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut volume = fresh(seed);
    for _ in 0..20 {
        random_op(&mut volume, &mut random).unwrap();
    }
    let objects = volume.objects.clone().unwrap();
    for _ in 0..rounds(25, 80) {
        let shared = Arc::new(volume.seen_by_watcher());
        let _held = Arc::clone(&shared);
        objects.watch(move |objects, request| {
            let _context = Context::new(format!("host lost before request {request}"));
            check_lost_host(&shared, objects, &FarBlobs::default());
        });
        random_op(&mut volume, &mut random).unwrap();
        objects.unwatch();
    }
    volume.sync().unwrap();
    check_lost_host(&volume, &objects, &FarBlobs::default());
}

#[test]
fn a_lost_host_costs_only_what_was_not_durable() {
    for_seeds("lost host", 12, 200, enumerate);
}

/// A request of the lost host arrives when the next one writes.
#[test]
fn an_object_that_arrives_late_has_a_name_of_its_own() {
    let mut volume = fresh(1);
    volume.write(32, 1, 0, &pattern(1, 50_000)).unwrap();
    volume.sync().unwrap();
    let objects = volume.objects.clone().unwrap();
    volume.write(32, 1, 10_000, &pattern(2, 50_000)).unwrap();
    let before = objects.copy();
    let store = volume.store.after_crash();
    volume.sync().unwrap();
    let late = FarBlobs::default();
    for (name, bytes) in objects.objects() {
        if !before.objects().contains_key(&name) {
            late.put(&name, &bytes);
        }
    }
    assert_eq!(late.objects().len(), 1, "one segment was written");
    let mut again = opened(&volume, store, before, 2);
    again.write(32, 2, 0, &pattern(3, 50_000)).unwrap();
    again.sync().unwrap();
    let objects = again.objects.clone().unwrap();
    for (name, bytes) in late.objects() {
        assert!(!objects.objects().contains_key(&name), "{name} was used again");
        objects.put(&name, &bytes);
    }
    again.verify();
    opened(&again, again.store.after_crash(), objects.copy(), 3).verify();
}

/// An answer that was lost: the next sync finds its own object.
#[test]
fn a_sync_after_a_lost_answer_takes_the_object_as_made() {
    let mut volume = fresh(2);
    let objects = volume.objects.clone().unwrap();
    let reported = [
        (Mishap::LostAnswer, "no answer"),
        (Mishap::LostRequest, "no answer"),
        (Mishap::Full, "no space"),
    ];
    for (mishap, error) in reported {
        volume.write(32, 1, 0, &pattern(5, 30_000)).unwrap();
        objects.order(Call::Make, "", mishap);
        fails(volume.data.sync(), error);
        volume.data.sync().unwrap();
        volume.sync().unwrap();
        volume.verify();
        assert_eq!(volume.data.unsynced_bytes(), 0);
        opened(&volume, volume.store.after_crash(), objects.copy(), 9).verify();
    }
}

#[test]
fn an_object_of_another_program_under_our_name_is_refused() {
    let mut volume = fresh(3);
    let objects = volume.objects.clone().unwrap();
    volume.write(32, 1, 0, &pattern(5, 30_000)).unwrap();
    objects.put(&format!("{RANGE:016x}.seg"), b"something else");
    let error = volume.data.sync().unwrap_err().to_string();
    assert!(error.contains("another program"), "{error}");
    fails(volume.sync(), "another program");
}

/// Threads write and sync at once; each sync covers the writes of its thread.
#[test]
fn concurrent_syncs_make_every_earlier_write_durable() {
    let objects = FarBlobs::new();
    let volume = Volume::over(testing::sim_env(4), options(1), false, Some(Arc::clone(&objects)));
    device::scope(|scope| {
        for thread in 0..4_u64 {
            let (volume, objects) = (&volume, &objects);
            scope.spawn(move || {
                for round in 0..30 {
                    let ino = 100 + thread;
                    let file = data::FileRef { tree: TreeId(32), ino };
                    let bytes = pattern(thread * 100 + round, 20_000);
                    let mut batch = store::Batch::new();
                    let owner = volume.owner(32);
                    let at = round * 20_000;
                    let store = &*volume.store;
                    let freed =
                        volume.data.write(store, file, at, &bytes, owner, &mut batch).unwrap();
                    let token = store::Commit::commit(store, &batch).unwrap();
                    volume.data.reclaim_after(freed, token);
                    Durable::sync(store, token).unwrap();
                    // What the objects have by now holds the bytes.
                    let copy = objects.copy();
                    let sim = testing::sim_env(round);
                    let data = open_data(&sim, store, &options(9), false, Some(&copy)).unwrap();
                    let mut buffer = vec![0; bytes.len()];
                    let size = at + bytes.len() as u64;
                    data.read(store, file, size, at, &mut buffer).unwrap();
                    assert!(buffer == bytes, "thread {thread}, round {round}");
                }
            });
        }
    });
}

/// A file that fits the limit needs no object; one that grows beyond it moves out, once.
#[test]
fn small_files_need_no_object_and_move_out_when_they_grow() {
    let mut volume = fresh(5);
    let objects = volume.objects.clone().unwrap();
    for ino in 1..20 {
        volume.write(32, ino, 0, &pattern(ino, 10_000)).unwrap();
        volume.write(32, ino, 10_000, &pattern(ino, 6_000)).unwrap();
    }
    volume.sync().unwrap();
    volume.verify();
    assert_eq!(objects.objects().len(), 0, "small files are in records");
    volume.write(32, 1, 16_000, &pattern(3, 9_000)).unwrap();
    volume.sync().unwrap();
    volume.verify();
    assert_eq!(objects.objects().len(), 1);
}

/// A file that is synced after each small write is few objects, of 1 MiB, whatever the writes are.
/// Writes of 4 KiB and longer ones come one after the other, and all over a file. That holds also
/// where no call of fsync announces it, for every change is durable.
#[test]
fn many_synced_writes_are_few_objects() {
    for (synced, scattered, length) in [
        (false, false, 3000),
        (false, false, 20_000),
        (false, true, 20_000),
        (true, false, 20_000),
        (true, true, 4096),
        (true, false, 65_536),
    ] {
        let case = format!("synced {synced}, scattered {scattered}, writes of {length}");
        let options = Options { synced, inline_file_bytes: 16 << 10, ..options(1) };
        let options = Options { segment_pages: 16_384, ..options };
        let objects = FarBlobs::new();
        let mut volume =
            Volume::over(testing::sim_env(9), options, false, Some(Arc::clone(&objects)));
        let file = data::FileRef { tree: TreeId(32), ino: 1 };
        let written = 3 << 20;
        // The model keeps the contents after each commit.
        let places = (written / length).min(200);
        for step in 0..places {
            let place = if scattered { step * 7919 % places } else { step };
            if !synced {
                volume.data.note_fsync(file);
            }
            let bytes = pattern(step as u64, length);
            volume.write(32, 1, (place * length) as u64, &bytes).unwrap();
            volume.sync().unwrap();
            // As the daemon does in the background.
            while volume.data.settle_due().is_some() {
                volume.settle(32, 1).unwrap();
            }
        }
        volume.verify();
        let made = objects.objects().len();
        assert!(made <= 8, "{case}: {made} objects for {places} syncs");
        opened(&volume, volume.store.after_crash(), objects.copy(), 2).verify();
    }
}

/// Space of removed contents is reclaimed though no object has holes.
#[test]
fn objects_shrink_when_contents_are_removed() {
    let mut volume = fresh(6);
    let objects = volume.objects.clone().unwrap();
    for ino in 1..40 {
        volume.write(32, ino, 0, &pattern(ino, 30_000)).unwrap();
        volume.sync().unwrap();
    }
    let bytes = |objects: &FarBlobs| objects.objects().values().map(|it| it.len()).sum::<usize>();
    let before = bytes(&objects);
    for ino in 1..40 {
        if ino % 4 != 0 {
            volume.release(32, ino).unwrap();
        }
    }
    volume.clean(true).unwrap();
    volume.verify();
    let after = bytes(&objects);
    assert!(after * 2 < before, "{after} of {before} bytes are left, and 1/4 is live");
    opened(&volume, volume.store.after_crash(), objects.copy(), 2).verify();
}

/// Regression: an object of less than `punch_bytes_min` was never rewritten if it was once
/// deferred, however much of it died later.
#[test]
fn a_small_object_that_was_deferred_is_rewritten_when_more_of_it_dies() {
    let options = Options { punch_bytes_min: 8 << 20, segment_pages: 32, ..options(1) };
    let mut volume = Volume::over(testing::sim_env(9), options, false, Some(FarBlobs::new()));
    let objects = volume.objects.clone().unwrap();
    // The last one is never deleted: its number is not to be used again.
    for files in [1..=3, 4..=4] {
        for ino in files {
            volume.write(32, ino, 0, &pattern(ino, 20_000 * ino as usize)).unwrap();
        }
        volume.sync().unwrap();
    }
    let bytes = || objects.objects().values().map(|it| it.len()).sum::<usize>();
    let before = bytes();
    for (ino, freed) in [(1, 0), (2, 60_000), (3, 120_000)] {
        volume.release(32, ino).unwrap();
        volume.sync().unwrap();
        volume.clean(true).unwrap();
        volume.verify();
        let left = bytes();
        let (least, most) = (before - freed - 12_000, before - freed);
        assert!((least..=most).contains(&left), "{left} of {before}: {:?}", volume.data.stats());
    }
}

/// Regression: an object whose rewriting failed was not tried again before the next opening.
#[test]
fn an_object_that_could_not_be_rewritten_is_tried_again() {
    let mut volume = fresh(10);
    let objects = volume.objects.clone().unwrap();
    for ino in 1..=3 {
        volume.write(32, ino, 0, &pattern(ino, 20_000)).unwrap();
    }
    volume.sync().unwrap();
    let bytes = |objects: &FarBlobs| objects.objects().values().map(|it| it.len()).sum::<usize>();
    let before = bytes(&objects);
    volume.release(32, 1).unwrap();
    volume.release(32, 2).unwrap();
    volume.sync().unwrap();
    objects.order(Call::Make, "", Mishap::LostRequest);
    fails(volume.clean(true), ".seg.1: no answer");
    assert_eq!(bytes(&objects), before);
    volume.clean(true).unwrap();
    volume.verify();
    assert!(bytes(&objects) < before, "{} of {before} bytes are left", bytes(&objects));
}

/// Regression: a dead object whose deletion failed once stayed until the next opening.
#[test]
fn the_deletion_of_a_dead_object_is_tried_again() {
    let mut volume = fresh(11);
    let objects = volume.objects.clone().unwrap();
    for ino in 1..=2 {
        volume.write(32, ino, 0, &pattern(ino, 60_000)).unwrap();
        volume.sync().unwrap();
    }
    volume.release(32, 1).unwrap();
    volume.sync().unwrap();
    for finds_it in [true, false] {
        let objects = objects.copy();
        // Another host finds it when it opens the volume.
        let again = opened(&volume, volume.store.after_crash(), Arc::clone(&objects), 2);
        let volume = if finds_it { &again } else { &volume };
        let objects = volume.objects.clone().unwrap();
        let before = objects.objects().len();
        objects.order(Call::Delete, "", Mishap::LostRequest);
        fails(volume.clean(true), "delete 0000000000100000.seg: no answer");
        assert_eq!((objects.objects().len(), objects.take_back()), (before, 0));
        volume.sim.clock.advance(Duration::from_secs(120));
        volume.clean(true).unwrap();
        assert_eq!(objects.objects().len(), before - 1);
        volume.verify();
    }
}

/// What was written is acknowledged, so a full disk of the host keeps no segment from becoming an
/// object. Not even its footer needs space there.
#[test]
fn a_full_disk_of_the_host_delays_no_sync() {
    let mut volume = fresh(7);
    let objects = volume.objects.clone().unwrap();
    for mishap in [None, Some(Mishap::LostAnswer), Some(Mishap::LostRequest)] {
        volume.write(32, 1, 0, &pattern(5, 50_001)).unwrap();
        volume.sim.device.inject(Fault::no_space(FaultOn::Only(Op::Write), 0).forever());
        if let Some(mishap) = mishap {
            objects.order(Call::Make, "", mishap);
            fails(volume.data.sync(), "no answer");
        }
        volume.data.sync().unwrap();
        volume.sim.device.clear_faults();
        volume.sync().unwrap();
        assert_eq!(volume.data.unsynced_bytes(), 0);
        volume.verify();
        opened(&volume, volume.store.after_crash(), objects.copy(), 9).verify();
    }
}

/// A process that was replaced may rewrite a segment after all, if it paused at the right moment:
/// its successor finds what it made.
#[test]
fn a_segment_that_a_replaced_process_rewrote_is_found() {
    let mut old = fresh(8);
    let objects = old.objects.clone().unwrap();
    for ino in 1..20 {
        old.write(32, ino, 0, &pattern(ino, 30_000)).unwrap();
    }
    old.sync().unwrap();
    for ino in 1..20 {
        if ino % 4 != 0 {
            old.release(32, ino).unwrap();
        }
    }
    old.sync().unwrap();
    let new = opened(&old, old.store.after_crash(), Arc::clone(&objects), 2);
    let before = objects.objects();
    old.clean(true).unwrap();
    let gone = before.keys().filter(|name| !objects.objects().contains_key(*name)).count();
    assert!(gone > 0, "segments are rewritten");
    new.verify();
}

/// Regression: each step tried to delete every dead object again, and each attempt may take long.
#[test]
fn deletions_that_fail_rest() {
    let mut volume = fresh(12);
    let objects = volume.objects.clone().unwrap();
    for ino in 1..=21 {
        volume.write(32, ino, 0, &pattern(ino, 30_000)).unwrap();
        volume.sync().unwrap();
    }
    for ino in 1..=20 {
        volume.release(32, ino).unwrap();
    }
    // It finds them dead, and that is not durable yet.
    volume.sim.clock.advance(Duration::from_secs(3600));
    volume.clean(false).unwrap();
    volume.sync().unwrap();
    objects.take_nothing(Some(ErrorKind::PermissionDenied));
    let asked = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&asked);
    objects.watch(move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let before = objects.objects().len();
    for _ in 0..3 {
        volume.data.clean_step(&*volume.store).unwrap_or_default();
    }
    let asked = asked.load(Ordering::SeqCst);
    assert!((1..=6).contains(&asked), "{asked} deletions in three steps");
    assert_eq!(objects.objects().len(), before);
    // All are deleted when they can be, at the latest after a rest.
    objects.unwatch();
    objects.take_nothing(None);
    volume.sim.clock.advance(Duration::from_secs(61));
    volume.clean(false).unwrap();
    assert_eq!(objects.objects().len(), 1);
    volume.verify();
}

/// Objects of three files, which only a dropped tree named, and of one that is live.
fn dropped(seed: u64) -> Volume {
    let mut volume = fresh(seed);
    let write = |volume: &mut Volume, tree, ino| {
        volume.write(tree, ino, 0, &pattern(ino, 60_000)).unwrap();
        volume.sync().unwrap();
    };
    (1..=3).for_each(|ino| write(&mut volume, 32, ino));
    let clone = volume.clone_tree(32).unwrap();
    for ino in 1..=3 {
        volume.release(clone, ino).unwrap();
    }
    volume.drop_tree(32).unwrap();
    write(&mut volume, clone, 4);
    volume
}

/// Regression: an object that could not be deleted, or read to prove what it is, ended a
/// collection, which marked everything again.
#[test]
fn a_collection_leaves_an_object_that_fails_to_the_cleaner() {
    for unread in [false, true] {
        let mut volume = dropped(13);
        if unread {
            // Another host proves each object before it deletes it.
            let objects = volume.objects.clone().unwrap();
            volume = opened(&volume, volume.store.after_crash(), objects, 2);
        }
        let objects = volume.objects.clone().unwrap();
        assert_eq!(objects.objects().len(), 4);
        let first = objects.objects().into_keys().next().unwrap();
        let call = if unread { Call::Read } else { Call::Delete };
        (0..40).for_each(|_| objects.order(call, &first, Mishap::LostRequest));
        let (_, swept) = volume.collect().unwrap();
        assert_eq!((swept.deleted, swept.failed), (2, 0), "unread: {unread}");
        let left: Vec<String> = objects.objects().into_keys().collect();
        assert!(left.len() == 2 && left.contains(&first), "{left:?}");
        objects.take_back();
        // Nothing needs to be marked again.
        volume.sync().unwrap();
        volume.sim.clock.advance(Duration::from_secs(120));
        volume.clean(false).unwrap();
        assert_eq!(objects.objects().len(), 1, "unread: {unread}");
        volume.verify();
        opened(&volume, volume.store.after_crash(), objects.copy(), 3).verify();
    }
}

/// A volume over a store that is asked until it accepts what it is given.
fn insisting(seed: u64) -> (Volume, Arc<PatientBlobs>) {
    let mut volume = fresh(seed);
    let (env, objects) = (volume.sim.env(), volume.objects.clone().unwrap());
    let patient = Arc::new(PatientBlobs::new(objects, env.clock.clone()));
    patient.insist();
    let blobs = Arc::<PatientBlobs>::clone(&patient);
    volume.data = Data::open(&env, blobs, &*volume.store, options(2)).unwrap();
    volume.store.set_barrier(Arc::<Data>::clone(&volume.data));
    (volume, patient)
}

/// Regression: an error of the host's own file counted as an outage of the store, and a sync waited
/// for ever.
#[test]
fn contents_that_the_host_cannot_read_are_no_outage() {
    let (mut volume, patient) = insisting(14);
    volume.write(32, 1, 0, &pattern(1, 60_000)).unwrap();
    volume.sync().unwrap();
    volume.write(32, 2, 0, &pattern(2, 60_000)).unwrap();
    let fault = Fault::io(FaultOn::Only(Op::Read), 0).below("data/open");
    volume.sim.device.inject(fault.forever());
    let begun = volume.sim.clock.monotonic();
    let error = volume.data.sync().unwrap_err();
    assert!(matches!(&error, store::Error::Device(error) if error.is_unread()), "{error}");
    assert!(volume.data.has_failed(), "what was written is lost: {error}");
    assert_eq!((patient.outage(), volume.sim.clock.monotonic()), (None, begun));
    volume.sim.device.clear_faults();
    fails(volume.data.sync(), "read data/open/0000000000200001.seg: Input/output error");
}

/// Regression: a sync waited for a file that was removed, though the bytes could be read.
#[test]
fn a_removed_file_of_the_host_keeps_no_sync_waiting() {
    let (mut volume, patient) = insisting(15);
    volume.write(32, 1, 0, &pattern(1, 60_000)).unwrap();
    let device = &volume.sim.env().device;
    for name in device.list("data/open").unwrap() {
        device.remove(&format!("data/open/{name}")).unwrap();
    }
    volume.sync().unwrap();
    assert_eq!((patient.outage(), volume.data.has_failed()), (None, false));
    volume.verify();
    let objects = volume.objects.clone().unwrap();
    opened(&volume, volume.store.after_crash(), objects.copy(), 3).verify();
}
