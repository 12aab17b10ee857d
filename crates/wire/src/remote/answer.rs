//! Answers to calls of a file system.

use serde::{Deserialize, Serialize};

use super::call::{LockRange, Node};
use crate::Bytes;
use crate::bytes::run;
use inode::Kind;

/// Attributes of a node. Times are nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteAttr {
    /// The number to show.
    pub node: Node,
    /// Its kind.
    pub kind: Kind,
    /// Permission bits, with set-id and sticky.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u32,
    /// Length.
    pub size: u64,
    /// Space, in units of 512 bytes.
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

/// A name that was looked up or created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The node, for further calls.
    pub node: Node,
    /// Distinguishes it from earlier ones with this number.
    pub generation: u64,
    /// Whether it is in a snapshot.
    pub in_snapshot: bool,
    /// Proves to another server that the session holds it, open as the call asked; 0: none can
    /// take over.
    pub proof: u64,
    /// Its attributes.
    pub attr: RemoteAttr,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The name.
    pub name: Bytes,
    /// Its number.
    pub node: Node,
    /// Its kind.
    pub kind: Kind,
    /// The place after it.
    pub cookie: u64,
    /// What a look-up would return, if it was taken.
    pub entry: Option<Entry>,
}

/// Space and limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// Unit of the next three, in bytes.
    pub block_bytes: u32,
    /// All.
    pub blocks: u64,
    /// Free.
    pub blocks_free: u64,
    /// Free for ordinary users.
    pub blocks_available: u64,
    /// Inodes, used and free.
    pub inodes: u64,
    /// Those that are free.
    pub inodes_free: u64,
    /// Longest name.
    pub name_bytes_max: u32,
}

/// A lock of another.
pub type LockHeld = LockRange;

/// What a call returns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FsAnswer<'a> {
    /// It is done.
    Nothing,
    /// A node.
    Entry(Entry),
    /// Attributes.
    Attr(RemoteAttr),
    /// Contents, the target of a link, an extended attribute, names of those.
    Bytes(#[serde(serialize_with = "run")] &'a [u8]),
    /// A number: an offset, bytes copied, or 1 after 0 for a wait that is over.
    Number(u64),
    /// Entries, and whether these are the last.
    Listing(Vec<Listed>, bool),
    /// Space.
    Space(Space),
    /// A lock that conflicts; `None`: there is none.
    Locked(Option<LockHeld>),
    /// Attributes of what was opened, and a proof of that as in [`Entry`].
    Opened(RemoteAttr, u64),
}

/// Why a call was refused or failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FsFailure {
    /// No such name.
    NotFound,
    /// It exists.
    Exists,
    /// Not a directory.
    NotDirectory,
    /// A directory.
    IsDirectory,
    /// Not empty.
    NotEmpty,
    /// Permission bits deny it.
    AccessDenied,
    /// Only owner or root may.
    NotPermitted,
    /// Invalid.
    Invalid,
    /// The name is too long.
    NameTooLong,
    /// Across subvolumes.
    CrossSubvolume,
    /// Too many links.
    TooManyLinks,
    /// Too many symbolic links.
    Loop,
    /// Read-only, and why.
    ReadOnly(String),
    /// Too large.
    FileTooLarge,
    /// No space.
    NoSpace,
    /// A limit that space does not change.
    LimitReached,
    /// The quota is exhausted.
    QuotaExceeded,
    /// It does not fit.
    Range,
    /// No such attribute.
    NoAttribute,
    /// No contents.
    Elsewhere,
    /// Not supported.
    NotSupported,
    /// Busy.
    Busy,
    /// The node is gone, or is not this session's.
    Stale,
    /// Nothing there.
    PastEnd,
    /// Cancelled.
    Interrupted,
    /// Damage, or a failed read, in words.
    Io(String),
}
