//! The stream of a scan: what the directories of another file system hold, for an index of it.
//!
//! Whoever reads the source numbers directories as it meets them; an item names the directory
//! that it is about. One is told of after the item that made it known, and closed once.

use serde::{Deserialize, Serialize};

use crate::{Bytes, DecodeError, Kind, codec};

/// An inode of the source, as `statx` shows it. Times are nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanAttr {
    /// What it is.
    pub kind: Kind,
    /// Permission bits, with set-id and sticky.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that lead to it.
    pub nlink: u32,
    /// Device number of a device node.
    pub rdev: u32,
    /// Length in bytes.
    pub size: u64,
    /// Bytes of room that it takes.
    pub allocated: u64,
    /// Last read.
    pub atime: i64,
    /// Last change of contents.
    pub mtime: i64,
    /// Last change of attributes.
    pub ctime: i64,
    /// Birth.
    pub btime: i64,
    /// Its device.
    pub device: u64,
    /// Its number there.
    pub number: u64,
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanRow<'a> {
    /// The name.
    pub name: &'a [u8],
    /// What it leads to.
    pub attr: ScanAttr,
    /// Target of a symbolic link; empty for all else.
    pub target: &'a [u8],
    /// Extended attributes.
    #[serde(borrow)]
    pub xattrs: Vec<(&'a [u8], &'a [u8])>,
    /// The number of the directory that it is; 0 for all else.
    pub directory: u64,
}

/// One step of a scan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScanItem<'a> {
    /// The source itself.
    Root {
        /// Its number.
        directory: u64,
        /// Its attributes.
        attr: ScanAttr,
        /// Its extended attributes.
        #[serde(borrow)]
        xattrs: Vec<(&'a [u8], &'a [u8])>,
    },
    /// A directory that the index has, by its path below the source.
    Find {
        /// The number that it is to have.
        directory: u64,
        /// The path.
        path: &'a [u8],
        /// Its attributes.
        attr: ScanAttr,
        /// Its extended attributes.
        #[serde(borrow)]
        xattrs: Vec<(&'a [u8], &'a [u8])>,
    },
    /// Names in a directory; the next of them, where there were some already.
    Rows {
        /// The directory.
        directory: u64,
        /// The names.
        #[serde(borrow)]
        rows: Vec<ScanRow<'a>>,
    },
    /// A name that is not in a directory any more.
    Gone {
        /// The directory.
        directory: u64,
        /// The name.
        name: &'a [u8],
    },
    /// Ends what is told of a directory.
    Close {
        /// The directory.
        directory: u64,
        /// Whether all its names were told, so that others are gone.
        all: bool,
    },
}

/// What an index knows of its scans. Times are nanoseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanInfo {
    /// The directory that is indexed, absolute.
    pub source: Bytes,
    /// When the last scan that ended began; `None`: none did.
    pub started: Option<i64>,
    /// When it ended.
    pub ended: i64,
    /// What it could not read.
    pub unread: u64,
    /// Whether a scan began since and did not end.
    pub unfinished: bool,
    /// Whether file systems mounted below belong to the index.
    pub crosses_mounts: bool,
    /// Whether extended attributes are kept.
    pub keeps_xattrs: bool,
}

/// A directory as the last scan found it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanDirectory {
    /// The index's number of it.
    pub ino: u64,
    /// Its device and number at the source.
    pub elsewhere: (u64, u64),
    /// Last change of entries, nanoseconds since 1970.
    pub mtime: i64,
    /// Last change of attributes.
    pub ctime: i64,
    /// Names and numbers of the directories in it.
    pub children: Vec<(Bytes, u64)>,
}

/// Appends an item to others.
pub fn push_scan_item(item: &ScanItem<'_>, out: &mut Vec<u8>) {
    codec::encode(item, out);
}

/// Takes the first item off an encoding; `None` at its end.
pub fn next_scan_item<'a>(bytes: &mut &'a [u8]) -> Option<Result<ScanItem<'a>, DecodeError>> {
    if bytes.is_empty() {
        return None;
    }
    match postcard::take_from_bytes(bytes) {
        Ok((item, rest)) => {
            *bytes = rest;
            Some(Ok(item))
        }
        Err(error) => {
            *bytes = &[];
            Some(Err(DecodeError::Malformed(error)))
        }
    }
}
