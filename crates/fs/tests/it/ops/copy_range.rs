//! `copy_range`.

use fs::FileSystem;
use inode::{Caller, FsError};

use crate::support::{ROOT, Volume, refused, user, volume};

fn blocks(v: &Volume, node: inode::NodeId) -> u64 {
    v.fs.getattr(&Caller::root(), node).expect("a file").blocks
}

fn contents(v: &Volume, node: inode::NodeId) -> Vec<u8> {
    let size = v.fs.getattr(&Caller::root(), node).expect("a file").size;
    let mut buffer = vec![0; size as usize];
    let read = v.fs.read(&Caller::root(), node, 0, &mut buffer).expect("a file");
    assert_eq!(read, buffer.len());
    buffer
}

#[test]
fn copies_of_every_length_show_the_source() {
    for source in [10, 4096, 5000, 200_000] {
        for target in [0, 10, 4096, 300_000] {
            let v = volume();
            let (from, to) = (v.file(ROOT, "from"), v.file(ROOT, "to"));
            let bytes: Vec<u8> = (0..source).map(|at: u32| (at % 251) as u8).collect();
            v.write(from.node, 0, &bytes);
            v.write(to.node, 0, &vec![7; target]);
            let mut model = contents(&v, to.node);
            let copied =
                v.fs.copy_range(&Caller::root(), (from.node, 3), (to.node, 5), 1 << 40)
                    .expect("room");
            assert_eq!(copied, u64::from(source) - 3);
            model.resize(model.len().max(5 + bytes.len() - 3), 0);
            model[5..5 + bytes.len() - 3].copy_from_slice(&bytes[3..]);
            assert!(contents(&v, to.node) == model, "{source} bytes into {target}");
            v.write(from.node, 0, &vec![1; source as usize]);
            assert!(contents(&v, to.node) == model, "the copy stays");
        }
    }
}

#[test]
fn a_long_copy_takes_no_room_of_its_own() {
    let v = volume();
    let (from, to) = (v.file(ROOT, "from"), v.file(ROOT, "to"));
    v.write(from.node, 0, &vec![5; 8 << 20]);
    let before = v.fs.status().expect("a status").disk_bytes;
    let copied =
        v.fs.copy_range(&Caller::root(), (from.node, 0), (to.node, 0), 8 << 20).expect("room");
    assert_eq!(copied, 8 << 20);
    assert_eq!(blocks(&v, from.node), blocks(&v, to.node));
    assert_eq!(v.fs.status().expect("a status").disk_bytes, before);
}

#[test]
fn what_cannot_be_is_refused() {
    let v = volume();
    let root = Caller::root();
    let (from, to) = (v.file(ROOT, "from"), v.file(ROOT, "to"));
    v.write(from.node, 0, &[1; 10_000]);
    let copy = |caller: &Caller, from, to| v.fs.copy_range(caller, from, to, 5000);
    assert_eq!(copy(&root, (from.node, 10_000), (to.node, 0)).expect("nothing"), 0);
    refused(copy(&root, (from.node, 0), (from.node, 4000)), &FsError::InvalidArgument(""));
    refused(copy(&root, (from.node, 0), (to.node, i64::MAX as u64 - 10)), &FsError::FileTooLarge);
    refused(copy(&user(9), (from.node, 0), (to.node, 0)), &FsError::AccessDenied);
    let dir = v.dir(ROOT, "d");
    refused(copy(&root, (dir.node, 0), (to.node, 0)), &FsError::IsDirectory);
    refused(copy(&root, (from.node, 0), (dir.node, 0)), &FsError::IsDirectory);
}
