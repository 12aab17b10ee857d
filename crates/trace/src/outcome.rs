//! How results of a file system are recorded.

use format::trace::Ended;
use inode::FsError;
use vfs::FsResult;

/// How a call ended.
pub fn ended_by<T>(result: &FsResult<T>) -> Ended {
    let Err(error) = result else { return Ended::Done };
    match error {
        FsError::NotFound => Ended::NotFound,
        FsError::Exists => Ended::Exists,
        FsError::NotDirectory => Ended::NotDirectory,
        FsError::IsDirectory => Ended::IsDirectory,
        FsError::NotEmpty => Ended::NotEmpty,
        FsError::AccessDenied => Ended::AccessDenied,
        FsError::NotPermitted(_) | FsError::RootOnly(_) => Ended::NotPermitted,
        FsError::InvalidArgument(_) => Ended::InvalidArgument,
        FsError::NameTooLong => Ended::NameTooLong,
        FsError::CrossSubvolume(_) => Ended::CrossDevice,
        FsError::TooManyLinks => Ended::TooManyLinks,
        FsError::Loop => Ended::Loop,
        FsError::ReadOnly(_) => Ended::ReadOnly,
        FsError::FileTooLarge => Ended::FileTooLarge,
        FsError::NoSpace | FsError::LimitReached(_) | FsError::MemoryExceeded(_) => Ended::NoSpace,
        FsError::QuotaExceeded => Ended::QuotaExceeded,
        FsError::Range => Ended::Range,
        FsError::NoAttribute | FsError::Elsewhere => Ended::NoData,
        FsError::NotSupported(_) => Ended::NotSupported,
        FsError::Busy(_) => Ended::Busy,
        FsError::Stale => Ended::Stale,
        FsError::PastEnd => Ended::PastEnd,
        FsError::Interrupted => Ended::Interrupted,
        FsError::Io(_) => Ended::Failed,
    }
}
