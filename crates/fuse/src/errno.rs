//! Converts errors of the namespace to numbers of the kernel: the only place where they meet.

use inode::FsError;

/// An error number, positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    pub(crate) const INVALID: Errno = Errno(libc::EINVAL);
    pub(crate) const NOT_FOUND: Errno = Errno(libc::ENOENT);
    pub(crate) const RANGE: Errno = Errno(libc::ERANGE);
    pub(crate) const STALE: Errno = Errno(libc::ESTALE);
    pub(crate) const NO_DATA_THERE: Errno = Errno(libc::ENXIO);
    pub(crate) const NOT_SUPPORTED: Errno = Errno(libc::EOPNOTSUPP);
    pub(crate) const TOO_BIG: Errno = Errno(libc::E2BIG);
}

/// The number for an error.
pub(crate) fn number(error: &FsError) -> Errno {
    Errno(match error {
        FsError::NotFound => libc::ENOENT,
        FsError::Exists => libc::EEXIST,
        FsError::NotDirectory => libc::ENOTDIR,
        FsError::IsDirectory => libc::EISDIR,
        FsError::NotEmpty => libc::ENOTEMPTY,
        FsError::AccessDenied => libc::EACCES,
        FsError::NotPermitted(_) | FsError::RootOnly(_) => libc::EPERM,
        FsError::InvalidArgument(_) => libc::EINVAL,
        FsError::NameTooLong => libc::ENAMETOOLONG,
        FsError::CrossSubvolume(_) => libc::EXDEV,
        FsError::TooManyLinks => libc::EMLINK,
        FsError::Loop => libc::ELOOP,
        FsError::ReadOnly(_) => libc::EROFS,
        FsError::FileTooLarge => libc::EFBIG,
        FsError::NoSpace | FsError::LimitReached(_) | FsError::MemoryExceeded(_) => libc::ENOSPC,
        FsError::QuotaExceeded => libc::EDQUOT,
        FsError::Range => libc::ERANGE,
        FsError::NoAttribute | FsError::Elsewhere => libc::ENODATA,
        FsError::NotSupported(_) => libc::EOPNOTSUPP,
        FsError::Busy(_) => libc::EBUSY,
        FsError::PastEnd => libc::ENXIO,
        FsError::Stale => libc::ESTALE,
        FsError::Interrupted => libc::EINTR,
        FsError::Io(_) => libc::EIO,
    })
}

/// The number for an error of an operation. The kernel's caller sees only the number, so details go
/// to the log: which file of the volume is damaged where, what latched the store.
pub(crate) fn report(operation: &'static str, node: u64, error: &FsError) -> Errno {
    match error {
        FsError::Io(_) => tracing::error!(operation, node, %error, "answered with EIO"),
        FsError::NoSpace | FsError::LimitReached(_) | FsError::MemoryExceeded(_) => {
            tracing::warn!(operation, node, %error, "answered with ENOSPC");
        }
        _ => tracing::trace!(operation, node, %error, "refused"),
    }
    number(error)
}
