//! `forget`: a front end releases a node.

use inode::NodeId;
use volume::nodes::Location;

use crate::{Ops, orphan};

/// Subtracts look-ups. A node without holders and names is removed.
pub fn forget(fs: &Ops, node: NodeId, lookups: u64) {
    let node = fs.real(node);
    let Some(location) = fs.nodes.forget(node, lookups) else { return };
    if matches!(location, Location::Entry { .. } | Location::Linked)
        && fs.data.knows_files()
        && let Ok(subvol) = fs.subvol_of(node)
    {
        fs.data.closed(data::FileRef { tree: subvol.tree(), ino: node.ino().0 });
    }
    if location == Location::Linked {
        orphan::released(fs, node);
    }
}
