//! A volume in an object store that accepts nothing for a time: who waits, who gets an error, and
//! that nothing is lost.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fs::{FileSystem, Fs, NewNode, OpenOptions, SyncScope};
use inode::{Caller, FsError, Kind};
use testing::{noise, sim_env};

use crate::objects::{ROOT, URL, env_of, formatted, make, open, read, try_open};
use crate::support::refused;

/// While the store accepts nothing, reads continue, a sync waits, and after some time changes do.
/// Nothing is lost, and `status` reports since when the store is unreachable.
#[test]
fn an_outage_makes_changes_wait_and_loses_nothing() {
    let far = formatted();
    let sim = sim_env(6);
    let fs = try_open(&sim, &far).expect("a volume");
    make(&fs, "before", &noise(1, 100_000));
    fs.sync().expect("synced");
    far.take_nothing(Some(ErrorKind::TimedOut));
    let node = make(&fs, "during", &noise(2, 100_000));
    device::scope(|scope| {
        let syncing = scope.spawn(|| fs.fsync(node, SyncScope::All));
        while fs.status().expect("status").objects.expect("a store").waits.is_none() {
            device::yield_now();
        }
        assert_eq!(read(&fs, "before").expect("it is there"), noise(1, 100_000));
        let (_, why) = fs.status().unwrap().objects.unwrap().waits.expect("it waits");
        assert!(why.contains("create"), "{why}");
        while fs
            .status()
            .unwrap()
            .objects
            .unwrap()
            .waits
            .is_none_or(|it| it.0 < Duration::from_secs(6))
        {
            sim.clock.advance(Duration::from_secs(1));
        }
        let made = Arc::new(AtomicU64::new(0));
        let (of_thread, fs) = (Arc::clone(&made), &fs);
        let changing = scope.spawn(move || {
            make(fs, "waits", b"");
            of_thread.store(1, Ordering::SeqCst);
        });
        for _ in 0..1000 {
            device::yield_now();
        }
        assert_eq!(made.load(Ordering::SeqCst), 0, "a change waits");
        far.take_nothing(None);
        syncing.join().expect("it ends").expect("synced");
        changing.join().expect("it ends");
    });
    assert_eq!(fs.status().unwrap().objects.unwrap().waits, None);
    let left = far.copy();
    drop(fs);
    assert_eq!(read(&open(&left), "during").expect("synced"), noise(2, 100_000));
}

/// In an outage a caller that is interrupted stops waiting, whatever it waits for. That becomes
/// durable later, and nothing is lost.
#[test]
fn an_interrupted_caller_waits_no_longer_in_an_outage() {
    let far = formatted();
    let sim = sim_env(6);
    let fs = try_open(&sim, &far).expect("a volume");
    far.take_nothing(Some(ErrorKind::TimedOut));
    let large = make(&fs, "large", &noise(2, 100_000));
    let small = make(&fs, "small", b"small");
    let cancels: Vec<Arc<AtomicBool>> = (0..4).map(|_| Arc::default()).collect();
    let waits = |fs: &Fs| fs.status().unwrap().objects.unwrap().waits;
    device::scope(|scope| {
        // One of them sends, and the others wait for it; one waits to begin a change.
        let syncing: Vec<_> = [large, small, ROOT]
            .into_iter()
            .zip(&cancels)
            .map(|(node, cancel)| {
                let fs = &fs;
                scope
                    .spawn(move || fs::with_cancellation(cancel, || fs.fsync(node, SyncScope::All)))
            })
            .collect();
        while waits(&fs).is_none() {
            device::yield_now();
        }
        cancels[0].store(true, Ordering::SeqCst);
        cancels[1].store(true, Ordering::SeqCst);
        while waits(&fs).is_none_or(|it| it.0 < Duration::from_secs(6)) {
            sim.clock.advance(Duration::from_secs(1));
        }
        let changing = scope.spawn(|| {
            let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
            let make = || fs.mknod(&Caller::root(), ROOT, b"waits", &new).map(drop);
            fs::with_cancellation(&cancels[3], make)
        });
        let mut syncing = syncing.into_iter();
        for _ in 0..2 {
            let synced = syncing.next().expect("a thread").join().expect("it ends");
            refused(synced, &FsError::Interrupted);
        }
        let copying = scope.spawn(|| {
            let copy = || fs.subvolume_create(&Caller::root(), ROOT, b"sub", 0o755).map(drop);
            fs::with_cancellation(&cancels[3], copy)
        });
        assert!(!changing.is_finished() && !copying.is_finished());
        cancels[3].store(true, Ordering::SeqCst);
        refused(changing.join().expect("it ends"), &FsError::Interrupted);
        refused(copying.join().expect("it ends"), &FsError::Interrupted);
        far.take_nothing(None);
        syncing.next().expect("a thread").join().expect("it ends").expect("synced");
    });
    let left = far.copy();
    drop(fs);
    let again = open(&left);
    assert_eq!(read(&again, "large").expect("synced"), noise(2, 100_000));
    assert_eq!(read(&again, "small").expect("synced"), b"small");
    refused(read(&again, "waits"), &FsError::NotFound);
}

/// Where the store is full, a sync and a change soon fail for that. What was written stays, and is
/// durable once there is space.
#[test]
fn a_full_store_is_reported() {
    let far = formatted();
    let sim = sim_env(6);
    let fs = try_open(&sim, &far).expect("a volume");
    far.take_nothing(Some(ErrorKind::StorageFull));
    let node = make(&fs, "during", &noise(2, 100_000));
    device::scope(|scope| {
        let syncing = scope.spawn(|| fs.fsync(node, SyncScope::All));
        while !syncing.is_finished() {
            sim.clock.advance(Duration::from_millis(100));
            device::yield_now();
        }
        refused(syncing.join().expect("it ends"), &FsError::NoSpace);
    });
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    refused(fs.mknod(&Caller::root(), ROOT, b"more", &new).map(drop), &FsError::NoSpace);
    assert_eq!(read(&fs, "during").expect("it is there"), noise(2, 100_000));
    far.take_nothing(None);
    fs.fsync(node, SyncScope::All).expect("there is space");
    let left = far.copy();
    drop(fs);
    assert_eq!(read(&open(&left), "during").expect("synced"), noise(2, 100_000));
}

/// A writer that would leave too much undurable waits before it takes its file's lock.
#[test]
fn a_writer_that_waits_for_the_store_keeps_nobody_from_its_file() {
    let far = formatted();
    let sim = sim_env(6);
    let env = env_of(&sim, &far);
    fs::make_host(&*env.device, &*far, URL).expect("a volume");
    let data = data::Options { unsynced_bytes_max: 1 << 20, ..data::Options::default() };
    let options = OpenOptions { index: None, data, ..OpenOptions::default() };
    let fs = Fs::open(env, &options).expect("a volume");
    let node = make(&fs, "file", &noise(1, 1 << 20));
    far.take_nothing(Some(ErrorKind::TimedOut));
    let cancel = Arc::default();
    device::scope(|scope| {
        let writing = scope.spawn(|| {
            let write = || fs.write(&Caller::root(), node, 1 << 20, &noise(2, 100_000));
            fs::with_cancellation(&cancel, write)
        });
        while fs.status().expect("status").objects.expect("a store").waits.is_none() {
            device::yield_now();
        }
        // Time for the writer to take what it takes.
        for _ in 0..1000 {
            device::yield_now();
        }
        assert_eq!(read(&fs, "file").expect("it is there"), noise(1, 1 << 20));
        assert!(!writing.is_finished());
        cancel.store(true, Ordering::SeqCst);
        while !writing.is_finished() {
            sim.clock.advance(Duration::from_secs(1));
            device::yield_now();
        }
        refused(writing.join().expect("it ends"), &FsError::Interrupted);
    });
    far.take_nothing(None);
    fs.close().expect("closed");
}

/// Regression: a full disk of the host emptied the trash, which is in the object store.
#[test]
fn a_full_disk_of_the_host_leaves_the_trash_alone() {
    let far = formatted();
    let sim = sim_env(14);
    let fs = try_open(&sim, &far).expect("a volume");
    let root = Caller::root();
    fs.trash_set(&root, ROOT, Some(86_400)).expect("a trash");
    make(&fs, "removed", b"contents");
    fs.unlink(&root, ROOT, b"removed").expect("it goes into the trash");
    fs.sync().expect("synced");
    sim.clock.advance(Duration::from_secs(3600));
    sim.device.set_capacity(Some(sim.device.used_bytes()));
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let node = fs.mknod(&root, ROOT, b"more", &new).expect("made").node;
    let bytes = noise(3, 1 << 20);
    let refused = (0..100).find_map(|part| fs.write(&root, node, part << 20, &bytes).err());
    assert!(matches!(refused, Some(FsError::NoSpace)), "{refused:?}");
    assert_eq!(crate::trash::listed(&fs, ROOT), ["removed"]);
}
