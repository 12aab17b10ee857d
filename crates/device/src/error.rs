//! Errors of the environment: failed calls to the operating system.

use std::io;

/// A failed operation, its path, and the operating system's reason.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{operation} {path}: {message}")]
pub struct Error {
    /// The operation, as a verb: `write`, `sync`, `open`.
    pub operation: &'static str,
    /// The path below the volume directory.
    pub path: String,
    /// Offset in the file, in bytes, if known.
    pub offset: Option<u64>,
    /// The kind, for decisions (`NotFound`, `StorageFull`, `AlreadyExists`).
    pub kind: io::ErrorKind,
    /// The operating system's error number, when it gave one.
    pub os: Option<i32>,
    /// The operating system's message.
    pub message: String,
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Wraps an `io::Error` with what was being done.
    #[expect(clippy::needless_pass_by_value, reason = "used as a map_err function")]
    pub fn new(operation: &'static str, path: &str, error: io::Error) -> Error {
        Error {
            operation,
            path: path.to_owned(),
            offset: None,
            kind: error.kind(),
            os: error.raw_os_error(),
            message: error.to_string(),
        }
    }

    /// Adds the offset in the file.
    #[must_use]
    pub fn at(self, offset: u64) -> Error {
        Error { offset: Some(offset), ..self }
    }

    /// Whether the disk, or its file system, does not return the stored bytes: a retry does not
    /// help, but other data may still be readable. A shortage or missing permission of the process
    /// does not count.
    pub fn is_unread(&self) -> bool {
        let broken =
            [libc::EIO, libc::EBADMSG, libc::EILSEQ, libc::ENODATA, libc::EREMOTEIO, libc::EUCLEAN];
        self.os.is_some_and(|os| broken.contains(&os))
    }

    /// Whether the disk is full (or over quota).
    pub fn is_no_space(&self) -> bool {
        matches!(self.kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Whether the process is short of memory or descriptors, or should retry: the request itself
    /// is valid.
    pub fn is_shortage(&self) -> bool {
        let short = [libc::ENOMEM, libc::EMFILE, libc::ENFILE, libc::EINTR, libc::EAGAIN];
        self.os.is_some_and(|os| short.contains(&os))
    }

    /// Whether nobody waits for the answer any more ([`crate::interruptible()`]).
    pub fn is_interrupted(&self) -> bool {
        self.kind == io::ErrorKind::Interrupted
    }

    /// Whether the operation was one on this path.
    pub fn is_of(&self, path: &str) -> bool {
        self.path == path
    }

    /// Whether nothing is at the path.
    pub fn is_not_found(&self) -> bool {
        self.kind == io::ErrorKind::NotFound
    }
}
