//! Where a node is: below, or in which virtual directory.

use inode::NodeId;

use super::{search, snapshots};
use crate::FsResult;

/// Where a node is.
pub(super) enum Level {
    /// In the file system below.
    Below,
    /// A directory of snapshots.
    Snapshots,
    /// `.search`, or in it.
    Search,
}

#[inline]
pub(super) fn place(node: NodeId) -> Level {
    if !snapshots::is_virtual(node) {
        Level::Below
    } else if search::is_volatile(node) {
        Level::Search
    } else {
        Level::Snapshots
    }
}

/// Refuses nodes of virtual directories.
#[inline]
pub(super) fn below(node: NodeId) -> FsResult<NodeId> {
    match place(node) {
        Level::Below => Ok(node),
        Level::Snapshots => Err(snapshots::REFUSED),
        Level::Search => Err(search::REFUSED),
    }
}
