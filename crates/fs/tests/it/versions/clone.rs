//! Clones: isolation both ways, nested subvolumes, lineage, and permissions.

use format::key::{self, Counter};
use format::subvolume_record::SubvolumeRecord;
use fs::FileSystem;
use inode::{FsError, NodeId};
use store::{Read, TreeId};

use super::{contents, filled, forget, give, home, root, settle, snapshot_root};
use crate::support::{Volume, refused, user, volume};

fn clone(v: &Volume, source: NodeId, name: &str) -> NodeId {
    v.fs.clone_dir(&root(), source, home(), name.as_bytes()).expect("a clone");
    v.find(home(), name).expect("the clone").node
}

#[test]
fn writing_a_clone_never_shows_in_its_source_nor_the_reverse() {
    let v = volume();
    let dir = filled(&v, home(), "d", 5);
    let large = v.file(dir, "large").node;
    v.write(large, 0, &vec![1; 60_000]);
    let before = contents(&v, dir);
    let copy = clone(&v, dir, "c");
    assert_eq!(contents(&v, copy), before);
    let twin = v.find(copy, "large").expect("the file").node;
    assert_ne!(twin, large, "numbers are unique over subvolumes");
    v.write(twin, 10_000, &vec![2; 20_000]);
    v.fs.unlink(&root(), copy, b"f0").expect("a file");
    settle(&v);
    assert_eq!(contents(&v, dir), before);
    let changed = contents(&v, copy);
    v.write(large, 30_000, &vec![3; 20_000]);
    v.fs.unlink(&root(), dir, b"f1").expect("a file");
    filled(&v, dir, "more", 2);
    settle(&v);
    assert_eq!(contents(&v, copy), changed);
    v.check_counts(dir);
    v.check_counts(copy);
    v.check_counts(home());
}

#[test]
fn deleting_either_never_harms_the_other() {
    for delete_source in [true, false] {
        let v = volume();
        let dir = filled(&v, home(), "d", 5);
        let large = v.file(dir, "large").node;
        v.write(large, 0, &vec![1; 60_000]);
        forget(&v, large);
        let before = contents(&v, dir);
        let copy = clone(&v, dir, "c");
        let (gone, kept) = if delete_source { (&b"d"[..], copy) } else { (&b"c"[..], dir) };
        forget(&v, if delete_source { dir } else { copy });
        v.fs.rmr(&root(), home(), gone).expect("a directory");
        settle(&v);
        v.fs.collect_garbage().expect("a collection");
        assert_eq!(contents(&v, kept), before);
        assert_eq!(v.fs.status().expect("a status").detached, 0);
        v.check_counts(home());
    }
}

#[test]
fn a_clone_of_the_root_inside_itself_excludes_the_clone() {
    let v = volume();
    filled(&v, home(), "d", 2);
    let copy = clone(&v, home(), "self");
    assert_eq!(v.sorted(copy), ["d"]);
    assert_eq!(v.sorted(home()), ["d", "self"]);
    let up = v.find(copy, "..").expect("a way up").node;
    assert_eq!(up, home());
}

#[test]
fn a_directory_inside_a_snapshot_is_cloned() {
    let v = volume();
    let dir = v.dir(home(), "d").node;
    filled(&v, dir, "below", 2);
    v.fs.snapshot_create(&root(), dir, b"one").expect("a snapshot");
    v.fs.rmr(&root(), dir, b"below").expect("a directory");
    let shown = snapshot_root(&v, dir, "one");
    let below = v.find(shown, "below").expect("the directory").node;
    let copy = clone(&v, below, "restored");
    assert_eq!(v.sorted(copy), ["f0", "f1"]);
    v.file(copy, "new");
    assert_eq!(v.sorted(below), ["f0", "f1"]);
}

#[test]
fn nested_subvolumes_are_cloned_too() {
    let v = volume();
    let dir = v.dir(home(), "d").node;
    let inner = v.fs.subvolume_create(&root(), dir, b"inner", 0o755).expect("a subvolume").node;
    let innermost =
        v.fs.subvolume_create(&root(), inner, b"innermost", 0o755).expect("a subvolume").node;
    v.file(innermost, "deep");
    let outside = v.fs.subvolume_create(&root(), home(), b"out", 0o755).expect("a subvolume").node;
    v.file(outside, "x");
    v.fs.clone_dir(&root(), dir, home(), b"c").expect("a clone");
    let copy = v.find(home(), "c").expect("the clone").node;
    let inner_copy = v.find(copy, "inner").expect("the nested one").node;
    let innermost_copy = v.find(inner_copy, "innermost").expect("the nested one").node;
    assert_ne!(innermost_copy, innermost);
    v.file(innermost_copy, "new");
    v.fs.unlink(&root(), innermost, b"deep").expect("a file");
    assert_eq!(v.sorted(innermost), Vec::<String>::new());
    assert_eq!(v.sorted(innermost_copy), ["deep", "new"]);
    let up = v.find(innermost_copy, "..").expect("a way up").node;
    assert_eq!(up, inner_copy);
    v.fs.snapshot_create(&root(), copy, b"one").expect("a snapshot");
    v.fs.unlink(&root(), innermost_copy, b"new").expect("a file");
    let shown = snapshot_root(&v, copy, "one");
    let shown = v.find(shown, "inner").expect("the nested one").node;
    let shown = v.find(shown, "innermost").expect("the nested one").node;
    assert_eq!(v.sorted(shown), ["deep", "new"]);
    refused(v.file_as(&root(), shown, "n", 0o644), &FsError::ReadOnly(String::new()));
}

#[test]
fn a_clone_has_a_lineage_of_its_own_and_no_snapshots() {
    let v = volume();
    let dir = filled(&v, home(), "d", 1);
    let taken = v.fs.snapshot_create(&root(), dir, b"one").expect("a snapshot");
    let info = v.fs.clone_dir(&root(), dir, home(), b"c").expect("a clone");
    assert_ne!(info.lineage, taken.lineage);
    let copy = v.find(home(), "c").expect("the clone").node;
    assert!(v.fs.snapshot_list(&root(), copy).expect("a list").is_empty());
    v.fs.snapshot_create(&root(), copy, b"one").expect("names are its own");
}

#[test]
fn only_the_owner_of_a_directory_and_root_clone_it() {
    let v = volume();
    let dir = v.dir(home(), "d").node;
    give(&v, dir, 1000);
    let closed = v.dir(home(), "closed").node;
    refused(v.fs.clone_dir(&user(1001), dir, home(), b"c"), &FsError::NotPermitted(""));
    refused(v.fs.clone_dir(&user(1000), dir, closed, b"c"), &FsError::AccessDenied);
    v.fs.clone_dir(&user(1000), dir, home(), b"c").expect("the owner may");
    refused(v.fs.clone_dir(&user(1000), dir, home(), b"c"), &FsError::Exists);
    let file = v.file(home(), "f").node;
    refused(v.fs.clone_dir(&root(), file, home(), b"g"), &FsError::NotDirectory);
}

#[test]
fn owners_and_modes_stay_in_a_clone() {
    let v = volume();
    let dir = v.dir(home(), "d").node;
    give(&v, dir, 1000);
    let secret = v.file_as(&root(), dir, "secret", 0o600).expect("a file").node;
    v.write(secret, 0, b"hidden");
    v.fs.clone_dir(&user(1000), dir, home(), b"c").expect("the owner may");
    let copy = v.find(home(), "c").expect("the clone").node;
    let twin = v.find(copy, "secret").expect("the file").node;
    let mut buffer = [0; 10];
    refused(v.fs.read(&user(1000), twin, 0, &mut buffer), &FsError::AccessDenied);
    let changes = inode::SetAttr { mode: Some(0o644), ..inode::SetAttr::default() };
    refused(v.fs.setattr(&user(1000), twin, &changes), &FsError::NotPermitted(""));
}

#[test]
fn hard_links_stay_links_in_a_clone() {
    let v = volume();
    let dir = filled(&v, home(), "d", 1);
    let file = v.find(dir, "f0").expect("the file").node;
    v.fs.link(&root(), file, dir, b"second").expect("a link");
    let copy = clone(&v, dir, "c");
    let (one, two) = (v.find(copy, "f0").expect("one"), v.find(copy, "second").expect("two"));
    assert_eq!(one.node, two.node);
    v.write(one.node, 0, b"changed");
    assert_eq!(v.read(two.node), b"changed");
    assert_eq!(v.read(file), b"d 0");
}

/// Else what is written into the next clone, before its commit returns, is taken for damage.
#[test]
fn a_copy_without_space_ends_no_epoch() {
    let v = volume();
    let dir = filled(&v, home(), "d", 1);
    let stored = |key: &[u8]| {
        let value = v.store.get(TreeId(key::VOLUME_TREE), key).expect("it can be read");
        value.expect("it is there")
    };
    let epoch = || stored(&key::counter(Counter::Epoch));
    let before = u64::from_le_bytes(epoch().try_into().expect("8 bytes"));
    v.store.set_full(true);
    for _ in 0..2 {
        refused(v.fs.clone_dir(&root(), dir, home(), b"c"), &FsError::NoSpace);
        refused(v.fs.snapshot_create(&root(), dir, b"s"), &FsError::NoSpace);
    }
    v.store.set_full(false);
    v.fs.subvolume_create(&root(), home(), b"other", 0o755).expect("space again");
    assert_eq!(epoch(), before.to_le_bytes());
    let copy = v.fs.clone_dir(&root(), dir, home(), b"c").expect("space again");
    let record = SubvolumeRecord::decode(&stored(&key::subvolume(copy.subvol.0)));
    assert_eq!(record.expect("a record").last_clone_epoch, before);
    assert_eq!(epoch(), (before + 1).to_le_bytes());
}
