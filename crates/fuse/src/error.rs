//! Why a mount or unmount failed, each with what to do about it.

use std::io;
use std::path::PathBuf;

use inode::FsError;

use crate::options::OptionError;

/// Why a mount or unmount failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The list of options could not be parsed.
    #[error(transparent)]
    Options(#[from] OptionError),
    /// The kernel offers no FUSE.
    #[error(
        "/dev/fuse does not exist: load the module with `modprobe fuse`; in a container, start it \
         with `--device /dev/fuse --cap-add SYS_ADMIN`"
    )]
    NoFuse,
    /// Not root, and the helper that mounts for others is not installed.
    #[error(
        "only root mounts without the program fusermount3, which was not found: install the \
         package fuse3 (`apt install fuse3`), or mount as root"
    )]
    NoHelper,
    /// This process may not mount, not even with the helper.
    #[error(
        "mounting is not permitted here ({0}); in a container, start it with `--device /dev/fuse \
         --cap-add SYS_ADMIN`"
    )]
    NotPermitted(String),
    /// Ordinary users may not open the device, which their mounts need.
    #[error(
        "/dev/fuse can be opened by root only: as root, `chmod 666 /dev/fuse` (what distributions \
         set), or mount as root"
    )]
    DeviceClosed,
    /// An ordinary user requested `allow_other`, which the machine does not allow.
    #[error(
        "allow_other is not permitted to ordinary users: add the line `user_allow_other` to \
         /etc/fuse.conf, mount as root, or leave the option out"
    )]
    AllowOther,
    /// No such directory.
    #[error("the mount point {place} does not exist: create it with `mkdir -p {place}`",
        place = .0.display())]
    Missing(PathBuf),
    /// The mount point is a file.
    #[error("the mount point {} is not a directory", .0.display())]
    NotDirectory(PathBuf),
    /// The volume is mounted there already.
    #[error("{} is mounted on {} already", volume.display(), mount_point.display())]
    AlreadyMounted {
        /// The volume.
        volume: PathBuf,
        /// Where.
        mount_point: PathBuf,
    },
    /// Something else is mounted there.
    #[error(
        "{} is in use: {source_name} (type {kind}) is mounted there; unmount it with \
         `umount {}` or choose another mount point",
        mount_point.display(), mount_point.display()
    )]
    InUse {
        /// Where.
        mount_point: PathBuf,
        /// What is mounted, as `mount` shows it.
        source_name: String,
        /// Its type.
        kind: String,
    },
    /// A process has files open in it, or works in it.
    #[error("{} is in use", .0.display())]
    Busy(PathBuf),
    /// The mount there has no server any more, and is not ours to remove.
    #[error(
        "{} is a dead mount (its server is gone): unmount it with `fusermount3 -uz {}`, or as \
         root with `umount -l {}`",
        .0.display(), .0.display(), .0.display()
    )]
    Dead(PathBuf),
    /// The volume's own files are below the mount point and would be hidden by the mount.
    #[error(
        "the volume {} is below the mount point {}: mounting there would hide its own files",
        volume.display(), mount_point.display()
    )]
    HidesVolume {
        /// The volume.
        volume: PathBuf,
        /// Where.
        mount_point: PathBuf,
    },
    /// The mount point is among the volume's own files.
    #[error(
        "the mount point {} is inside the volume {}: mount somewhere else",
        mount_point.display(), volume.display()
    )]
    InsideVolume {
        /// The volume.
        volume: PathBuf,
        /// Where.
        mount_point: PathBuf,
    },
    /// `subdir=` does not point to a directory.
    #[error("cannot mount subdir={}: {error}", subdir.display())]
    Subdir {
        /// The requested directory.
        subdir: PathBuf,
        /// Why not.
        error: FsError,
    },
    /// The helper refused; its own message.
    #[error("fusermount3: {0}")]
    Helper(String),
    /// Nothing of ours is mounted there.
    #[error("{} is not a mount point of a volume", .0.display())]
    NotMounted(PathBuf),
    /// The file system can be mounted again with the options of its first mount only.
    #[error("its daemon can mount it again only with the same options, and '{option}' differs")]
    Differs {
        /// The first option that differs.
        option: &'static str,
    },
    /// The kernel does not mount the file system again.
    #[error("its daemon cannot mount it again: {0}")]
    NotAgain(String),
    /// The file system ends: its last user has left.
    #[error("its daemon is ending")]
    Ended,
    /// A call to the operating system failed.
    #[error("{doing}: {error}")]
    System {
        /// What was tried.
        doing: String,
        /// Why it failed.
        error: io::Error,
    },
}

impl MountError {
    pub(crate) fn system(doing: impl Into<String>, error: impl Into<io::Error>) -> MountError {
        MountError::System { doing: doing.into(), error: error.into() }
    }
}
