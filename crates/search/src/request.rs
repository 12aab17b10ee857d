//! What a query is asked by and what it answers, whoever executes it: a walk of the tree, or the
//! index. Both give the same set of matches for the same [`Request`].

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use inode::{Caller, NodeId, SubvolId};

use crate::cluster::{Fields, Like};
use crate::error::Result;
use crate::query::{Accounts, Expr};
use crate::row::Row;

/// A directory to search from. The caller has been let in as far as it: what stands above is not
/// checked again. Anything else than a directory is one row, and needs no executor.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// The subvolume that the directory lies in.
    pub subvolume: u64,
    /// Its inode there.
    pub directory: u64,
    /// How its path is shown; never empty. Paths below are this, `/` unless it ends in one, and
    /// the names on the way. Its last component (without slashes at the end) is its name.
    pub path: &'a [u8],
    /// Its depth; 0 unless it is itself below what was asked for (a snapshot in `.snapshots`).
    pub depth: u32,
}

/// A query.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Where it searches: this directory and all below it, nested subvolumes too.
    pub start: Start<'a>,
    /// What it asks of every row. Without actions: see [`Expr::fires`].
    pub expr: &'a Expr,
    /// Directories (of depth `min_depth` and more) that match this are not descended into. They
    /// may match `expr` themselves.
    pub prune: Option<&'a Expr>,
    /// Whose eyes it has. A row other than the start's is visible if the caller may read and
    /// search its directory and search every directory from the start to there.
    pub caller: &'a Caller,
    /// Rows less deep do not match; the start has [`Start::depth`].
    pub min_depth: u32,
    /// Rows deeper than this do not match.
    pub max_depth: Option<u32>,
    /// A directory is to come after what it holds. Means nothing where `order` is given.
    pub contents_first: bool,
    /// The order of the matches; `None`: any. Where the first come to more bytes than are kept,
    /// they are given out in several runs, each in order, and whoever asked takes the first of
    /// all: [`Rank`](crate::Rank) says which those are.
    pub order: Option<Sort>,
    /// How many matches are wanted at most: of an ordered query the first of each run.
    pub limit: Option<u64>,
    /// Fields of rows that whoever takes matches looks at. Others that the query does not look at
    /// either may be 0, or empty.
    pub fields: Fields,
    /// What is known of users and groups.
    pub accounts: &'a dyn Accounts,
    /// Set when nobody waits for the answer any more. Executors look at it often, and return
    /// what they have with [`Outcome::cancelled`].
    pub cancel: &'a AtomicBool,
}

/// One match.
#[derive(Clone, Copy)]
pub struct Match<'a> {
    /// The name and its inode. Where a subvolume is mounted the inode is that of its root.
    pub row: &'a Row<'a>,
    /// Its path, as shown.
    pub path: &'a [u8],
    /// Its depth.
    pub depth: u32,
    /// The subvolume that its inode lies in.
    pub subvolume: u64,
    /// What the row does not hold.
    pub details: &'a dyn Details,
}

/// What rows do not hold, looked up in the state that the query sees.
pub trait Details {
    /// Target of a symbolic link.
    fn target(&self, row: &Row<'_>) -> Result<Vec<u8>>;

    /// Value of an extended attribute. `row.ino` is what it belongs to.
    fn xattr(&self, row: &Row<'_>, name: &[u8]) -> Result<Option<Vec<u8>>>;
}

/// How matches are ordered. Equal ones come in the order of their paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Sort {
    /// By what.
    pub by: SortBy,
    /// Greatest first.
    pub descending: bool,
}

/// What matches can be ordered by.
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
    /// How much it is like a file.
    Like(Like),
}

/// What an executor did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Rows given out.
    pub matched: u64,
    /// Clusters in scope; 0 for a walk.
    pub clusters: u64,
    /// Clusters that were read.
    pub clusters_read: u64,
    /// Walks that answered, or a part of it: where there is no index, and where it has no such
    /// order.
    pub walked: u64,
    /// Rows that were put to the query.
    pub rows_tested: u64,
    /// Directories below the start that the caller may not list.
    pub unreadable: u64,
    /// The query was cancelled, or whoever took the matches had enough.
    pub cancelled: bool,
}

/// Takes matches. `Break` ends the query.
pub type Emit<'a> = &'a mut dyn FnMut(&Match<'_>) -> ControlFlow<()>;

impl Match<'_> {
    /// The inode number that users see.
    pub fn node(&self) -> NodeId {
        shown(self.subvolume, self.row.ino)
    }
}

/// The inode number that users see.
pub fn shown(subvolume: u64, ino: u64) -> NodeId {
    NodeId(SubvolId(subvolume).slot().0 << 40 | ino)
}
