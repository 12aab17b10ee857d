//! The request and the result of a query, for both executors: a walk of the tree, and the index.
//! Both return the same set of matches for the same [`Request`].

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use inode::{Caller, Ino, NodeId, SubvolId};

use crate::cluster::{Fields, Like};
use crate::error::Result;
use crate::query::{Accounts, Expr};
use crate::row::Row;

/// A directory to search from. The caller has already been granted access to it: its ancestors are
/// not checked again. Anything but a directory is one row, and needs no executor.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// The subvolume that the directory is in.
    pub subvolume: u64,
    /// Its inode there.
    pub directory: u64,
    /// Its path as shown; never empty. Paths below are this, `/` unless it ends in one, and the
    /// names on the way. Its last component (without trailing slashes) is its name.
    pub path: &'a [u8],
    /// Its depth; 0 unless it is itself below the requested directory (a snapshot in `.snapshots`).
    pub depth: u32,
}

/// A query.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Where it searches: this directory and everything below it, nested subvolumes too.
    pub start: Start<'a>,
    /// The test of every row. Without actions: see [`Expr::fires`].
    pub expr: &'a Expr,
    /// Directories (of depth `min_depth` and more) that match this are not descended into. They
    /// may match `expr` themselves.
    pub prune: Option<&'a Expr>,
    /// Whether subvolumes that are mounted below are not descended into.
    pub alone: bool,
    /// The user whose permissions apply. A row other than the start's is visible if the caller may
    /// read and search its directory and search every directory from the start to there.
    pub caller: &'a Caller,
    /// Rows less deep do not match; the start has [`Start::depth`].
    pub min_depth: u32,
    /// Rows deeper than this do not match.
    pub max_depth: Option<u32>,
    /// A directory follows its contents. Ignored if `order` is given.
    pub contents_first: bool,
    /// The order of the matches; `None`: any. If the first matches exceed the bytes that are kept,
    /// they are emitted in several runs, each in order, and the caller takes the first of all:
    /// [`Rank`](crate::Rank) determines which those are.
    pub order: Option<Sort>,
    /// Maximum number of matches; for an ordered query, of each run.
    pub limit: Option<u64>,
    /// Fields of rows that the receiver of matches uses. Other fields may be 0 or empty unless the
    /// query uses them.
    pub fields: Fields,
    /// Looks up users and groups.
    pub accounts: &'a dyn Accounts,
    /// Set when the caller cancels. Executors check it often, and return what they have with
    /// [`Outcome::cancelled`].
    pub cancel: &'a AtomicBool,
}

/// One match.
#[derive(Clone, Copy)]
pub struct Match<'a> {
    /// The name and its inode; for a mounted subvolume, the inode is that of its root.
    pub row: &'a Row<'a>,
    /// Its path, as shown.
    pub path: &'a [u8],
    /// Its depth.
    pub depth: u32,
    /// The subvolume that its inode is in.
    pub subvolume: u64,
    /// Data that the row does not contain.
    pub details: &'a dyn Details,
}

/// Data that rows do not contain, looked up in the state that the query sees.
pub trait Details {
    /// Target of a symbolic link.
    fn target(&self, row: &Row<'_>) -> Result<Vec<u8>>;

    /// Value of an extended attribute of `row.ino`.
    fn xattr(&self, row: &Row<'_>, name: &[u8]) -> Result<Option<Vec<u8>>>;
}

/// The order of matches. Equal ones are sorted by path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Sort {
    /// The sort key.
    pub by: SortBy,
    /// Greatest first.
    pub descending: bool,
}

/// Sort keys of matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum SortBy {
    /// Size in bytes.
    Size,
    /// Last change of contents.
    Mtime,
    /// Name, bytewise.
    Name,
    /// Path, bytewise.
    Path,
    /// Similarity to a file.
    Like(Like),
}

/// Statistics of an executor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Emitted rows.
    pub matched: u64,
    /// Clusters in scope; 0 for a walk.
    pub clusters: u64,
    /// Clusters that were read.
    pub clusters_read: u64,
    /// Walks that answered the query or a part of it: without an index, or for an order that it
    /// does not support.
    pub walked: u64,
    /// Rows tested against the query.
    pub rows_tested: u64,
    /// Directories below the start that the caller may not list.
    pub unreadable: u64,
    /// The caller cancelled the query, or the receiver of matches ended it.
    pub cancelled: bool,
}

/// Receives matches. `Break` ends the query.
pub type Emit<'a> = &'a mut dyn FnMut(&Match<'_>) -> ControlFlow<()>;

impl Match<'_> {
    /// The inode number that users see.
    pub fn node(&self) -> NodeId {
        shown(self.subvolume, self.row.ino)
    }
}

/// The inode number that users see.
pub fn shown(subvolume: u64, ino: u64) -> NodeId {
    NodeId::new(SubvolId(subvolume), Ino(ino))
}
