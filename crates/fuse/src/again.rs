//! Mounts a connection again, after its mount point is gone, and while open files or another mount
//! namespace keep the file system. Linux (5.15 and later) then shows the same file system: both
//! places have the same files, caches and locks, and one daemon serves them.
//!
//! The file system keeps the options of its first mount. Linux keeps `suid`, `dev` and `exec` for
//! each place by itself, so those may differ. So may the flags that a remount changed meanwhile:
//! they are compared before anybody sees the new mount.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount,
};

use crate::options::{Atime, MountOptions};
use crate::{MountError, attach};

/// The file system, without a subtype: that is the first mount's.
const TYPE: &str = "fuse";

/// Mounts the file system of a channel at a resolved mount point.
pub(crate) fn attach(
    channel: &OwnedFd,
    mount_point: &Path,
    options: &MountOptions,
) -> Result<(), MountError> {
    let mount = detached(channel, options)?;
    let shown = rustix::fs::fstatvfs(&mount).map_err(refused)?.f_flag;
    let differs = [
        ("ro", StatVfsMountFlags::RDONLY, options.read_only),
        ("sync", StatVfsMountFlags::SYNCHRONOUS, options.sync),
    ];
    if let Some((option, ..)) = differs.into_iter().find(|it| shown.contains(it.1) != it.2) {
        return Err(MountError::Differs { option });
    }
    move_mount(mount.as_fd(), "", CWD, mount_point, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(|error| match error {
            Errno::PERM => MountError::NotAgain(error.to_string()),
            error => MountError::system(format!("mounting on {}", mount_point.display()), error),
        })
}

/// A mount that is at no place yet. It goes with its descriptor.
fn detached(channel: &OwnedFd, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let context = fsopen(TYPE, FsOpenFlags::FSOPEN_CLOEXEC).map_err(refused)?;
    let context = context.as_fd();
    fsconfig_set_string(context, "source", attach::name(options)).map_err(refused)?;
    fsconfig_set_string(context, "fd", channel.as_raw_fd().to_string()).map_err(refused)?;
    fsconfig_create(context).map_err(refused)?;
    fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, attributes(options)).map_err(refused)
}

/// Flags that the kernel keeps for each place.
fn attributes(options: &MountOptions) -> MountAttrFlags {
    let mut flags = MountAttrFlags::empty();
    flags.set(MountAttrFlags::MOUNT_ATTR_RDONLY, options.read_only);
    flags.set(MountAttrFlags::MOUNT_ATTR_NOSUID, !options.suid);
    flags.set(MountAttrFlags::MOUNT_ATTR_NODEV, !options.dev);
    flags.set(MountAttrFlags::MOUNT_ATTR_NOEXEC, !options.exec);
    flags.set(MountAttrFlags::MOUNT_ATTR_NOATIME, options.atime == Atime::Never);
    flags
}

fn refused(error: Errno) -> MountError {
    match error {
        // Its last user has just left.
        Errno::NOTCONN => MountError::Ended,
        Errno::INVAL | Errno::NOSYS => {
            MountError::NotAgain("Linux 5.15 and later can do that".to_owned())
        }
        error => MountError::NotAgain(error.to_string()),
    }
}
