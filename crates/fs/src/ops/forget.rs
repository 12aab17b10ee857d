//! `forget`: a front end lets go of a node.

use inode::NodeId;

use crate::nodes::Location;
use crate::{Fs, orphan};

/// Takes look-ups back. What nobody holds and nothing names is removed.
pub(crate) fn forget(fs: &Fs, node: NodeId, lookups: u64) {
    let node = fs.real(node);
    if fs.nodes.forget(node, lookups) == Some(Location::Linked) {
        orphan::released(fs, node);
    }
}
