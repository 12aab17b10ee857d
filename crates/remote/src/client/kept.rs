//! What a client knows of the nodes that it holds: their generation, and which state of a file the
//! kernel's pages have.

use std::collections::BTreeMap;

use device::sync::Mutex;
use inode::{Attr, NodeId};

/// A state of a file. The change time is set by every change, and only by the server.
type Version = (i64, i64, u64);

#[derive(Default, Clone, Copy)]
struct Node {
    generation: u64,
    in_snapshot: bool,
    lookups: u64,
    /// As of the last open.
    pages: Option<Version>,
}

/// The nodes.
#[derive(Default)]
pub(super) struct Kept(Mutex<BTreeMap<NodeId, Node>>);

fn version(attr: &Attr) -> Version {
    (attr.ctime.0, attr.mtime.0, attr.size)
}

impl Kept {
    /// A look-up found a node.
    pub(super) fn found(&self, node: NodeId, generation: u64, in_snapshot: bool) {
        let mut nodes = self.0.lock();
        let kept = nodes.entry(node).or_default();
        if kept.generation != generation {
            *kept = Node::default();
        }
        kept.generation = generation;
        kept.in_snapshot = in_snapshot;
        kept.lookups += 1;
    }

    /// Look-ups were returned.
    pub(super) fn forget(&self, node: NodeId, lookups: u64) {
        let mut nodes = self.0.lock();
        if let Some(kept) = nodes.get_mut(&node) {
            kept.lookups = kept.lookups.saturating_sub(lookups);
            if kept.lookups == 0 {
                nodes.remove(&node);
            }
        }
    }

    pub(super) fn generation(&self, node: NodeId) -> u64 {
        self.0.lock().get(&node).map_or(0, |kept| kept.generation)
    }

    pub(super) fn is_in_snapshot(&self, node: NodeId) -> bool {
        self.0.lock().get(&node).is_some_and(|kept| kept.in_snapshot)
    }

    /// A file is opened in a state: whether pages that were read since its last open are of it.
    pub(super) fn opened(&self, node: NodeId, attr: &Attr) -> bool {
        let mut nodes = self.0.lock();
        let Some(kept) = nodes.get_mut(&node) else { return false };
        kept.pages.replace(version(attr)) == Some(version(attr))
    }
}
