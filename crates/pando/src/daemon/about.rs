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
    let step = next_step(&error);
    let failure = Failure::from(error).at(path);
    if step.is_empty() { failure } else { failure.hint(step) }
}

/// What to do about an error; nothing where its text or the path itself contain that. Each error is
/// named, so that it is decided for a new one.
fn next_step(error: &FsError) -> &'static str {
    match error {
        FsError::QuotaExceeded => wire::QUOTA_HINT,
        FsError::NoSpace => "free space on the disk of the volume; what is stored stays readable",
        FsError::Io(failure) if failure.is_damage => "the rest of the volume can be used",
        FsError::Io(_) => "the volume is not at fault: remove the cause, and run it again",
        FsError::Loop => "a symbolic link on the path points to itself: `readlink` shows where to",
        FsError::NameTooLong => "a name has at most 255 bytes",
        FsError::TooManyLinks => "copy the file instead of linking it",
        FsError::FileTooLarge => "store it as several files",
        FsError::Elsewhere => "read the file where it is stored, at the source of the index",
        FsError::Stale => "it was removed meanwhile: list its directory again",
        // The path has to be another one, which its caller names.
        FsError::NotFound
        | FsError::Exists
        | FsError::NotDirectory
        | FsError::IsDirectory
        | FsError::NotEmpty
        // `advise` adds who may.
        | FsError::AccessDenied
        | FsError::NotPermitted(_)
        | FsError::RootOnly(_)
        // Their texts name the next step, or what not to request.
        | FsError::InvalidArgument(_)
        | FsError::CrossSubvolume(_)
        | FsError::ReadOnly(_)
        | FsError::LimitReached(_)
        | FsError::MemoryExceeded(_)
        | FsError::NotSupported(_)
        | FsError::Busy(_)
        // The user did it.
        | FsError::Interrupted
        // No verb asks for what returns these.
        | FsError::NoAttribute
        | FsError::Range
        | FsError::PastEnd => "",
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
