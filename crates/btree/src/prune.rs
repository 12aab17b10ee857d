//! Unloading interior nodes and empty cells, for trees whose interior nodes alone outgrow the
//! cache.
//!
//! A leaf's cell stays when its content is evicted, because others may share it; an interior node
//! stays because its slots hold cells. This module drops both where they have no other owner.
//! Called inside the gate, with the tree exclusive.

use std::sync::{Arc, OnceLock};

use crate::cell::{Child, Interior, Node};
use crate::nodes::Nodes;
use crate::tree::Root;

impl Nodes {
    /// Prunes below child `at` of the root; returns whether there are more children.
    pub(crate) fn prune_part(&self, root: &mut Root, at: usize) -> bool {
        let Some(Node::Interior(shared)) = root.child.cell.get_mut() else { return false };
        let Some(interior) = self.sole_owner(shared) else { return false };
        if let Some(child) = interior.children.get_mut(at) {
            self.prune(child);
        }
        let more = at + 1 < interior.children.len();
        self.know_again(shared);
        more
    }

    /// Puts a node back into `known` that was forgotten to find out whether it has one owner.
    fn know_again(&self, shared: &Arc<Interior>) {
        if let Some(pointer) = shared.disk.get() {
            self.remember_written(*pointer, &Node::Interior(Arc::clone(shared)));
        }
    }

    /// The node, if it has no other owner.
    fn sole_owner<'n>(&self, shared: &'n mut Arc<Interior>) -> Option<&'n mut Interior> {
        if Arc::strong_count(shared) == 1
            && Arc::weak_count(shared) > 0
            && let Some(pointer) = shared.disk.get()
        {
            self.forget(*pointer);
        }
        Arc::get_mut(shared)
    }

    /// Unloads the node in a slot, if it equals its copy on disk and has no content in memory.
    /// Returns whether the slot is empty now. Recurses once a level, so no deeper than `LEVEL_MAX`.
    fn prune(&self, child: &mut Child) -> bool {
        let pointer = match child.cell.get_mut() {
            None => return true,
            Some(Node::Leaf(leaf)) => {
                let state = leaf.latch.read();
                let idle = Arc::strong_count(leaf) == 1 && state.data.is_none();
                state.disk.filter(|_| idle)
            }
            Some(Node::Interior(shared)) => {
                let Some(interior) = self.sole_owner(shared) else { return false };
                let mut empty = true;
                for child in &mut interior.children {
                    empty &= self.prune(child);
                }
                let pointer = interior.disk.get().copied().filter(|_| empty);
                if pointer.is_none() {
                    self.know_again(shared);
                }
                pointer
            }
        };
        if let Some(pointer) = pointer {
            *child = Child { disk: Some(pointer), cell: OnceLock::new() };
        }
        pointer.is_some()
    }
}
