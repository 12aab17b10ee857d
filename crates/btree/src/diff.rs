//! Differences between two trees, at a cost proportional to what differs.
//!
//! Both trees are walked in key order, each as a sequence of pending subtrees and entries. Where
//! both sequences start with the same subtree - the same cell, or the same place on disk - both
//! skip it. Otherwise the one that starts lower is opened; of two that start alike, the higher. So
//! only nodes that differ, and their neighbours, are read. Where a range of keys is requested, both
//! sequences hold only what overlaps it.
//!
//! Nodes that will be opened are requested ahead (`ahead`). Equal entries of two leaves are skipped
//! in place: changes that are scattered over a large tree leave hardly a leaf that both trees
//! share, and hardly an entry that they do not share. A leaf that is not in memory is read for this
//! once and stays out of the cache, because it is not used again.
//!
//! **The two trees may be of two pinned states** of the same store, both alive as long as the
//! cursor. Then too, "the same" means the same node:
//! * A cell that is reachable from a pinned state has another owner, so no thread changes it in
//!   place; its address is not reused while either side holds it.
//! * A place on disk that the older state may read is not reused before its pin drops. Space that a
//!   checkpoint frees while any pin lives is held for the newest pin, and freed only when the
//!   oldest pin is newer than that (`Space::held`). If the newer state finds a node at a place that
//!   the older one reads, that node was therefore written before either state was pinned, and is
//!   the older state's node. It does not matter which of the two is called old.
//! * Where an unwritten node of one state was written since, its cell knows its place. That place
//!   is protected as above from the moment when the cell recorded it.

use std::sync::Arc;

use store::{Diff, DiffCursor, Error, KeyRange, Result, TreeId};

use crate::ahead;
use crate::cell::{Child, Node, OverflowCell};
use crate::core::Core;
use crate::leaf::{LeafData, Value};
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
    leaf: Option<OpenLeaf>,
}

/// An open leaf, limited to the range.
struct OpenLeaf {
    data: LeafData,
    /// The next entry.
    at: usize,
    /// The end of the entries.
    end: usize,
}

/// An entry, copied out.
#[derive(Default)]
struct Entry {
    key: Vec<u8>,
    value: Vec<u8>,
    far: Option<Arc<OverflowCell>>,
}

/// The pins that keep nodes in place while they are read.
pub(crate) enum Pins<'a> {
    /// One pin that nobody else needs.
    Own(Pin),
    /// Two pins of one store.
    Two(&'a Pin, &'a Pin),
}

impl Pins<'_> {
    fn of_old(&self) -> &Pin {
        match self {
            Pins::Own(pin) => pin,
            Pins::Two(old, _) => old,
        }
    }

    fn of_new(&self) -> &Pin {
        match self {
            Pins::Own(pin) => pin,
            Pins::Two(_, new) => new,
        }
    }

    fn core(&self) -> &Core {
        &self.of_old().core
    }
}

/// Walks two trees of pinned states.
pub(crate) struct TreeDiff<'a> {
    pins: Pins<'a>,
    range: KeyRange,
    old: Side,
    new: Side,
    key: Vec<u8>,
    values: [Option<Vec<u8>>; 2],
    /// The error that ended the walk: continuing would leave out what could not be read.
    failed: Option<Error>,
}

impl Side {
    fn new(pin: &Pin, id: TreeId) -> Result<Side> {
        let root = pin.tree(id)?.state.read().clone();
        let (child, level) = (root.child, root.level);
        let subtree = Subtree { low: Vec::new(), child, level, asked: false };
        Ok(Side { subtrees: vec![subtree], leaf: None })
    }

    /// Whether the next element is an entry.
    fn at_entry(&mut self) -> bool {
        if self.leaf.as_ref().is_some_and(|leaf| leaf.at < leaf.end) {
            return true;
        }
        self.leaf = None;
        false
    }

    /// The least key that may come next.
    fn low(&self) -> Option<Vec<u8>> {
        if let Some(leaf) = &self.leaf {
            return Some(leaf.data.entries.key(leaf.at));
        }
        self.subtrees.last().map(|subtree| subtree.low.clone())
    }

    fn level(&self) -> u8 {
        self.subtrees.last().map_or(0, |subtree| subtree.level)
    }

    /// Replaces the next subtree by its children or entries, as far as they may be in the range.
    fn open(&mut self, core: &Core, range: &KeyRange, other: &Side) -> Result<()> {
        ahead::ask(&core.nodes, self, other);
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
    fn take(&mut self) -> Option<Entry> {
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

pub(crate) fn same(old: &Child, new: &Child) -> bool {
    let cells = match (old.cell.get(), new.cell.get()) {
        (Some(old), Some(new)) => old.identity() == new.identity(),
        _ => false,
    };
    cells || matches!((old.pointer(), new.pointer()), (Some(old), Some(new)) if old == new)
}

impl<'a> TreeDiff<'a> {
    /// Compares `old` of one pinned state with `new` of the other, within a range.
    pub(crate) fn new(
        pins: Pins<'a>,
        old: TreeId,
        new: TreeId,
        range: KeyRange,
    ) -> Result<TreeDiff<'a>> {
        if !std::ptr::eq(pins.core(), &raw const *pins.of_new().core) {
            return Err(Error::ForeignPin);
        }
        let (old, new) = (Side::new(pins.of_old(), old)?, Side::new(pins.of_new(), new)?);
        let (key, values) = (Vec::new(), [None, None]);
        let mut diff = TreeDiff { pins, range, old, new, key, values, failed: None };
        if diff.range.to.as_ref().is_some_and(|to| *to <= diff.range.from) {
            diff.old.subtrees.clear();
            diff.new.subtrees.clear();
        }
        Ok(diff)
    }

    fn open_old(&mut self) -> Result<()> {
        self.old.open(self.pins.core(), &self.range, &self.new)
    }

    fn open_new(&mut self) -> Result<()> {
        self.new.open(self.pins.core(), &self.range, &self.old)
    }

    /// Advances to the next entry that must be compared; returns the sides that have it.
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
                        self.open_old()?;
                        continue;
                    }
                    (None, Some(_)) => {
                        self.open_new()?;
                        continue;
                    }
                };
            };
            match (old_entry, new_entry) {
                (true, true) => return Ok((old <= new, new <= old)),
                // An entry below everything that the other side may still yield is the next.
                (true, false) if old < new => return Ok((true, false)),
                (false, true) if new < old => return Ok((false, true)),
                (true, false) => self.open_new()?,
                (false, true) => self.open_old()?,
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
            self.open_new()
        } else {
            self.open_old()
        }
    }

    fn value(&self, entry: Entry) -> Result<Vec<u8>> {
        match entry.far {
            Some(cell) => Ok(self.pins.core().nodes.load_overflow(&cell)?.to_vec()),
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

impl TreeDiff<'_> {
    /// Skips entries that come next on both sides and are equal, without copying them.
    fn skip_alike(&mut self) {
        let (Some(old), Some(new)) = (&mut self.old.leaf, &mut self.new.leaf) else { return };
        while old.at < old.end && new.at < new.end {
            let (Value::Near(first), Value::Near(second)) =
                (old.data.value(old.at), new.data.value(new.at))
            else {
                return;
            };
            if !old.data.entries.same_key(old.at, &new.data.entries, new.at) || first != second {
                return;
            }
            old.at += 1;
            new.at += 1;
        }
    }

    /// Finds the next difference; returns whether there is one.
    fn find(&mut self) -> Result<bool> {
        loop {
            self.skip_alike();
            let (old, new) = self.advance()?;
            if !old && !new {
                return Ok(false);
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
            if old != new {
                self.values = [old, new];
                return Ok(true);
            }
        }
    }
}

impl DiffCursor for TreeDiff<'_> {
    fn next(&mut self) -> Result<Option<Diff<'_>>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        match self.find() {
            Ok(true) => {
                let [old, new] = &self.values;
                Ok(Some(Diff { key: &self.key, old: old.as_deref(), new: new.as_deref() }))
            }
            Ok(false) => Ok(None),
            Err(error) => {
                self.failed = Some(error.clone());
                Err(error)
            }
        }
    }
}
