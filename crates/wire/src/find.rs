//! Searching: the question, and what is found.

use search::Sort;
use search::query::Expr;
use serde::{Deserialize, Serialize};

use crate::{Attr, Bytes};

/// Most rows that the owner orders: a question with an order has a limit of no more.
pub const ORDERED_MAX: u64 = 100_000;

/// What is searched for, and where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is wanted or not by itself")]
pub struct Find {
    /// From where.
    pub from: Vec<FindFrom>,
    /// Whether symbolic links among them are followed.
    pub follow: bool,
    /// What is asked of every row, with the actions that tell what is done with it.
    pub expr: Expr,
    /// Rows less deep are left out.
    pub min_depth: u32,
    /// Rows deeper are left out.
    pub max_depth: Option<u32>,
    /// A directory comes after what it holds.
    pub contents_first: bool,
    /// The order of what is found from one path, with a limit of at most [`ORDERED_MAX`]: one run
    /// in order, or several where it takes much room. The caller orders over all runs and paths.
    pub order: Option<Sort>,
    /// How many rows at most from all paths; of an ordered search, in each run.
    pub limit: Option<u64>,
    /// Which of the snapshots are searched.
    pub snapshots: Snapshots,
    /// Whether attributes are wanted.
    pub attributes: bool,
    /// Whether the targets of symbolic links are wanted.
    pub targets: bool,
    /// Nothing but the number of rows is wanted.
    pub count: bool,
}

impl Eq for Find {}

/// A path to search from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindFrom {
    /// The path, absolute inside the volume. `DIR@SNAPSHOT` at the end of a component means a
    /// snapshot of that directory, or of one above, where no name is like that.
    pub path: Bytes,
    /// How it is shown.
    pub shown: Bytes,
}

/// Which states are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Snapshots {
    /// What the path names.
    Named,
    /// That, and every snapshot of the directory and of those above.
    All,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Its path below that of the last `Body::Searching`, with a slash first where there is one.
    pub path: Bytes,
    /// Its depth.
    pub depth: u32,
    /// The actions it reached, in order. None: the only one.
    pub fired: Vec<u16>,
    /// Its attributes, if wanted.
    pub attr: Option<Attr>,
    /// Target, when it is a symbolic link, if wanted.
    pub target: Option<Bytes>,
}

/// What a search did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundOutcome {
    /// Rows that matched.
    pub matched: u64,
    /// Clusters of the index in scope.
    pub clusters: u64,
    /// Clusters that were read.
    pub clusters_read: u64,
    /// Walks that answered, or a part of it.
    pub walked: u64,
    /// Rows that were put to the query.
    pub rows_tested: u64,
    /// Directories that the caller may not list.
    pub unreadable: u64,
    /// Whether a row ended the search, and that of paths that would be searched after it.
    pub quit: bool,
}
