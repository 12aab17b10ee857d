//! `copy_range`.

use fs::FileSystem;
use inode::{Caller, FsError, SetAttr};

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
                    .expect("space");
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
fn a_long_copy_takes_no_space_of_its_own() {
    let v = volume();
    let (from, to) = (v.file(ROOT, "from"), v.file(ROOT, "to"));
    v.write(from.node, 0, &vec![5; 8 << 20]);
    let before = v.fs.status().expect("a status").disk_bytes;
    let copied =
        v.fs.copy_range(&Caller::root(), (from.node, 0), (to.node, 0), 8 << 20).expect("space");
    assert_eq!(copied, 8 << 20);
    assert_eq!(blocks(&v, from.node), blocks(&v, to.node));
    assert_eq!(v.fs.status().expect("a status").disk_bytes, before);
}

#[test]
fn impossible_ranges_are_refused() {
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

#[test]
fn a_copy_clears_the_targets_set_id_bits_except_for_root() {
    let v = volume();
    let armed = SetAttr { mode: Some(0o6755), ..SetAttr::default() };
    // Few bytes are copied, many are shared.
    for length in [100, 200_000] {
        let from = v.file_as(&user(7), ROOT, &format!("from {length}"), 0o644).expect("a file");
        let to = v.file_as(&user(7), ROOT, &format!("to {length}"), 0o755).expect("a file");
        v.write(from.node, 0, &vec![5; length]);
        for (caller, from_at, left) in
            [(user(7), length as u64, 0o6755), (user(7), 0, 0o755), (Caller::root(), 0, 0o6755)]
        {
            for node in [from.node, to.node] {
                v.fs.setattr(&Caller::root(), node, &armed).expect("root may");
            }
            let copied = v.fs.copy_range(&caller, (from.node, from_at), (to.node, 0), 1 << 30);
            assert_eq!(copied.expect("space"), length as u64 - from_at);
            let mode = |node| v.fs.getattr(&Caller::root(), node).expect("a file").mode;
            assert_eq!(mode(to.node), left, "{length} bytes from {from_at} by {}", caller.uid);
            assert_eq!(mode(from.node), 0o6755, "the source is only read");
        }
    }
}
