//! Pruning: a snapshot or clone frees what it shares but cannot reach, and shows the same.

use fs::FileSystem;
use inode::NodeId;
use store::{KeyRange, Read as _, TreeId};

use super::{Notified, contents, filled, forget, home, pruning, root, settle, snapshot_root};
use crate::support::{Volume, volume};

/// Records of a subvolume's tree.
fn records(v: &Volume, node: NodeId) -> usize {
    let key = format::key::subvolume(node.slot().0);
    let tree = TreeId(format::key::VOLUME_TREE);
    let bytes = v.store.get(tree, &key).expect("the store reads").expect("a record");
    let record = format::subvolume_record::SubvolumeRecord::decode(&bytes).expect("a record");
    let mut cursor = v.store.scan(TreeId(record.tree), KeyRange::all()).expect("a tree");
    let mut count = 0;
    while cursor.next().expect("the store reads").is_some() {
        count += 1;
    }
    count
}

#[test]
fn a_snapshot_releases_a_removed_sibling() {
    let v = pruning();
    let dir = filled(&v, home(), "d", 10);
    let big = filled(&v, home(), "big", 500);
    let before = contents(&v, dir);
    v.fs.snapshot_create(&root(), dir, b"one").expect("a snapshot");
    let shown = snapshot_root(&v, dir, "one");
    assert!(records(&v, shown) > 1000);
    settle(&v);
    assert!(records(&v, shown) > 1000, "nothing has diverged");
    forget(&v, big);
    v.fs.rmr(&root(), home(), b"big").expect("a directory");
    settle(&v);
    assert!(records(&v, shown) < 30, "{} records are left", records(&v, shown));
    assert_eq!(contents(&v, shown), before);
    assert_eq!(contents(&v, dir), before);
}

/// It was looked at again only after as many commits as could make it due by their changes. So an
/// idle volume kept for ever what its source had.
#[test]
fn a_clone_frees_shared_space_after_its_source_is_gone() {
    let v = volume();
    let source = v.fs.subvolume_create(&root(), home(), b"source", 0o755).expect("a name").node;
    let dir = filled(&v, source, "d", 10);
    let big = filled(&v, source, "big", 500);
    v.fs.clone_dir(&root(), dir, home(), b"c").expect("a clone");
    let copy = v.find(home(), "c").expect("the clone").node;
    let before = contents(&v, copy);
    settle(&v);
    assert!(records(&v, copy) > 1000, "nothing has diverged");
    for node in [source, dir, big] {
        forget(&v, node);
    }
    v.fs.rmr(&root(), home(), b"source").expect("a subvolume");
    settle(&v);
    assert!(records(&v, copy) < 30, "{} records are left", records(&v, copy));
    assert_eq!(contents(&v, copy), before);
}

#[test]
fn a_clone_that_changed_meanwhile_is_pruned_and_keeps_its_changes() {
    let v = pruning();
    let dir = filled(&v, home(), "d", 10);
    let inner = v.dir(dir, "inner").node;
    let linked = v.file(inner, "linked").node;
    v.fs.link(&root(), linked, home(), b"outside").expect("a link");
    v.fs.link(&root(), linked, dir, b"second").expect("a link");
    v.write(linked, 0, &vec![3; 20_000]);
    let big = filled(&v, home(), "big", 300);
    v.fs.clone_dir(&root(), dir, home(), b"c").expect("a clone");
    let copy = v.find(home(), "c").expect("the clone").node;
    v.fs.unlink(&root(), copy, b"f3").expect("a file");
    let large = v.file(copy, "large").node;
    v.write(large, 0, &vec![4; 30_000]);
    let orphan = v.find(copy, "f4").expect("a file").node;
    v.write(orphan, 0, &[5; 9000]);
    v.fs.unlink(&root(), copy, b"f4").expect("a file");
    let twin = v.find(copy, "second").expect("the file").node;
    assert_eq!(v.fs.getattr(&root(), twin).expect("a file").nlink, 3);
    let reported = Notified::of(&v);
    let before = contents(&v, copy);
    forget(&v, big);
    v.fs.rmr(&root(), home(), b"big").expect("a directory");
    // Changes between the steps of pruning are caught up with.
    for at in 0..200 {
        v.fs.background_step(10).expect("background work goes well");
        v.env.clock.advance(std::time::Duration::from_millis(100));
        if at % 10 == 0 {
            let moving = v.file(copy, "moving").node;
            v.write(moving, 0, &[6; 6000]);
            forget(&v, moving);
            let inner = v.find(copy, "inner").expect("the directory").node;
            let to = (inner, &b"moved"[..]);
            v.fs.rename(&root(), (copy, b"moving"), to, fs::RenameMode::Replace).expect("a file");
        }
    }
    settle(&v);
    assert!(records(&v, copy) < 60, "{} records are left", records(&v, copy));
    assert!(reported.attributes.lock().contains(&twin), "it shows a link less");
    assert!(!reported.nodes.lock().contains(&twin), "it contains what it did");
    assert_eq!(contents(&v, copy), before);
    assert_eq!(v.fs.getattr(&root(), twin).expect("a file").nlink, 2, "outside is not there");
    assert_eq!(v.read(orphan), vec![5; 9000]);
    let inner = v.find(copy, "inner").expect("the directory").node;
    assert_eq!(v.sorted(inner), ["linked", "moved"]);
    let moved = v.find(inner, "moved").expect("the file").node;
    assert_eq!(v.read(moved), vec![6; 6000]);
    v.check_counts(copy);
}

#[test]
fn a_directory_moved_while_a_clone_is_pruned_is_right_afterwards() {
    let v = pruning();
    let dir = filled(&v, home(), "d", 40);
    let leaves = filled(&v, dir, "leaves", 30);
    forget(&v, leaves);
    let big = filled(&v, home(), "big", 300);
    v.fs.clone_dir(&root(), home(), home(), b"all").expect("a clone");
    let all = v.find(home(), "all").expect("the clone").node;
    let inside = v.find(all, "d").expect("the directory").node;
    // A clone of a part of a clone, so that there is an outside.
    v.fs.clone_dir(&root(), inside, home(), b"part").expect("a clone");
    let part = v.find(home(), "part").expect("the clone").node;
    let before = contents(&v, part);
    forget(&v, big);
    forget(&v, dir);
    v.fs.rmr(&root(), home(), b"big").expect("a directory");
    v.fs.rmr(&root(), all, b"big").expect("a directory");
    for at in 0..300 {
        v.fs.background_step(7).expect("background work goes well");
        v.env.clock.advance(std::time::Duration::from_millis(100));
        if at == 40 {
            v.fs.rmr(&root(), all, b"d").expect("a directory");
        }
    }
    settle(&v);
    assert!(records(&v, part) < 200, "{} records are left", records(&v, part));
    assert_eq!(contents(&v, part), before);
}

#[test]
fn snapshots_of_a_removed_directory_are_pruned_and_share() {
    let v = pruning();
    let dir = filled(&v, home(), "d", 20);
    filled(&v, home(), "big", 300);
    let mut shown = Vec::new();
    for at in 0..5 {
        v.file(dir, &format!("new{at}"));
        let name = format!("s{at}");
        let taken = v.fs.snapshot_create(&root(), dir, name.as_bytes()).expect("a snapshot");
        shown.push((taken.subvol, at));
    }
    v.fs.rmr(&root(), home(), b"d").expect("a directory");
    v.fs.rmr(&root(), home(), b"big").expect("a directory");
    settle(&v);
    for (subvol, at) in shown {
        let node = v.fs.snapshot_entry(&root(), subvol).expect("kept").node;
        assert_eq!(v.names(node).len(), 21 + at);
        assert!(records(&v, node) < 100, "{} records are left", records(&v, node));
    }
}

/// Does background work although some of it fails, until there is none left.
fn settle_through_errors(v: &Volume) {
    let mut idle = 0;
    for _ in 0..10_000 {
        idle = match v.fs.background_step(8) {
            Ok(progress) if !progress.more => idle + 1,
            _ => 0,
        };
        // Longer than what failed rests.
        if idle == 200 {
            return;
        }
        v.env.clock.advance(std::time::Duration::from_secs(1));
    }
    panic!("background work never ends");
}

/// Pruning continued after a read error without what it had been about to copy. It then gave up the
/// only tree that was whole: files of a snapshot read as zeros.
#[test]
fn a_read_error_anywhere_loses_nothing_and_blocks_nothing() {
    let mut counts = None;
    // The first round meets no error: no volume makes so many scans.
    for scans in std::iter::once(u64::MAX).chain(0..) {
        let v = pruning();
        let dir = filled(&v, home(), "d", 3);
        let inner = filled(&v, dir, "inner", 3);
        let large = v.file(inner, "large").node;
        v.write(large, 0, &vec![7; 20_000]);
        v.fs.link(&root(), large, dir, b"second").expect("a link");
        let big = filled(&v, home(), "big", 60);
        let before = (contents(&v, dir), contents(&v, inner));
        v.fs.snapshot_create(&root(), dir, b"one").expect("a snapshot");
        v.fs.clone_dir(&root(), dir, home(), b"c").expect("a clone");
        forget(&v, big);
        v.fs.rmr(&root(), home(), b"big").expect("a directory");
        v.store.fail_scan_after(scans);
        settle_through_errors(&v);
        if v.store.scan_will_fail() && scans != u64::MAX {
            assert!(scans > 20, "only {scans} scans in all of it");
            return;
        }
        let shown = snapshot_root(&v, dir, "one");
        let copy = v.find(home(), "c").expect("the clone").node;
        for place in [shown, copy, dir] {
            assert!(records(&v, place) < 60, "scan {scans}: {} records", records(&v, place));
            assert_eq!(contents(&v, place), before.0, "scan {scans}");
            let below = v.find(place, "inner").expect("a directory").node;
            assert_eq!(contents(&v, below), before.1, "scan {scans}");
        }
        let status = v.fs.status().expect("a status");
        assert_eq!((status.counting, status.detached), (0, 0), "scan {scans}");
        let found = (status.files, status.bytes);
        assert_eq!(*counts.get_or_insert(found), found, "scan {scans}");
    }
}

/// How many extents a subvolume's tree has.
fn extents(v: &Volume, node: NodeId) -> usize {
    let key = format::key::subvolume(node.slot().0);
    let tree = TreeId(format::key::VOLUME_TREE);
    let bytes = v.store.get(tree, &key).expect("the store reads").expect("a record");
    let record = format::subvolume_record::SubvolumeRecord::decode(&bytes).expect("a record");
    let range = KeyRange::prefix(&format::key::EXTENTS_PREFIX);
    let mut cursor = v.store.scan(TreeId(record.tree), range).expect("a tree");
    let mut count = 0;
    while cursor.next().expect("the store reads").is_some() {
        count += 1;
    }
    count
}

/// Only records were counted. So a snapshot or clone of something else kept contents of any size
/// for ever, if few files had them.
#[test]
fn a_copy_releases_large_contents_of_few_removed_files() {
    let fill = |v: &Volume, node: NodeId, byte: u8| {
        let megabyte = vec![byte; 1 << 20];
        (0..24).for_each(|at| v.write(node, at << 20, &megabyte));
    };
    for (what, gone) in
        [("removed", true), ("written over", true), ("linked, removed", true), ("moved", false)]
    {
        for clones in [false, true] {
            let v = pruning();
            let dir = filled(&v, home(), "d", 40);
            let big = v.dir(home(), "big").node;
            let file = v.file(big, "file").node;
            fill(&v, file, 1);
            if what.starts_with("linked") {
                v.fs.link(&root(), file, big, b"too").expect("a second name");
            }
            let before = contents(&v, dir);
            let shown = if clones {
                v.fs.clone_dir(&root(), dir, home(), b"c").expect("a clone");
                v.find(home(), "c").expect("the clone").node
            } else {
                v.fs.snapshot_create(&root(), dir, b"one").expect("a snapshot");
                snapshot_root(&v, dir, "one")
            };
            settle(&v);
            assert!(extents(&v, shown) > 0, "{what}: nothing has diverged");
            match what {
                "written over" => fill(&v, file, 2),
                "moved" => {
                    let (from, to) = ((big, &b"file"[..]), (home(), &b"file"[..]));
                    v.fs.rename(&root(), from, to, fs::RenameMode::Replace).expect("it moves");
                }
                _ => {
                    v.fs.unlink(&root(), big, b"file").expect("it is there");
                    v.fs.unlink(&root(), big, b"too").ok();
                    forget(&v, file);
                }
            }
            settle(&v);
            let left = extents(&v, shown);
            assert_eq!(left == 0, gone, "{what}, a clone: {clones}: {left} extents are left");
            assert_eq!(contents(&v, shown), before);
        }
    }
}
