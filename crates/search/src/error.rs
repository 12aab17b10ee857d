//! Errors of a search, or of work on the index.

use format::{Corruption, Malformed};
use store::TreeId;

/// An error of a search, or of work on the index.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The store returned an error.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The operating system failed a call on a file of the index.
    #[error(transparent)]
    Device(#[from] device::Error),
    /// A file of the index is damaged. The index is rebuilt from the store.
    #[error(transparent)]
    Damaged(#[from] Corruption),
    /// A record of the namespace does not match its key.
    #[error("tree {}: {error}", .tree.0)]
    Malformed {
        /// The tree it is in.
        tree: TreeId,
        /// The defect.
        error: Malformed,
    },
    /// Records of the namespace contradict one another.
    #[error("tree {}: {what}: inode {ino}", .tree.0)]
    Inconsistent {
        /// The tree they are in.
        tree: TreeId,
        /// The contradiction.
        what: &'static str,
        /// The inode in question.
        ino: u64,
    },
    /// The directory to search does not exist (any more).
    #[error("there is no such directory")]
    NotFound,
    /// The caller may not search there.
    #[error("permission denied")]
    Denied,
    /// More memory would be needed than one user gets; with what to do.
    #[error("{0}")]
    Limit(&'static str),
    /// The caller cancelled.
    #[error("the search was cancelled")]
    Cancelled,
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Whether a file of the index is missing, damaged or unreadable, so that rebuilding it helps.
    /// Nothing is deleted for it.
    pub fn is_of_index(&self) -> bool {
        match self {
            Error::Damaged(_) | Error::Store(store::Error::NewerFormat { .. }) => true,
            Error::Device(error) => !error.is_shortage(),
            _ => false,
        }
    }
}
