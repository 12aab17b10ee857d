//! `write`.

use format::acl::{ACCESS, Acl};
use fs::{Allocate, FileSystem, SetXattr};
use inode::{Caller, FsError, SetAttr};

use crate::support::{ROOT, refused, user, volume};
use crate::versions::Notified;

#[test]
fn length_and_times_follow_the_bytes() {
    let v = volume();
    let file = v.file(ROOT, "f");
    let now = v.tick();
    v.write(file.node, 10, b"end");
    let attr = v.fs.getattr(&Caller::root(), file.node).expect("the file");
    assert_eq!((attr.size, attr.mtime.0, attr.ctime.0), (13, now, now));
    assert_eq!(v.read(file.node), b"\0\0\0\0\0\0\0\0\0\0end");
    v.tick();
    v.write(file.node, 0, b"");
    assert_eq!(v.fs.getattr(&Caller::root(), file.node).expect("the file").mtime.0, now);
}

#[test]
fn grown_contents_move_out_of_the_tree() {
    let v = volume();
    for (first, at, second) in
        [(10, 4090, 10), (4096, 4096, 1), (5, 1 << 20, 100), (0, 0, 70_000), (100, 50, 9000)]
    {
        let file = v.file(ROOT, "f");
        let mut model = vec![1; first];
        v.write(file.node, 0, &model);
        v.write(file.node, at as u64, &vec![2; second]);
        model.resize(model.len().max(at + second), 0);
        model[at..at + second].fill(2);
        let mut buffer = vec![0; model.len() + 1];
        let read = v.fs.read(&Caller::root(), file.node, 0, &mut buffer).expect("the file");
        assert!(buffer[..read] == model, "{first} bytes, then {second} at {at}");
        v.fs.unlink(&Caller::root(), ROOT, b"f").expect("the name");
    }
}

#[test]
fn a_long_write_is_done_in_pieces() {
    let v = volume();
    let file = v.file(ROOT, "f");
    let bytes: Vec<u8> = (0..20 << 20).map(|at: u32| (at >> 8) as u8).collect();
    v.write(file.node, 3, &bytes);
    let mut buffer = vec![0; bytes.len()];
    assert_eq!(
        v.fs.read(&Caller::root(), file.node, 3, &mut buffer).expect("the file"),
        bytes.len()
    );
    assert!(buffer == bytes);
}

#[test]
fn writing_clears_set_id_bits_and_needs_the_right() {
    let v = volume();
    let file = v.file_as(&user(7), ROOT, "f", 0o6777).expect("a file");
    v.fs.write(&user(8), file.node, 0, b"x").expect("everybody may");
    assert_eq!(v.fs.getattr(&Caller::root(), file.node).expect("the file").mode, 0o777);
    let changes = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    v.fs.setattr(&user(7), file.node, &changes).expect("its owner may");
    refused(v.fs.write(&user(8), file.node, 0, b"x"), &FsError::AccessDenied);
    refused(v.fs.write(&Caller::root(), ROOT, 0, b"x"), &FsError::IsDirectory);
    refused(v.fs.write(&Caller::root(), file.node, u64::MAX, b"x"), &FsError::FileTooLarge);
}

/// The kernel runs a program with the rights that it knows of, and asks for none after a write.
#[test]
fn a_call_that_clears_set_id_bits_notifies_before_it_returns() {
    let v = volume();
    let file = v.file_as(&user(7), ROOT, "f", 0o6777).expect("a file");
    let source = v.file(ROOT, "source");
    v.write(source.node, 0, &[1; 9000]);
    let reported = Notified::of(&v);
    let list = Acl::of_mode(0o777).encode();
    let calls: [(&str, &dyn Fn()); 5] = [
        ("write", &|| v.fs.write(&user(8), file.node, 0, b"x").expect("a write")),
        ("fallocate", &|| {
            v.fs.fallocate(&user(8), file.node, (0, 10), Allocate::Keep).expect("space");
        }),
        ("a copy", &|| {
            let (from, to) = ((source.node, 0), (file.node, 0));
            v.fs.copy_range(&user(8), from, to, 9000).expect("a copy");
        }),
        ("a hole", &|| {
            v.fs.fallocate(&user(8), file.node, (0, 4096), Allocate::Punch).expect("a hole");
        }),
        ("a list", &|| {
            let set = v.fs.setxattr(&user(7), file.node, ACCESS, &list, SetXattr::Any);
            set.expect("a list");
        }),
    ];
    for (what, call) in calls {
        for (mode, gid) in [(None, Some(99)), (Some(0o6777), None)] {
            let changes = SetAttr { mode, gid, ..SetAttr::default() };
            v.fs.setattr(&Caller::root(), file.node, &changes).expect("root may");
        }
        assert!(reported.attributes.lock().is_empty(), "the answer of setattr contains it");
        call();
        assert_eq!(std::mem::take(&mut *reported.attributes.lock()), [file.node], "{what}");
        call();
        assert!(reported.attributes.lock().is_empty(), "{what} once more changes no rights");
    }
}
