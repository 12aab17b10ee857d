//! Results of requests, and errors about a path.

use inode::FsError;
use wire::{Failure, FailureKind};

/// The result of a request.
pub(super) type Answered<T> = Result<T, Failure>;

/// An error about a path.
pub(super) fn about(error: FsError, path: &[u8]) -> Failure {
    let of_quota = matches!(error, FsError::QuotaExceeded);
    let failure = Failure::from(error).at(path);
    match failure.kind {
        FailureKind::NoSpace if of_quota => failure.hint(wire::QUOTA_HINT),
        FailureKind::NoSpace => {
            failure.hint("free space on the disk of the volume; what is stored stays readable")
        }
        FailureKind::Damaged => failure.hint("the rest of the volume can be used"),
        _ => failure,
    }
}
