//! `fsync`: makes a node durable, and with it the names that point to it.

use inode::NodeId;
use vfs::{FsResult, SyncScope};
use volume::nodes::Location;

use crate::Ops;

/// Syncs the log up to the last commit. Every change of the node is before it, with its data, which
/// the log's barrier makes durable first.
pub fn fsync(fs: &Ops, node: NodeId, _scope: SyncScope) -> FsResult<()> {
    let node = fs.real(node);
    if let Some(Location::Entry { .. } | Location::Linked) = fs.nodes.location(node) {
        let tree = fs.subvol_of(node)?.tree();
        fs.data.note_fsync(data::FileRef { tree, ino: node.ino().0 });
    }
    fs.sync_for_caller()
}
