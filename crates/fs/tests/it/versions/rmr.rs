//! Removal of whole directories: at once, resumed after a crash, and permissions.

use fs::{FileSystem, Fs, OpenOptions, RenameMode};
use inode::{FsError, NameHash};

use super::{Notified, contents, filled, forget, give, home, root, settle};
use crate::support::{Volume, refused, shown, user, volume};

fn deep(v: &Volume) {
    let mut dir = v.dir(home(), "tree").node;
    for level in 0..20 {
        filled(v, dir, "files", 30);
        dir = v.dir(dir, &format!("level{level}")).node;
    }
    let file = v.file(dir, "large").node;
    v.write(file, 0, &vec![5; 100_000]);
    forget(v, file);
}

#[test]
fn a_tree_is_removed_at_once_and_its_space_is_reclaimed() {
    let v = volume();
    let kept = filled(&v, home(), "kept", 3);
    let before = contents(&v, kept);
    let files = v.fs.status().expect("a status").files;
    deep(&v);
    let removed = v.fs.rmr(&root(), home(), b"tree").expect("a directory");
    assert_eq!(removed.entries, 2);
    assert_eq!(v.sorted(home()), ["kept"]);
    assert_eq!(v.fs.status().expect("a status").detached, 1);
    // Held directories are gone as after `rmdir`.
    settle(&v);
    let status = v.fs.status().expect("a status");
    assert_eq!((status.detached, status.files), (0, files));
    assert!(status.reclaimed > 600, "{}", status.reclaimed);
    assert_eq!(contents(&v, kept), before);
    v.check_counts(home());
}

#[test]
fn reclaiming_resumes_after_a_crash_at_any_step() {
    for steps in [0, 1, 2, 3, 5, 8, 13] {
        let v = volume();
        let files = v.fs.status().expect("a status").files;
        deep(&v);
        v.fs.rmr(&root(), home(), b"tree").expect("a directory");
        for _ in 0..steps {
            v.fs.background_step(40).expect("background work goes well");
        }
        let header = v.header.clone();
        let hash = NameHash::with_bits(header.hash_key, NameHash::BITS);
        let store: std::sync::Arc<dyn store::Store> =
            std::sync::Arc::<testing::MemStore>::clone(&v.store);
        let options = OpenOptions::default();
        let fs = Fs::open_with_hash(v.env.env(), store, header, &options, hash).expect("it opens");
        let again = Volume { fs: shown(&fs), ..v };
        settle(&again);
        let status = again.fs.status().expect("a status");
        assert_eq!((status.detached, status.files), (0, files), "after {steps} steps");
    }
}

#[test]
fn links_from_elsewhere_stay_and_are_counted() {
    let v = volume();
    let dir = filled(&v, home(), "d", 2);
    let file = v.find(dir, "f0").expect("the file").node;
    v.fs.link(&root(), file, home(), b"kept").expect("a link");
    v.fs.link(&root(), file, dir, b"third").expect("a link");
    let reported = Notified::of(&v);
    v.fs.rmr(&root(), home(), b"d").expect("a directory");
    settle(&v);
    // A reader has its contents still.
    assert!(reported.attributes.lock().contains(&file), "it shows links less");
    assert!(!reported.nodes.lock().contains(&file), "it contains what it did");
    let attr = v.fs.getattr(&root(), file).expect("a file");
    assert_eq!(attr.nlink, 1);
    assert_eq!(v.read(file), b"d 0");
}

#[test]
fn an_open_file_outlives_its_removal() {
    let v = volume();
    let dir = filled(&v, home(), "d", 1);
    let small = v.find(dir, "f0").expect("the file").node;
    let large = v.file(dir, "large").node;
    v.write(large, 0, &vec![9; 50_000]);
    v.fs.rmr(&root(), home(), b"d").expect("a directory");
    settle(&v);
    assert_eq!(v.read(small), b"d 0");
    assert_eq!(v.read(large), vec![9; 50_000]);
    assert_eq!(v.fs.getattr(&root(), large).expect("held").nlink, 0);
    v.write(large, 0, &[8; 10]);
    assert_eq!(v.read(large)[..11], [8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 9]);
    for node in [small, large] {
        forget(&v, node);
        settle(&v);
        refused(v.fs.getattr(&root(), node), &FsError::Stale);
    }
}

#[test]
fn nothing_is_made_in_a_removed_directory() {
    let v = volume();
    let dir = filled(&v, home(), "d", 1);
    v.fs.rmr(&root(), home(), b"d").expect("a directory");
    refused(v.file_as(&root(), dir, "new", 0o644), &FsError::NotFound);
    refused(v.fs.snapshot_create(&root(), dir, b"s"), &FsError::NotFound);
    refused(v.fs.clone_dir(&root(), dir, home(), b"c"), &FsError::NotFound);
    settle(&v);
    refused(v.file_as(&root(), dir, "new", 0o644), &FsError::NotFound);
}

#[test]
fn files_moved_out_of_a_removed_tree_are_kept() {
    for steps in 0..4 {
        let v = volume();
        let safe = v.dir(home(), "safe").node;
        let tree = v.dir(home(), "tree").node;
        let middle = v.dir(tree, "middle").node;
        let holder = v.dir(middle, "holder").node;
        let moved = filled(&v, holder, "moved", 100);
        let below = filled(&v, moved, "below", 400);
        v.fs.rmr(&root(), home(), b"tree").expect("a directory");
        for _ in 0..steps {
            v.fs.background_step(40).expect("background work goes well");
        }
        let (from, to) = ((holder, &b"moved"[..]), (safe, &b"moved"[..]));
        v.fs.rename(&root(), from, to, RenameMode::Replace).expect("a held directory");
        if steps % 2 == 1 {
            v.fs.rmdir(&root(), middle, b"holder").expect("nothing is left in it");
        }
        let left = (contents(&v, moved), contents(&v, below));
        settle(&v);
        assert_eq!(v.sorted(safe), ["moved"], "after {steps} steps");
        assert_eq!((contents(&v, moved), contents(&v, below)), left, "after {steps} steps");
        for dir in [home(), safe, moved, below] {
            v.check_counts(dir);
        }
        v.fs.rmr(&root(), home(), b"safe").expect("a directory");
        settle(&v);
        let status = v.fs.status().expect("a status");
        assert_eq!((status.detached, status.files), (0, 1), "after {steps} steps");
    }
}

#[test]
fn removing_a_subvolume_removes_its_nested_ones() {
    let v = volume();
    let dir = v.dir(home(), "d").node;
    let sub = v.fs.subvolume_create(&root(), dir, b"s", 0o755).expect("a subvolume").node;
    let inner = v.fs.subvolume_create(&root(), sub, b"t", 0o755).expect("a subvolume").node;
    let file = v.file(inner, "f").node;
    v.fs.clone_dir(&root(), dir, home(), b"c").expect("a clone");
    for node in [file, sub, inner, dir] {
        forget(&v, node);
    }
    v.fs.rmr(&root(), home(), b"d").expect("a directory");
    settle(&v);
    let status = v.fs.status().expect("a status");
    assert_eq!((status.detached, status.subvolumes, status.clones), (0, 1, 3));
    v.fs.rmr(&root(), home(), b"c").expect("a subvolume");
    settle(&v);
    let status = v.fs.status().expect("a status");
    assert_eq!((status.detached, status.subvolumes, status.clones), (0, 1, 0));
    v.check_counts(home());
}

#[test]
fn only_the_owner_of_every_directory_below_removes_a_tree() {
    let v = volume();
    let dir = v.dir(home(), "d").node;
    give(&v, dir, 1000);
    let below = v.dir(dir, "roots").node;
    refused(v.fs.rmr(&user(1000), home(), b"d"), &FsError::NotPermitted(""));
    refused(v.fs.rmr(&user(1001), home(), b"d"), &FsError::NotPermitted(""));
    give(&v, below, 1000);
    v.file(below, "roots file may go, as with rm -r");
    v.fs.rmr(&user(1000), home(), b"d").expect("all directories are the user's");
    v.file(home(), "f");
    refused(v.fs.rmr(&root(), home(), b"f"), &FsError::NotDirectory);
    refused(v.fs.rmr(&root(), home(), b"none"), &FsError::NotFound);
    refused(v.fs.rmr(&root(), home(), b".snapshots"), &FsError::NotPermitted(""));
}
