//! Attributes of an inode, as sent over the wire.

use device::Timestamp;
pub use inode::Kind;
use serde::{Deserialize, Serialize};

/// The attributes that `stat` shows. Times are nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attr {
    /// Inode number as users see it.
    pub node: u64,
    /// Its type.
    pub kind: Kind,
    /// Permission bits, with set-id and sticky.
    pub mode: u32,
    /// Link count.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u32,
    /// Length in bytes; for a directory the number of its entries.
    pub size: u64,
    /// Allocated space, in units of 512 bytes.
    pub blocks: u64,
    /// Last read.
    pub atime: i64,
    /// Last change of contents.
    pub mtime: i64,
    /// Last change of attributes.
    pub ctime: i64,
    /// Birth.
    pub btime: i64,
}

impl From<&inode::Attr> for Attr {
    fn from(attr: &inode::Attr) -> Attr {
        let Timestamp(atime) = attr.atime;
        let Timestamp(mtime) = attr.mtime;
        let Timestamp(ctime) = attr.ctime;
        let Timestamp(btime) = attr.btime;
        Attr {
            node: attr.node.shown(),
            kind: attr.kind,
            mode: attr.mode,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            size: attr.size,
            blocks: attr.blocks,
            atime,
            mtime,
            ctime,
            btime,
        }
    }
}
