//! `lookup` and `stat_at`.

use format::key;
use fs::FileSystem;
use inode::{Caller, FsError, Kind, NodeId};
use store::{Batch, Commit, TreeId};

use crate::support::{ROOT, refused, user, volume, weak_volume};

#[test]
fn a_name_resolves_to_the_created_file() {
    let v = volume();
    let dir = v.dir(ROOT, "d");
    let file = v.file(dir.node, "f");
    let found = v.find(dir.node, "f").expect("the file");
    assert_eq!(found, file);
    assert_eq!(v.fs.stat_at(&Caller::root(), dir.node, b"f").expect("the file"), file.attr);
    assert_eq!(v.find(ROOT, "d").expect("the directory").attr.size, 1);
    refused(v.find(dir.node, "g"), &FsError::NotFound);
    refused(v.find(file.node, "g"), &FsError::NotDirectory);
}

#[test]
fn dot_entries_resolve_to_the_directory_and_its_parent() {
    let v = volume();
    let a = v.dir(ROOT, "a");
    let b = v.dir(a.node, "b");
    assert_eq!(v.find(b.node, ".").expect("itself").node, b.node);
    assert_eq!(v.find(b.node, "..").expect("above").node, a.node);
    assert_eq!(v.find(a.node, "..").expect("above").node, ROOT);
    assert_eq!(v.find(ROOT, "..").expect("itself").node, ROOT);
    let root = v.find(ROOT, ".").expect("the root");
    assert_ne!(root.attr.node, NodeId::ROOT, "the number shown is the real one");
}

#[test]
fn names_of_255_bytes_and_any_byte_work_and_256_do_not() {
    let v = volume();
    let mut name = vec![0xff; 255];
    name[0] = b'\n';
    let new = fs::NewNode { kind: Kind::File, mode: 0o600, rdev: 0 };
    let made = v.fs.mknod(&Caller::root(), ROOT, &name, &new).expect("a long name");
    assert_eq!(v.fs.lookup(&Caller::root(), ROOT, &name).expect("the name").node, made.node);
    name.push(b'x');
    refused(v.fs.lookup(&Caller::root(), ROOT, &name), &FsError::NameTooLong);
    refused(v.fs.mknod(&Caller::root(), ROOT, &name, &new), &FsError::NameTooLong);
    refused(v.fs.stat_at(&Caller::root(), ROOT, &name), &FsError::NameTooLong);
}

#[test]
fn searching_needs_the_right_to_search() {
    let v = volume();
    let dir = v.fs.mkdir(&user(5), ROOT, b"d", 0o700).expect("a directory");
    v.file(dir.node, "f");
    refused(v.fs.lookup(&user(6), dir.node, b"f"), &FsError::AccessDenied);
    refused(v.fs.stat_at(&user(6), dir.node, b"f"), &FsError::AccessDenied);
    assert!(v.fs.lookup(&user(5), dir.node, b"f").is_ok());
}

#[test]
fn colliding_names_are_distinguished_through_every_change() {
    let v = weak_volume(2);
    let names: Vec<_> = (0..40).map(|n| format!("name-{n}")).collect();
    for name in &names {
        v.file(ROOT, name);
    }
    for round in 0..names.len() {
        let gone = &names[(round * 7) % names.len()];
        v.fs.unlink(&Caller::root(), ROOT, gone.as_bytes()).expect("a name");
        refused(v.find(ROOT, gone), &FsError::NotFound);
        let mut left = names.clone();
        left.retain(|name| name != gone);
        left.sort();
        assert_eq!(v.sorted(ROOT), left);
        for name in &left {
            assert!(v.find(ROOT, name).is_ok(), "{name} without {gone}");
        }
        v.file(ROOT, gone);
        v.check_counts(ROOT);
    }
    for name in &names {
        v.fs.unlink(&Caller::root(), ROOT, name.as_bytes()).expect("a name");
    }
    let left = v.store.dump(TreeId(32)).expect("the tree");
    assert_eq!(left.len(), 1, "only the root's record is left: no marks of collisions");
}

/// Regression: on a damaged volume such a name was looked up for ever.
#[test]
fn a_name_whose_inode_does_not_exist_is_damage() {
    let v = volume();
    let file = v.file(ROOT, "f").node;
    let dir = v.dir(ROOT, "d").node;
    v.fs.link(&Caller::root(), file, ROOT, b"second").expect("a link");
    let mut batch = Batch::new();
    for inode in [key::linked_prefix(file.ino().0), key::directory_prefix(dir.ino().0)] {
        let end = store::prefix_end(&inode).expect("a tag below 255");
        batch.delete_range(TreeId(key::FIRST_TREE), &inode, &end);
    }
    v.store.commit(&batch).expect("a commit");
    for name in ["f", "second", "d"] {
        let looked = v.fs.stat_at(&Caller::root(), ROOT, name.as_bytes());
        assert!(matches!(looked, Err(FsError::Io(_))), "{name}: {looked:?}");
        refused(v.find(ROOT, name), &FsError::Stale);
    }
}
