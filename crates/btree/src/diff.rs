//! Differences between two trees, at a cost proportional to what differs.
//!
//! Both trees are walked in key order, each as a sequence of pending subtrees and entries. Where
//! both sequences start with the same subtree - the same cell, or the same place on disk - both
//! skip it. Otherwise the one that starts lower is opened; of two that start alike, the higher. So
//! only nodes that differ, and their neighbours, are read. Where a range of keys is requested, both
//! sequences hold only what overlaps it.
//!
//! Nodes that will be opened are requested ahead (`ahead`). Equal entries of two leaves are skipped
//! in place. Changes that are scattered over a large tree leave hardly a leaf that both trees
//! share, but most entries are equal. A leaf that is not in memory is read for this once and stays
//! out of the cache, because it is not used again.
//!
//! **The two trees may be of two pinned states** of the same store, both alive as long as the
//! cursor. Then too, "the same" means the same node:
//! * A cell that is reachable from a pinned state has another owner, so no thread changes it in
//!   place. Its address is not reused while either side holds it.
//! * A place on disk that the older state may read is not reused before its pin drops. Space that a
//!   checkpoint frees while any pin lives is held for the newest pin. It is freed only when the
//!   oldest pin is newer than that (`Space::held`). The newer state may thus find a node at a place
//!   that the older one reads. That node was written before either state was pinned, and is the
//!   older state's node. It does not matter which of the two is called old.
//! * Where an unwritten node of one state was written since, its cell knows its place. That place
//!   is protected as above from the moment when the cell recorded it.

use std::sync::Arc;

use store::{Diff, DiffCursor, Error, KeyRange, Result, TreeId};

use crate::ahead;
use crate::core::Core;
use crate::leaf::Value;
use crate::pin::Pin;
use crate::sides::{Entry, Side, same};

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
        ahead::ask(&self.pins.core().nodes, &mut self.old, &self.new);
        self.old.open(self.pins.core(), &self.range)
    }

    fn open_new(&mut self) -> Result<()> {
        ahead::ask(&self.pins.core().nodes, &mut self.new, &self.old);
        self.new.open(self.pins.core(), &self.range)
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
