//! `fsync`: makes a node durable, and with it the names that lead to it.

use inode::NodeId;

use crate::{Fs, FsResult, SyncScope};

/// Syncs the log up to the last commit: every change of the node is before it, with its data,
/// which the log's barrier makes durable first.
pub(crate) fn fsync(fs: &Fs, _node: NodeId, _scope: SyncScope) -> FsResult<()> {
    fs.sync()
}
