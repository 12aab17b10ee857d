//! A file system that open files keep is mounted again.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use fuse::{InUse, MountError, MountOptions, Unmounted, unmount};
use inode::{Caller, NodeId};
use vfs::FileSystem;

use crate::rig::{Rig, mounted, options_at};

/// The options of the mount, for another place in its directory.
fn at(rig: &Rig, place: &str, list: &str) -> MountOptions {
    let directory = rig.path("").parent().unwrap().to_owned();
    let mount_point = directory.join(place);
    fs::create_dir_all(&mount_point).unwrap();
    MountOptions { mount_point, ..options_at(&directory, list) }
}

fn detach(mount_point: &Path) {
    assert_eq!(unmount(mount_point, InUse::Detached).unwrap(), Unmounted::Lazy);
}

fn differs(rig: &Rig, list: &str) -> &'static str {
    match rig.mount.mount_again(&at(rig, "mnt", list)) {
        Err(MountError::Differs { option }) => option,
        other => panic!("{list}: {other:?}"),
    }
}

#[test]
fn what_open_files_keep_is_mounted_again() {
    let Some(rig) = mounted("noatime") else { return };
    rig.write("f", b"kept");
    let file = File::open(rig.path("f")).unwrap();
    let error = rig.mount.mount_again(&at(&rig, "other", "noatime")).unwrap_err();
    assert!(matches!(error, MountError::AlreadyMounted { .. }), "{error}");
    detach(&rig.mount.mount_point());
    assert_eq!(differs(&rig, "noatime,sync"), "sync");
    assert_eq!(differs(&rig, "relatime"), "noatime");
    let mut inside = at(&rig, "mnt", "noatime");
    inside.mount_point = rig.path("").parent().unwrap().join("volume");
    let error = rig.mount.mount_again(&inside).unwrap_err();
    assert!(matches!(error, MountError::HidesVolume { .. }), "{error}");
    // Programs cannot be run at the other place.
    let other = at(&rig, "other", "noatime,noexec");
    rig.mount.mount_again(&other).unwrap();
    let place = rig.mount.mount_point();
    assert_eq!(*place, *other.mount_point.canonicalize().unwrap());
    let shown = fs::metadata(place.join("f")).unwrap();
    let open = file.metadata().unwrap();
    assert_eq!((shown.dev(), shown.ino()), (open.dev(), open.ino()));
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = table.lines().find(|line| line.contains(&format!(" {} ", place.display())));
    assert!(
        line.is_some_and(|line| line.contains("noexec") && line.contains("noatime")),
        "{table}"
    );
    // Its end is that of both.
    drop(file);
    assert!(rig.mount.wait_for(Duration::from_millis(50)).is_none());
    assert_eq!(unmount(&place, InUse::Stays).unwrap(), Unmounted::Clean);
    rig.mount.wait().unwrap();
    let error = rig.mount.mount_again(&other).unwrap_err();
    assert!(matches!(error, MountError::Ended), "{error}");
}

/// A remount changes the file system, and not what its daemon was started with.
#[test]
fn a_file_system_that_was_remounted_differs_from_what_it_was_mounted_with() {
    for (remounted, option) in [("remount,ro", "ro"), ("remount,sync", "sync")] {
        let Some(rig) = mounted("") else { return };
        rig.write("f", b"kept");
        let file = File::open(rig.path("f")).unwrap();
        fuse::remount(&rig.mount.mount_point(), &[remounted.to_owned()]).unwrap();
        detach(&rig.mount.mount_point());
        assert_eq!(differs(&rig, ""), option);
        assert_eq!(differs(&rig, option), option);
        assert!(!rig.path("f").exists(), "nobody saw a mount");
        drop(file);
        rig.mount.wait().unwrap();
    }
}

#[test]
fn a_process_that_ends_a_mount_does_not_mount_it_again() {
    let Some(rig) = mounted("") else { return };
    rig.write("f", b"kept");
    let file = File::open(rig.path("f")).unwrap();
    assert!(rig.mount.shows_as_root(NodeId::ROOT));
    let found = rig.fs.lookup(&Caller::root(), NodeId::ROOT, b"f").unwrap();
    assert!(!rig.mount.shows_as_root(found.node), "{found:?}");
    assert_eq!(rig.mount.unmount().unwrap(), Unmounted::Lazy);
    let error = rig.mount.mount_again(&at(&rig, "mnt", "")).unwrap_err();
    assert!(matches!(error, MountError::Ended), "{error}");
    drop(file);
    rig.mount.wait().unwrap();
}
