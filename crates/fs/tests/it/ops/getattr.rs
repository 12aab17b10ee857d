//! `getattr`.

use fs::FileSystem;
use inode::{Caller, FsError, Ino, Kind, NodeId, SubvolId};

use crate::support::{ROOT, refused, user, volume};

#[test]
fn attributes_follow_their_node() {
    let v = volume();
    let file = v.file(ROOT, "f");
    v.write(file.node, 0, b"12345");
    let attr = v.fs.getattr(&user(9), file.node).expect("anybody may ask");
    assert_eq!((attr.kind, attr.size, attr.blocks, attr.nlink), (Kind::File, 5, 1, 1));
    let dir = v.dir(ROOT, "d");
    let from = (ROOT, &b"f"[..]);
    v.fs.rename(&Caller::root(), from, (dir.node, b"g"), fs::RenameMode::Replace).expect("moved");
    assert_eq!(v.fs.getattr(&Caller::root(), file.node).expect("the file").size, 5);
    refused(v.fs.getattr(&user(9), NodeId::new(SubvolId(1), Ino(999))), &FsError::Stale);
    refused(v.fs.getattr(&user(9), NodeId::new(SubvolId(99), Ino(2))), &FsError::Stale);
}

#[test]
fn a_directory_counts_its_entries_and_directories() {
    let v = volume();
    let dir = v.dir(ROOT, "d");
    v.dir(dir.node, "a");
    v.dir(dir.node, "b");
    v.file(dir.node, "c");
    let attr = v.fs.getattr(&Caller::root(), dir.node).expect("the directory");
    assert_eq!((attr.nlink, attr.size), (4, 3));
}
