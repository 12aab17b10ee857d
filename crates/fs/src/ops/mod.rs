//! The operations, one per file.

pub(crate) mod access;
pub(crate) mod copy_range;
pub(crate) mod fallocate;
pub(crate) mod forget;
pub(crate) mod fsync;
pub(crate) mod getattr;
pub(crate) mod link;
pub(crate) mod lookup;
pub(crate) mod mkdir;
pub(crate) mod mknod;
pub(crate) mod moving;
pub(crate) mod object;
pub(crate) mod read;
pub(crate) mod readdir;
pub(crate) mod readlink;
pub(crate) mod rename;
pub(crate) mod rmdir;
pub(crate) mod seek;
pub(crate) mod setattr;
pub(crate) mod statfs;
pub(crate) mod symlink;
pub(crate) mod tmpfile;
pub(crate) mod totals;
pub(crate) mod unlink;
mod whiteout;
pub(crate) mod write;
pub(crate) mod xattr;
