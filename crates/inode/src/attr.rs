//! Attributes of an inode.

use device::Timestamp;
use serde::{Deserialize, Serialize};

use crate::NodeId;

/// Type of an inode. It crosses the control socket as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

impl Kind {
    /// The word for reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Directory => "directory",
            Kind::Symlink => "symlink",
            Kind::Fifo => "fifo",
            Kind::Socket => "socket",
            Kind::CharDevice => "char-device",
            Kind::BlockDevice => "block-device",
        }
    }

    /// The letter that `ls -l` shows.
    pub fn letter(self) -> char {
        match self {
            Kind::File => '-',
            Kind::Directory => 'd',
            Kind::Symlink => 'l',
            Kind::Fifo => 'p',
            Kind::Socket => 's',
            Kind::CharDevice => 'c',
            Kind::BlockDevice => 'b',
        }
    }
}

/// The attributes that `stat` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// The number shown.
    pub node: NodeId,
    /// Its type.
    pub kind: Kind,
    /// Permission bits, with set-id and sticky: `mode & 0o7777`.
    pub mode: u32,
    /// Number of hard links; for a directory 2 plus its sub-directories.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, as `makedev` returns it.
    pub rdev: u32,
    /// Length in bytes; for a directory the number of its entries.
    pub size: u64,
    /// Allocated space, in units of 512 bytes.
    pub blocks: u64,
    /// Last read.
    pub atime: Timestamp,
    /// Last change of contents.
    pub mtime: Timestamp,
    /// Last change of attributes.
    pub ctime: Timestamp,
    /// Birth.
    pub btime: Timestamp,
}

/// A new value for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The present.
    Now,
    /// A given time.
    At(Timestamp),
}

/// Changes that `setattr` makes; `None` leaves an attribute as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// New permission bits (`& 0o7777`).
    pub mode: Option<u32>,
    /// Owner to set.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New length: truncates, or grows with a hole.
    pub size: Option<u64>,
    /// New time of last read.
    pub atime: Option<SetTime>,
    /// New time of last change.
    pub mtime: Option<SetTime>,
    /// New time of last attribute change (only the kernel's writeback and `receive` set it).
    pub ctime: Option<SetTime>,
    /// New time of birth (only `receive` sets it).
    pub btime: Option<SetTime>,
}
