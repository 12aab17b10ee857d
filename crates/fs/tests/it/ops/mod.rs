//! One file per operation, of the same name as in `fs/src/ops/`.

mod access;
mod acl;
mod copy_range;
mod fallocate;
mod forget;
mod fsync;
mod getattr;
mod link;
mod lookup;
mod mkdir;
mod mknod;
mod read;
mod readdir;
mod readlink;
mod rename;
mod resolve;
mod rmdir;
mod seek;
mod setattr;
mod statfs;
mod symlink;
mod tmpfile;
mod totals;
mod unlink;
mod write;
mod xattr;
