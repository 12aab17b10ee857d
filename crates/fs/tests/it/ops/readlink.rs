//! `readlink`.

use fs::FileSystem;
use inode::{Caller, FsError};

use crate::support::{ROOT, refused, volume};

#[test]
fn a_target_is_read_back_and_only_from_links() {
    let v = volume();
    let target = vec![b'x'; 4095];
    let link = v.fs.symlink(&Caller::root(), ROOT, b"l", &target).expect("a link");
    assert_eq!(v.fs.readlink(&Caller::root(), link.node).expect("the target"), target);
    let file = v.file(ROOT, "f");
    refused(v.fs.readlink(&Caller::root(), file.node), &FsError::InvalidArgument(""));
    refused(v.fs.readlink(&Caller::root(), ROOT), &FsError::InvalidArgument(""));
    v.fs.unlink(&Caller::root(), ROOT, b"l").expect("the name");
    assert_eq!(v.fs.readlink(&Caller::root(), link.node).expect("held"), target);
}
