//! `mknod`: creation.

use fs::{FileSystem, NewNode};
use inode::{Caller, FsError, Kind, SetAttr};

use crate::support::{ROOT, refused, user, volume};

#[test]
fn a_file_gets_the_callers_ids_and_the_present_birth_time() {
    let v = volume();
    let now = v.tick();
    let attr = v.file_as(&user(7), ROOT, "f", 0o640).expect("a file").attr;
    assert_eq!((attr.uid, attr.gid, attr.mode), (7, 7, 0o640));
    assert_eq!((attr.kind, attr.nlink, attr.size, attr.blocks), (Kind::File, 1, 0, 0));
    assert!([attr.atime, attr.mtime, attr.ctime, attr.btime].iter().all(|time| time.0 == now));
    let root = v.fs.getattr(&Caller::root(), ROOT).expect("the root");
    assert_eq!((root.mtime.0, root.ctime.0, root.size), (now, now, 1));
    assert_eq!(v.fs.status().expect("counters").files, 2);
}

#[test]
fn an_existing_name_and_reserved_names_are_refused() {
    let v = volume();
    v.file(ROOT, "f");
    for name in ["f", ".", "..", ".snapshots"] {
        refused(v.file_as(&Caller::root(), ROOT, name, 0o600), &FsError::Exists);
    }
    for name in ["", "a/b", "a\0"] {
        refused(v.file_as(&Caller::root(), ROOT, name, 0o600), &FsError::InvalidArgument(""));
    }
}

#[test]
fn creating_needs_the_right_to_write() {
    let v = volume();
    let dir = v.dir(ROOT, "d");
    refused(v.file_as(&user(7), dir.node, "f", 0o600), &FsError::AccessDenied);
    let file = v.file(ROOT, "f");
    refused(v.file_as(&Caller::root(), file.node, "x", 0o600), &FsError::NotDirectory);
}

#[test]
fn devices_are_made_by_root_and_keep_their_number() {
    let v = volume();
    let new = NewNode { kind: Kind::CharDevice, mode: 0o600, rdev: 0x103 };
    refused(v.fs.mknod(&user(7), ROOT, b"null", &new), &FsError::NotPermitted(""));
    let made = v.fs.mknod(&Caller::root(), ROOT, b"null", &new).expect("a device");
    assert_eq!((made.attr.kind, made.attr.rdev), (Kind::CharDevice, 0x103));
    // A whiteout points to no device.
    let whiteout = NewNode { kind: Kind::CharDevice, mode: 0, rdev: 0 };
    let made = v.fs.mknod(&user(7), ROOT, b"whiteout", &whiteout).expect("a whiteout");
    assert_eq!((made.attr.kind, made.attr.rdev, made.attr.uid), (Kind::CharDevice, 0, 7));
    let block = NewNode { kind: Kind::BlockDevice, ..whiteout };
    refused(v.fs.mknod(&user(7), ROOT, b"block", &block), &FsError::NotPermitted(""));
    for (name, kind) in [("p", Kind::Fifo), ("s", Kind::Socket)] {
        let new = NewNode { kind, mode: 0o600, rdev: 9 };
        let made = v.fs.mknod(&user(7), ROOT, name.as_bytes(), &new).expect("a node");
        assert_eq!((made.attr.kind, made.attr.rdev), (kind, 0));
    }
}

#[test]
fn a_set_group_id_directory_passes_its_group_on() {
    let v = volume();
    let dir = v.dir(ROOT, "d");
    let changes = SetAttr { mode: Some(0o2777), gid: Some(50), ..SetAttr::default() };
    v.fs.setattr(&Caller::root(), dir.node, &changes).expect("root may");
    let file = v.file_as(&user(7), dir.node, "f", 0o2775).expect("a file");
    assert_eq!((file.attr.gid, file.attr.mode), (50, 0o775), "no rights of a foreign group");
    let below = v.fs.mkdir(&user(7), dir.node, b"b", 0o755).expect("a directory");
    assert_eq!((below.attr.gid, below.attr.mode), (50, 0o2755));
}
