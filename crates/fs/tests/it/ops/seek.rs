//! `seek`.

use fs::{FileSystem, Seek};
use inode::{Caller, FsError};

use crate::support::{ROOT, refused, volume};

#[test]
fn data_and_holes_are_found() {
    let v = volume();
    let root = Caller::root();
    let file = v.file(ROOT, "f");
    let seek = |offset, what| v.fs.seek(&root, file.node, offset, what);
    refused(seek(0, Seek::Data), &FsError::PastEnd);
    v.write(file.node, 0, b"few");
    assert_eq!(seek(1, Seek::Data).expect("data"), 1);
    assert_eq!(seek(1, Seek::Hole).expect("the end"), 3);
    v.write(file.node, 1 << 20, &vec![1; 100_000]);
    let end = (1 << 20) + 100_000;
    assert_eq!(seek(0, Seek::Hole).expect("a hole"), 3);
    assert_eq!(seek(3, Seek::Data).expect("data"), 1 << 20);
    assert_eq!(seek(1 << 20, Seek::Hole).expect("the end"), end);
    refused(seek(end, Seek::Hole), &FsError::PastEnd);
    let changes = inode::SetAttr { size: Some(end + 5000), ..inode::SetAttr::default() };
    v.fs.setattr(&root, file.node, &changes).expect("space");
    assert_eq!(seek(1 << 20, Seek::Hole).expect("a hole"), end);
    refused(seek(end, Seek::Data), &FsError::PastEnd);
}
