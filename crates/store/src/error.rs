//! Errors that a store returns. Bugs are not here: they assert.

use std::sync::Arc;

use format::Corruption;

/// A store's error. Cheap to clone, so that every waiter can get the error of one failed write.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Bytes read are not bytes written. The rest of the store keeps working.
    #[error(transparent)]
    Corrupt(Arc<Corruption>),
    /// The operating system failed a read, or a write whose failure left the store usable.
    #[error(transparent)]
    Device(#[from] device::Error),
    /// There is no space for the commit; nothing was changed. Space may be freed later.
    #[error("no space left for {0}")]
    NoSpace(&'static str),
    /// A write or sync failed earlier, so the on-disk state is not known. The store serves reads,
    /// and must be opened again before it takes writes.
    #[error("read-only since an earlier failure: {0}")]
    ReadOnly(Arc<str>),
    /// Another process has opened the store since, so this one takes no more changes. What it
    /// reported as durable is in the store.
    #[error("this process was replaced: {0}")]
    Replaced(Arc<str>),
    /// The volume has a newer format than this program supports.
    #[error(
        "{file}: format version {found} is newer than {known}, the newest that this program knows"
    )]
    NewerFormat {
        /// The file that has this version.
        file: String,
        /// Its version.
        found: u32,
        /// The version this program supports.
        known: u32,
    },
    /// A file of the volume is missing.
    #[error("{}", missing(file, *record))]
    Missing {
        /// The file; if its name is not known, the directory that should contain it, with a slash.
        file: String,
        /// A record of the log that the file contained, if no more is known of it.
        record: Option<u64>,
    },
    /// A request named a tree that does not exist.
    #[error("there is no tree {}", .0.0)]
    NoTree(crate::TreeId),
    /// The keys of a run do not ascend, or a key is repeated.
    #[error("a run's keys do not ascend: {0:02x?} is not above the one before it")]
    Unsorted(Vec<u8>),
    /// The range of an ingested run is not empty.
    #[error("tree {} has a key in the range of the run: {key:02x?}", tree.0)]
    RangeNotEmpty {
        /// The tree.
        tree: crate::TreeId,
        /// The first such key.
        key: Vec<u8>,
    },
    /// The addresses of a run's leaves do not fit one log record, or its index is longer than its
    /// length field allows.
    #[error("the run is too long to ingest at once: split it")]
    RunTooLong,
    /// A diff was requested of two pinned states of different stores.
    #[error("the two pinned states are of different stores")]
    ForeignPin,
    /// A request would create a tree that exists.
    #[error("tree {} exists", .0.0)]
    TreeExists(crate::TreeId),
}

/// What is missing, in words.
pub fn missing(file: &str, record: Option<u64>) -> String {
    match record {
        Some(record) => format!("{file}: the file with record {record} is missing"),
        None => format!("{file} is missing"),
    }
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl From<Corruption> for Error {
    fn from(corruption: Corruption) -> Error {
        Error::Corrupt(Arc::new(corruption))
    }
}

impl Error {
    /// Converts a failed disk read to damage: for a caller that searches for everything unreadable,
    /// and concludes nothing from it. A caller that removes or rebuilds anything must give up on
    /// such a read, for it may succeed the next time.
    #[must_use]
    pub fn as_damage(self) -> Error {
        match self {
            Error::Device(error) if error.is_unread() => Corruption {
                file: error.path,
                offset: error.offset.unwrap_or(0),
                structure: "device",
                expected: "what was written".to_owned(),
                found: error.message,
                unread: true,
            }
            .into(),
            error => error,
        }
    }

    /// Whether the error is a lack of disk space.
    pub fn is_no_space(&self) -> bool {
        match self {
            Error::NoSpace(_) => true,
            Error::Device(error) => error.is_no_space(),
            _ => false,
        }
    }
}
