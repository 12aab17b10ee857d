//! Attributes, times, extended attributes, set-id bits, space.

use std::fs::Permissions;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use crate::rig::{NOBODY, PATIENCE, as_user, mounted};
use testing::memory_fs::ROOT_SHOWN;

const CAPABILITY: &str = "security.capability";

#[test]
fn modes_and_owners_change() {
    let Some(rig) = mounted("") else { return };
    rig.write("f", b"");
    std::fs::set_permissions(rig.path("f"), Permissions::from_mode(0o1604)).unwrap();
    std::os::unix::fs::chown(rig.path("f"), Some(12), Some(34)).unwrap();
    let found = std::fs::metadata(rig.path("f")).unwrap();
    assert_eq!((found.mode(), found.uid(), found.gid()), (0o101_604, 12, 34));
    assert_eq!(std::fs::metadata(rig.path("")).unwrap().ino(), ROOT_SHOWN);
}

#[test]
fn times_have_nanoseconds_and_reach_back_before_1970() {
    let Some(rig) = mounted("") else { return };
    rig.write("f", b"");
    let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    let cases = [
        (time(1_700_000_000, 123_456_789), time(1, 1)),
        (time(-2, 800_000_000), time(-1, 0)),
        (time(0, 0), time(9_223_372_035, 999_999_999)),
    ];
    for (atime, mtime) in cases {
        let times = Timestamps { last_access: atime, last_modification: mtime };
        rustix::fs::utimensat(CWD, rig.path("f"), &times, AtFlags::empty()).unwrap();
        let found = std::fs::metadata(rig.path("f")).unwrap();
        assert_eq!((found.atime(), found.atime_nsec()), (atime.tv_sec, atime.tv_nsec));
        assert_eq!((found.mtime(), found.mtime_nsec()), (mtime.tv_sec, mtime.tv_nsec));
    }
}

#[test]
fn times_out_of_range_are_harmless() {
    let Some(rig) = mounted("") else { return };
    rig.write("f", b"x");
    for tv_sec in [i64::MIN, i64::MIN + 1, i64::MAX] {
        let time = Timespec { tv_sec, tv_nsec: 999_999_999 };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, rig.path("f"), &times, AtFlags::empty()).unwrap();
        assert_eq!(rig.read("f"), b"x", "the mount serves on after {tv_sec}");
    }
}

/// `ls -l` asks each file for its label, and no kernel caches the answer: it stops when a file
/// system reports that it supports none. A label that is there is there.
#[test]
fn labels_are_not_supported_where_the_kernel_has_none() {
    let Some(rig) = mounted("") else { return };
    (0..50).for_each(|number| rig.write(&format!("f{number}"), b""));
    let kinds = std::fs::read_to_string("/proc/filesystems").unwrap();
    let has_labels = kinds.split_ascii_whitespace().any(|kind| kind == "selinuxfs");
    let asked = |name: &str, attribute: &str| {
        rustix::fs::getxattr(rig.path(name), attribute, &mut [0_u8; 64][..])
    };
    let expected = if has_labels { Errno::NODATA } else { Errno::OPNOTSUPP };
    assert_eq!(asked("f1", "security.selinux"), Err(expected));
    assert_eq!(asked("f1", "security.other"), Err(Errno::NODATA));
    assert_eq!(asked("f1", "user.other"), Err(Errno::NODATA));
    if has_labels {
        return;
    }
    rustix::fs::setxattr(rig.path("f1"), "security.selinux", b"a:b:c", XattrFlags::empty())
        .unwrap();
    assert_eq!(asked("f1", "security.selinux"), Ok(5));
    assert_eq!(asked("f2", "security.selinux"), Err(Errno::OPNOTSUPP));
}

#[test]
fn extended_attributes() {
    let Some(rig) = mounted("") else { return };
    rig.write("f", b"");
    let path = rig.path("f");
    let set = |value: &[u8], how| rustix::fs::setxattr(&path, "user.k", value, how);
    assert_eq!(set(b"v", XattrFlags::REPLACE), Err(Errno::NODATA));
    set(b"value", XattrFlags::CREATE).unwrap();
    assert_eq!(set(b"v", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(rustix::fs::getxattr_query(&path, "user.k"), Ok(5));
    let mut short = [0; 3];
    assert_eq!(rustix::fs::getxattr(&path, "user.k", &mut short), Err(Errno::RANGE));
    let mut space = [0; 64];
    assert_eq!(rustix::fs::getxattr(&path, "user.k", &mut space), Ok(5));
    assert_eq!(&space[..5], b"value");
    set(b"", XattrFlags::empty()).unwrap();
    assert_eq!(rustix::fs::getxattr(&path, "user.k", &mut space), Ok(0));
    assert_eq!(rustix::fs::listxattr_query(&path), Ok(7));
    assert_eq!(rustix::fs::listxattr(&path, &mut space), Ok(7));
    assert_eq!(&space[..7], b"user.k\0");
    rustix::fs::removexattr(&path, "user.k").unwrap();
    assert_eq!(rustix::fs::getxattr(&path, "user.k", &mut space), Err(Errno::NODATA));
    let long = vec![b'l'; 65536];
    rustix::fs::setxattr(&path, "user.long", &long, XattrFlags::empty()).unwrap();
    let mut space = vec![0; 65536];
    assert_eq!(rustix::fs::getxattr(&path, "user.long", &mut space), Ok(65536));
}

#[test]
fn set_id_bits_end_with_a_write_a_truncation_and_a_change_of_owner() {
    let Some(rig) = mounted("allow_other") else { return };
    let path = rig.path("program");
    let mode = || std::fs::metadata(&path).unwrap().mode() & 0o7777;
    let mut version_2 = [0; 20];
    version_2[3] = 2;
    version_2[4] = 1;
    let arm = || {
        std::os::unix::fs::chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o6755)).unwrap();
        rustix::fs::setxattr(&path, CAPABILITY, &version_2, XattrFlags::empty()).unwrap();
    };
    let capable = || rustix::fs::getxattr(&path, CAPABILITY, &mut [0; 64]).is_ok();
    rig.write("program", b"code");

    arm();
    assert!(capable());
    as_user(NOBODY, &[], || {
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.write_all_at(b"C", 0).unwrap();
    });
    assert_eq!((mode(), capable()), (0o755, false), "a write");

    arm();
    as_user(NOBODY, &[], || {
        std::fs::File::options().write(true).open(&path).unwrap().set_len(1).unwrap();
    });
    assert_eq!((mode(), capable()), (0o755, false), "a truncation");

    // No process may execute it while it is written, and then its owner allows that again.
    arm();
    as_user(NOBODY, &[], || {
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.write_all_at(b"C", 0).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    });
    assert_eq!((mode(), capable()), (0o755, false), "a write to what nobody may run");

    arm();
    std::os::unix::fs::chown(&path, Some(1), None).unwrap();
    assert_eq!((mode(), capable()), (0o755, false), "a change of owner");
}

/// Runs a closure as a superuser who may not keep set-id bits.
fn without_fsetid(body: impl FnOnce() + Send) {
    device::scope(|scope| {
        let bare = scope.spawn(|| {
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::FSETID);
            rustix::thread::set_capabilities(None, sets).unwrap();
            body();
        });
        bare.join().unwrap();
    });
}

/// As a separate call a crash could come before it, and it would undo a chmod from in between.
#[test]
fn set_id_bits_end_in_the_call_that_changes_the_file() {
    type Change = fn(&std::fs::File);
    let Some(rig) = mounted("") else { return };
    let path = rig.path("program");
    rig.write("program", b"code");
    let mode = || std::fs::metadata(&path).unwrap().mode() & 0o7777;
    let changes: [(&str, Change); 2] = [
        ("a write", |file| file.write_all_at(b"C", 0).unwrap()),
        ("a truncation", |file| file.set_len(1).unwrap()),
    ];
    for (what, change) in changes {
        std::fs::set_permissions(&path, Permissions::from_mode(0o6755)).unwrap();
        let before = rig.fs.chmods.load(Ordering::Relaxed);
        without_fsetid(|| change(&std::fs::File::options().write(true).open(&path).unwrap()));
        let chmods = rig.fs.chmods.load(Ordering::Relaxed) - before;
        assert_eq!((chmods, mode()), (0, 0o755), "{what}");
    }
}

#[test]
fn space_is_shown() {
    let Some(rig) = mounted("") else { return };
    let space = rustix::fs::statvfs(rig.path("")).unwrap();
    assert_eq!((space.f_bsize, space.f_frsize, space.f_blocks), (4096, 4096, 1000));
    assert_eq!((space.f_bfree, space.f_bavail, space.f_files), (600, 500, 77));
    assert_eq!(space.f_namemax, 255);
}

/// Totals may take as long as a search of everything.
#[test]
fn long_totals_do_not_block_the_mount() {
    let Some(rig) = mounted("threads=2") else { return };
    rig.write("file", b"text");
    let root = rig.path("");
    let held = rig.fs.gate.lock();
    let total = || {
        let root = root.clone();
        device::spawn("total", move || {
            rustix::fs::getxattr(&root, "user.pando.rbytes", &mut [0; 16]).is_err()
        })
        .unwrap()
    };
    let asking: Vec<_> = (0..5).map(|_| total()).collect();
    rig.eventually("some are asked", |fs| fs.at_gate.load(Ordering::Relaxed) == 2);
    let (sender, receiver) = device::sync::channel();
    let file = rig.path("file");
    let reading = device::spawn("reader", move || {
        sender.send(std::fs::read(file).unwrap()).unwrap();
    });
    let read = receiver.recv_timeout(PATIENCE);
    // One user gets at most two threads for it.
    let at_gate = rig.fs.at_gate.load(Ordering::Relaxed);
    drop(held);
    assert_eq!((read.as_deref(), at_gate), (Ok(&b"text"[..]), 2));
    reading.unwrap().join().unwrap();
    for one in asking {
        assert!(one.join().unwrap(), "there is no such attribute");
    }
}
