//! How nodes were written, for those who measure.

use std::sync::atomic::Ordering;

use crate::store::BtreeStore;

/// What was written to the file of nodes since opening, without the map of its room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeWrites {
    /// Runs: writes of nodes that lie together.
    pub runs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those of leaves that had not changed, and were written again to empty the place where they
    /// lay.
    pub moved: u64,
}

impl BtreeStore {
    /// How nodes were written.
    pub fn node_writes(&self) -> NodeWrites {
        let nodes = &self.core.nodes;
        NodeWrites {
            runs: nodes.runs.load(Ordering::Relaxed),
            bytes: nodes.run_bytes.load(Ordering::Relaxed),
            moved: nodes.moved_bytes.load(Ordering::Relaxed),
        }
    }
}
