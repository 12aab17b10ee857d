//! Searching: the query, and its results.

use search::Sort;
use search::query::Expr;
use serde::{Deserialize, Serialize};

use crate::{Attr, Bytes};

/// Maximum rows that the daemon sorts: a sorted query has a limit of no more.
pub const ORDERED_MAX: u64 = 100_000;

/// A search and its scope.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is wanted or not by itself")]
pub struct Find {
    /// Starting paths.
    pub from: Vec<FindFrom>,
    /// Whether symbolic links among them are followed.
    pub follow: bool,
    /// The predicate for each row, with the actions to take.
    pub expr: Expr,
    /// Minimum depth of rows.
    pub min_depth: u32,
    /// Maximum depth of rows.
    pub max_depth: Option<u32>,
    /// A directory comes after its contents.
    pub contents_first: bool,
    /// The sort order of results from one path, with a limit of at most [`ORDERED_MAX`]: one sorted
    /// run, or several if it takes much memory. The caller merges all runs and paths.
    pub order: Option<Sort>,
    /// Maximum rows from all paths; in a sorted search, in each run.
    pub limit: Option<u64>,
    /// Which of the snapshots are searched.
    pub snapshots: Snapshots,
    /// Whether to return attributes.
    pub attributes: bool,
    /// Whether to return the targets of symbolic links.
    pub targets: bool,
    /// Whether to return only the number of rows.
    pub count: bool,
}

impl Eq for Find {}

/// A path to search from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindFrom {
    /// The path, absolute inside the volume. `DIR@SNAPSHOT` at the end of a component means a
    /// snapshot of that directory, or of one above, unless such a name exists.
    pub path: Bytes,
    /// How it is displayed.
    pub shown: Bytes,
}

/// Which states are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Snapshots {
    /// The state that the path names.
    Named,
    /// That, and every snapshot of the directory and of those above.
    All,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Its path relative to that of the last `Body::Searching`, with a leading slash unless empty.
    pub path: Bytes,
    /// Its depth.
    pub depth: u32,
    /// The actions it reached, in order. Empty: the only one.
    pub fired: Vec<u16>,
    /// Its attributes, if requested.
    pub attr: Option<Attr>,
    /// Target of a symbolic link, if requested.
    pub target: Option<Bytes>,
}

/// Statistics of a search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundOutcome {
    /// Rows that matched.
    pub matched: u64,
    /// Clusters of the index in scope.
    pub clusters: u64,
    /// Clusters that were read.
    pub clusters_read: u64,
    /// Walks that produced the results, or a part of them.
    pub walked: u64,
    /// Rows tested against the query.
    pub rows_tested: u64,
    /// Directories that the caller may not list.
    pub unreadable: u64,
    /// Whether a row ended the search, including that of later paths.
    pub quit: bool,
}
