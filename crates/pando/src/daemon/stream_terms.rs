//! What streams and dumps have in common: how much memory they may take, and what failed.

use inode::Caller;
use transfer::Error;
use wire::{Failure, FailureKind};

use super::about::about;
use super::load::MEMORY_LEAST;

/// Most memory that a user other than root has the daemon use for a stream or a dump.
pub(super) const MEMORY_OF_USERS: u64 = 256 << 20;

/// The memory of a request to which `load::give` gave some.
pub(super) fn given(caller: &Caller, memory: Option<u64>) -> usize {
    bounded(caller, memory.unwrap_or(MEMORY_LEAST))
}

/// The memory that a caller may have used.
pub(super) fn bounded(caller: &Caller, memory: u64) -> usize {
    let memory = if caller.is_root() { memory } else { memory.min(MEMORY_OF_USERS) };
    usize::try_from(memory).unwrap_or(usize::MAX)
}

/// The failure of a stream or a dump of a directory.
pub(super) fn failed(error: Error, path: &[u8]) -> Failure {
    match error {
        Error::At { path: below, error } if below.is_empty() => about(error, path),
        Error::At { path: below, error } => about(error, &[path, b"/", &below[..]].concat()),
        Error::Fs(error) => about(error, path),
        Error::Interrupted => Failure::new(FailureKind::Interrupted, error.to_string()),
        Error::Refused { what, hint } => {
            let failure = Failure::new(FailureKind::Invalid, what).at(path);
            if hint.is_empty() { failure } else { failure.hint(hint) }
        }
        Error::Memory { .. } => {
            Failure::new(FailureKind::Invalid, error.to_string()).at(path).hint(
                "`--memory` allows more (without it, other streams of a user leave less); `send` \
                 without `--from` needs less than an increment",
            )
        }
        Error::Malformed(_) | Error::Cut => {
            let failure = Failure::new(FailureKind::Invalid, error.to_string()).at(path);
            failure.hint("send the snapshot again")
        }
    }
}
