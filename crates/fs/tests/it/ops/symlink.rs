//! `symlink`.

use fs::FileSystem;
use inode::{Caller, FsError, Kind};

use crate::support::{ROOT, refused, user, volume};

#[test]
fn a_link_has_the_length_of_its_target_and_any_bytes() {
    let v = volume();
    let link = v.fs.symlink(&user(7), ROOT, b"l", b"../\xff target").expect("a link");
    assert_eq!((link.attr.kind, link.attr.mode, link.attr.size), (Kind::Symlink, 0o777, 11));
    assert_eq!(link.attr.uid, 7);
    assert_eq!(v.find(ROOT, "l").expect("the link").attr, link.attr);
}

#[test]
fn empty_long_and_existing_names_are_refused() {
    let v = volume();
    let make =
        |name: &str, target: &[u8]| v.fs.symlink(&Caller::root(), ROOT, name.as_bytes(), target);
    refused(make("l", b""), &FsError::NotFound);
    refused(make("l", &[b'x'; 4096]), &FsError::NameTooLong);
    refused(make("l", b"a\0b"), &FsError::InvalidArgument(""));
    make("l", b"x").expect("a link");
    refused(make("l", b"y"), &FsError::Exists);
}
