//! Domain errors: errors of POSIX calls, plus failures of lower layers. Only `fuse` converts them
//! to `errno`.

/// Why an operation was not done. Nothing was changed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FsError {
    /// ENOENT.
    #[error("no such file or directory")]
    NotFound,
    /// EEXIST.
    #[error("file exists")]
    Exists,
    /// ENOTDIR.
    #[error("not a directory")]
    NotDirectory,
    /// EISDIR.
    #[error("is a directory")]
    IsDirectory,
    /// ENOTEMPTY.
    #[error("directory not empty")]
    NotEmpty,
    /// EACCES: permission bits deny it.
    #[error("permission denied")]
    AccessDenied,
    /// EPERM: only the owner or root may.
    #[error("operation not permitted: {0}")]
    NotPermitted(&'static str),
    /// EPERM: only root may, regardless of ownership.
    #[error("operation not permitted: {0}")]
    RootOnly(&'static str),
    /// EINVAL.
    #[error("invalid argument: {0}")]
    InvalidArgument(&'static str),
    /// ENAMETOOLONG.
    #[error("file name too long")]
    NameTooLong,
    /// EXDEV: across a subvolume boundary where that is not possible.
    #[error("across subvolumes: {0}")]
    CrossSubvolume(&'static str),
    /// EMLINK.
    #[error("too many links")]
    TooManyLinks,
    /// ELOOP.
    #[error("too many levels of symbolic links")]
    Loop,
    /// EROFS: a snapshot, or a read-only mount or store.
    #[error("read-only: {0}")]
    ReadOnly(String),
    /// EFBIG.
    #[error("file too large")]
    FileTooLarge,
    /// ENOSPC.
    #[error("no space left on the disk of the volume")]
    NoSpace,
    /// ENOSPC: a limit of the volume that free space does not change, such as exhausted numbers.
    #[error("a limit of the volume is reached: {0}")]
    LimitReached(&'static str),
    /// ENOSPC: a request needs more memory than its caller gave it. It may succeed with more, which
    /// no other limit promises.
    #[error("{0}")]
    MemoryExceeded(&'static str),
    /// EDQUOT: the quota of the directory is exhausted.
    #[error("quota exceeded")]
    QuotaExceeded,
    /// ERANGE: an extended attribute does not fit the caller's buffer.
    #[error("result does not fit")]
    Range,
    /// ENODATA: no such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// ENODATA: the file belongs to an index, which has no contents.
    #[error("no contents: this is an index of another file system")]
    Elsewhere,
    /// EOPNOTSUPP.
    #[error("not supported: {0}")]
    NotSupported(&'static str),
    /// EBUSY.
    #[error("busy: {0}")]
    Busy(&'static str),
    /// ESTALE: the inode was removed.
    #[error("stale handle")]
    Stale,
    /// ENXIO: there is no data, or nothing at all, from that offset on.
    #[error("no data or hole at or after this offset")]
    PastEnd,
    /// EINTR: the caller cancelled.
    #[error("interrupted")]
    Interrupted,
    /// EIO: damage, or a failed read.
    #[error("{0}")]
    Io(IoFailure),
}

/// What could not be read, and where. The text is for people; code uses the place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoFailure {
    /// What failed, in text that names the place.
    pub what: String,
    /// The file below the volume directory, and the byte offset; `None` where no file is known.
    pub place: Option<Box<(String, u64)>>,
    /// Whether something stored is damaged, or was not read. Otherwise the environment failed: a
    /// call to the operating system, or an object store.
    pub is_damage: bool,
}

impl IoFailure {
    /// A failure of the environment, with no place.
    pub fn environment(what: String) -> IoFailure {
        IoFailure { what, place: None, is_damage: false }
    }
}

impl std::fmt::Display for IoFailure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.what)
    }
}

impl From<String> for IoFailure {
    fn from(what: String) -> IoFailure {
        IoFailure { what, place: None, is_damage: true }
    }
}
