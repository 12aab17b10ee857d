//! `mkdir`.

use fs::FileSystem;
use inode::{Caller, FsError, Kind};

use crate::support::{ROOT, refused, user, volume};

#[test]
fn a_directory_is_empty_and_counts_in_its_parent() {
    let v = volume();
    let now = v.tick();
    let dir = v.fs.mkdir(&user(7), ROOT, b"d", 0o1750).expect("a directory");
    assert_eq!((dir.attr.kind, dir.attr.mode, dir.attr.uid), (Kind::Directory, 0o1750, 7));
    assert_eq!((dir.attr.nlink, dir.attr.size, dir.attr.btime.0), (2, 0, now));
    v.check_counts(ROOT);
    refused(v.fs.mkdir(&user(7), ROOT, b"d", 0o755), &FsError::Exists);
    refused(v.fs.mkdir(&user(8), dir.node, b"e", 0o755), &FsError::AccessDenied);
}

#[test]
fn directories_may_be_nested_without_limit() {
    let v = volume();
    let mut at = ROOT;
    let mut path = Vec::new();
    for depth in 0..3000 {
        at = v.dir(at, "d").node;
        if depth < 2000 {
            path.extend_from_slice(b"d/");
        }
    }
    let found = v.fs.resolve(&Caller::root(), &path, fs::Follow::Yes).expect("the way down");
    assert_eq!(found.attr.kind, Kind::Directory);
    let top = v.find(ROOT, "d").expect("the top");
    // The bottom cannot take its own ancestor in.
    let into = v.fs.rename(&Caller::root(), (ROOT, b"d"), (at, b"loop"), fs::RenameMode::Replace);
    refused(into, &FsError::InvalidArgument(""));
    assert_eq!(v.find(ROOT, "d").expect("still there").node, top.node);
}

#[test]
fn nothing_is_made_in_a_removed_directory() {
    let v = volume();
    let dir = v.dir(ROOT, "d");
    v.fs.rmdir(&Caller::root(), ROOT, b"d").expect("empty");
    refused(v.fs.mkdir(&Caller::root(), dir.node, b"e", 0o755), &FsError::NotFound);
    refused(v.file_as(&Caller::root(), dir.node, "e", 0o755), &FsError::NotFound);
}
