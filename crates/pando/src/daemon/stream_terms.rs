//! What streams and dumps have in common: how much memory they may take, and what failed.

use inode::Caller;
use transfer::Error;
use wire::{Failure, FailureKind};

use super::about::about;
use super::load::Granted;

/// Most memory that a user other than root has the daemon use for a stream or a dump.
pub(super) const MEMORY_OF_USERS: u64 = 256 << 20;

/// The memory that a caller may have used.
pub(super) fn bounded(caller: &Caller, memory: u64) -> usize {
    let memory = if caller.is_root() { memory } else { memory.min(MEMORY_OF_USERS) };
    usize::try_from(memory).unwrap_or(usize::MAX)
}

/// The failure of a stream or a dump that had so much memory. It may succeed later if others took
/// the rest.
pub(super) fn failed_within(error: Error, path: &[u8], given: Granted) -> Failure {
    match error {
        Error::Memory { .. } if given.is_short => short_of_memory(&error.to_string()).at(path),
        error => failed(error, path),
    }
}

/// The failure of a request that was given less memory than it would have alone.
pub(super) fn short_of_memory(what: &str) -> Failure {
    let message = format!("{what}; other requests have the rest of the memory");
    Failure::new(FailureKind::Busy, message).hint(
        "try again when one of them has ended, give them less by --memory, or state by --memory \
         what this one needs: it then waits for it",
    )
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
        Error::Memory { .. } => Failure::new(FailureKind::Invalid, error.to_string())
            .at(path)
            .hint("`--memory` allows more; `send` without `--from` needs less than an increment"),
        Error::Malformed(_) | Error::Cut => {
            let failure = Failure::new(FailureKind::Invalid, error.to_string()).at(path);
            failure.hint("send the snapshot again")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a stream that was given little because of others failed as if it could never
    /// be sent.
    #[test]
    fn a_stream_that_others_leave_too_little_memory_ends_as_busy() {
        for (is_short, kind) in [(true, FailureKind::Busy), (false, FailureKind::Invalid)] {
            let error = Error::Memory { what: "changes", limit: 5 };
            let failure = failed_within(error, b"/d@s", Granted { bytes: 5, is_short });
            assert_eq!((failure.kind, &failure.path.0[..]), (kind, &b"/d@s"[..]));
            assert!(failure.message.starts_with("changes take more than 5 bytes"), "{failure:?}");
        }
        let given = Granted { bytes: 5, is_short: true };
        assert_eq!(failed_within(Error::Cut, b"/d@s", given).kind, FailureKind::Invalid);
    }
}
