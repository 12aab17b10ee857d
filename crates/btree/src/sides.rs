//! The two sides of a comparison: what is left of each tree, opened node by node.

use std::sync::Arc;

use store::{KeyRange, Result, TreeId};

use crate::cell::{Child, Node};
use crate::core::Core;
use crate::leaf::{LeafData, Value};
use crate::overflow::OverflowCell;
use crate::pin::Pin;

/// A pending subtree, and the least key that may be in it.
pub(crate) struct Subtree {
    pub(crate) low: Vec<u8>,
    pub(crate) child: Child,
    pub(crate) level: u8,
    /// Whether its read was requested, if it needs one.
    pub(crate) asked: bool,
}

/// The rest of one tree, from some key on.
pub(crate) struct Side {
    /// Pending subtrees, the next one last.
    pub(crate) subtrees: Vec<Subtree>,
    /// A leaf that was opened.
    pub(crate) leaf: Option<OpenLeaf>,
}

/// An open leaf, limited to the range.
pub(crate) struct OpenLeaf {
    pub(crate) data: LeafData,
    /// The next entry.
    pub(crate) at: usize,
    /// The end of the entries.
    pub(crate) end: usize,
}

/// An entry, copied out.
#[derive(Default)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) far: Option<Arc<OverflowCell>>,
}

impl Side {
    pub(crate) fn new(pin: &Pin, id: TreeId) -> Result<Side> {
        let root = pin.tree(id)?.state.read().clone();
        let (child, level) = (root.child, root.level);
        let subtree = Subtree { low: Vec::new(), child, level, asked: false };
        Ok(Side { subtrees: vec![subtree], leaf: None })
    }

    /// Whether the next element is an entry.
    pub(crate) fn at_entry(&mut self) -> bool {
        if self.leaf.as_ref().is_some_and(|leaf| leaf.at < leaf.end) {
            return true;
        }
        self.leaf = None;
        false
    }

    /// The least key that may come next.
    pub(crate) fn low(&self) -> Option<Vec<u8>> {
        if let Some(leaf) = &self.leaf {
            return Some(leaf.data.entries.key(leaf.at));
        }
        self.subtrees.last().map(|subtree| subtree.low.clone())
    }

    pub(crate) fn level(&self) -> u8 {
        self.subtrees.last().map_or(0, |subtree| subtree.level)
    }

    /// Replaces the next subtree by its children or entries, as far as they may be in the range.
    pub(crate) fn open(&mut self, core: &Core, range: &KeyRange) -> Result<()> {
        let Some(subtree) = self.subtrees.pop() else { return Ok(()) };
        let to = range.to.as_deref();
        if subtree.level == 0 {
            let data = core.nodes.look_at_leaf(&subtree.child)?;
            let end = to.map_or(data.entries.len(), |to| data.entries.rank_below(to));
            let at = data.entries.rank_below(&range.from);
            self.leaf = Some(OpenLeaf { data, at, end });
            return Ok(());
        }
        let node = match (subtree.child.cell.get(), subtree.child.disk) {
            (Some(node), _) => node.clone(),
            (None, Some(pointer)) => core.nodes.load(pointer, subtree.level)?,
            (None, None) => unreachable!("a slot has a pointer or a cell"),
        };
        let Node::Interior(interior) = node else {
            unreachable!("a node is of the kind of its level")
        };
        let first = interior.route(&range.from);
        let last = to.map_or(interior.keys.len(), |to| interior.keys.rank_below(to));
        for at in (first..=last).rev() {
            let low = match at.checked_sub(1) {
                Some(before) => interior.keys.key(before),
                None => subtree.low.clone(),
            };
            let (child, level) = (interior.children[at].clone(), subtree.level - 1);
            self.subtrees.push(Subtree { low, child, level, asked: false });
        }
        core.shrink();
        Ok(())
    }

    /// Takes the next entry.
    pub(crate) fn take(&mut self) -> Option<Entry> {
        let OpenLeaf { data, at, .. } = self.leaf.as_mut()?;
        let mut entry = Entry { key: data.entries.key(*at), ..Entry::default() };
        match data.value(*at) {
            Value::Near(value) => entry.value.extend_from_slice(value),
            Value::Far(cell) => entry.far = Some(Arc::clone(cell)),
        }
        *at += 1;
        Some(entry)
    }
}

/// Whether two slots have one node.
pub(crate) fn same(old: &Child, new: &Child) -> bool {
    let cells = match (old.cell.get(), new.cell.get()) {
        (Some(old), Some(new)) => old.identity() == new.identity(),
        _ => false,
    };
    cells || matches!((old.pointer(), new.pointer()), (Some(old), Some(new)) if old == new)
}
