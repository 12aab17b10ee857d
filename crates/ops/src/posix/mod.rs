//! The operations, one per file.

pub mod access;
pub mod copy_range;
pub mod fallocate;
pub mod forget;
pub mod fsync;
pub mod getattr;
pub mod link;
pub mod lookup;
pub mod mkdir;
pub mod mknod;
pub mod moving;
pub mod read;
pub mod readdir;
pub mod readlink;
pub mod rename;
pub mod rmdir;
pub mod seek;
pub mod setattr;
pub mod statfs;
pub mod symlink;
pub mod tmpfile;
pub mod totals;
pub mod unlink;
mod whiteout;
pub mod write;
pub mod xattr;
