//! Statistics of node writes, for benchmarks.

use std::sync::atomic::Ordering;

use crate::core::Core;

/// Writes to the node file since the store was opened, without those of the space map.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeWrites {
    /// Runs: writes of adjacent nodes.
    pub runs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of unchanged leaves that were written again to empty their old place.
    pub moved: u64,
}

impl Core {
    /// Returns the statistics of node writes.
    pub fn node_writes(&self) -> NodeWrites {
        let nodes = &self.nodes;
        NodeWrites {
            runs: nodes.runs.load(Ordering::Relaxed),
            bytes: nodes.run_bytes.load(Ordering::Relaxed),
            moved: nodes.moved_bytes.load(Ordering::Relaxed),
        }
    }
}
