//! `setattr`: chmod, chown, truncate, utimens. The rules of who may are tested in `inode`.

use device::Timestamp;
use fs::FileSystem;
use inode::{Caller, FsError, SetAttr, SetTime};

use crate::support::{ROOT, refused, user, volume};

#[test]
fn attributes_change_together_and_only_those_named() {
    let v = volume();
    let file = v.file(ROOT, "f");
    let now = v.tick();
    let changes = SetAttr {
        mode: Some(0o4711),
        uid: Some(5),
        gid: Some(6),
        mtime: Some(SetTime::At(Timestamp(-1_000_000_001))),
        ..SetAttr::default()
    };
    let attr = v.fs.setattr(&Caller::root(), file.node, &changes).expect("root may");
    assert_eq!((attr.mode, attr.uid, attr.gid), (0o4711, 5, 6));
    assert_eq!((attr.mtime.0, attr.ctime.0), (-1_000_000_001, now));
    assert_eq!((attr.atime, attr.btime), (file.attr.atime, file.attr.btime));
    assert_eq!(v.find(ROOT, "f").expect("the file").attr, attr);
    refused(
        v.fs.setattr(&user(9), file.node, &SetAttr { mode: Some(0), ..SetAttr::default() }),
        &FsError::NotPermitted(""),
    );
}

#[test]
fn directories_keep_their_counts() {
    let v = volume();
    let dir = v.dir(ROOT, "d");
    v.file(dir.node, "f");
    let now = v.tick();
    let changes = SetAttr {
        mode: Some(0o700),
        atime: Some(SetTime::Now),
        mtime: Some(SetTime::At(Timestamp(5))),
        ..SetAttr::default()
    };
    let attr = v.fs.setattr(&Caller::root(), dir.node, &changes).expect("root may");
    assert_eq!((attr.mode, attr.size, attr.atime.0, attr.mtime.0), (0o700, 1, now, 5));
    v.check_counts(dir.node);
    let size = SetAttr { size: Some(0), ..SetAttr::default() };
    refused(v.fs.setattr(&Caller::root(), dir.node, &size), &FsError::IsDirectory);
}

#[test]
fn files_are_cut_and_grown_through_every_size() {
    let v = volume();
    let file = v.file(ROOT, "f");
    let mut model = Vec::new();
    let mut random = fastrand::Rng::with_seed(11);
    for round in 0..200_usize {
        let size = [0, 1, 4095, 4096, 4097, 20_000, 60_000][random.usize(..7)];
        if random.bool() {
            let at = random.usize(..40_000);
            let bytes = vec![round as u8; random.usize(1..9000)];
            model.resize(model.len().max(at + bytes.len()), 0);
            model[at..at + bytes.len()].copy_from_slice(&bytes);
            v.write(file.node, at as u64, &bytes);
        } else {
            model.resize(size, 0);
            let changes = SetAttr { size: Some(size as u64), ..SetAttr::default() };
            let attr = v.fs.setattr(&Caller::root(), file.node, &changes).expect("room");
            assert_eq!(attr.size, size as u64);
            assert!(attr.blocks <= (size as u64).div_ceil(512), "{} blocks", attr.blocks);
        }
        assert!(v.read(file.node) == model, "round {round}");
        assert_eq!(v.fs.status().expect("counters").bytes, model.len() as u64);
    }
    let changes = SetAttr { size: Some(1 << 63), ..SetAttr::default() };
    refused(v.fs.setattr(&Caller::root(), file.node, &changes), &FsError::FileTooLarge);
}
