//! Domain errors: what POSIX calls may answer, plus failures from below. They become `errno`
//! only in `fuse`.

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
    /// EACCES: permission bits say no.
    #[error("permission denied")]
    AccessDenied,
    /// EPERM: only the owner or root may.
    #[error("operation not permitted: {0}")]
    NotPermitted(&'static str),
    /// EPERM: only root may, no owner of anything.
    #[error("operation not permitted: {0}")]
    RootOnly(&'static str),
    /// EINVAL.
    #[error("invalid argument: {0}")]
    InvalidArgument(&'static str),
    /// ENAMETOOLONG.
    #[error("file name too long")]
    NameTooLong,
    /// EXDEV: across a subvolume boundary where that cannot be done.
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
    #[error("no space left on the medium")]
    NoSpace,
    /// ENOSPC: a bound of the volume that no room would move, as of numbers that were handed out.
    #[error("a limit of the volume is reached: {0}")]
    LimitReached(&'static str),
    /// EDQUOT: the quota of the directory gives no more.
    #[error("quota exceeded")]
    QuotaExceeded,
    /// ERANGE: an extended attribute does not fit the caller's buffer.
    #[error("result does not fit")]
    Range,
    /// ENODATA: no such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// ENODATA: the file is one of an index, which has no contents.
    #[error("contents are not here: this is an index of another file system")]
    Elsewhere,
    /// EOPNOTSUPP.
    #[error("not supported: {0}")]
    NotSupported(&'static str),
    /// EBUSY.
    #[error("busy: {0}")]
    Busy(&'static str),
    /// ESTALE: the inode is gone.
    #[error("stale handle")]
    Stale,
    /// ENXIO: there is no data, or nothing at all, from that place on.
    #[error("nothing from there to the end of the file")]
    PastEnd,
    /// EINTR: the caller gave up.
    #[error("interrupted")]
    Interrupted,
    /// EIO: damage, or a failed read.
    #[error("{0}")]
    Io(IoFailure),
}

/// What could not be read, and where. The words are for people; code looks at the place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoFailure {
    /// What failed, in words that name the place.
    pub what: String,
    /// The file below the volume directory, and the byte in it; `None` where no file is known.
    pub place: Option<(String, u64)>,
}

impl std::fmt::Display for IoFailure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.what)
    }
}

impl From<String> for IoFailure {
    fn from(what: String) -> IoFailure {
        IoFailure { what, place: None }
    }
}
