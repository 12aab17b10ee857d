//! `tmpfile`.

use format::key::{self, Part};
use fs::{FileSystem, Owner, SetXattr};
use inode::{Caller, FsError, NodeId};
use store::{Read, TreeId};

use crate::owner_quota::{limit, used};
use crate::support::{ROOT, refused, user, volume};

#[test]
fn a_file_without_a_name_gets_one_by_link() {
    for length in [0, 10, 4096, 100_000] {
        let v = volume();
        let root = Caller::root();
        let made = v.fs.tmpfile(&user(7), ROOT, 0o640).expect("a file");
        assert_eq!((made.attr.nlink, made.attr.uid, made.attr.mode), (0, 7, 0o640));
        assert!(v.names(ROOT).is_empty());
        let bytes = vec![3; length];
        v.write(made.node, 0, &bytes);
        let files = v.fs.status().expect("a status").files;
        let named = v.fs.link(&root, made.node, ROOT, b"f").expect("a name");
        assert_eq!((named.node, named.attr.nlink), (made.node, 1));
        assert_eq!(v.fs.status().expect("a status").files, files + 1);
        v.fs.forget(made.node, 2);
        let again = v.reopened();
        let found = again.lookup(&root, ROOT, b"f").expect("it is on disk");
        let mut buffer = vec![0; length + 1];
        let read = again.read(&root, found.node, 0, &mut buffer).expect("a file");
        assert!(buffer[..read] == bytes, "{length} bytes");
        again.unlink(&root, ROOT, b"f").expect("a name");
        refused(again.link(&root, found.node, ROOT, b"g"), &FsError::NotFound);
    }
}

#[test]
fn an_unnamed_file_leaves_nothing() {
    let v = volume();
    let small = v.fs.tmpfile(&Caller::root(), ROOT, 0o600).expect("a file");
    v.write(small.node, 0, b"few");
    v.fs.forget(small.node, 1);
    refused(v.fs.getattr(&Caller::root(), small.node), &FsError::Stale);
    let dir = v.dir(ROOT, "d");
    refused(v.fs.tmpfile(&user(9), dir.node, 0o600), &FsError::AccessDenied);
}

/// A process that holds files without names would fill memory with their attributes, which no limit
/// counts.
#[test]
fn large_attributes_of_nameless_inodes_are_not_kept_in_memory() {
    let v = volume();
    let (root, ada) = (Caller::root(), user(7));
    limit(&v.fs, Owner::User(7), Some(10), None);
    let value = vec![5; 50_000];
    let set = |node| v.fs.setxattr(&ada, node, b"user.x", &value, SetXattr::Any);
    let on_disk = |node: NodeId| {
        let key = key::linked(node.ino().0, Part::Attributes);
        v.store.get(TreeId(key::FIRST_TREE), &key).expect("it reads").is_some()
    };
    let unnamed = v.fs.tmpfile(&ada, ROOT, 0o600).expect("a file").node;
    assert!(!on_disk(unnamed), "it has nothing yet");
    set(unnamed).expect("set");
    let unlinked = v.file_as(&ada, ROOT, "f", 0o600).expect("a file").node;
    set(unlinked).expect("set");
    v.fs.unlink(&ada, ROOT, b"f").expect("removed");
    for node in [unnamed, unlinked] {
        assert!(on_disk(node));
        assert_eq!(v.fs.getxattr(&root, node, b"user.x").expect("it is held"), value);
    }
    assert_eq!(used(&v.fs, Owner::User(7)).0, 2, "both are charged");
    // Limits hold for them.
    let more = (0..20).find_map(|_| {
        let made = v.fs.tmpfile(&ada, ROOT, 0o600).expect("a file").node;
        set(made).err()
    });
    assert!(matches!(more, Some(FsError::QuotaExceeded)), "{more:?}");
    let named = v.fs.link(&root, unnamed, ROOT, b"g").expect("a name").node;
    assert_eq!(v.fs.getxattr(&root, named, b"user.x").expect("it is there"), value);
    v.fs.forget(unlinked, 1);
    while v.fs.background_step(64).expect("background work").more {}
    assert!(!on_disk(unlinked), "nobody holds it any more");
    assert_eq!(v.fs.quota_check().expect("a count"), []);
}
