//! Extended attributes.

use fs::{FileSystem, SetXattr};
use inode::{Caller, FsError};

use crate::support::{ROOT, refused, user, volume};

#[test]
fn attributes_are_set_replaced_listed_and_removed() {
    let v = volume();
    let file = v.file(ROOT, "f");
    let dir = v.dir(ROOT, "d");
    let root = Caller::root();
    for node in [file.node, dir.node, ROOT] {
        let set = |name: &[u8], value: &[u8], mode| v.fs.setxattr(&root, node, name, value, mode);
        set(b"user.b", b"1", SetXattr::Any).expect("space");
        refused(set(b"user.b", b"2", SetXattr::Create), &FsError::Exists);
        set(b"user.b", b"", SetXattr::Replace).expect("space");
        refused(set(b"user.c", b"2", SetXattr::Replace), &FsError::NoAttribute);
        set(b"trusted.a", &vec![7; 65536], SetXattr::Create).expect("space");
        assert_eq!(v.fs.getxattr(&root, node, b"user.b").expect("set"), b"");
        assert_eq!(v.fs.getxattr(&root, node, b"trusted.a").expect("set"), vec![7; 65536]);
        assert_eq!(v.fs.listxattr(&root, node).expect("names"), b"trusted.a\0user.b\0");
        assert_eq!(v.fs.listxattr(&user(5), node).expect("names"), b"user.b\0");
        refused(v.fs.getxattr(&user(5), node, b"trusted.a"), &FsError::NoAttribute);
        v.fs.removexattr(&root, node, b"user.b").expect("set");
        refused(v.fs.removexattr(&root, node, b"user.b"), &FsError::NoAttribute);
        v.fs.removexattr(&root, node, b"trusted.a").expect("set");
        assert_eq!(v.fs.listxattr(&root, node).expect("names"), b"");
    }
    assert!(v.fs.unlink(&root, ROOT, b"f").is_ok() && v.fs.rmdir(&root, ROOT, b"d").is_ok());
    assert_eq!(v.store.dump(store::TreeId(32)).expect("the tree").len(), 1);
}

#[test]
fn sizes_are_bounded() {
    let v = volume();
    let file = v.file(ROOT, "f");
    let set = |name: &[u8], bytes| {
        let value = vec![1; bytes];
        v.fs.setxattr(&Caller::root(), file.node, name, &value, SetXattr::Any)
    };
    refused(set(b"user.a", 65537), &FsError::Range);
    refused(set(&[b'u'; 256], 1), &FsError::Range);
    for name in [&b"user.1"[..], b"user.2", b"user.3"] {
        set(name, 65536).expect("space");
    }
    refused(set(b"user.4", 65536), &FsError::NoSpace);
    set(b"user.4", 65000).expect("space");
}

#[test]
fn attribute_namespaces_have_their_own_rules() {
    let v = volume();
    let file = v.file_as(&user(7), ROOT, "f", 0o600).expect("a file");
    let link = v.fs.symlink(&Caller::root(), ROOT, b"l", b"f").expect("a link");
    let set =
        |caller: &Caller, node, name: &[u8]| v.fs.setxattr(caller, node, name, b"1", SetXattr::Any);
    set(&user(7), file.node, b"user.a").expect("its owner may");
    refused(set(&user(8), file.node, b"user.a"), &FsError::AccessDenied);
    refused(v.fs.getxattr(&user(8), file.node, b"user.a"), &FsError::AccessDenied);
    refused(set(&user(7), file.node, b"trusted.a"), &FsError::NotPermitted(""));
    refused(set(&user(7), file.node, b"security.a"), &FsError::NotPermitted(""));
    refused(set(&Caller::root(), link.node, b"user.a"), &FsError::NotPermitted(""));
    set(&Caller::root(), link.node, b"trusted.a").expect("root may");
    refused(set(&Caller::root(), file.node, b"system.a"), &FsError::NotSupported(""));
    refused(set(&Caller::root(), file.node, b"user."), &FsError::InvalidArgument(""));
}
