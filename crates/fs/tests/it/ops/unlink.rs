//! `unlink`: names are removed at once, inodes when they are no longer held.

use fs::FileSystem;
use inode::{Caller, FsError, SetAttr};

use crate::support::{ROOT, refused, user, volume};

#[test]
fn removing_a_name_updates_its_counts() {
    let v = volume();
    let file = v.file(ROOT, "f");
    v.write(file.node, 0, b"bytes");
    v.fs.forget(file.node, 1);
    assert_eq!(v.fs.status().expect("counters").bytes, 5);
    v.fs.unlink(&Caller::root(), ROOT, b"f").expect("the name");
    refused(v.find(ROOT, "f"), &FsError::NotFound);
    refused(v.fs.unlink(&Caller::root(), ROOT, b"f"), &FsError::NotFound);
    refused(v.fs.getattr(&Caller::root(), file.node), &FsError::Stale);
    let status = v.fs.status().expect("counters");
    assert_eq!((status.files, status.bytes), (1, 0));
    assert_eq!(v.store.dump(store::TreeId(32)).expect("the tree").len(), 1);
}

#[test]
fn an_open_file_outlives_its_name() {
    let v = volume();
    let file = v.file(ROOT, "f");
    v.write(file.node, 0, b"before");
    v.fs.setxattr(&Caller::root(), file.node, b"user.a", b"1", fs::SetXattr::Any).expect("space");
    v.fs.unlink(&Caller::root(), ROOT, b"f").expect("the name");
    let attr = v.fs.getattr(&Caller::root(), file.node).expect("a held file");
    assert_eq!((attr.nlink, attr.size), (0, 6));
    assert_eq!(v.read(file.node), b"before");
    v.write(file.node, 3, b"after");
    assert_eq!(v.read(file.node), b"befafter");
    assert_eq!(v.fs.getxattr(&Caller::root(), file.node, b"user.a").expect("kept"), b"1");
    let changes = SetAttr { size: Some(2), ..SetAttr::default() };
    assert_eq!(v.fs.setattr(&Caller::root(), file.node, &changes).expect("root may").size, 2);
    refused(v.fs.link(&Caller::root(), file.node, ROOT, b"g"), &FsError::NotFound);
    v.fs.forget(file.node, 1);
    refused(v.fs.getattr(&Caller::root(), file.node), &FsError::Stale);
}

#[test]
fn unlink_refuses_directories_and_sticky_directories() {
    let v = volume();
    v.dir(ROOT, "d");
    refused(v.fs.unlink(&Caller::root(), ROOT, b"d"), &FsError::IsDirectory);
    let tmp = v.dir(ROOT, "tmp");
    let changes = SetAttr { mode: Some(0o1777), ..SetAttr::default() };
    v.fs.setattr(&Caller::root(), tmp.node, &changes).expect("root may");
    v.file_as(&user(5), tmp.node, "f", 0o666).expect("a file");
    refused(v.fs.unlink(&user(6), tmp.node, b"f"), &FsError::NotPermitted(""));
    v.fs.unlink(&user(5), tmp.node, b"f").expect("its owner may");
}
