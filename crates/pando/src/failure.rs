//! Failures that a user understands: those of [`program::failure`], and those of mounts.

use fuse::MountError;
pub(crate) use program::failure::{
    FIRST_A_COPY, Purpose, Result, device, device_for, io, io_kind, open, open_for, source, thread,
};
use wire::{Failure, FailureKind};

/// Why a mount failed.
pub(crate) fn mount(error: &MountError) -> Failure {
    let kind = match error {
        MountError::Options(_) => FailureKind::Invalid,
        MountError::NotPermitted(_) | MountError::AllowOther => FailureKind::Permission,
        MountError::Missing(_) | MountError::NotMounted(_) => FailureKind::NotFound,
        MountError::NotDirectory(_) => FailureKind::NotDirectory,
        MountError::AlreadyMounted { .. } | MountError::InUse { .. } | MountError::Busy(_) => {
            FailureKind::Busy
        }
        MountError::Differs { .. } | MountError::NotAgain(_) => FailureKind::NotSupported,
        MountError::Ended => FailureKind::Leaving,
        MountError::Subdir { error, .. } => FailureKind::from(error),
        MountError::System { error, .. } => io_kind(error),
        _ => FailureKind::Other,
    };
    let failure = Failure::new(kind, error.to_string());
    match error {
        MountError::NotDirectory(_) => failure.hint("name an empty directory"),
        MountError::AlreadyMounted { mount_point, .. } => {
            failure.hint(format!("unmount it first: `pando umount {}`", mount_point.display()))
        }
        MountError::Busy(place) => {
            failure.hint(format!("`fuser -vm {}` lists the processes", place.display()))
        }
        MountError::HidesVolume { .. } => {
            failure.hint("choose a mount point that is not above the volume")
        }
        MountError::Subdir { .. } => failure.hint("name a directory that is in the volume"),
        MountError::NotMounted(_) => failure.hint("`findmnt` lists the mounts of this machine"),
        // The texts of the others contain the next step, or are those of the operating system.
        _ => failure,
    }
}
