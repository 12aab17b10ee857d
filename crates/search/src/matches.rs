//! What both executors of a query return, a walk of the tree and the index: matches, their order,
//! and statistics.

use std::ops::ControlFlow;

use inode::{Ino, NodeId, SubvolId};

use crate::cluster::Like;
use crate::error::Result;
use crate::row::Row;

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
