//! Removes a range of keys: whole subtrees are cut off, only the two edges are changed.
//!
//! The caller gets the cut-off subtrees and frees them later. Here the cost is that of the two
//! paths, and no other node is needed. The edges may end up underfull, or empty, and are rebalanced
//! afterwards from the root down.

use store::Result;

use crate::cell::{Child, Interior, Node};
use crate::leaf::LeafData;
use crate::limits::WEIGHT_MIN;
use crate::merge::{Rebalanced, Siblings};
use crate::nodes::Nodes;
use crate::tree::Root;
use crate::write::can_grow;

/// Rebalancing takes a few rounds a level; more means that a node cannot be read.
const ROUNDS_MAX: usize = 200;

/// A range of keys; no `to` means to the end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range<'a> {
    pub(crate) from: &'a [u8],
    pub(crate) to: Option<&'a [u8]>,
}

impl Nodes {
    /// Removes the keys of a range; underfull nodes are rebalanced with siblings that are in
    /// memory. Appends cells that were cut off to `cut`.
    pub(crate) fn delete_range(
        &self,
        root: &mut Root,
        range: Range<'_>,
        cut: &mut Vec<Node>,
    ) -> Result<Rebalanced> {
        if range.to.is_some_and(|to| to <= range.from) {
            return Ok(Rebalanced::Now);
        }
        let level = root.level;
        self.cut(&mut root.child, level, range, cut)?;
        let rebalanced = self.rebalance_path(root, range.from, Siblings::InMemory)?;
        match range.to {
            Some(to) => Ok(rebalanced.and(self.rebalance_path(root, to, Siblings::InMemory)?)),
            None => Ok(rebalanced),
        }
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
        // The edge is the child that `to` itself routes to, so that it is on the path that is
        // rebalanced.
        let last = range.to.map(|to| node.route(to));
        let first = match last {
            Some(last) if range.from.is_empty() => last,
            _ => node.route(range.from),
        };
        let last = last.unwrap_or(first);
        if first >= last {
            self.cut(&mut node.children[first], level - 1, range, cut)?;
            // On a side without an edge all children are cut off unchanged.
            let mut gone = Vec::new();
            if range.to.is_none() {
                node.keys.remove_range(first, node.keys.len());
                gone.extend(node.children.drain(first + 1..));
            }
            if range.from.is_empty() {
                node.keys.remove_range(0, first);
                gone.extend(node.children.drain(..first));
            }
            cut.extend(gone.into_iter().filter_map(|child| child.cell.into_inner()));
            return Ok(());
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

    /// Rebalances the nodes on the path to a key, which is in memory, until none is underfull.
    pub(crate) fn rebalance_path(
        &self,
        root: &mut Root,
        key: &[u8],
        siblings: Siblings,
    ) -> Result<Rebalanced> {
        let mut rebalanced = Rebalanced::Now;
        for _ in 0..ROUNDS_MAX {
            self.pull_root(root)?;
            self.open_root(root)?;
            let changed;
            (changed, rebalanced) = self.rebalance_once(root, key, siblings)?;
            if !changed {
                break;
            }
        }
        self.pull_root(root)?;
        Ok(rebalanced)
    }

    /// One descent; returns whether anything was changed, and whether anything was left as it is.
    fn rebalance_once(
        &self,
        root: &mut Root,
        key: &[u8],
        siblings: Siblings,
    ) -> Result<(bool, Rebalanced)> {
        let (mut changed, mut rebalanced) = (false, Rebalanced::Now);
        if root.level == 0 {
            return Ok((false, rebalanced));
        }
        let level = root.level;
        let mut node = self.own_interior(&mut root.child, level)?;
        loop {
            let below = node.level - 1;
            let before = node.children.len();
            let at = node.route(key);
            if below == 0 {
                if before > 1 && self.is_underfull_leaf(node, at)? {
                    rebalanced = rebalanced.and(self.rebalance_leaf(node, at, siblings));
                    // Two leaves that share evenly are not underfull afterwards.
                    changed |= node.children.len() != before;
                }
                return Ok((changed, rebalanced));
            }
            let child = self.own_interior(&mut node.children[at], below)?;
            if !can_grow(child) {
                self.split_interior(node, at)?;
            } else if child.weight() < WEIGHT_MIN && before > 1 {
                rebalanced = rebalanced.and(self.rebalance_interior(node, at, siblings));
            }
            changed |= node.children.len() != before;
            let at = node.route(key);
            node = self.own_interior(&mut node.children[at], below)?;
        }
    }

    fn is_underfull_leaf(&self, node: &mut Interior, at: usize) -> Result<bool> {
        Ok(self.own_leaf(&mut node.children[at])?.data_mut().entries.weight() < WEIGHT_MIN)
    }
}
