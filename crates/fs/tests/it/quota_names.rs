//! Further names of a file (hard links) are charged to quotas, with the file, until they are gone.

use std::time::Duration;

use format::inode_record::{InodeRecord, LinkedRecord};
use format::key::{self, Part};
use format::quota::NAME_BYTES;
use fs::{FileSystem, Fs, OpenOptions, Owner, RenameMode, SetXattr};
use inode::{Caller, FsError, NameHash, NodeId, SetAttr};
use store::{Batch, Commit, Read, TreeId};

use crate::owner_quota::{limit, used as used_by};
use crate::quota::set;
use crate::support::{ROOT, Volume, refused, user, volume, volume_with};

const ADA: Owner = Owner::User(7);
const BOB: Owner = Owner::User(8);

/// Inodes and bytes that are charged to the quota of a node.
fn used(fs: &Fs, node: NodeId) -> (u64, u64) {
    let quota = fs.quota_get(node).expect("a node").expect("it has a quota");
    (quota.inodes, quota.bytes)
}

fn background(fs: &Fs) {
    while fs.background_step(64).expect("background work").more {}
}

/// The records match the inodes, and memory matches the records.
fn check(v: &Volume) {
    assert_eq!(v.fs.quota_check().expect("a count"), []);
    let (here, there) = (&v.fs, v.reopened());
    let root = Caller::root();
    assert_eq!(here.quota_list(&root).unwrap(), there.quota_list(&root).unwrap());
    assert_eq!(here.owner_quota_list(&root).unwrap(), there.owner_quota_list(&root).unwrap());
    let report = v.fs.check_volume(&mut |_, _| std::ops::ControlFlow::Continue(()));
    let problems = report.expect("it reads").problems;
    assert!(problems.is_empty(), "{problems:?}");
}

/// A directory that Ada may write, and an empty file of hers in it.
fn adas(v: &Volume) -> (NodeId, NodeId) {
    let dir = v.dir(ROOT, "d").node;
    let open = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    v.fs.setattr(&Caller::root(), dir, &open).expect("root");
    (dir, v.file_as(&user(7), dir, "f", 0o666).expect("a new file").node)
}

/// Links until one is refused; returns how many were made.
fn fill_with_names(v: &Volume, file: NodeId, dir: NodeId) -> u64 {
    for n in 0..1000 {
        match v.fs.link(&user(7), file, dir, format!("{n:0255}").as_bytes()) {
            Ok(_) => {}
            Err(FsError::QuotaExceeded) => return n,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("no limit holds");
}

#[test]
fn a_limit_of_bytes_bounds_the_names_of_a_directory_and_of_a_user() {
    for of_user in [false, true] {
        let v = volume();
        let (dir, file) = adas(&v);
        let set = |bytes| {
            if of_user { limit(&v.fs, ADA, None, bytes) } else { set(&v.fs, dir, None, bytes) }
        };
        let bytes = || if of_user { used_by(&v.fs, ADA).1 } else { used(&v.fs, dir).1 };
        set(Some(100 * NAME_BYTES + 1));
        assert_eq!(fill_with_names(&v, file, dir), 100);
        assert_eq!(bytes(), 100 * NAME_BYTES);
        // Nothing is left of one that was refused.
        assert_eq!(v.find(dir, "f").unwrap().attr.nlink, 101);
        assert_eq!(v.sorted(dir).len(), 101);
        check(&v);
        v.fs.unlink(&user(7), dir, b"f").expect("it goes");
        assert_eq!(bytes(), 99 * NAME_BYTES);
        v.fs.link(&user(7), file, dir, b"f").expect("what was credited can be charged again");
        refused(v.fs.link(&user(7), file, dir, b"g"), &FsError::QuotaExceeded);
        v.fs.rename(&user(7), (dir, b"f"), (dir, b"g"), RenameMode::Replace).expect("no growth");
        for name in v.sorted(dir).iter().filter(|name| *name != "g") {
            v.fs.unlink(&user(7), dir, name.as_bytes()).expect("it goes");
        }
        assert_eq!((bytes(), v.find(dir, "g").unwrap().attr.nlink), (0, 1));
        check(&v);
    }
}

/// First names are charged to the limit of inodes alone: only both limits bound all space.
#[test]
fn both_limits_bound_empty_files_with_long_names() {
    for of_user in [false, true] {
        let v = volume();
        let (dir, file) = adas(&v);
        let set = |inodes, bytes| {
            if of_user { limit(&v.fs, ADA, inodes, bytes) } else { set(&v.fs, dir, inodes, bytes) }
        };
        let used = || if of_user { used_by(&v.fs, ADA) } else { used(&v.fs, dir) };
        let create = |n: u64| v.file_as(&user(7), dir, &format!("{n:0255}"), 0o600);
        set(None, Some(1));
        let before = used().0;
        for n in 0..100 {
            create(n).expect("the limit of bytes does not count first names");
        }
        assert_eq!(used(), (before + 100, 0));
        set(Some(before + 200), Some(1));
        let made = (100..100_000).take_while(|&n| create(n).is_ok()).count();
        assert_eq!(made, 100);
        assert_eq!(used(), (before + 200, 0));
        // Of 100,000 none more, nor any further name.
        for n in (200..100_000).step_by(100) {
            refused(create(n), &FsError::QuotaExceeded);
            refused(
                v.fs.link(&user(7), file, dir, format!("l{n:0254}").as_bytes()),
                &FsError::QuotaExceeded,
            );
        }
        assert_eq!(v.sorted(dir).len(), 201, "those, and the first file");
        check(&v);
    }
}

/// Extended attributes are charged to the limit of inodes alone, too: 256 KiB an inode, files and
/// directories, under any limit of bytes.
#[test]
fn both_limits_bound_attributes() {
    const VALUE: usize = 64 << 10;
    let value = vec![7; VALUE];
    for of_user in [false, true] {
        let v = volume();
        let (dir, file) = adas(&v);
        let set = |inodes, bytes| {
            if of_user { limit(&v.fs, ADA, inodes, bytes) } else { set(&v.fs, dir, inodes, bytes) }
        };
        let used = || if of_user { used_by(&v.fs, ADA) } else { used(&v.fs, dir) };
        set(None, Some(1));
        let before = used().0;
        set(Some(before + 8), Some(1));
        let mut nodes = vec![file];
        for n in 0..4 {
            nodes.push(v.file_as(&user(7), dir, &format!("f{n}"), 0o600).expect("a file").node);
            let name = format!("d{n}");
            let made = v.fs.mkdir(&user(7), dir, name.as_bytes(), 0o700).expect("a directory");
            nodes.push(made.node);
        }
        refused(v.file_as(&user(7), dir, "more", 0o600), &FsError::QuotaExceeded);
        let mut stored = 0;
        for &node in &nodes {
            let give = |n: usize| {
                let name = format!("user.{n}");
                v.fs.setxattr(&user(7), node, name.as_bytes(), &value, SetXattr::Any)
            };
            let given = (0..100).take_while(|&n| give(n).is_ok()).count();
            assert_eq!(given, 3, "with their names the fourth exceeds 256 KiB");
            stored += given * VALUE;
        }
        // Nine inodes hold 1.7 MiB under a limit of one byte.
        assert_eq!((used(), stored), ((before + 8, 0), 9 * 3 * VALUE));
        check(&v);
    }
}

#[test]
fn names_are_charged_to_whom_the_file_belongs_and_go_with_it() {
    let v = volume();
    let root = Caller::root();
    let (dir, file) = adas(&v);
    let below = v.dir(dir, "below").node;
    set(&v.fs, dir, None, Some(1 << 20));
    limit(&v.fs, ADA, None, Some(1 << 20));
    limit(&v.fs, Owner::Group(99), None, Some(1000 + 2 * NAME_BYTES - 1));
    v.write(file, 0, &[1; 1000]);
    for name in [b"1", b"2", b"3"] {
        v.fs.link(&root, file, below, name).expect("root makes it, and Ada is charged");
    }
    assert_eq!(used_by(&v.fs, ADA), (1, 1000 + 3 * NAME_BYTES));
    // A name that replaces another of the same file is none more; one that replaces it is one less.
    let rename = |from: (NodeId, &[u8]), to: (NodeId, &[u8]), mode| {
        v.fs.rename(&root, from, to, mode).expect("a rename needs no space");
    };
    rename((below, b"1"), (dir, b"f"), RenameMode::Replace);
    v.file(dir, "other");
    rename((dir, b"other"), (below, b"1"), RenameMode::Exchange);
    assert_eq!(used_by(&v.fs, ADA), (1, 1000 + 3 * NAME_BYTES));
    rename((below, b"1"), (below, b"2"), RenameMode::Replace);
    assert_eq!(used_by(&v.fs, ADA), (1, 1000 + 2 * NAME_BYTES));
    let give = |caller: &Caller, uid, gid| {
        v.fs.setattr(caller, file, &SetAttr { uid, gid, ..SetAttr::default() })
    };
    let in_99 = Caller { groups: vec![99], ..user(7) };
    refused(give(&in_99, None, Some(99)), &FsError::QuotaExceeded);
    limit(&v.fs, Owner::Group(99), None, Some(1000 + 2 * NAME_BYTES));
    give(&in_99, None, Some(99)).expect("all of it fits");
    give(&root, Some(8), None).expect("root gives it away");
    assert_eq!((used_by(&v.fs, ADA), used_by(&v.fs, BOB).1), ((0, 0), 1000 + 2 * NAME_BYTES));
    check(&v);
    // A tree that goes takes its names along, one by one.
    v.fs.forget(file, 4);
    v.fs.rmr(&root, dir, b"below").expect("it goes");
    background(&v.fs);
    let left = 1000 + (u64::from(v.find(dir, "f").unwrap().attr.nlink) - 1) * NAME_BYTES;
    assert_eq!(used_by(&v.fs, BOB), (1, left));
    check(&v);
    v.fs.rmr(&root, ROOT, b"d").expect("it goes");
    background(&v.fs);
    assert_eq!(used_by(&v.fs, BOB), (0, 0));
    check(&v);
}

/// What a clone inherits is charged to nobody, names too; a new name is, and makes the file the
/// clone's own. It does not matter when the clone is separated from its source.
#[test]
fn a_clone_charges_only_names_that_are_made_in_it() {
    for separated in [false, true] {
        let options = OpenOptions { prune_records: 1, ..OpenOptions::default() };
        let v = volume_with(NameHash::BITS, &options);
        let root = Caller::root();
        let (dir, file) = adas(&v);
        v.write(file, 0, &[1; 1000]);
        let outside = v.dir(ROOT, "outside").node;
        v.fs.link(&root, file, dir, b"g").expect("another name");
        v.fs.link(&root, file, outside, b"h").expect("one that no clone of d has");
        limit(&v.fs, ADA, None, Some(1 << 20));
        let before = used_by(&v.fs, ADA);
        assert_eq!(before, (1, 1000 + 2 * NAME_BYTES));
        let clone = v.fs.clone_dir(&root, dir, ROOT, b"clone").expect("a clone").root;
        if separated {
            v.fs.forget(file, 3);
            for name in [&b"d"[..], b"outside"] {
                v.fs.rmr(&root, ROOT, name).expect("it goes");
            }
            for _ in 0..300 {
                v.env.clock.advance(Duration::from_millis(100));
                v.fs.background_step(64).expect("background work");
            }
            let nlink = v.find(clone, "f").unwrap().attr.nlink;
            assert_eq!((used_by(&v.fs, ADA), nlink), ((0, 0), 2), "it is separated");
        }
        let (files, bytes) = if separated { (0, 0) } else { before };
        let own = |names: u64| {
            assert_eq!(used_by(&v.fs, ADA), (files + 1, bytes + 1000 + names * NAME_BYTES));
            check(&v);
        };
        let inherited = v.find(clone, "f").unwrap().node;
        v.fs.link(&user(7), inherited, clone, b"new").expect("there is space");
        own(1);
        v.fs.link(&user(7), inherited, clone, b"newer").expect("there is space");
        own(2);
        for (left, name) in [(1, &b"new"[..]), (0, b"g"), (0, b"f")] {
            v.fs.unlink(&user(7), clone, name).expect("it goes");
            own(left);
        }
        v.fs.unlink(&user(7), clone, b"newer").expect("the last one in the clone");
        background(&v.fs);
        assert_eq!(used_by(&v.fs, ADA), (files, bytes));
        check(&v);
    }
}

/// Names that were made before names were charged are charged to nobody: the counts of an old
/// volume are right as they are.
#[test]
fn names_of_an_old_volume_stay_free_and_later_ones_are_charged() {
    let v = volume();
    let root = Caller::root();
    let (dir, file) = adas(&v);
    for name in [b"1", b"2", b"3"] {
        v.fs.link(&root, file, dir, name).expect("a name");
    }
    let (tree, key) = (TreeId(key::FIRST_TREE), key::linked(file.ino().0, Part::Attributes));
    let bytes = v.store.get(tree, &key).expect("it reads").expect("it has several names");
    let record = LinkedRecord::decode(&bytes).expect("a record");
    assert_eq!((record.nlink, record.inode.charged_names), (4, 3));
    let inode = InodeRecord { charged_names: 0, ..record.inode };
    let mut old = Vec::new();
    LinkedRecord { inode, ..record }.encode(&mut old);
    assert_eq!(old.len(), bytes.len() - 1);
    let mut batch = Batch::new();
    batch.put(tree, &key, &old);
    v.store.commit(&batch).expect("space");
    set(&v.fs, dir, None, Some(10 * NAME_BYTES));
    limit(&v.fs, ADA, None, Some(10 * NAME_BYTES));
    let charged = |names: u64| {
        assert_eq!(
            (used(&v.fs, dir).1, used_by(&v.fs, ADA)),
            (names * NAME_BYTES, (1, names * NAME_BYTES))
        );
        check(&v);
    };
    charged(0);
    v.fs.link(&user(7), file, dir, b"4").expect("there is space");
    charged(1);
    for (left, name) in [(0, b"4"), (0, b"3"), (0, b"2")] {
        v.fs.unlink(&user(7), dir, name).expect("it goes");
        charged(left);
    }
    v.fs.link(&user(7), file, dir, b"5").expect("there is space");
    charged(1);
}

/// Names wait in a trash as they were charged, and come back so.
#[test]
fn names_in_a_trash_stay_charged() {
    let v = volume();
    let root = Caller::root();
    let (dir, file) = adas(&v);
    v.fs.trash_set(&root, ROOT, Some(3600)).expect("a trash");
    set(&v.fs, dir, None, Some(1 << 20));
    limit(&v.fs, ADA, None, Some(1 << 20));
    v.fs.link(&user(7), file, dir, b"g").expect("there is space");
    v.fs.unlink(&user(7), dir, b"g").expect("it is kept");
    assert_eq!((used(&v.fs, dir).1, used_by(&v.fs, ADA).1), (NAME_BYTES, NAME_BYTES));
    check(&v);
    v.fs.forget(file, 2);
    v.env.clock.advance(Duration::from_secs(3 * 3600));
    background(&v.fs);
    assert_eq!(v.find(dir, "f").unwrap().attr.nlink, 1, "it is purged");
    assert_eq!((used(&v.fs, dir).1, used_by(&v.fs, ADA).1), (0, 0));
    check(&v);
}
