//! The operations, one per file.

// Calls that change names.
pub mod mkdir;
pub mod symlink;
pub mod link;
pub mod tmpfile;
pub mod rename;
pub mod moving;
pub mod rmdir;
pub mod unlink;
pub mod mknod;
pub(crate) mod whiteout;

// Calls on an inode.
pub mod setattr;
pub mod access;
pub mod readlink;
pub mod readdir;
pub mod lookup;
pub mod forget;
pub mod xattr;
pub mod totals;
pub mod getattr;
pub mod statfs;

// Calls on contents.
pub mod read;
pub mod write;
pub mod fallocate;
pub mod copy_range;
pub mod seek;
pub mod fsync;
