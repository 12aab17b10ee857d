//! Why a request failed: a kind for programs (it determines the exit code), a message for people.

use inode::FsError;
use serde::{Deserialize, Serialize};

use crate::Bytes;

/// Advice for an exhausted quota.
pub const QUOTA_HINT: &str = "`pando quota get PATH` shows the limits and what is charged to them; \
                              remove something, or have root set more";

/// Advice where the daemon and a command do not understand each other.
const PROTOCOL_HINT: &str = "the daemon may be of another version: end it with `pando umount \
                             VOLUME`, and run the command again";

/// Kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// No object of that name exists.
    NotFound,
    /// An object of that name exists.
    Exists,
    /// A directory is required.
    NotDirectory,
    /// The path must not be a directory.
    IsDirectory,
    /// The directory has entries.
    NotEmpty,
    /// The caller lacks permission.
    Permission,
    /// The request is invalid.
    Invalid,
    /// A snapshot, a read-only mount, or a store after a failed write.
    ReadOnly,
    /// No space.
    NoSpace,
    /// In use.
    Busy,
    /// Not supported here.
    NotSupported,
    /// Damaged data, or a failed read.
    Damaged,
    /// The caller cancelled.
    Interrupted,
    /// The directory is not a volume.
    NotVolume,
    /// The volume has a newer format.
    NewerFormat,
    /// The two sides use incompatible messages.
    Protocol,
    /// The daemon is exiting and executed nothing of the request: send it to its successor.
    Leaving,
    /// Anything else.
    Other,
}

impl FailureKind {
    /// The word for reports.
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::NotFound => "not-found",
            FailureKind::Exists => "exists",
            FailureKind::NotDirectory => "not-a-directory",
            FailureKind::IsDirectory => "is-a-directory",
            FailureKind::NotEmpty => "not-empty",
            FailureKind::Permission => "permission-denied",
            FailureKind::Invalid => "invalid",
            FailureKind::ReadOnly => "read-only",
            FailureKind::NoSpace => "no-space",
            FailureKind::Busy => "busy",
            FailureKind::NotSupported => "not-supported",
            FailureKind::Damaged => "damaged",
            FailureKind::Interrupted => "interrupted",
            FailureKind::NotVolume => "not-a-volume",
            FailureKind::NewerFormat => "newer-format",
            FailureKind::Protocol => "protocol",
            FailureKind::Leaving => "leaving",
            FailureKind::Other => "failed",
        }
    }
}

/// A message in the operating system's words, without the number that Rust's standard library
/// appends. The number, as in `No such file or directory (os error 2)`, does not help users.
pub fn os_words(text: String) -> String {
    const BEFORE: &str = " (os error ";
    if !text.contains(BEFORE) {
        return text;
    }
    let mut words = String::with_capacity(text.len());
    let mut rest = &text[..];
    while let Some((head, tail)) = rest.split_once(BEFORE) {
        words.push_str(head);
        let digits = tail.trim_start_matches(|letter: char| letter.is_ascii_digit());
        rest = match digits.strip_prefix(')') {
            Some(after) if digits.len() < tail.len() => after,
            _ => {
                words.push_str(BEFORE);
                tail
            }
        };
    }
    words + rest
}

/// A failed request. Nothing was changed, unless the message names what was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// The path or name concerned; empty if there is none.
    pub path: Bytes,
    /// What went wrong.
    pub message: String,
    /// What the user can do next; empty when nothing is known.
    pub hint: String,
}

impl Failure {
    /// A failure that concerns no path.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Failure {
        let message = os_words(message.into());
        // Always the same: the two sides do not understand each other.
        let hint = if kind == FailureKind::Protocol { PROTOCOL_HINT } else { "" };
        Failure { kind, path: Bytes::default(), message, hint: hint.to_owned() }
    }

    /// Sets the path.
    #[must_use]
    pub fn at(mut self, path: &[u8]) -> Failure {
        self.path = path.into();
        self
    }

    /// Sets the hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = hint.into();
        self
    }
}

impl From<&FsError> for FailureKind {
    fn from(error: &FsError) -> FailureKind {
        match error {
            // A path through a loop of links names nothing.
            FsError::NotFound | FsError::Loop | FsError::Stale | FsError::NoAttribute => {
                FailureKind::NotFound
            }
            FsError::Exists => FailureKind::Exists,
            FsError::NotDirectory => FailureKind::NotDirectory,
            FsError::IsDirectory => FailureKind::IsDirectory,
            FsError::NotEmpty => FailureKind::NotEmpty,
            FsError::AccessDenied | FsError::NotPermitted(_) | FsError::RootOnly(_) => {
                FailureKind::Permission
            }
            FsError::InvalidArgument(_)
            | FsError::NameTooLong
            | FsError::FileTooLarge
            | FsError::TooManyLinks
            | FsError::LimitReached(_)
            | FsError::MemoryExceeded(_)
            | FsError::PastEnd
            | FsError::Range => FailureKind::Invalid,
            FsError::CrossSubvolume(_) | FsError::NotSupported(_) | FsError::Elsewhere => {
                FailureKind::NotSupported
            }
            FsError::ReadOnly(_) => FailureKind::ReadOnly,
            FsError::NoSpace | FsError::QuotaExceeded => FailureKind::NoSpace,
            FsError::Busy(_) => FailureKind::Busy,
            FsError::Interrupted => FailureKind::Interrupted,
            FsError::Io(failure) if failure.is_damage => FailureKind::Damaged,
            FsError::Io(_) => FailureKind::Other,
        }
    }
}

impl From<FsError> for Failure {
    fn from(error: FsError) -> Failure {
        let failure = Failure::new(FailureKind::from(&error), error.to_string());
        if matches!(error, FsError::RootOnly(_)) { failure.hint("run it as root") } else { failure }
    }
}
