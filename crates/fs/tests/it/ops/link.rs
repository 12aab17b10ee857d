//! `link`: several names of one inode.

use format::inode_record::LinkedRecord;
use format::key::{self, Part};
use fs::{FileSystem, SetXattr};
use inode::{Caller, FsError};
use store::{Batch, Commit, Read};

use crate::support::{ROOT, refused, volume, weak_volume};

#[test]
fn all_names_point_to_one_inode_until_the_last_is_removed() {
    for bits in [1, 55] {
        let v = weak_volume(bits);
        let file = v.file(ROOT, "a");
        v.write(file.node, 0, b"contents");
        v.fs.setxattr(&Caller::root(), file.node, b"user.x", b"1", SetXattr::Any).expect("space");
        let dir = v.dir(ROOT, "d");
        let now = v.tick();
        let linked = v.fs.link(&Caller::root(), file.node, dir.node, b"b").expect("a name");
        assert_eq!((linked.node, linked.attr.nlink, linked.attr.ctime.0), (file.node, 2, now));
        v.fs.link(&Caller::root(), file.node, ROOT, b"c").expect("a name");
        for (parent, name) in [(ROOT, "a"), (dir.node, "b"), (ROOT, "c")] {
            let found = v.find(parent, name).expect("a name");
            assert_eq!((found.node, found.attr.nlink), (file.node, 3));
        }
        v.write(file.node, 8, b"!");
        v.fs.unlink(&Caller::root(), ROOT, b"a").expect("a name");
        v.fs.unlink(&Caller::root(), dir.node, b"b").expect("a name");
        assert_eq!(v.fs.getattr(&Caller::root(), file.node).expect("the file").nlink, 1);
        assert_eq!(v.read(file.node), b"contents!");
        v.fs.unlink(&Caller::root(), ROOT, b"c").expect("the last name");
        assert_eq!(v.fs.getattr(&Caller::root(), file.node).expect("held").nlink, 0);
        assert_eq!(v.read(file.node), b"contents!");
        let value = v.fs.getxattr(&Caller::root(), file.node, b"user.x").expect("kept");
        assert_eq!(value, b"1");
        v.fs.rmdir(&Caller::root(), ROOT, b"d").expect("empty again");
        assert_eq!(v.store.dump(store::TreeId(32)).expect("the tree").len(), 1);
        assert_eq!(v.fs.status().expect("counters").files, 1);
    }
}

#[test]
fn directories_and_taken_names_are_refused() {
    let v = volume();
    let dir = v.dir(ROOT, "d");
    let file = v.file(ROOT, "f");
    refused(v.fs.link(&Caller::root(), dir.node, ROOT, b"e"), &FsError::NotPermitted(""));
    refused(v.fs.link(&Caller::root(), file.node, ROOT, b"d"), &FsError::Exists);
    refused(v.fs.link(&Caller::root(), file.node, ROOT, b"f"), &FsError::Exists);
}

/// A million names are not made here: the record counts them.
#[test]
fn an_inode_has_at_most_the_maximum_of_names() {
    let v = volume();
    let file = v.file(ROOT, "a");
    v.fs.link(&Caller::root(), file.node, ROOT, b"b").expect("a name");
    let (tree, ino) = (store::TreeId(32), file.node.ino().0);
    let key = key::linked(ino, Part::Attributes);
    let bytes = v.store.get(tree, &key).expect("it reads").expect("it is linked");
    let mut record = LinkedRecord::decode(&bytes).expect("it was written just now");
    record.nlink = (1 << 20) - 1;
    let (mut batch, mut bytes) = (Batch::new(), Vec::new());
    record.encode(&mut bytes);
    batch.put(tree, &key, &bytes);
    v.store.commit(&batch).expect("a commit");
    let last = v.fs.link(&Caller::root(), file.node, ROOT, b"last").expect("the 1,048,576th");
    assert_eq!(last.attr.nlink, 1 << 20);
    let refused = v.fs.link(&Caller::root(), file.node, ROOT, b"more");
    assert!(matches!(refused, Err(FsError::TooManyLinks)), "{refused:?}");
    let more = v.find(ROOT, "more");
    assert!(matches!(more, Err(FsError::NotFound)), "{more:?}");
    assert_eq!(v.fs.getattr(&Caller::root(), file.node).expect("the file").nlink, 1 << 20);
}
