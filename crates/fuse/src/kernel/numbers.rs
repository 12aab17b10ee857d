//! Numbers of the protocol, from `include/uapi/linux/fuse.h`.

/// Version that we speak. The minor one names structures, not features: those are flags.
pub(super) const MAJOR: u32 = 7;
pub(super) const MINOR: u32 = 40;
/// Oldest kernel that we speak to (Linux 5.4).
pub(super) const MINOR_MIN: u32 = 31;
/// First minor version of the protocol with the notification that drops all names.
pub(super) const MINOR_WITH_EPOCH: u32 = 44;
/// From this minor version on names can be expired and kept.
pub(super) const MINOR_WITH_EXPIRY: u32 = 38;

/// Bytes of the header of a request and of an answer.
pub(super) const REQUEST_HEADER_BYTES: usize = 40;
pub(super) const REPLY_HEADER_BYTES: usize = 16;

/// Operation codes of requests.
pub(super) mod op {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const GETLK: u32 = 31;
    pub(crate) const SETLK: u32 = 32;
    pub(crate) const SETLKW: u32 = 33;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
}

/// Codes of notifications, which answer no request.
pub(super) mod notify {
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const INVAL_ENTRY: i32 = 3;
    pub(crate) const INC_EPOCH: i32 = 8;
    /// A flag of `INVAL_ENTRY`: the name expires, and nothing is dropped.
    pub(crate) const EXPIRE_ONLY: u32 = 1;
}

/// Features that both sides must have, by their bits in `flags` and `flags2`.
pub(super) mod feature {
    pub(crate) const ASYNC_READ: u64 = 1;
    pub(crate) const POSIX_LOCKS: u64 = 1 << 1;
    pub(crate) const EXPORT_SUPPORT: u64 = 1 << 4;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const FLOCK_LOCKS: u64 = 1 << 10;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const SETXATTR_EXT: u64 = 1 << 29;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const CREATE_SUPP_GROUP: u64 = 1 << 34;
}

/// Bits of `setattr_in.valid`.
pub(super) mod set {
    pub(crate) const MODE: u32 = 1;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const HANDLE: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const CTIME: u32 = 1 << 10;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// Flags of answers to open and create.
pub(super) const OPEN_DIRECT_IO: u32 = 1;
pub(super) const OPEN_KEEP_CACHE: u32 = 1 << 1;
pub(super) const OPEN_CACHE_DIR: u32 = 1 << 3;
pub(super) const OPEN_NO_FLUSH: u32 = 1 << 5;
/// A write comes from the page cache, of a mapping: the kernel does not know which process stored
/// it.
pub(super) const WRITE_CACHE: u32 = 1;
/// A write ends the rights that the file gives to users who execute it.
pub(super) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// The caller that sets an access control list is not in the file's group. That ends the rights
/// that the file gives to users who execute it.
pub(super) const SETXATTR_ACL_KILL_SGID: u32 = 1;
/// `fsync` of contents only.
pub(super) const FSYNC_DATA: u32 = 1;
/// Type of the extension of a request that carries groups.
pub(super) const EXTENSION_GROUPS: u32 = 32;
/// The basic attributes of statx(2), and birth.
pub(super) const STATX_ANSWERED: u32 = 0xfff;
/// A lock is one of flock(2).
pub(super) const LOCK_FLOCK: u32 = 1;
/// A close ends the lock of flock(2).
pub(super) const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
