//! `read`.

use fs::{Atime, FileSystem, OpenOptions};
use inode::{Caller, FsError, NameHash, SetAttr};

use crate::support::{ROOT, refused, user, volume, volume_with};

#[test]
fn reading_stops_at_the_end_and_holes_are_zeros() {
    let v = volume();
    let file = v.file(ROOT, "f");
    v.write(file.node, 0, b"abc");
    let mut buffer = [9; 8];
    assert_eq!(v.fs.read(&Caller::root(), file.node, 1, &mut buffer).expect("bytes"), 2);
    assert_eq!(&buffer[..3], b"bc\x09");
    assert_eq!(v.fs.read(&Caller::root(), file.node, 3, &mut buffer).expect("the end"), 0);
    assert_eq!(v.fs.read(&Caller::root(), file.node, u64::MAX, &mut buffer).expect("beyond"), 0);
    let changes = SetAttr { size: Some(1 << 40), ..SetAttr::default() };
    v.fs.setattr(&Caller::root(), file.node, &changes).expect("a sparse file");
    assert_eq!(v.fs.read(&Caller::root(), file.node, 1 << 39, &mut buffer).expect("a hole"), 8);
    assert_eq!(buffer, [0; 8]);
    assert_eq!(v.fs.getattr(&Caller::root(), file.node).expect("the file").blocks, 1);
}

#[test]
fn only_files_are_read_by_permitted_callers() {
    let v = volume();
    let file = v.file_as(&user(7), ROOT, "f", 0o600).expect("a file");
    let dir = v.dir(ROOT, "d");
    let mut buffer = [0; 8];
    refused(v.fs.read(&user(8), file.node, 0, &mut buffer), &FsError::AccessDenied);
    refused(v.fs.read(&user(8), dir.node, 0, &mut buffer), &FsError::IsDirectory);
}

#[test]
fn access_times_follow_relatime() {
    let v = volume();
    let file = v.file(ROOT, "f");
    let atime = || v.fs.getattr(&Caller::root(), file.node).expect("the file").atime.0;
    v.write(file.node, 0, b"abc");
    let first = v.tick();
    v.read(file.node);
    assert_eq!(atime(), first, "written since it was read");
    v.tick();
    v.read(file.node);
    assert_eq!(atime(), first, "read since it was written");
    v.env.clock.advance(std::time::Duration::from_secs(86_400));
    let later = v.tick();
    let mut buffer = [0; 3];
    let read = v.fs.read_untimed(&Caller::root(), file.node, 0, &mut buffer);
    assert_eq!((read.expect("bytes"), &buffer), (3, b"abc"));
    assert_eq!(atime(), first, "somebody wants to leave no trace");
    v.read(file.node);
    assert_eq!(atime(), later, "a day is over");
    let options = OpenOptions { atime: Atime::Never, ..OpenOptions::default() };
    let v = volume_with(NameHash::BITS, &options);
    let file = v.file(ROOT, "f");
    v.tick();
    v.read(file.node);
    assert_eq!(v.fs.getattr(&Caller::root(), file.node).expect("the file").atime, file.attr.atime);
}
