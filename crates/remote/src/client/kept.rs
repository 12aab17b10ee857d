//! What a client knows of the nodes that it holds: their generation, and which state of a file the
//! kernel's pages have.

use std::collections::BTreeMap;

use device::sync::Mutex;
use inode::{Attr, NodeId};
use wire::remote::{HeldNode, OPEN_READ, OPEN_WRITE};

use crate::convert;

/// A state of a file. The change time is set by every change, and only by the server.
type Version = (i64, i64, u64);

#[derive(Default, Clone, Copy)]
struct Node {
    generation: u64,
    in_snapshot: bool,
    lookups: u64,
    /// As of the last open.
    pages: Option<Version>,
    opens: u32,
    /// The server's proofs that it is held, or was opened, with each of four rights; 0: none.
    proofs: [u64; 4],
}

/// The nodes.
#[derive(Default)]
pub(super) struct Kept(Mutex<BTreeMap<NodeId, Node>>);

impl Node {
    fn prove(&mut self, rights: u8, proof: u64) {
        self.proofs[usize::from(rights & (OPEN_READ | OPEN_WRITE))] = proof;
    }
}

fn version(attr: &Attr) -> Version {
    (attr.ctime.0, attr.mtime.0, attr.size)
}

impl Kept {
    /// A look-up found a node.
    pub(super) fn found(
        &self,
        node: NodeId,
        (generation, in_snapshot): (u64, bool),
        proof: u64,
        opened: Option<u8>,
    ) {
        let mut nodes = self.0.lock();
        let kept = nodes.entry(node).or_default();
        if kept.generation != generation {
            *kept = Node::default();
        }
        kept.generation = generation;
        kept.in_snapshot = in_snapshot;
        kept.lookups += 1;
        kept.prove(opened.unwrap_or(0), proof);
        kept.opens += u32::from(opened.is_some());
    }

    /// A node was opened.
    pub(super) fn was_opened(&self, node: NodeId, rights: u8, proof: u64) {
        if let Some(kept) = self.0.lock().get_mut(&node) {
            kept.prove(rights, proof);
            kept.opens += 1;
        }
    }

    /// An open ended; returns whether it was the last one.
    pub(super) fn was_released(&self, node: NodeId) -> bool {
        let mut nodes = self.0.lock();
        let Some(kept) = nodes.get_mut(&node) else { return true };
        kept.opens = kept.opens.saturating_sub(1);
        kept.opens == 0
    }

    /// All that is held, for a server that took over.
    pub(super) fn held(&self) -> Vec<HeldNode> {
        let nodes = self.0.lock();
        let held = nodes.iter().map(|(node, kept)| {
            let proofs = (0..).zip(kept.proofs).filter(|(_, proof)| *proof != 0);
            HeldNode {
                node: convert::node_to_wire(*node),
                generation: kept.generation,
                lookups: kept.lookups,
                opens: kept.opens,
                proofs: proofs.collect(),
            }
        });
        held.collect()
    }

    /// The session is a new one: what was open before is not open in it.
    pub(super) fn forget_opens(&self) {
        for kept in self.0.lock().values_mut() {
            (kept.opens, kept.proofs) = (0, [0; 4]);
        }
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
