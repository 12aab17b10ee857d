//! `tmpfile`.

use fs::FileSystem;
use inode::{Caller, FsError};

use crate::support::{ROOT, refused, user, volume};

#[test]
fn a_file_without_a_name_gets_one_by_link() {
    for length in [0, 10, 4096, 100_000] {
        let v = volume();
        let root = Caller::root();
        let made = v.fs.tmpfile(&user(7), ROOT, 0o640).expect("a file");
        assert_eq!((made.attr.nlink, made.attr.uid, made.attr.mode), (0, 7, 0o640));
        assert!(v.names(ROOT).is_empty());
        let bytes = vec![3; length];
        v.write(made.node, 0, &bytes);
        let files = v.fs.status().expect("a status").files;
        let named = v.fs.link(&root, made.node, ROOT, b"f").expect("a name");
        assert_eq!((named.node, named.attr.nlink), (made.node, 1));
        assert_eq!(v.fs.status().expect("a status").files, files + 1);
        v.fs.forget(made.node, 2);
        let again = v.reopened();
        let found = again.lookup(&root, ROOT, b"f").expect("it is on the medium");
        let mut buffer = vec![0; length + 1];
        let read = again.read(&root, found.node, 0, &mut buffer).expect("a file");
        assert!(buffer[..read] == bytes, "{length} bytes");
        again.unlink(&root, ROOT, b"f").expect("a name");
        refused(again.link(&root, found.node, ROOT, b"g"), &FsError::NotFound);
    }
}

#[test]
fn one_that_gets_no_name_leaves_nothing() {
    let v = volume();
    let small = v.fs.tmpfile(&Caller::root(), ROOT, 0o600).expect("a file");
    v.write(small.node, 0, b"few");
    v.fs.forget(small.node, 1);
    refused(v.fs.getattr(&Caller::root(), small.node), &FsError::Stale);
    let dir = v.dir(ROOT, "d");
    refused(v.fs.tmpfile(&user(9), dir.node, 0o600), &FsError::AccessDenied);
}
