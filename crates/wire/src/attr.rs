//! Attributes of an inode, as sent over the wire.

use device::Timestamp;
use serde::{Deserialize, Serialize};

/// Type of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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

impl From<inode::Kind> for Kind {
    fn from(kind: inode::Kind) -> Kind {
        match kind {
            inode::Kind::File => Kind::File,
            inode::Kind::Directory => Kind::Directory,
            inode::Kind::Symlink => Kind::Symlink,
            inode::Kind::Fifo => Kind::Fifo,
            inode::Kind::Socket => Kind::Socket,
            inode::Kind::CharDevice => Kind::CharDevice,
            inode::Kind::BlockDevice => Kind::BlockDevice,
        }
    }
}

impl From<Kind> for inode::Kind {
    fn from(kind: Kind) -> inode::Kind {
        match kind {
            Kind::File => inode::Kind::File,
            Kind::Directory => inode::Kind::Directory,
            Kind::Symlink => inode::Kind::Symlink,
            Kind::Fifo => inode::Kind::Fifo,
            Kind::Socket => inode::Kind::Socket,
            Kind::CharDevice => inode::Kind::CharDevice,
            Kind::BlockDevice => inode::Kind::BlockDevice,
        }
    }
}

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
            node: attr.node.0,
            kind: attr.kind.into(),
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
