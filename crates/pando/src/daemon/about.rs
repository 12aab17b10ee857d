//! Results of requests, and errors about a path.

use inode::FsError;
use wire::{Failure, FailureKind};

/// Who takes snapshots and clones.
pub(super) const WHO_CLONES: &str =
    "only the owner of the directory, or root, takes snapshots and clones";

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

/// Adds who may do it to a permission error, and what to do to an error about a name that exists.
pub(super) fn advise(failure: Failure, who: &str) -> Failure {
    match failure.kind {
        // The failure already names who may do it.
        FailureKind::Permission if !failure.hint.is_empty() => failure,
        FailureKind::Permission => failure.hint(who),
        FailureKind::Exists => failure.hint("choose another name, or remove that one first"),
        _ => failure,
    }
}
