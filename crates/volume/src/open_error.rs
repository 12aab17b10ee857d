//! Why a volume was not formatted or not opened.

use format::Corruption;

/// Why a volume was not formatted or not opened. Nothing was changed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OpenError {
    /// There is no `volume.pando` in the directory.
    #[error("not a volume: there is no volume.pando")]
    NotAVolume,
    /// The directory to be formatted is a volume.
    #[error("the directory holds a volume already")]
    Exists,
    /// The directory to be formatted holds something else.
    #[error("the directory is not empty: {0}")]
    NotEmpty(String),
    /// The directory has the objects of a volume, and was named as a volume directory.
    #[error("this directory is an object store with a volume")]
    ObjectsAsDirectory,
    /// The header in the object store is not of a volume in an object store.
    #[error("the object store holds the header of a volume in a directory")]
    NotObjects,
    /// The host directory is of a different volume from the object store.
    #[error("the host directory belongs to volume {expected}, and {url} has volume {found}")]
    AnotherVolume {
        /// The URL of the store.
        url: String,
        /// The volume of the host directory.
        expected: String,
        /// The volume in the store.
        found: String,
    },
    /// A newer program wrote the volume.
    #[error(
        "{file}: format version {found} is newer than {known}, the newest that this program knows"
    )]
    NewerFormat {
        /// The file with the newer version.
        file: String,
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// A file of the volume is missing.
    #[error("{} from the volume", store::missing(file, *record))]
    Missing {
        /// The file; if its name is not known, the directory that should contain it, with a slash.
        file: String,
        /// A record of the log that the file contained, if no more is known of it.
        record: Option<u64>,
    },
    /// Bytes of the volume are damaged.
    #[error(transparent)]
    Damaged(#[from] Corruption),
    /// `volume.pando` is damaged or missing, and its copy is whole: a repair rewrites it.
    #[error("{0}; its copy, volume.copy, is whole")]
    HeaderDamaged(Corruption),
    /// One of two superblocks could not be read, a repair rewrote it, and it still cannot be read.
    /// Nothing else was changed.
    #[error(
        "{file} was rewritten and cannot be read ({why}): the other superblock has the same, \
         so remove this file, or copy the volume without it to another disk, and run \
         `pando fsck --repair` there, which rebuilds the file"
    )]
    Unreadable {
        /// The file.
        file: String,
        /// The error of the disk.
        why: String,
    },
    /// Records of the volume contradict one another, or could not be read.
    #[error("the volume's records are damaged: {0}")]
    Inconsistent(inode::IoFailure),
    /// An option is out of range.
    #[error("invalid option: {0}")]
    InvalidOption(&'static str),
    /// The store could not be made or opened.
    #[error(transparent)]
    Store(store::Error),
    /// The operating system failed a call.
    #[error(transparent)]
    Device(#[from] device::Error),
}

impl OpenError {
    /// The error of the namespace on the volume's records, with the place if that is known. A store
    /// that takes no changes, because another process replaced this one or the disk is full, is no
    /// fault of the records.
    pub fn inconsistent(error: inode::FsError) -> OpenError {
        OpenError::Inconsistent(match error {
            inode::FsError::Io(failure) => failure,
            inode::FsError::ReadOnly(why) => {
                return OpenError::Store(store::Error::ReadOnly(why.into()));
            }
            inode::FsError::NoSpace => return OpenError::Store(store::Error::NoSpace("the store")),
            other => other.to_string().into(),
        })
    }
}

impl From<store::Error> for OpenError {
    fn from(error: store::Error) -> OpenError {
        match error {
            store::Error::Corrupt(corruption) => OpenError::Damaged((*corruption).clone()),
            store::Error::NewerFormat { file, found, known } => {
                OpenError::NewerFormat { file, found, known }
            }
            store::Error::Missing { file, record } => OpenError::Missing { file, record },
            store::Error::Device(error) => OpenError::Device(error),
            other => OpenError::Store(other),
        }
    }
}
