//! Other users: mounting without root, and permissions.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fs::FileSystem;
use fuse::{MountError, Unmounted, mount};
use inode::{Caller, NodeId, SetAttr};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use rustix::io::Errno;

use crate::rig::{
    NOBODY, OpenDevice, PATIENCE, Rig, as_user, mounted, mounted_with_snapshots, options_at, places,
};
use testing::memory_fs::{INHERITED, LONG, LONG_SNAPSHOT, MemoryFs};

#[test]
fn an_ordinary_user_mounts_through_the_helper() {
    let Some(directory) = places() else { return };
    let _open = OpenDevice::new();
    let mnt = directory.path().join("mnt");
    chown(&mnt, Some(NOBODY), Some(NOBODY)).unwrap();
    let volume = directory.path().join("volume, with a comma");
    std::fs::create_dir(&volume).unwrap();
    as_user(NOBODY, &[], || {
        let fs = Arc::new(MemoryFs::new());
        let owner = SetAttr { uid: Some(NOBODY), gid: Some(NOBODY), ..SetAttr::default() };
        fs.setattr(&Caller::root(), NodeId::ROOT, &owner).unwrap();
        let mut options = options_at(directory.path(), "threads=2,clone_fd");
        options.volume_dir.clone_from(&volume);
        let mount = mount(fs, &options).unwrap();
        std::fs::write(mnt.join("f"), b"mine").unwrap();
        assert_eq!(std::fs::read(mnt.join("f")).unwrap(), b"mine");
        assert_eq!(std::fs::metadata(mnt.join("f")).unwrap().uid(), NOBODY);
        let info = fuse::find_mount(&mnt.join("f")).unwrap();
        assert_eq!(info.volume_dir, volume.canonicalize().unwrap());
        assert_eq!(mount.unmount().unwrap(), Unmounted::Clean);
        mount.wait().unwrap();
    });
}

#[test]
fn an_ordinary_user_learns_what_is_missing() {
    let Some(directory) = places() else { return };
    let device = OpenDevice::new();
    let mnt = directory.path().join("mnt");
    let refusal = |list: &str| {
        as_user(NOBODY, &[], || {
            let options = options_at(directory.path(), list);
            mount(Arc::new(MemoryFs::new()), &options).map(|_| ()).unwrap_err()
        })
    };
    let error = refusal("");
    assert!(error.to_string().contains("no write access to mountpoint"), "{error}");
    chown(&mnt, Some(NOBODY), Some(NOBODY)).unwrap();
    let configured = std::fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    if !configured.lines().any(|line| line.trim() == "user_allow_other") {
        let error = refusal("allow_other");
        assert!(matches!(error, MountError::AllowOther), "{error}");
    }
    device.close();
    let error = refusal("");
    assert!(matches!(error, MountError::DeviceClosed), "{error}");
}

#[test]
fn a_mount_is_closed_to_others_unless_it_is_opened() {
    let Some(rig) = mounted("noallow_other") else { return };
    rig.write("f", b"");
    let path = rig.path("f");
    let error = as_user(NOBODY, &[], || std::fs::metadata(&path).unwrap_err());
    assert_eq!(error.raw_os_error(), Some(libc::EACCES));
}

#[test]
fn permissions_hold_for_other_users() {
    let Some(rig) = mounted("allow_other,dev") else { return };
    std::fs::set_permissions(rig.path(""), Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(rig.path("closed")).unwrap();
    rig.write("closed/f", b"hidden");
    rig.write("secret", b"secret");
    rig.write("team", b"team");
    chown(rig.path("team"), None, Some(4321)).unwrap();
    let null = rustix::fs::makedev(1, 3);
    let device = FileType::CharacterDevice;
    let nodes = [("fifo", FileType::Fifo), ("socket", FileType::Socket), ("null", device)];
    for (name, kind) in nodes {
        let number = if kind == device { null } else { 0 };
        mknodat(CWD, rig.path(name), kind, Mode::empty(), number).unwrap();
    }
    let closed = [("closed", 0o700), ("secret", 0o600), ("team", 0o640)];
    for (name, mode) in closed.into_iter().chain(nodes.map(|(name, _)| (name, 0o600))) {
        std::fs::set_permissions(rig.path(name), Permissions::from_mode(mode)).unwrap();
    }
    // Names that root has looked up must not be open to others through the kernel's cache.
    assert_eq!(rig.read("closed/f"), b"hidden");
    assert_eq!(rig.read("secret"), b"secret");
    let denied = |groups: &[u32], name: &str| {
        let path = rig.path(name);
        as_user(NOBODY, groups, || std::fs::read(path).err().and_then(|error| error.raw_os_error()))
    };
    for name in ["secret", "closed/f", "team"] {
        assert_eq!(denied(&[], name), Some(libc::EACCES), "{name}");
    }
    let path = rig.path("new");
    let made = as_user(NOBODY, &[], || std::fs::write(&path, b"").unwrap_err());
    assert_eq!(made.raw_os_error(), Some(libc::EACCES));
    assert_eq!(denied(&[4321], "team"), None, "a supplementary group");
    // The kernel opens these without a request.
    let (fifo, socket, null) = (rig.path("fifo"), rig.path("socket"), rig.path("null"));
    assert_eq!(std::fs::read(&null).unwrap(), b"", "root opens the device");
    as_user(NOBODY, &[], || {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        for node in [&fifo, &null] {
            assert_eq!(open(node, flags, Mode::empty()).err(), Some(Errno::ACCESS), "{node:?}");
        }
        let connected = std::os::unix::net::UnixStream::connect(&socket).unwrap_err();
        assert_eq!(connected.raw_os_error(), Some(libc::EACCES));
    });
}

#[test]
fn a_descriptor_keeps_the_rights_of_its_open() {
    let Some(rig) = mounted("allow_other") else { return };
    rig.write("f", b"opened by root");
    std::fs::set_permissions(rig.path("f"), Permissions::from_mode(0o600)).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(rig.path("f")).unwrap();
    as_user(NOBODY, &[], || {
        use std::os::unix::fs::FileExt;
        file.write_all_at(b"OPENED", 0).unwrap();
        file.set_len(6).unwrap();
        let mut bytes = [0; 6];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"OPENED");
    });
}

/// How many requests that take long the next tests send: as many as there are threads, and more.
const REQUESTS: usize = 6;

/// A user sends as many long requests at a time as there are threads: others are answered
/// meanwhile.
fn assert_threads_are_left(rig: &Rig, send: impl Fn(PathBuf) + Send + Sync + Copy) {
    rig.write("other", b"text");
    let held = rig.fs.gate.lock();
    device::scope(|scope| {
        for number in 0..REQUESTS {
            let path = rig.path(&number.to_string());
            scope.spawn(move || as_user(NOBODY, &[], || send(path)));
        }
        // One of the serving threads, and two of those for slow requests.
        rig.eventually("they are at it", |fs| fs.at_gate.load(Ordering::Relaxed) == 3);
        let (sender, receiver) = device::sync::channel();
        let other = rig.path("other");
        scope.spawn(move || sender.send(std::fs::read(other).unwrap()));
        let read = receiver.recv_timeout(PATIENCE);
        let at_gate = rig.fs.at_gate.load(Ordering::Relaxed);
        drop(held);
        assert_eq!((read.as_deref(), at_gate), (Ok(&b"text"[..]), 3));
    });
}

/// One user truncates as many files as there are threads, each of which takes long.
#[test]
fn long_requests_of_one_user_leave_threads_to_others() {
    let Some(rig) = mounted("threads=2,allow_other") else { return };
    for number in 0..REQUESTS {
        let path = rig.path(&number.to_string());
        std::fs::write(&path, b"").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    }
    assert_threads_are_left(&rig, |path| {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_len(LONG).unwrap();
    });
    for number in 0..REQUESTS {
        assert_eq!(std::fs::metadata(rig.path(&number.to_string())).unwrap().len(), LONG);
    }
}

/// A snapshot may wait until others of the directory have what they inherit.
#[test]
fn snapshots_that_one_user_takes_leave_threads_to_others() {
    let Some(rig) = mounted_with_snapshots("threads=2,allow_other") else { return };
    for number in 0..REQUESTS {
        let path = rig.path(&number.to_string());
        std::fs::create_dir(&path).unwrap();
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let snapshot = |path: PathBuf| path.join(".snapshots").join(LONG_SNAPSHOT);
    assert_threads_are_left(&rig, |path| std::fs::create_dir(snapshot(path)).unwrap());
    for number in 0..REQUESTS {
        assert!(snapshot(rig.path(&number.to_string())).is_dir());
    }
}

/// The first look-up or change of something inherited may wait until subvolumes are copied.
#[test]
fn first_uses_of_what_is_inherited_leave_threads_to_others() {
    for writes in [false, true] {
        let Some(rig) = mounted("threads=2,allow_other") else { return };
        let inherits = |path: &PathBuf| {
            let number = std::fs::metadata(path).unwrap().ino();
            rig.fs.inherit.lock().insert(number);
        };
        for number in 0..REQUESTS {
            let path = rig.path(&number.to_string());
            std::fs::create_dir(&path).unwrap();
            let file = path.join("f");
            std::fs::write(&file, b"").unwrap();
            std::fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
            inherits(if writes { &file } else { &path });
        }
        assert_threads_are_left(&rig, |path| {
            if writes {
                let file = std::fs::File::options().write(true).open(path.join("f")).unwrap();
                std::os::unix::fs::FileExt::write_all_at(&file, b"text", 0).unwrap();
            } else {
                assert!(!path.join(INHERITED).exists());
            }
        });
        for number in 0..REQUESTS {
            let written = std::fs::read(rig.path(&number.to_string()).join("f")).unwrap();
            assert_eq!(written, if writes { &b"text"[..] } else { b"" });
        }
    }
}
