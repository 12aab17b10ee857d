//! `readlink`.

use fs::{Atime, FileSystem, Follow, OpenOptions};
use inode::{Caller, FsError, NameHash};

use crate::support::{ROOT, refused, volume, volume_with};

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

#[test]
fn access_times_follow_relatime() {
    let root = Caller::root();
    for mode in [Atime::Relative, Atime::Never] {
        let options = OpenOptions { atime: mode, ..OpenOptions::default() };
        let v = volume_with(NameHash::BITS, &options);
        v.file(ROOT, "f");
        let link = v.fs.symlink(&root, ROOT, b"l", b"f").expect("a link");
        let atime = || v.fs.getattr(&root, link.node).expect("the link").atime.0;
        v.tick();
        let found = v.fs.resolve(&root, b"/l", Follow::Yes).expect("the file");
        v.fs.forget(found.node, 1);
        assert_eq!(atime(), link.attr.atime.0, "a command that goes through it leaves no trace");
        let first = v.tick();
        v.fs.readlink(&root, link.node).expect("the target");
        let noted = if mode == Atime::Relative { first } else { link.attr.atime.0 };
        assert_eq!(atime(), noted, "never read before");
        v.tick();
        v.fs.readlink(&root, link.node).expect("the target");
        assert_eq!(atime(), noted, "read since it was made");
    }
    let v = volume();
    let dir = v.dir(ROOT, "d").node;
    v.fs.symlink(&root, dir, b"l", b"f").expect("a link");
    v.fs.snapshot_create(&root, dir, b"s").expect("a snapshot");
    v.tick();
    let found = v.fs.resolve(&root, b"/d/.snapshots/s/l", Follow::No).expect("the link");
    assert_eq!(v.fs.readlink(&root, found.node).expect("the target"), b"f");
    let after = v.fs.getattr(&root, found.node).expect("the link");
    assert_eq!(after.atime, found.attr.atime, "snapshots stay as they are");
}
