//! Rebalances nodes that a change left underfull because no sibling was in memory.
//!
//! A change that makes a node underfull holds its tree exclusively, and all readers of the tree
//! wait for it. So it does not wait for the disk (`merge`). Here, after the commit and with nothing
//! locked, the siblings are loaded, and the path to the key is rebalanced from the root down. That
//! does not change the content of the tree and is not logged. A crash before it, or a checkpoint,
//! finds an underfull node, which is harmless.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use store::Result;

use crate::cell::{Child, Node};
use crate::core::Core;
use crate::limits::WEIGHT_MIN;
use crate::merge::{Rebalanced, Siblings};
use crate::nodes::{Nodes, unread};
use crate::tree::{Faults, Miss, Root, Tree};
use crate::write::can_shrink;

/// Other threads may evict the loaded siblings; after this many rounds they are read with the tree
/// exclusive.
const ROUNDS_MAX: usize = 4;

/// Trees, and keys whose paths may have underfull nodes.
#[derive(Debug, Default)]
pub(crate) struct Underfull(Vec<(Arc<Tree>, Vec<u8>)>);

impl Underfull {
    /// Notes a path to rebalance later.
    #[inline]
    pub(crate) fn note(&mut self, tree: &Arc<Tree>, key: &[u8], rebalanced: Rebalanced) {
        if rebalanced == Rebalanced::Later {
            self.0.push((Arc::clone(tree), key.to_vec()));
        }
    }
}

impl Core {
    /// Rebalances nodes that commits left underfull. Called without locks.
    #[inline]
    pub(crate) fn rebalance_underfull(&self, underfull: &Underfull) {
        for (tree, key) in &underfull.0 {
            if let Err(error) = self.rebalance_at(tree, key) {
                tracing::warn!(%error, "a node stays underfull because its sibling cannot be read");
            }
        }
    }

    #[cold]
    fn rebalance_at(&self, tree: &Arc<Tree>, key: &[u8]) -> Result<()> {
        for round in 1..=ROUNDS_MAX {
            tree.load_siblings(&self.nodes, key)?;
            // Inside the gate nothing is evicted, and no tree is dropped.
            let _gate = self.gate.read();
            if tree.dropped.load(Ordering::Relaxed) {
                break;
            }
            let siblings = match round {
                ROUNDS_MAX => Siblings::Anywhere,
                _ if !tree.has_ready(key, false) => continue,
                _ => Siblings::InMemory,
            };
            self.mark_changed(tree);
            let rebalanced = self.nodes.rebalance_path(&mut tree.state.write(), key, siblings)?;
            if rebalanced == Rebalanced::Now {
                break;
            }
        }
        Ok(())
    }
}

impl Tree {
    /// Loads the path to a key, and a sibling of each node on it that is underfull or soon may be.
    fn load_siblings(&self, nodes: &Nodes, key: &[u8]) -> Result<()> {
        let mut faults = Faults::default();
        loop {
            let found = self.state.read().find_siblings(&mut faults, key);
            match found {
                Ok(()) => return Ok(()),
                Err(miss) => faults.resolve(nodes, miss)?,
            }
        }
    }
}

impl Root {
    fn find_siblings(&self, faults: &mut Faults, key: &[u8]) -> std::result::Result<(), Miss> {
        let (mut node, mut level) = (resident(&self.child, self.level, faults)?, self.level);
        while let Node::Interior(interior) = node {
            level -= 1;
            let at = interior.route(key);
            node = resident(&interior.children[at], level, faults)?;
            let right = (at + 1 < interior.children.len()).then_some(at + 1);
            let left = at.checked_sub(1);
            let siblings = [right, left].map(|at| at.map(|at| &interior.children[at]));
            let had = siblings.iter().flatten().any(|child| unread(child).is_none());
            if let Some(sibling) = siblings.into_iter().flatten().next()
                && !had
                && is_wanting(node)
            {
                resident(sibling, level, faults)?;
            }
        }
        Ok(())
    }
}

/// Whether a node is rebalanced now, or with the next child that it loses.
fn is_wanting(node: &Node) -> bool {
    match node {
        Node::Interior(interior) => !can_shrink(interior),
        Node::Leaf(leaf) => {
            let state = leaf.latch.read();
            state.data.as_ref().is_none_or(|data| data.entries.weight() < WEIGHT_MIN)
        }
    }
}

/// The node in a slot, with its content.
fn resident<'c>(
    child: &'c Child,
    level: u8,
    faults: &mut Faults,
) -> std::result::Result<&'c Node, Miss> {
    let node = match child.cell.get() {
        Some(node) => node,
        None => faults.fill(child, level)?,
    };
    if let Node::Leaf(leaf) = node {
        let state = leaf.latch.read();
        if let (None, Some(pointer)) = (&state.data, state.disk) {
            return Err(Miss::Leaf(Arc::clone(leaf), pointer));
        }
    }
    Ok(node)
}
