//! Roll-back: in the middle of a subvolume, of a subvolume's root, of the volume's root.

use fs::FileSystem;
use inode::FsError;

use super::{Notified, contents, filled, forget, give, home, root, settle, snapshot_root};
use crate::support::{refused, user, volume};

#[test]
fn a_rolled_back_directory_keeps_its_snapshots() {
    let v = volume();
    let dir = filled(&v, home(), "d", 4);
    let before = contents(&v, dir);
    v.fs.snapshot_create(&root(), dir, b"one").expect("a snapshot");
    v.fs.unlink(&root(), dir, b"f0").expect("a file");
    v.file(dir, "new");
    v.fs.snapshot_create(&root(), dir, b"two").expect("a snapshot");
    v.fs.rollback(&root(), dir, b"one").expect("rolled back");
    let now = v.find(home(), "d").expect("the directory").node;
    assert_ne!(now, dir);
    assert_eq!(contents(&v, now), before);
    let listed = v.fs.snapshot_list(&root(), now).expect("a list");
    assert_eq!(listed.len(), 2);
    v.file(now, "writable");
    v.fs.rollback(&root(), now, b"two").expect("forward again");
    let now = v.find(home(), "d").expect("the directory").node;
    assert_eq!(v.sorted(now), ["f1", "f2", "f3", "new"]);
    v.check_counts(home());
    refused(v.fs.rollback(&root(), now, b"three"), &FsError::NotFound);
}

/// A rollback puts another directory in the place of the one that a snapshot was taken of.
#[test]
fn above_a_snapshot_is_the_directory_that_shows_it() {
    let v = volume();
    let dir = filled(&v, home(), "d", 2);
    v.fs.snapshot_create(&root(), home(), b"all").expect("a snapshot");
    v.fs.snapshot_create(&root(), dir, b"one").expect("a snapshot");
    let snapshot = snapshot_root(&v, dir, "one");
    let above = || v.find(snapshot, "..").expect("a way up").node;
    assert_eq!(above(), dir);
    for (of, name) in [(dir, &b"one"[..]), (home(), b"all")] {
        v.fs.rollback(&root(), of, name).expect("rolled back");
        let now = v.find(home(), "d").expect("the directory").node;
        assert_ne!(now, dir);
        assert_eq!(above(), now);
        let path = v.fs.path_of(snapshot).expect("it is read");
        assert_eq!(path.as_deref(), Some(&b"/d/.snapshots/one"[..]));
        let source = v.fs.copied_from(snapshot).expect("it is read");
        assert_eq!(source.as_deref(), Some(&b"/d"[..]));
    }
    v.fs.rmr(&root(), home(), b"d").expect("a directory");
    assert_eq!(above(), snapshot, "nothing shows it");
    assert_eq!(v.fs.path_of(snapshot).expect("it is read"), None);
}

#[test]
fn holders_of_the_old_tree_keep_it() {
    let v = volume();
    let dir = filled(&v, home(), "d", 2);
    let file = v.find(dir, "f0").expect("the file").node;
    v.fs.snapshot_create(&root(), dir, b"one").expect("a snapshot");
    v.write(file, 0, b"newer");
    v.fs.rollback(&root(), dir, b"one").expect("rolled back");
    settle(&v);
    assert_eq!(v.read(file), b"newer", "the open file is the old one");
    assert_eq!(v.sorted(dir), ["f0", "f1"], "the working directory is the old one");
    let now = v.find(home(), "d").expect("the directory").node;
    let restored = v.find(now, "f0").expect("the file").node;
    assert_eq!(v.read(restored), b"d 0");
    forget(&v, dir);
    settle(&v);
    assert_eq!(v.read(file), b"newer", "held to the end");
    forget(&v, file);
    settle(&v);
    assert_eq!(v.fs.status().expect("a status").detached, 0);
    assert_eq!(v.read(restored), b"d 0");
}

#[test]
fn a_subvolume_rollback_happens_in_place() {
    let v = volume();
    let dir = v.dir(home(), "d").node;
    let sub = v.fs.subvolume_create(&root(), dir, b"s", 0o755).expect("a subvolume").node;
    let old = v.file(sub, "old").node;
    v.fs.snapshot_create(&root(), sub, b"one").expect("a snapshot");
    let new = v.file(sub, "new").node;
    v.fs.rollback(&root(), sub, b"one").expect("rolled back");
    let now = v.find(dir, "s").expect("the subvolume").node;
    assert_eq!(v.sorted(now), ["old"]);
    assert_eq!(v.find(now, "..").expect("a way up").node, dir);
    for node in [sub, old, new] {
        forget(&v, node);
    }
    settle(&v);
    assert_eq!(v.sorted(now), ["old"]);
    assert_eq!(v.fs.status().expect("a status").detached, 0);
}

#[test]
fn a_rollback_of_the_volume_invalidates_every_name() {
    let v = volume();
    let held = filled(&v, home(), "d", 2);
    v.fs.snapshot_create(&root(), home(), b"one").expect("a snapshot");
    let later = v.dir(home(), "later").node;
    v.find(home(), ".").expect("the root, which stays held");
    v.fs.rmr(&root(), home(), b"d").expect("a directory");
    let reported = Notified::of(&v);
    v.fs.rollback(&root(), home(), b"one").expect("rolled back");
    assert_eq!(v.sorted(home()), ["d"]);
    let dir = v.find(home(), "d").expect("the directory").node;
    assert_eq!(v.sorted(dir), ["f0", "f1"]);
    assert_eq!(v.find(home(), "..").expect("a way up").node, home());
    let reported = reported.entries.lock().clone();
    assert!(reported.contains(&(home(), b"later".to_vec())), "what was there: {reported:?}");
    assert!(reported.contains(&(home(), b"d".to_vec())), "what is there: {reported:?}");
    settle(&v);
    forget(&v, dir);
    forget(&v, held);
    forget(&v, later);
    settle(&v);
    assert_eq!(v.fs.status().expect("a status").detached, 0, "nobody holds the old root");
    v.dir(home(), "again");
    v.fs.rollback(&root(), home(), b"one").expect("rolled back again");
    assert_eq!(v.sorted(home()), ["d"]);
}

#[test]
fn only_the_owner_of_every_directory_below_rolls_back() {
    let v = volume();
    let dir = v.dir(home(), "d").node;
    give(&v, dir, 1000);
    v.fs.snapshot_create(&user(1000), dir, b"one").expect("the owner may");
    refused(v.fs.rollback(&user(1001), dir, b"one"), &FsError::NotPermitted(""));
    let below = v.dir(dir, "roots").node;
    refused(v.fs.rollback(&user(1000), dir, b"one"), &FsError::NotPermitted(""));
    give(&v, below, 1000);
    v.fs.rollback(&user(1000), dir, b"one").expect("all is the user's");
    let now = v.find(home(), "d").expect("the directory").node;
    let sub = v.fs.subvolume_create(&root(), now, b"s", 0o755).expect("a subvolume").node;
    refused(v.fs.rollback(&user(1000), now, b"one"), &FsError::NotPermitted(""));
    give(&v, sub, 1000);
    v.fs.rollback(&user(1000), now, b"one").expect("all is the user's");
}

#[test]
fn nested_subvolumes_are_rolled_back_too() {
    let v = volume();
    let dir = v.dir(home(), "d").node;
    let sub = v.fs.subvolume_create(&root(), dir, b"s", 0o755).expect("a subvolume").node;
    let old = v.file(sub, "old").node;
    v.fs.snapshot_create(&root(), dir, b"one").expect("a snapshot");
    let new = v.file(sub, "new").node;
    v.fs.rollback(&root(), dir, b"one").expect("rolled back");
    forget(&v, dir);
    for node in [sub, old, new] {
        forget(&v, node);
    }
    settle(&v);
    let now = v.find(home(), "d").expect("the directory").node;
    let now = v.find(now, "s").expect("the subvolume").node;
    assert_eq!(v.sorted(now), ["old"]);
    v.file(now, "writable");
    assert_eq!(v.fs.status().expect("a status").detached, 0);
}
