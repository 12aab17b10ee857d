//! What a store may answer instead of a result. Bugs are not here: they assert.

use std::sync::Arc;

use format::Corruption;

/// A store's error. Cheap to clone, so that one failed write can be told to every waiter.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Bytes read are not bytes written. The rest of the store keeps working.
    #[error(transparent)]
    Corrupt(Arc<Corruption>),
    /// The operating system failed a read, or a write whose failure left the store usable.
    #[error(transparent)]
    Device(#[from] device::Error),
    /// There is no room for the commit; nothing was changed. Room may come back.
    #[error("no room left for {0}")]
    NoSpace(&'static str),
    /// A write or sync failed earlier, so that what is on disk is not known. The store
    /// answers reads, and must be opened again before it takes writes.
    #[error("read-only since an earlier failure: {0}")]
    ReadOnly(Arc<str>),
    /// The volume is of a newer format than this program knows.
    #[error(
        "{file}: format version {found} is newer than {known}, the newest that this program knows"
    )]
    NewerFormat {
        /// The file that said so.
        file: String,
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// A file of the volume is missing.
    #[error("{file} is missing")]
    Missing {
        /// The file.
        file: String,
    },
    /// A tree that does not exist was named.
    #[error("there is no tree {}", .0.0)]
    NoTree(crate::TreeId),
    /// The keys of a run do not ascend, or one comes twice.
    #[error("a run's keys do not ascend: {0:02x?} is not above the one before it")]
    Unsorted(Vec<u8>),
    /// A run was to be put where there are keys.
    #[error("tree {} has a key in the range of the run: {key:02x?}", tree.0)]
    RangeNotEmpty {
        /// The tree.
        tree: crate::TreeId,
        /// The first such key.
        key: Vec<u8>,
    },
    /// The places of a run's leaves do not fit one log record, or its index is longer than can be
    /// said of it.
    #[error("the run is too long to be ingested as one: give it in parts")]
    RunTooLong,
    /// Two pinned states were to be compared that are not of one store.
    #[error("the two pinned states are of different stores")]
    ForeignPin,
    /// A tree that exists was to be created.
    #[error("tree {} exists", .0.0)]
    TreeExists(crate::TreeId),
}

/// What the structure is called in damage that stands for a read which the disk failed.
pub const UNREAD: &str = "medium";

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl From<Corruption> for Error {
    fn from(corruption: Corruption) -> Error {
        Error::Corrupt(Arc::new(corruption))
    }
}

impl Error {
    /// The same, but for a read that the disk failed the damage that it comes to: for who looks
    /// for all that cannot be read, and concludes nothing from it. Who removes anything, or makes
    /// it again, must give up on such a read, for it may succeed the next time.
    #[must_use]
    pub fn as_damage(self) -> Error {
        match self {
            Error::Device(error) if error.is_unread() => Corruption {
                file: error.path,
                offset: error.offset.unwrap_or(0),
                structure: UNREAD,
                expected: "what was written".to_owned(),
                found: error.message,
            }
            .into(),
            error => error,
        }
    }

    /// Whether room on disk is what lacks.
    pub fn is_no_space(&self) -> bool {
        match self {
            Error::NoSpace(_) => true,
            Error::Device(error) => error.is_no_space(),
            _ => false,
        }
    }
}
