//! Grafts leaves that are on disk into a range of a tree that holds no key.
//!
//! The range is inside one leaf, or between two. In the first case that leaf is split there. In the
//! second, the separator between the two leaves, which may be at any level, is raised above the
//! range. So all of the range belongs to the left leaf. Then the new leaves are inserted behind the
//! left one, one descent each: interior nodes are split on the way down as by insertions. The rest
//! of the leaf that was split may be underfull, and is rebalanced.
//!
//! A leaf whose keys were all removed while no sibling could be read still exists. It may be in the
//! range with a separator on either side. Such leaves are cut off first.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::Malformed;
use format::batch::IngestedLeaf;
use store::Result;

use crate::cell::{Child, Interior, LeafCell, Node};
use crate::copied::{Copied, copy_on};
use crate::core::Core;
use crate::entries::separator;
use crate::leaf::LeafData;
use crate::limits::WEIGHT_MAX;
use crate::merge::{Rebalanced, Siblings};
use crate::nodes::Nodes;
use crate::plan::malformed;
use crate::range_delete::Range;
use crate::tree::{Root, Tree};
use crate::underfull::Underfull;

/// Each round splits the nodes that were too full to take a longer separator; two are enough.
const ROUNDS_MAX: usize = 4;

impl Core {
    /// The first key of a tree from `from` on.
    pub(super) fn first_from(&self, tree: &Tree, from: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut copied = Copied::default();
        let mut next = Some(from.to_vec());
        while let Some(from) = next {
            next = copy_on(&self.nodes, tree, &from, None, &mut copied)?;
            if copied.len() > 0 {
                return Ok(Some(copied.key(0).to_vec()));
            }
        }
        Ok(None)
    }

    /// Grafts leaves into a tree that has no key from `first` up to `last`. The caller has the gate
    /// exclusively.
    pub(crate) fn graft(
        &self,
        tree: &Arc<Tree>,
        first: &[u8],
        last: &[u8],
        leaves: &[IngestedLeaf<'_>],
        underfull: &mut Underfull,
    ) -> Result<()> {
        let after = self.first_from(tree, first)?;
        if let Some(key) = after.as_deref().filter(|&after| after <= last) {
            // The ingesting thread has checked this; a log record gets no more trust than this.
            return Err(malformed(Malformed {
                structure: "ingested run",
                at: 0,
                expected: "a range of the tree without a key",
                found: format!("key {key:02x?}"),
            }));
        }
        self.mark_changed(tree);
        tree.resident.store(false, Ordering::Relaxed);
        let gap = Gap { first, last, after: after.as_deref() };
        let left = self.nodes.graft(&mut tree.state.write(), &gap, leaves)?;
        for key in left {
            underfull.note(tree, &key, Rebalanced::Later);
        }
        Ok(())
    }
}

/// The gap into which leaves are inserted.
struct Gap<'a> {
    first: &'a [u8],
    last: &'a [u8],
    /// The first key of the tree behind it.
    after: Option<&'a [u8]>,
}

/// The rest of the leaf that had the gap.
#[derive(Default)]
struct Rest {
    /// First and last key before the gap.
    left: Option<(Vec<u8>, Vec<u8>)>,
    right: Option<LeafData>,
}

impl Nodes {
    /// Returns keys whose paths remain to be rebalanced.
    fn graft(
        &self,
        root: &mut Root,
        gap: &Gap<'_>,
        leaves: &[IngestedLeaf<'_>],
    ) -> Result<Vec<Vec<u8>>> {
        if self.has_empty_leaves(root, gap)? {
            let range = Range { from: gap.first, to: gap.after };
            // Underfull nodes are rebalanced below, or were underfull before.
            let _rebalanced = self.delete_range(root, range, &mut Vec::new())?;
        }
        if root.level == 0 {
            self.push_root(root);
        }
        let behind = gap.after.map(|after| separator(gap.last, after));
        if let Some(behind) = &behind {
            self.raise_fence(root, gap, behind)?;
        }
        let node = self.descend(root, gap.first)?;
        let at = node.route(gap.first);
        let rest = self.cut_leaf(node, at, gap.first)?;
        let mut rebalance: Vec<Vec<u8>> = Vec::new();
        if let (Some(right), Some(behind)) = (rest.right, &behind) {
            rebalance.extend(gap.after.map(<[u8]>::to_vec));
            let right = Arc::new(LeafCell::new(&self.budget, right, None));
            node.insert_child(at, behind, Child::in_memory(Node::Leaf(right)));
        }
        let mut leaves = leaves.iter();
        let mut from = None;
        match rest.left {
            Some((first, last)) => {
                from = Some(separator(&last, gap.first));
                rebalance.push(first);
            }
            // Nothing is left of it: the first leaf takes its place.
            None => {
                if let Some(leaf) = leaves.next() {
                    node.children[at] = Child::on_disk(leaf.pointer);
                }
            }
        }
        for leaf in leaves {
            let from = from.take().unwrap_or_else(|| leaf.from.to_vec());
            let node = self.descend(root, &from)?;
            let at = node.route(&from);
            node.insert_child(at, &from, Child::on_disk(leaf.pointer));
        }
        let mut left = Vec::new();
        for key in rebalance {
            if self.rebalance_path(root, &key, Siblings::InMemory)? == Rebalanced::Later {
                left.push(key);
            }
        }
        self.pull_root(root)?;
        Ok(left)
    }

    /// Whether there are leaves between that of the first key of a gap, and that of the next key of
    /// the tree, or its end.
    fn has_empty_leaves(&self, root: &Root, gap: &Gap<'_>) -> Result<bool> {
        let Some(next) = self.fence_behind(root, gap.first)? else { return Ok(false) };
        let Some(after) = gap.after else { return Ok(true) };
        if after < next.as_slice() {
            return Ok(false);
        }
        let end = self.fence_behind(root, &next)?;
        Ok(end.is_some_and(|end| end.as_slice() <= after))
    }

    /// The separator behind the leaf that has a key, whose path was loaded before.
    fn fence_behind(&self, root: &Root, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let (mut child, mut fence) = (&root.child, None);
        for level in (1..=root.level).rev() {
            if child.cell.get().is_none() {
                let pointer = child.disk.expect("invariant: a slot has a cell or a pointer");
                let node = self.load(pointer, level)?;
                child.cell.get_or_init(|| node);
            }
            let Some(Node::Interior(interior)) = child.cell.get() else {
                unreachable!("nodes above level 0 are interior")
            };
            let at = interior.route(key);
            if at < interior.keys.len() {
                fence = Some(interior.keys.key(at));
            }
            child = &interior.children[at];
        }
        Ok(fence)
    }

    /// The node of level 1 on the path to a key; it can take one more child.
    fn descend<'r>(&self, root: &'r mut Root, key: &[u8]) -> Result<&'r mut Interior> {
        self.open_root(root)?;
        let level = root.level;
        let mut node = self.own_interior(&mut root.child, level)?;
        while node.level > 1 {
            let (at, _) = self.open_child(node, key, None)?;
            let below = node.level - 1;
            node = self.own_interior(&mut node.children[at], below)?;
        }
        Ok(node)
    }

    /// Removes the entries from `first` on from a leaf, and returns them.
    fn cut_leaf(&self, node: &mut Interior, at: usize, first: &[u8]) -> Result<Rest> {
        let mut state = self.own_leaf(&mut node.children[at])?;
        let data = state.data_mut();
        let (rank, count) = (data.entries.rank_below(first), data.entries.len());
        let mut rest = Rest::default();
        if rank > 0 {
            rest.left = Some((data.entries.key(0), data.entries.key(rank - 1)));
        }
        if rank < count {
            rest.right = Some(data.extract(rank, count));
            *data = data.extract(0, rank);
            state.recharge();
        }
        Ok(rest)
    }

    /// Ensures that no separator is in the gap.
    fn raise_fence(&self, root: &mut Root, gap: &Gap<'_>, behind: &[u8]) -> Result<()> {
        for _ in 0..ROUNDS_MAX {
            if self.try_raise_fence(root, gap, behind)? {
                return Ok(());
            }
            // Splits nodes that could not take a child, nor a longer separator.
            self.descend(root, gap.first)?;
        }
        unreachable!("a node that was split takes a longer separator")
    }

    /// At most one separator is in the gap: between two there is a leaf with keys. Returns `false`
    /// when the separator is in a node that is too full.
    fn try_raise_fence(&self, root: &mut Root, gap: &Gap<'_>, behind: &[u8]) -> Result<bool> {
        let level = root.level;
        let mut node = self.own_interior(&mut root.child, level)?;
        loop {
            let at = node.route(gap.first);
            if at < node.keys.len() {
                let fence = node.keys.key(at);
                if fence.as_slice() <= gap.last {
                    if node.weight() + behind.len().saturating_sub(fence.len()) > WEIGHT_MAX {
                        return Ok(false);
                    }
                    node.set_separator(at, behind);
                    return Ok(true);
                }
            }
            if node.level == 1 {
                return Ok(true);
            }
            let below = node.level - 1;
            node = self.own_interior(&mut node.children[at], below)?;
        }
    }
}
