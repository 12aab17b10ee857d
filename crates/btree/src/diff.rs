//! Differences between two trees, at the cost of what differs.
//!
//! Both trees are walked in key order, each as a row of subtrees and entries that are still to
//! come. Where both rows start with the same subtree - the same cell, or the same place on disk -
//! both skip it. Otherwise the one that starts lower is opened; of two that start alike, the
//! higher. So only nodes that differ, and their neighbours, are read.

use std::sync::Arc;

use store::{Diff, DiffCursor, Result, TreeId};

use crate::cell::{Child, Node, OverflowCell};
use crate::leaf::{LeafData, Value};
use crate::pin::Pin;
use crate::visit::copy_leaf;

/// A subtree that is to come, and the least key that may be in it.
struct Subtree {
    low: Vec<u8>,
    child: Child,
    level: u8,
}

/// One tree, from some place on.
struct Side {
    /// Subtrees to come, the next one last.
    subtrees: Vec<Subtree>,
    /// A leaf that was opened, and the next entry in it.
    leaf: Option<(LeafData, usize)>,
}

/// An entry, copied out.
#[derive(Default)]
struct Entry {
    key: Vec<u8>,
    value: Vec<u8>,
    far: Option<Arc<OverflowCell>>,
}

/// Walks two trees of a pinned state.
pub(crate) struct TreeDiff {
    pin: Pin,
    old: Side,
    new: Side,
    key: Vec<u8>,
    values: [Option<Vec<u8>>; 2],
}

impl Side {
    fn new(pin: &Pin, id: TreeId) -> Result<Side> {
        let root = pin.tree(id)?.state.read().clone();
        let subtree = Subtree { low: Vec::new(), child: root.child, level: root.level };
        Ok(Side { subtrees: vec![subtree], leaf: None })
    }

    /// Whether the next thing is an entry.
    fn at_entry(&mut self) -> bool {
        if let Some((data, at)) = &self.leaf
            && *at < data.entries.len()
        {
            return true;
        }
        self.leaf = None;
        false
    }

    /// The least key that may come next.
    fn low(&self) -> Option<Vec<u8>> {
        if let Some((data, at)) = &self.leaf {
            return Some(data.entries.key(*at));
        }
        self.subtrees.last().map(|subtree| subtree.low.clone())
    }

    fn level(&self) -> u8 {
        self.subtrees.last().map_or(0, |subtree| subtree.level)
    }

    /// Replaces the next subtree by what it consists of.
    fn open(&mut self, pin: &Pin) -> Result<()> {
        let Some(subtree) = self.subtrees.pop() else { return Ok(()) };
        let nodes = &pin.core.nodes;
        let node = match (subtree.child.cell.get(), subtree.child.disk) {
            (Some(node), _) => Ok(node.clone()),
            (None, Some(pointer)) => nodes.load(pointer, subtree.level),
            (None, None) => unreachable!("a slot has a pointer or a cell"),
        };
        let opened = node.and_then(|node| match node {
            Node::Leaf(leaf) => {
                self.leaf = Some((copy_leaf(nodes, &leaf)?, 0));
                Ok(())
            }
            Node::Interior(interior) => {
                for (at, child) in interior.children.iter().enumerate().rev() {
                    let low = match at.checked_sub(1) {
                        Some(before) => interior.keys.key(before),
                        None => subtree.low.clone(),
                    };
                    let child = child.clone();
                    self.subtrees.push(Subtree { low, child, level: subtree.level - 1 });
                }
                Ok(())
            }
        });
        if opened.is_err() {
            self.subtrees.push(subtree);
        }
        pin.core.shrink();
        opened
    }

    /// Takes the next entry.
    fn take(&mut self) -> Option<Entry> {
        let (data, at) = self.leaf.as_mut()?;
        let mut entry = Entry { key: data.entries.key(*at), ..Entry::default() };
        match data.value(*at) {
            Value::Near(value) => entry.value.extend_from_slice(value),
            Value::Far(cell) => entry.far = Some(Arc::clone(cell)),
        }
        *at += 1;
        Some(entry)
    }
}

fn same(old: &Child, new: &Child) -> bool {
    let cells = match (old.cell.get(), new.cell.get()) {
        (Some(old), Some(new)) => old.identity() == new.identity(),
        _ => false,
    };
    cells || matches!((old.pointer(), new.pointer()), (Some(old), Some(new)) if old == new)
}

impl TreeDiff {
    pub(crate) fn new(pin: Pin, old: TreeId, new: TreeId) -> Result<TreeDiff> {
        let (old, new) = (Side::new(&pin, old)?, Side::new(&pin, new)?);
        Ok(TreeDiff { pin, old, new, key: Vec::new(), values: [None, None] })
    }

    /// Moves on until an entry must be looked at; tells on which sides.
    fn advance(&mut self) -> Result<(bool, bool)> {
        loop {
            let (old_entry, new_entry) = (self.old.at_entry(), self.new.at_entry());
            let (Some(old), Some(new)) = (self.old.low(), self.new.low()) else {
                // One side is at its end: the other is opened to its end.
                return match (self.old.low(), self.new.low()) {
                    (None, None) => Ok((false, false)),
                    (Some(_), _) if old_entry => Ok((true, false)),
                    (_, Some(_)) if new_entry => Ok((false, true)),
                    (Some(_), _) => {
                        self.old.open(&self.pin)?;
                        continue;
                    }
                    (None, Some(_)) => {
                        self.new.open(&self.pin)?;
                        continue;
                    }
                };
            };
            match (old_entry, new_entry) {
                (true, true) => return Ok((old <= new, new <= old)),
                // What lies below all that the other side may still bring is the next.
                (true, false) if old < new => return Ok((true, false)),
                (false, true) if new < old => return Ok((false, true)),
                (true, false) => self.new.open(&self.pin)?,
                (false, true) => self.old.open(&self.pin)?,
                (false, false) => self.skip_or_open(&old, &new)?,
            }
        }
    }

    fn skip_or_open(&mut self, old: &[u8], new: &[u8]) -> Result<()> {
        let (Some(first), Some(second)) = (self.old.subtrees.last(), self.new.subtrees.last())
        else {
            return Ok(());
        };
        if first.level == second.level && same(&first.child, &second.child) {
            self.old.subtrees.pop();
            self.new.subtrees.pop();
            return Ok(());
        }
        if new < old || (new == old && self.new.level() > self.old.level()) {
            self.new.open(&self.pin)
        } else {
            self.old.open(&self.pin)
        }
    }

    fn value(&self, entry: Entry) -> Result<Vec<u8>> {
        match entry.far {
            Some(cell) => Ok(self.pin.core.nodes.load_overflow(&cell)?.to_vec()),
            None => Ok(entry.value),
        }
    }
}

fn same_far(old: Option<&Entry>, new: Option<&Entry>) -> bool {
    let far = |entry: Option<&Entry>| entry.and_then(|entry| entry.far.clone());
    match (far(old), far(new)) {
        (Some(old), Some(new)) => {
            Arc::ptr_eq(&old, &new) || (old.disk.get().is_some() && old.disk == new.disk)
        }
        _ => false,
    }
}

impl DiffCursor for TreeDiff {
    fn next(&mut self) -> Result<Option<Diff<'_>>> {
        loop {
            let (old, new) = self.advance()?;
            if !old && !new {
                return Ok(None);
            }
            let old = if old { self.old.take() } else { None };
            let new = if new { self.new.take() } else { None };
            if same_far(old.as_ref(), new.as_ref()) {
                continue;
            }
            let key = old.as_ref().or(new.as_ref()).map(|entry| entry.key.clone());
            self.key = key.unwrap_or_default();
            let old = old.map(|entry| self.value(entry)).transpose()?;
            let new = new.map(|entry| self.value(entry)).transpose()?;
            if old == new {
                continue;
            }
            self.values = [old, new];
            let [old, new] = &self.values;
            return Ok(Some(Diff { key: &self.key, old: old.as_deref(), new: new.as_deref() }));
        }
    }
}
