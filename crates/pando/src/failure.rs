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
        MountError::Subdir { error, .. } => FailureKind::from(error),
        MountError::System { error, .. } => io_kind(error),
        _ => FailureKind::Other,
    };
    Failure::new(kind, error.to_string())
}
