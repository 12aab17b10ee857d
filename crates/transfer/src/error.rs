//! Why a stream was not sent or not applied.

use format::Malformed;
use inode::FsError;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a stream was not sent or not applied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An inode could not be read or changed.
    #[error("{error}")]
    At {
        /// Its path, relative to what is sent.
        path: Vec<u8>,
        /// The reason.
        error: FsError,
    },
    /// A call of the volume failed that is about no path.
    #[error("{0}")]
    Fs(#[from] FsError),
    /// The stream is damaged, or is of another kind or version.
    #[error("the stream is damaged: {0}")]
    Malformed(#[from] Malformed),
    /// The stream is whole and cannot be applied, or a snapshot cannot be sent.
    #[error("{what}")]
    Refused {
        /// What is refused, and why.
        what: String,
        /// What to do.
        hint: &'static str,
    },
    /// The stream ended before its last record.
    #[error("the stream ends before its last record")]
    Cut,
    /// More memory is needed than the caller allows.
    #[error("{what} take more than {limit} bytes of memory")]
    Memory {
        /// What takes it.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// Nobody reads the stream any more, or the caller ended it.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// A refusal.
    pub(crate) fn refused(what: impl Into<String>, hint: &'static str) -> Error {
        Error::Refused { what: what.into(), hint }
    }
}

/// Adds the path to a failure of the volume.
pub(crate) trait At<T> {
    /// Adds the path.
    fn at(self, path: &[u8]) -> Result<T>;
}

impl<T> At<T> for std::result::Result<T, FsError> {
    fn at(self, path: &[u8]) -> Result<T> {
        self.map_err(|error| match error {
            FsError::Interrupted => Error::Interrupted,
            error => Error::At { path: path.to_vec(), error },
        })
    }
}
