//! Removing a range of keys: whole subtrees are cut off, only the two edges are changed.
//!
//! What is cut off is given to the caller, who frees it later; here the cost is that of the two
//! paths. The edges may end up light, or empty, and are mended afterwards from the root down.

use store::Result;

use crate::cell::{Child, Interior, Node};
use crate::leaf::LeafData;
use crate::limits::WEIGHT_MIN;
use crate::nodes::Nodes;
use crate::tree::Root;
use crate::write::can_grow;

/// Repairs take a few rounds a level; more means that something cannot be read.
const ROUNDS_MAX: usize = 200;

/// A range of keys; no `to` means to the end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range<'a> {
    pub(crate) from: &'a [u8],
    pub(crate) to: Option<&'a [u8]>,
}

impl Nodes {
    /// Removes the keys of a range. Cells that were cut off go to `cut`.
    pub(crate) fn delete_range(
        &self,
        root: &mut Root,
        range: Range<'_>,
        cut: &mut Vec<Node>,
    ) -> Result<()> {
        if range.to.is_some_and(|to| to <= range.from) {
            return Ok(());
        }
        let level = root.level;
        self.cut(&mut root.child, level, range, cut)?;
        self.mend_path(root, range.from)?;
        if let Some(to) = range.to {
            self.mend_path(root, to)?;
        }
        Ok(())
    }

    /// Recurses once a level, so no deeper than `LEVEL_MAX`.
    fn cut(
        &self,
        child: &mut Child,
        level: u8,
        range: Range<'_>,
        cut: &mut Vec<Node>,
    ) -> Result<()> {
        if level == 0 {
            let mut state = self.own_leaf(child)?;
            let data: &mut LeafData = state.data_mut();
            let from = data.entries.rank_below(range.from);
            let to = range.to.map_or(data.entries.len(), |to| data.entries.rank_below(to));
            data.remove_range(from, to.max(from));
            state.recharge();
            return Ok(());
        }
        let node = self.own_interior(child, level)?;
        let first = node.route(range.from);
        // The edge is where `to` itself is looked for, so that it is on the path that is mended.
        let last = range.to.map_or(node.children.len() - 1, |to| node.route(to));
        if first >= last {
            return self.cut(&mut node.children[first], level - 1, range, cut);
        }
        self.cut(&mut node.children[first], level - 1, Range { to: None, ..range }, cut)?;
        self.cut(&mut node.children[last], level - 1, Range { from: &[], ..range }, cut)?;
        // Separator `last - 1` stays between the two edges.
        node.keys.remove_range(first, last - 1);
        for gone in node.children.drain(first + 1..last) {
            cut.extend(gone.cell.into_inner());
        }
        Ok(())
    }

    /// Mends the nodes on the way to a key until none is light.
    pub(crate) fn mend_path(&self, root: &mut Root, key: &[u8]) -> Result<()> {
        for _ in 0..ROUNDS_MAX {
            self.pull_root(root)?;
            self.open_root(root)?;
            if !self.mend_once(root, key)? {
                break;
            }
        }
        self.pull_root(root)
    }

    /// One descent; tells whether anything was changed.
    fn mend_once(&self, root: &mut Root, key: &[u8]) -> Result<bool> {
        let mut changed = false;
        if root.level == 0 {
            return Ok(false);
        }
        let level = root.level;
        let mut node = self.own_interior(&mut root.child, level)?;
        loop {
            let below = node.level - 1;
            let before = node.children.len();
            let at = node.route(key);
            if below == 0 {
                if before > 1 && self.leaf_is_light(node, at)? {
                    self.mend_leaf(node, at);
                    // Two leaves that share evenly are not light afterwards.
                    changed |= node.children.len() != before;
                }
                return Ok(changed);
            }
            let child = self.own_interior(&mut node.children[at], below)?;
            if !can_grow(child) {
                self.split_interior(node, at)?;
            } else if child.weight() < WEIGHT_MIN && before > 1 {
                self.mend_interior(node, at);
            }
            changed |= node.children.len() != before;
            let at = node.route(key);
            node = self.own_interior(&mut node.children[at], below)?;
        }
    }

    fn leaf_is_light(&self, node: &mut Interior, at: usize) -> Result<bool> {
        Ok(self.own_leaf(&mut node.children[at])?.data_mut().entries.weight() < WEIGHT_MIN)
    }
}
