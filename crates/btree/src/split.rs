//! Splitting a child in two. The parent has room for one more.

use std::sync::Arc;

use store::Result;

use crate::cell::{Child, Interior, LeafCell, Node};
use crate::entries::{Cell, separator};
use crate::nodes::Nodes;

/// A separator has no value.
const NONE: Cell<'static> = Cell { bytes: &[], flagged: false };

impl Interior {
    /// Puts a child behind child `at`, from `key` on.
    pub(crate) fn insert_child(&mut self, at: usize, key: &[u8], child: Child) {
        self.keys.insert(at, key, NONE);
        self.children.insert(at + 1, child);
    }

    /// Exchanges the separator between children `at` and `at + 1`.
    pub(crate) fn set_separator(&mut self, at: usize, key: &[u8]) {
        self.keys.remove(at);
        self.keys.insert(at, key, NONE);
    }

    /// Appends children that lie behind this node's, from `key` on.
    pub(crate) fn append(&mut self, key: &[u8], other: &mut Interior) {
        self.keys.insert(self.keys.len(), key, NONE);
        self.keys.extend(&other.keys);
        self.children.append(&mut other.children);
    }

    /// Splits a node in two so that the halves weigh about the same; returns the separator and
    /// the right half.
    pub(crate) fn halve(&mut self) -> (Vec<u8>, Interior) {
        // At least one separator on either side of the one that goes up, where there are three.
        let middle = self.keys.split_point(self.keys.weight() / 2);
        let middle = middle.clamp(1, (self.keys.len() - 2).max(1));
        let key = self.keys.key(middle);
        let right = self.keys.extract(middle + 1, self.keys.len());
        self.keys = self.keys.extract(0, middle);
        let children = self.children.split_off(middle + 1);
        (key, Interior::new(self.budget(), self.level, right, children, None))
    }
}

impl Nodes {
    /// Splits the leaf that is child `at`. A leaf that grows at its end, as with ascending keys,
    /// keeps two thirds, so that nodes are left fuller.
    pub(crate) fn split_leaf(&self, parent: &mut Interior, at: usize, key: &[u8]) -> Result<()> {
        let last = at + 1 == parent.children.len();
        let mut state = self.own_leaf(&mut parent.children[at])?;
        let data = state.data_mut();
        let count = data.entries.len();
        let ascending = last && data.entries.rank(key) == count;
        let weight = data.entries.weight();
        let share = if ascending { weight / 3 * 2 } else { weight / 2 };
        let middle = data.entries.split_point(share);
        let right = data.extract(middle, count);
        *data = data.extract(0, middle);
        let between = separator(&data.entries.key(middle - 1), &right.entries.key(0));
        state.recharge();
        drop(state);
        let right = Arc::new(LeafCell::new(&self.budget, right, None));
        parent.insert_child(at, &between, Child::in_memory(Node::Leaf(right)));
        Ok(())
    }

    /// Splits the interior node that is child `at`.
    pub(crate) fn split_interior(&self, parent: &mut Interior, at: usize) -> Result<()> {
        let below = parent.level - 1;
        let child = self.own_interior(&mut parent.children[at], below)?;
        let (key, right) = child.halve();
        parent.insert_child(at, &key, Child::in_memory(Node::Interior(Arc::new(right))));
        Ok(())
    }
}
