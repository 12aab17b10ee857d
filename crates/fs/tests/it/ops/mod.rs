//! One file an operation, of the same name as in `fs/src/ops/`.

mod lookup;
mod mknod;
mod readdir;
mod unlink;
