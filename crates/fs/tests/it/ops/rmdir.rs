//! `rmdir`.

use fs::{FileSystem, WalkControl};
use inode::{Caller, FsError};

use crate::support::{ROOT, refused, user, volume};

#[test]
fn only_empty_directories_are_removed() {
    let v = volume();
    let dir = v.dir(ROOT, "d");
    v.file(dir.node, "f");
    v.file(ROOT, "f");
    refused(v.fs.rmdir(&Caller::root(), ROOT, b"d"), &FsError::NotEmpty);
    refused(v.fs.rmdir(&Caller::root(), ROOT, b"f"), &FsError::NotDirectory);
    refused(v.fs.rmdir(&Caller::root(), ROOT, b"x"), &FsError::NotFound);
    refused(v.fs.rmdir(&Caller::root(), ROOT, b"."), &FsError::InvalidArgument(""));
    refused(v.fs.rmdir(&Caller::root(), ROOT, b".."), &FsError::NotEmpty);
    v.fs.unlink(&Caller::root(), dir.node, b"f").expect("the file");
    v.fs.rmdir(&Caller::root(), ROOT, b"d").expect("empty now");
    v.check_counts(ROOT);
    assert_eq!(v.sorted(ROOT), ["f"]);
}

#[test]
fn a_held_directory_stays_empty_and_nameless() {
    let v = volume();
    let dir = v.dir(ROOT, "d");
    v.fs.rmdir(&Caller::root(), ROOT, b"d").expect("empty");
    let attr = v.fs.getattr(&Caller::root(), dir.node).expect("held");
    assert_eq!(attr.nlink, 0);
    let take = &mut |_: &fs::DirEntry<'_>| WalkControl::Stop;
    v.fs.readdir(&Caller::root(), dir.node, 0, take).expect("an empty listing");
    refused(v.find(dir.node, "x"), &FsError::NotFound);
    v.fs.forget(dir.node, 1);
    refused(v.fs.getattr(&Caller::root(), dir.node), &FsError::Stale);
}

#[test]
fn removal_needs_the_right_to_write_above() {
    let v = volume();
    let dir = v.dir(ROOT, "d");
    v.fs.mkdir(&Caller::root(), dir.node, b"e", 0o777).expect("a directory");
    refused(v.fs.rmdir(&user(5), dir.node, b"e"), &FsError::AccessDenied);
}
