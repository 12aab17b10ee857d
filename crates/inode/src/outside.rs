//! Inodes of other file systems. The type crosses the socket: its fields stay in this order.

use serde::{Deserialize, Serialize};

use crate::Kind;

/// An inode of another file system, as `statx` shows it. Times are nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Outside {
    /// What it is.
    pub kind: Kind,
    /// Permission bits, with set-id and sticky.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that point to it.
    pub nlink: u32,
    /// Device number of a device node.
    pub rdev: u32,
    /// Length in bytes.
    pub size: u64,
    /// Bytes of space that it takes.
    pub allocated: u64,
    /// Last read.
    pub atime: i64,
    /// Last change of contents.
    pub mtime: i64,
    /// Last change of attributes.
    pub ctime: i64,
    /// Birth; where that is not known, the earliest of the others.
    pub btime: i64,
    /// Its device.
    pub device: u64,
    /// Its number there.
    pub number: u64,
}
