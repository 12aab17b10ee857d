//! How results of a file system are recorded.

use format::trace::{Call, Ended};
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
        FsError::NoSpace | FsError::LimitReached(_) => Ended::NoSpace,
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

/// Whether a call changes something, if it succeeds.
pub fn call_is_change(call: Call) -> bool {
    match call {
        Call::Setattr
        | Call::Mknod
        | Call::Mkdir
        | Call::Symlink
        | Call::Link
        | Call::Unlink
        | Call::Rmdir
        | Call::Rename
        | Call::Write
        | Call::Tmpfile
        | Call::Fallocate
        | Call::CopyRange
        | Call::Setxattr
        | Call::Removexattr => true,
        Call::Lookup
        | Call::Getattr
        | Call::Access
        | Call::Readlink
        | Call::Read
        | Call::Seek
        | Call::Fsync
        | Call::Sync
        | Call::Readdir
        | Call::Readdirplus
        | Call::Statfs
        | Call::Getxattr
        | Call::Listxattr
        | Call::Open
        | Call::Release => false,
    }
}
