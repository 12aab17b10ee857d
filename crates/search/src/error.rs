//! Why a search, or work on the index, did not come to its end.

use format::{Corruption, Malformed};
use store::TreeId;

/// Why a search, or work on the index, did not come to its end.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The operating system failed a call on a file of the index.
    #[error(transparent)]
    Device(#[from] device::Error),
    /// A file of the index is damaged. The index is made again from the store.
    #[error(transparent)]
    Damaged(#[from] Corruption),
    /// A record of the namespace is not what its key says.
    #[error("tree {}: {error}", .tree.0)]
    Malformed {
        /// The tree it is in.
        tree: TreeId,
        /// What is wrong with it.
        error: Malformed,
    },
    /// Records of the namespace contradict one another.
    #[error("tree {}: {what}: inode {ino}", .tree.0)]
    Inconsistent {
        /// The tree they are in.
        tree: TreeId,
        /// What does not agree.
        what: &'static str,
        /// The inode in question.
        ino: u64,
    },
    /// What was to be searched is not there (any more).
    #[error("there is no such directory")]
    NotFound,
    /// The caller may not look there.
    #[error("permission denied")]
    Denied,
    /// Whoever asked wants no more of it.
    #[error("the search was cancelled")]
    Cancelled,
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Whether a file of the index is missing, damaged or not to be read, so that making it again
    /// helps. Nothing is deleted for it.
    pub fn is_of_index(&self) -> bool {
        match self {
            Error::Damaged(_) | Error::Store(store::Error::NewerFormat { .. }) => true,
            Error::Device(error) => !error.is_shortage(),
            _ => false,
        }
    }
}
