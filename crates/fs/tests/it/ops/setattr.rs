//! `setattr`: chmod, chown, truncate, utimens. The rules of who may are tested in `inode`.

use device::Timestamp;
use format::key::{self, Parsed, Part};
use fs::{Allocate, FileSystem, SetXattr};
use inode::{Caller, Ends, FsError, NodeId, SetAttr, SetTime};
use store::{Batch, Commit, KeyRange, Maintain, Read, TreeId};

use crate::support::{ROOT, refused, user, volume};

#[test]
fn only_the_named_attributes_change_together() {
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
            let attr = v.fs.setattr(&Caller::root(), file.node, &changes).expect("space");
            assert_eq!(attr.size, size as u64);
            assert!(attr.blocks <= (size as u64).div_ceil(512), "{} blocks", attr.blocks);
        }
        assert!(v.read(file.node) == model, "round {round}");
        assert_eq!(v.fs.status().expect("counters").bytes, model.len() as u64);
    }
    let changes = SetAttr { size: Some(1 << 63), ..SetAttr::default() };
    refused(v.fs.setattr(&Caller::root(), file.node, &changes), &FsError::FileTooLarge);
}

/// Whatever changes the contents: in the batch that does, so that no crash comes in between.
#[test]
fn set_id_bits_end_in_the_batch_of_the_change() {
    let capability = b"security.capability";
    let root = Caller::root();
    let bare = Caller { ends: Ends { set_id: true, capabilities: true }, ..Caller::root() };
    type Change<'a> = Box<dyn Fn(&Caller, NodeId) + 'a>;
    for length in [100, 20_000] {
        let v = volume();
        let from = v.file(ROOT, "from").node;
        v.write(from, 0, &vec![1; length]);
        let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
        let punch = Allocate::Punch;
        let changes: [(&str, Change<'_>); 6] = [
            ("write", Box::new(|by, to| v.fs.write(by, to, 0, b"x").unwrap())),
            ("cut", Box::new(|by, to| assert!(v.fs.setattr(by, to, &size(10)).is_ok()))),
            ("grow", Box::new(|by, to| assert!(v.fs.setattr(by, to, &size(30_000)).is_ok()))),
            ("punch", Box::new(|by, to| v.fs.fallocate(by, to, (0, 50), punch).unwrap())),
            ("keep", Box::new(|by, to| v.fs.fallocate(by, to, (0, 50), Allocate::Keep).unwrap())),
            (
                "copy",
                Box::new(|by, to| assert!(v.fs.copy_range(by, (from, 0), (to, 0), 90).is_ok())),
            ),
        ];
        for (what, change) in &changes {
            let to = v.file(ROOT, what).node;
            v.write(to, 0, &vec![2; length]);
            v.fs.setattr(&root, to, &SetAttr { mode: Some(0o6755), ..SetAttr::default() }).unwrap();
            v.fs.setxattr(&root, to, capability, b"some", SetXattr::Any).unwrap();
            let seen = || {
                let mode = v.fs.getattr(&root, to).unwrap().mode;
                (mode, v.fs.getxattr(&root, to, capability).is_ok())
            };
            change(&root, to);
            assert_eq!(seen(), (0o6755, true), "{what} of {length}: root may keep them");
            let before = v.store.stats().commits;
            change(&bare, to);
            let commits = v.store.stats().commits - before;
            assert_eq!((seen(), commits), ((0o755, false), 1), "{what} of {length}");
        }
    }
}

/// Attributes that do not decode grant no capability; the contents are sound.
#[test]
fn a_file_whose_attributes_are_damaged_takes_changes() {
    let v = volume();
    let bare = Caller { ends: Ends { set_id: true, capabilities: true }, ..Caller::root() };
    let file = v.file(ROOT, "f").node;
    v.fs.setxattr(&bare, file, b"user.some", b"value", SetXattr::Any).unwrap();
    let tree = TreeId(key::FIRST_TREE);
    let mut damage = Batch::new();
    let mut cursor = v.store.scan(tree, KeyRange::all()).unwrap();
    while let Some(item) = cursor.next().unwrap() {
        if let Ok(Parsed::Entry { part: Part::Xattrs, .. }) = key::parse(item.key) {
            damage.put(tree, item.key, b"\xff\xff\xff\xff\xff");
        }
    }
    drop(cursor);
    assert!(!damage.is_empty());
    v.store.commit(&damage).unwrap();
    let found = v.fs.getxattr(&bare, file, b"user.some");
    assert!(matches!(found, Err(FsError::Io(_))), "they do not decode: {found:?}");
    v.fs.write(&bare, file, 0, b"text").unwrap();
    let owner = SetAttr { uid: Some(7), size: Some(2), ..SetAttr::default() };
    v.fs.setattr(&bare, file, &owner).unwrap();
    v.fs.fallocate(&bare, file, (0, 1), Allocate::Punch).unwrap();
    assert_eq!(v.read(file), b"\0e");
}
