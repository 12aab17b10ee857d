//! Calls of a file system, and who makes them.

use serde::{Deserialize, Serialize};

use crate::bytes::run;
use inode::Kind;

/// A node, as the server names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Node {
    /// Which subvolume.
    pub slot: u32,
    /// Which inode in it.
    pub ino: u64,
}

impl Node {
    /// The root of the volume.
    pub const ROOT: Node = Node { slot: 0, ino: 1 };
}

/// Bit of the flags of `Open` and `Create`: to read.
pub const OPEN_READ: u8 = 1;
/// To write.
pub const OPEN_WRITE: u8 = 2;
/// To run it as a program.
pub const OPEN_EXEC: u8 = 4;
/// Bit of the flags of `Write`: at the end of the file, wherever that is.
pub const WRITE_APPEND: u8 = 1;
/// Number of modes of `Allocate`: grow, keep, punch, zero, zero and keep.
pub const MODES_OF_ALLOCATE: u8 = 5;

/// The user for whom a call is made, as the client states. The server decides who that is to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asker {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Bits removed from the mode of what is made.
    pub umask: u32,
    /// What a change ends: 1: set-id bits, 2: capabilities.
    pub ends: u8,
}

/// The body of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked<'a> {
    /// Requests whose answers have arrived since the last message that acknowledged some.
    pub acknowledged: Vec<u64>,
    /// The number of a call that changes something, among those of the session; 0: another call.
    pub once: u64,
    /// The calls up to this one of those numbers are not awaited any more.
    pub done: u64,
    /// For whom.
    pub who: Asker,
    /// The call.
    #[serde(borrow)]
    pub call: FsCall<'a>,
}

/// A new time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewTime {
    /// The server's.
    Now,
    /// Nanoseconds since 1970.
    At(i64),
}

/// Changes of attributes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length.
    pub size: Option<u64>,
    /// Last read.
    pub atime: Option<NewTime>,
    /// Last change of contents.
    pub mtime: Option<NewTime>,
    /// Last change of attributes.
    pub ctime: Option<NewTime>,
}

/// How a rename treats an existing target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Renaming {
    /// Replaces it.
    Replace,
    /// Fails.
    NoReplace,
    /// Swaps both.
    Exchange,
    /// Replaces it, and leaves a whiteout.
    Whiteout,
    /// Fails, or leaves a whiteout.
    NoReplaceWhiteout,
}

/// What a lock keeps others from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockKind {
    /// Nothing: the range is unlocked.
    None,
    /// Writing locks.
    Shared,
    /// All locks.
    Exclusive,
}

/// A lock on a range of a file, or on the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRange {
    /// Who holds it, by a number that the client chooses.
    pub owner: u64,
    /// The process, for others that ask.
    pub pid: u32,
    /// What it keeps others from.
    pub kind: LockKind,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// Whether it is one of flock(2), which is on the whole file.
    pub whole: bool,
}

/// The calls of a file system. Nodes are those that the server returned in this session, and
/// [`Node::ROOT`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FsCall<'a> {
    /// A name in a directory; takes one look-up.
    Lookup {
        /// The directory.
        parent: Node,
        /// The name.
        #[serde(serialize_with = "run")]
        name: &'a [u8],
    },
    /// Returns look-ups: of nodes, how many.
    Forget {
        /// Both.
        items: Vec<(Node, u64)>,
    },
    /// Attributes.
    GetAttr {
        /// Of this node.
        node: Node,
    },
    /// Changes attributes.
    SetAttr {
        /// Of this node.
        node: Node,
        /// To these.
        changes: Changes,
    },
    /// Whether the caller may.
    Access {
        /// The node.
        node: Node,
        /// Read (4), write (2), execute (1).
        mask: u32,
    },
    /// The target of a symbolic link.
    ReadLink {
        /// The link.
        node: Node,
        /// Whether its time of last read stays.
        untimed: bool,
    },
    /// Makes a regular file, and opens it.
    Create {
        /// In this directory.
        parent: Node,
        /// Under this name.
        #[serde(serialize_with = "run")]
        name: &'a [u8],
        /// With these bits.
        mode: u32,
        /// How it is open.
        flags: u8,
    },
    /// Makes a file of any kind.
    MakeNode {
        /// In this directory.
        parent: Node,
        /// Under this name.
        #[serde(serialize_with = "run")]
        name: &'a [u8],
        /// Its kind.
        kind: Kind,
        /// With these bits.
        mode: u32,
        /// Device number.
        rdev: u32,
    },
    /// Makes a directory.
    MakeDir {
        /// In this directory.
        parent: Node,
        /// Under this name.
        #[serde(serialize_with = "run")]
        name: &'a [u8],
        /// With these bits.
        mode: u32,
    },
    /// Makes a symbolic link.
    SymLink {
        /// In this directory.
        parent: Node,
        /// Under this name.
        #[serde(serialize_with = "run")]
        name: &'a [u8],
        /// To this.
        #[serde(serialize_with = "run")]
        target: &'a [u8],
    },
    /// Gives a node another name.
    Link {
        /// The node.
        node: Node,
        /// In this directory.
        parent: Node,
        /// Under this name.
        #[serde(serialize_with = "run")]
        name: &'a [u8],
    },
    /// Removes a name, not of a directory.
    Unlink {
        /// In this directory.
        parent: Node,
        /// The name.
        #[serde(serialize_with = "run")]
        name: &'a [u8],
    },
    /// Removes an empty directory.
    RemoveDir {
        /// In this directory.
        parent: Node,
        /// The name.
        #[serde(serialize_with = "run")]
        name: &'a [u8],
    },
    /// Renames.
    Rename {
        /// In this directory.
        from: Node,
        /// This name.
        #[serde(serialize_with = "run")]
        from_name: &'a [u8],
        /// To this directory.
        to: Node,
        /// And this name.
        #[serde(serialize_with = "run")]
        to_name: &'a [u8],
        /// What becomes of a target.
        how: Renaming,
    },
    /// Reads.
    Read {
        /// The file.
        node: Node,
        /// From here.
        offset: u64,
        /// So many bytes; fewer at the end.
        length: u32,
        /// Whether its time of last read stays.
        untimed: bool,
    },
    /// Writes all of it.
    Write {
        /// The file.
        node: Node,
        /// From here.
        offset: u64,
        /// [`WRITE_APPEND`].
        flags: u8,
        /// This.
        #[serde(serialize_with = "run")]
        bytes: &'a [u8],
    },
    /// Makes a file without a name, and opens it.
    TmpFile {
        /// As if in this directory.
        parent: Node,
        /// With these bits.
        mode: u32,
        /// How it is open.
        flags: u8,
    },
    /// Where data or a hole begins.
    Seek {
        /// The file.
        node: Node,
        /// From here on.
        offset: u64,
        /// Whether a hole is looked for.
        hole: bool,
    },
    /// Allocates, or makes holes.
    Allocate {
        /// The file.
        node: Node,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// Which: less than [`MODES_OF_ALLOCATE`].
        mode: u8,
    },
    /// Copies a range.
    CopyRange {
        /// From this file.
        from: Node,
        /// From here.
        from_offset: u64,
        /// To this file.
        to: Node,
        /// To here.
        to_offset: u64,
        /// So many bytes at most.
        length: u64,
    },
    /// Makes a node durable.
    Sync {
        /// The node.
        node: Node,
        /// Whether only its contents.
        data: bool,
    },
    /// Makes everything durable.
    SyncAll,
    /// Entries of a directory.
    List {
        /// The directory.
        directory: Node,
        /// After this one.
        cookie: u64,
        /// With attributes; takes one look-up of each.
        attributes: bool,
        /// About so many bytes.
        bytes: u32,
    },
    /// Space and limits.
    Space {
        /// As seen from this node.
        node: Node,
    },
    /// An extended attribute.
    GetXattr {
        /// Of this node.
        node: Node,
        /// Its name.
        #[serde(serialize_with = "run")]
        name: &'a [u8],
    },
    /// The names of all.
    ListXattr {
        /// Of this node.
        node: Node,
    },
    /// Sets one.
    SetXattr {
        /// Of this node.
        node: Node,
        /// Its name.
        #[serde(serialize_with = "run")]
        name: &'a [u8],
        /// Its value.
        #[serde(serialize_with = "run")]
        value: &'a [u8],
        /// 0: in any case, 1: if there is none, 2: if there is one.
        how: u8,
    },
    /// Removes one.
    RemoveXattr {
        /// Of this node.
        node: Node,
        /// Its name.
        #[serde(serialize_with = "run")]
        name: &'a [u8],
    },
    /// Opens a file or directory.
    Open {
        /// The node.
        node: Node,
        /// How: [`OPEN_READ`], [`OPEN_WRITE`], [`OPEN_EXEC`].
        flags: u8,
    },
    /// Closes what an open, or a creation, opened.
    Release {
        /// The node.
        node: Node,
    },
    /// Sets or ends a lock.
    Lock {
        /// The file.
        node: Node,
        /// The lock.
        lock: LockRange,
        /// Whether to wait for others.
        wait: bool,
    },
    /// The first lock of another that conflicts.
    TestLock {
        /// The file.
        node: Node,
        /// The lock.
        lock: LockRange,
    },
    /// Ends the locks of an owner on a file.
    Unlock {
        /// The file.
        node: Node,
        /// The owner.
        owner: u64,
        /// Whether those of flock(2).
        whole: bool,
    },
}

impl FsCall<'_> {
    /// Whether a repeat does no harm: it changes nothing, and takes nothing.
    pub fn is_repeatable(&self) -> bool {
        matches!(
            self,
            FsCall::GetAttr { .. }
                | FsCall::Access { .. }
                | FsCall::ReadLink { .. }
                | FsCall::Read { .. }
                | FsCall::Seek { .. }
                | FsCall::Sync { .. }
                | FsCall::SyncAll
                | FsCall::List { attributes: false, .. }
                | FsCall::Space { .. }
                | FsCall::GetXattr { .. }
                | FsCall::ListXattr { .. }
                | FsCall::TestLock { .. }
        )
    }

    /// Whether it changes what the volume stores. Each call is named: one that is not counted here
    /// is open to clients that may only read.
    pub fn changes(&self) -> bool {
        match self {
            FsCall::SetAttr { .. }
            | FsCall::Create { .. }
            | FsCall::MakeNode { .. }
            | FsCall::MakeDir { .. }
            | FsCall::SymLink { .. }
            | FsCall::Link { .. }
            | FsCall::Unlink { .. }
            | FsCall::RemoveDir { .. }
            | FsCall::Rename { .. }
            | FsCall::Write { .. }
            | FsCall::TmpFile { .. }
            | FsCall::Allocate { .. }
            | FsCall::CopyRange { .. }
            | FsCall::SetXattr { .. }
            | FsCall::RemoveXattr { .. } => true,
            FsCall::Lookup { .. }
            | FsCall::Forget { .. }
            | FsCall::GetAttr { .. }
            | FsCall::Access { .. }
            | FsCall::ReadLink { .. }
            | FsCall::Read { .. }
            | FsCall::Seek { .. }
            | FsCall::Sync { .. }
            | FsCall::SyncAll
            | FsCall::List { .. }
            | FsCall::Space { .. }
            | FsCall::GetXattr { .. }
            | FsCall::ListXattr { .. }
            | FsCall::Open { .. }
            | FsCall::Release { .. }
            | FsCall::Lock { .. }
            | FsCall::TestLock { .. }
            | FsCall::Unlock { .. } => false,
        }
    }
}
