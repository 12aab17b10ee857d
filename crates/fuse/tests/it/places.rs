//! Where a mount may be, what it looks like, and how it ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use device::{Clock, SystemClock};
use fs::FileSystem;
use fuse::{InUse, MountError, Unmounted, find_mount, mount, mounts_of};
use inode::{Caller, NodeId};

use crate::rig::{mounted, options_at, places};
use testing::memory_fs::MemoryFs;

fn refused(directory: &Path, list: &str) -> MountError {
    match mount(Arc::new(MemoryFs::new()), &options_at(directory, list)) {
        Ok(_) => panic!("it was mounted"),
        Err(error) => error,
    }
}

fn line_of_mount(mount_point: &Path) -> String {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let wanted = format!(" {} ", mount_point.display());
    table.lines().rfind(|line| line.contains(&wanted)).unwrap_or_default().to_owned()
}

#[test]
fn mount_shows_the_volume_and_its_options() {
    let Some(directory) = places() else { return };
    let options = options_at(directory.path(), "ro,noexec,allow_other");
    let mount = mount(Arc::new(MemoryFs::new()), &options).unwrap();
    let line = line_of_mount(&mount.mount_point());
    let start = format!("{} ", directory.path().join("volume").display());
    assert!(line.starts_with(&start) && line.contains(" fuse.pando ro,"), "{line}");
    assert!(line.contains("noexec") && line.contains("allow_other"), "{line}");
    assert!(line.contains("default_permissions") && line.contains("nosuid"), "{line}");
    let error = std::fs::write(mount.mount_point().join("f"), b"").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
}

#[test]
fn a_path_is_found_in_its_volume() {
    let Some(directory) = places() else { return };
    let fs = Arc::new(MemoryFs::new());
    let home = fs.mkdir(&Caller::root(), NodeId::ROOT, b"home", 0o755).unwrap();
    fs.mkdir(&Caller::root(), home.node, b"alice", 0o755).unwrap();
    let options = options_at(directory.path(), "subdir=home/alice");
    let mount = mount(fs.clone(), &options).unwrap();
    std::fs::create_dir(mount.mount_point().join("docs")).unwrap();
    let below = fs.lookup(&Caller::root(), home.node, b"alice").unwrap();
    fs.lookup(&Caller::root(), below.node, b"docs").unwrap();

    let volume = directory.path().join("volume").canonicalize().unwrap();
    let info = find_mount(&directory.path().join("mnt/docs/new")).unwrap();
    assert_eq!(info.volume_dir, volume);
    assert_eq!(info.inner_path, Path::new("/home/alice/docs/new"));
    assert_eq!(info.subdir, Some(PathBuf::from("home/alice")));
    assert_eq!(find_mount(directory.path()), None);
    let mounts = mounts_of(&volume);
    assert_eq!((mounts.len(), &mounts[0].mount_point), (1, &info.mount_point));
    assert_eq!(mounts[0].inner_path, Path::new("/home/alice"));
}

#[test]
fn a_subdir_that_is_no_directory_is_refused() {
    let Some(directory) = places() else { return };
    let error = refused(directory.path(), "subdir=nowhere");
    assert!(error.to_string().contains("nowhere: no such file"), "{error}");
    assert_eq!(line_of_mount(&directory.path().join("mnt")), "");
}

#[test]
fn bad_places_are_refused_with_advice() {
    let Some(directory) = places() else { return };
    let mnt = directory.path().join("mnt");
    std::fs::remove_dir(&mnt).unwrap();
    let error = refused(directory.path(), "");
    assert!(error.to_string().contains("mkdir -p"), "{error}");
    std::fs::write(&mnt, b"").unwrap();
    assert!(matches!(refused(directory.path(), ""), MountError::NotDirectory(_)));
    std::fs::remove_file(&mnt).unwrap();
    let mut options = options_at(directory.path(), "");
    options.mount_point = directory.path().to_owned();
    let error = mount(Arc::new(MemoryFs::new()), &options).map(|_| ()).unwrap_err();
    assert!(matches!(error, MountError::HidesVolume { .. }), "{error}");
}

#[test]
fn a_directory_is_mounted_on_once() {
    let Some(rig) = mounted("") else { return };
    let directory = rig.path("").parent().unwrap().to_owned();
    let error = refused(&directory, "");
    assert!(matches!(error, MountError::AlreadyMounted { .. }), "{error}");
    let mut options = options_at(&directory, "");
    options.volume_dir = directory.join("another");
    let error = mount(Arc::new(MemoryFs::new()), &options).map(|_| ()).unwrap_err();
    assert!(matches!(error, MountError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("fuse.pando"), "{error}");
}

#[test]
fn an_unmount_ends_the_threads() {
    let Some(rig) = mounted("threads=3") else { return };
    rig.write("f", b"x");
    assert!(rig.mount.wait_for(Duration::ZERO).is_none());
    assert_eq!(rig.mount.unmount().unwrap(), Unmounted::Clean);
    rig.mount.wait().unwrap();
    assert_eq!(line_of_mount(&rig.mount.mount_point()), "");
    assert_eq!(rig.mount.unmount().unwrap(), Unmounted::Clean, "once more does no harm");
    assert!(rig.mount.settle(Duration::from_secs(1)), "nothing is left to settle");
}

#[test]
fn another_user_may_unmount() {
    let Some(rig) = mounted("") else { return };
    let mount_point = rig.mount.mount_point();
    assert!(std::process::Command::new("umount").arg(&*mount_point).status().unwrap().success());
    rig.mount.wait().unwrap();
    let error = fuse::unmount(&mount_point, InUse::Stays).unwrap_err();
    assert!(matches!(error, MountError::NotMounted(_)), "{error}");
}

#[test]
fn a_mount_in_use_is_detached_and_ends_with_its_last_user() {
    let Some(rig) = mounted("") else { return };
    rig.write("f", b"in use");
    let file = std::fs::File::open(rig.path("f")).unwrap();
    let error = fuse::unmount(&rig.mount.mount_point(), InUse::Stays).unwrap_err();
    assert!(matches!(error, MountError::Busy(_)), "{error}");
    assert!(rig.path("f").exists(), "it stays");
    let users = fuse::users_of(&rig.mount.mount_point(), 10);
    assert!(users.iter().any(|&(pid, _)| pid == std::process::id()), "{users:?}");
    assert_eq!(rig.mount.unmount().unwrap(), Unmounted::Lazy);
    assert!(!rig.path("f").exists(), "it is out of sight");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut &file, &mut text).unwrap();
    assert_eq!(text, "in use");
    assert!(rig.mount.wait_for(Duration::from_millis(50)).is_none());
    drop(file);
    rig.mount.wait().unwrap();
}

/// Like a process that was just forked, and has the files of its parent open.
#[test]
fn a_mount_that_is_in_use_for_a_moment_is_unmounted() {
    let Some(rig) = mounted("") else { return };
    rig.write("f", b"in use");
    let file = std::fs::File::open(rig.path("f")).unwrap();
    let begun = device::sync::Barrier::new(2);
    device::scope(|scope| {
        scope.spawn(|| {
            let file = file;
            begun.wait();
            SystemClock::new().sleep(Duration::from_millis(20));
            drop(file);
        });
        begun.wait();
        assert_eq!(rig.mount.unmount().unwrap(), Unmounted::Clean);
    });
    rig.mount.wait().unwrap();
}

#[test]
fn a_dead_mount_of_the_same_volume_is_unmounted() {
    let Some(directory) = places() else { return };
    // A killed server leaves a mount whose channel is closed.
    leave_dead(directory.path());
    let mnt = directory.path().join("mnt");
    let error = std::fs::metadata(&mnt).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
    let found = find_mount(&mnt.join("inside")).expect("a dead mount is still ours");
    assert_eq!(found.inner_path, Path::new("/inside"));

    let mut other = options_at(directory.path(), "");
    other.volume_dir = directory.path().join("another");
    let error = mount(Arc::new(MemoryFs::new()), &other).map(|_| ()).unwrap_err();
    assert!(matches!(error, MountError::Dead(_)), "{error}");
    assert!(error.to_string().contains("umount -l"), "{error}");

    let options = options_at(directory.path(), "");
    let mount = mount(Arc::new(MemoryFs::new()), &options).unwrap();
    std::fs::write(mnt.join("f"), b"alive").unwrap();
    drop(mount);
    assert_eq!(line_of_mount(&mnt), "", "nothing is left below");
    leave_dead(directory.path());
    assert_eq!(fuse::unmount(&mnt, InUse::Stays).unwrap(), Unmounted::Clean);
}

fn leave_dead(directory: &Path) {
    use std::os::fd::AsRawFd;
    let device = std::fs::File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let data = std::ffi::CString::new(data).unwrap();
    let (volume, mnt) = (directory.join("volume"), directory.join("mnt"));
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount(&volume, &mnt, "fuse.pando", flags, Some(&*data)).unwrap();
}
