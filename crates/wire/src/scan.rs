//! The stream of a scan: the contents of directories of another file system, for an index of it.
//!
//! The scanner numbers directories in the order of discovery; an item names the directory
//! concerned. Items about a directory follow the item that introduced it, and it is closed once.

use inode::Outside;
use serde::{Deserialize, Serialize};

use crate::{Bytes, DecodeError, codec};

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanRow<'a> {
    /// The name.
    pub name: &'a [u8],
    /// Attributes of its inode.
    pub attr: Outside,
    /// Target of a symbolic link; empty for other types.
    pub target: &'a [u8],
    /// Extended attributes.
    #[serde(borrow)]
    pub xattrs: Vec<(&'a [u8], &'a [u8])>,
    /// The directory's number; 0 for other types.
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
        attr: Outside,
        /// Its extended attributes.
        #[serde(borrow)]
        xattrs: Vec<(&'a [u8], &'a [u8])>,
    },
    /// A directory that the index has, by its path relative to the source.
    Find {
        /// The number to assign to it.
        directory: u64,
        /// The path.
        path: &'a [u8],
        /// Its attributes.
        attr: Outside,
        /// Its extended attributes.
        #[serde(borrow)]
        xattrs: Vec<(&'a [u8], &'a [u8])>,
    },
    /// Names in a directory; more of them, if some were sent already.
    Rows {
        /// The directory.
        directory: u64,
        /// The names.
        #[serde(borrow)]
        rows: Vec<ScanRow<'a>>,
    },
    /// A name that was removed from a directory.
    Gone {
        /// The directory.
        directory: u64,
        /// The name.
        name: &'a [u8],
    },
    /// Ends the items about a directory.
    Close {
        /// The directory.
        directory: u64,
        /// Whether all its names were sent, so that others were removed.
        all: bool,
    },
}

/// What an index records about its scans. Times are nanoseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself")]
pub struct ScanInfo {
    /// The directory that is indexed, absolute.
    pub source: Bytes,
    /// Start of the last completed scan; `None`: none was completed.
    pub started: Option<i64>,
    /// When it ended.
    pub ended: i64,
    /// How many objects it could not read.
    pub unread: u64,
    /// Whether a scan began since and did not complete.
    pub unfinished: bool,
    /// Whether the index includes file systems mounted below.
    pub crosses_mounts: bool,
    /// Whether extended attributes are kept.
    pub keeps_xattrs: bool,
    /// Whether a directory above the source was closed to some users when the last scan began.
    pub hidden: bool,
    /// The process that follows the source now, if any.
    pub followed: Option<Followed>,
}

/// A process that follows the source of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Followed {
    /// The means.
    pub by: ScanWatch,
    /// The process, 0 if it is in another pid namespace.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
    /// How many directories it cannot follow.
    pub unwatched: u64,
}

/// How a source is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScanWatch {
    /// One watch for the whole file system.
    Fanotify,
    /// A watch for each directory.
    Inotify,
}

impl std::fmt::Display for ScanWatch {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(match self {
            ScanWatch::Fanotify => "fanotify",
            ScanWatch::Inotify => "inotify",
        })
    }
}

/// A directory as the last scan found it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanDirectory {
    /// The index's inode number of it.
    pub ino: u64,
    /// Its device and inode number at the source.
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

/// Takes the first item from an encoding; `None` at its end.
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
