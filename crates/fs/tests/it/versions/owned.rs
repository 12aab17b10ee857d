//! Removal and roll-back of a tree in which another user creates directories at the same time.
//!
//! The check of ownership is a walk. What the other user created behind it used to be destroyed: a
//! directory that they had seen under its name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use device::sync::Barrier;
use device::{Clock, SystemClock};
use fs::{FileSystem, Fs, FsResult, RenameMode};
use inode::{FsError, NodeId, SetAttr};

use super::{filled, forget, give, home, root};
use crate::script::scale;
use crate::support::{Volume, refused, user, volume};

const OWNER: u32 = 1000;
const OTHER: u32 = 1001;
const BELOW: usize = 2000;

/// A tree of one user, in whose directories another may make names.
fn open_tree(v: &Volume, name: &str) -> NodeId {
    let top = v.dir(home(), name).node;
    give(v, top, OWNER);
    for at in 0..BELOW {
        let below = v.dir(top, &format!("d{at}")).node;
        let changes = SetAttr { uid: Some(OWNER), mode: Some(0o777), ..SetAttr::default() };
        v.fs.setattr(&root(), below, &changes).expect("root may");
        forget(v, below);
    }
    top
}

/// Makes a directory in a tree by its path, and returns whether the tree was still there under its
/// name afterwards.
fn make_and_see(fs: &Fs, (name, tree): (&str, NodeId), below: &str) -> bool {
    let other = user(OTHER);
    let made = || -> FsResult<bool> {
        let top = fs.lookup(&other, home(), name.as_bytes())?.node;
        let dir = fs.lookup(&other, top, below.as_bytes())?.node;
        fs.mkdir(&other, dir, b"made", 0o700)?;
        Ok(top == tree)
    };
    made().unwrap_or(false)
        && fs.lookup(&other, home(), name.as_bytes()).is_ok_and(|entry| entry.node == tree)
}

/// Has one user take a tree away while another makes a directory in it, many times; a tree in which
/// that was seen stays.
fn race(v: &Volume, prepare: impl Fn(NodeId), take: impl Fn(&str, NodeId) -> FsResult<()> + Sync) {
    let (mut refusals, mut random) = (0, fastrand::Rng::with_seed(1));
    let mut tree = None;
    for round in 0..scale(20, 60) {
        let (name, top) = tree.take().unwrap_or_else(|| {
            let name = format!("tree{round}");
            let top = open_tree(v, &name);
            prepare(top);
            (name, top)
        });
        let walk = walk_time(v, top);
        let (start, below) = (Barrier::new(2), format!("d{}", random.usize(..BELOW)));
        let pause = walk.mul_f64(random.f64());
        let (seen, taken) = device::scope(|scope| {
            let other = scope.spawn(|| {
                start.wait();
                let clock = SystemClock::new();
                let begin = clock.monotonic();
                while clock.monotonic().saturating_sub(begin) < pause {
                    device::spin_loop();
                }
                make_and_see(&v.fs, (&name, top), &below)
            });
            start.wait();
            let taken = take(&name, top);
            (other.join().expect("no panic"), taken)
        });
        match taken {
            Ok(()) => assert!(!seen, "round {round}: a directory of another user was destroyed"),
            Err(FsError::NotPermitted(_)) => {
                refusals += 1;
                let below = v.find(top, &below).expect("the tree stays").node;
                v.fs.rmdir(&root(), below, b"made").expect("what was refused for");
                forget(v, below);
                tree = Some((name, top));
            }
            Err(error) => panic!("round {round}: {error}"),
        }
    }
    println!("{refusals} were refused");
}

/// Has one user take a tree away. At a read of the check that all of it is theirs, another user
/// makes a directory in it. Wherever the check was, the tree stays.
fn beside_the_check(
    v: &Volume,
    prepare: impl Fn(NodeId),
    take: impl Fn(&str, NodeId) -> FsResult<()>,
) {
    let (name, mut random) = ("checked", fastrand::Rng::with_seed(1));
    let top = open_tree(v, name);
    prepare(top);
    let reads = || v.store.gets() + v.store.moves();
    let before = reads();
    refused(v.fs.rollback(&user(OWNER), top, b"none"), &FsError::NotFound);
    let reads = reads() - before;
    for round in 0..8 {
        let below = format!("d{}", random.usize(..BELOW));
        // Each second time near the end, when most directories were checked.
        let last = reads - reads / 8 - 1;
        let at = if round % 2 == 0 { last } else { random.u64(reads / 4..last) };
        let (fs, count, seen) =
            (Arc::downgrade(&v.fs), AtomicU64::new(0), Arc::new(AtomicBool::new(false)));
        let (made, path) = (Arc::clone(&seen), below.clone());
        v.store.set_on_read(move || {
            if count.fetch_add(1, Ordering::Relaxed) != at {
                return;
            }
            let fs = fs.upgrade().expect("the volume is open");
            let make = || make_and_see(&fs, (name, top), &path);
            let is_seen = device::scope(|scope| scope.spawn(make).join().expect("no panic"));
            made.store(is_seen, Ordering::Relaxed);
        });
        let taken = take(name, top);
        v.store.set_on_read(|| ());
        assert!(seen.load(Ordering::Relaxed), "round {round}: nothing was made at read {at}");
        refused(taken, &FsError::NotPermitted(""));
        let below = v.find(top, &below).expect("the tree stays").node;
        v.fs.rmdir(&root(), below, b"made").expect("what was refused for");
        forget(v, below);
    }
}

/// How long the owner's check takes: a roll-back to no snapshot ends after it.
fn walk_time(v: &Volume, top: NodeId) -> Duration {
    let clock = SystemClock::new();
    let begin = clock.monotonic();
    refused(v.fs.rollback(&user(OWNER), top, b"none"), &FsError::NotFound);
    clock.monotonic().saturating_sub(begin)
}

#[test]
fn rmr_keeps_other_users_concurrent_files() {
    let v = volume();
    let remove =
        |name: &str, _: NodeId| v.fs.rmr(&user(OWNER), home(), name.as_bytes()).map(|_| ());
    beside_the_check(&v, |_| (), remove);
    race(&v, |_| (), remove);
}

#[test]
fn rmr_into_the_trash_keeps_other_users_concurrent_files() {
    let v = volume();
    v.fs.trash_set(&root(), home(), Some(3600)).expect("a trash");
    let remove =
        |name: &str, _: NodeId| v.fs.rmr(&user(OWNER), home(), name.as_bytes()).map(|_| ());
    beside_the_check(&v, |_| (), remove);
    race(&v, |_| (), remove);
}

#[test]
fn rollback_keeps_other_users_concurrent_files() {
    let v = volume();
    let snapshot = |top| {
        v.fs.snapshot_create(&user(OWNER), top, b"one").expect("its own");
    };
    let back = |_: &str, top: NodeId| v.fs.rollback(&user(OWNER), top, b"one");
    beside_the_check(&v, snapshot, back);
    race(&v, snapshot, back);
}

/// A directory that belongs to the caller comes into the tree with one below that does not. Also a
/// subvolume is mounted in it. Both are checked whole.
#[test]
fn a_directory_moved_into_a_tree_is_checked_whole() {
    let v = volume();
    let top = open_tree(&v, "tree");
    let outside = filled(&v, home(), "outside", 1);
    give(&v, outside, OWNER);
    v.dir(outside, "roots");
    v.fs.rename(&root(), (home(), b"outside"), (top, b"in"), RenameMode::Replace).expect("moved");
    refused(v.fs.rmr(&user(OWNER), home(), b"tree"), &FsError::NotPermitted(""));
    v.fs.rename(&root(), (top, b"in"), (home(), b"outside"), RenameMode::Replace).expect("back");
    v.fs.subvolume_create(&root(), top, b"s", 0o755).expect("a subvolume");
    refused(v.fs.rmr(&user(OWNER), home(), b"tree"), &FsError::NotPermitted(""));
    v.fs.rmr(&root(), top, b"s").expect("root may");
    v.fs.rmr(&user(OWNER), home(), b"tree").expect("all is its own");
}
