//! The content of a leaf, and how an operation changes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use format::batch::LaneList;
use format::node::INLINE_VALUE_BYTES_MAX;

use crate::budget::Budget;
use crate::entries::{Cell, Entries, entry_weight};
use crate::limits::{WEIGHT_MAX, WEIGHT_MIN};
use crate::overflow::OverflowCell;

/// Weight of a value in an overflow node: a pointer and a length. The number of its cell, padded to
/// that size, is stored in place of the value.
pub(crate) const FAR_BYTES: usize = 16;

/// Entries, and the cells of the values that are in overflow nodes.
#[derive(Debug, Clone, Default)]
pub(crate) struct LeafData {
    pub(crate) entries: Entries,
    far: BTreeMap<u32, Arc<OverflowCell>>,
    next_far: u32,
}

/// A value as a leaf stores it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Near(&'a [u8]),
    Far(&'a Arc<OverflowCell>),
}

/// A change of one key.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change<'a> {
    Put(&'a [u8]),
    Delete,
    Merge(LaneList<'a>),
}

/// Whether a leaf may become underfull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Floor {
    /// No: the caller cannot rebalance it.
    Keep,
    /// Yes: it is a root, or the caller rebalances it.
    Open,
}

/// The result of a change.
#[derive(Debug)]
pub(crate) enum Outcome {
    Done,
    /// Nothing was done: the leaf must be split first.
    TooFull,
    /// Nothing was done: the leaf would become underfull.
    TooLight,
    /// Nothing was done: the old value must be loaded first.
    Load(Arc<OverflowCell>),
}

fn far_bytes(number: u32) -> [u8; FAR_BYTES] {
    let mut bytes = [0; FAR_BYTES];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn far_number(bytes: &[u8]) -> u32 {
    bytes.first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

impl LeafData {
    /// A leaf with these entries, none of them flagged.
    pub(crate) fn with_entries(entries: Entries) -> LeafData {
        LeafData { entries, far: BTreeMap::new(), next_far: 0 }
    }

    /// A copy with spare capacity, for a change.
    pub(crate) fn copy_with_spare(&self) -> LeafData {
        let (far, next_far) = (self.far.clone(), self.next_far);
        LeafData { entries: self.entries.copy_with_spare(), far, next_far }
    }

    /// Memory held, in bytes; overflow cells account for themselves.
    pub(crate) fn memory(&self) -> usize {
        self.entries.memory() + self.far.len() * 64
    }

    /// Whether any value is in an overflow node.
    pub(crate) fn has_far(&self) -> bool {
        !self.far.is_empty()
    }

    /// The value of an entry.
    #[inline]
    pub(crate) fn value(&self, at: usize) -> Value<'_> {
        let cell = self.entries.value(at);
        if cell.flagged {
            Value::Far(&self.far[&far_number(cell.bytes)])
        } else {
            Value::Near(cell.bytes)
        }
    }

    /// Changes one key.
    pub(crate) fn apply(
        &mut self,
        budget: &Arc<Budget>,
        key: &[u8],
        change: Change<'_>,
        floor: Floor,
    ) -> Outcome {
        match change {
            Change::Put(value) => self.put(budget, key, value, floor),
            Change::Delete => self.delete(key, floor),
            Change::Merge(lanes) => self.merge(budget, key, lanes, floor),
        }
    }

    fn put(&mut self, budget: &Arc<Budget>, key: &[u8], value: &[u8], floor: Floor) -> Outcome {
        let far = value.len() > INLINE_VALUE_BYTES_MAX;
        let stored = if far { FAR_BYTES } else { value.len() };
        let found = self.entries.search(key);
        let old = found.map_or(0, |at| self.entries.weight_of(at));
        let weight = self.entries.weight() + entry_weight(key.len(), stored) - old;
        if weight > WEIGHT_MAX {
            return Outcome::TooFull;
        }
        if weight < self.entries.weight() && weight < WEIGHT_MIN && floor == Floor::Keep {
            return Outcome::TooLight;
        }
        if let Ok(at) = found {
            self.forget_far(at);
        }
        let number;
        let cell = if far {
            number = far_bytes(self.add_far(Arc::new(OverflowCell::new(budget, value))));
            Cell { bytes: &number, flagged: true }
        } else {
            Cell { bytes: value, flagged: false }
        };
        match found {
            Ok(at) => self.entries.set_value(at, cell),
            Err(at) => self.entries.insert(at, key, cell),
        }
        Outcome::Done
    }

    fn delete(&mut self, key: &[u8], floor: Floor) -> Outcome {
        let Ok(at) = self.entries.search(key) else { return Outcome::Done };
        let weight = self.entries.weight() - self.entries.weight_of(at);
        if weight < WEIGHT_MIN && floor == Floor::Keep {
            return Outcome::TooLight;
        }
        self.forget_far(at);
        self.entries.remove(at);
        Outcome::Done
    }

    fn merge(
        &mut self,
        budget: &Arc<Budget>,
        key: &[u8],
        lanes: LaneList<'_>,
        floor: Floor,
    ) -> Outcome {
        let found = self.entries.search(key);
        let old = found.ok().map(|at| self.value(at));
        let mut value = match old {
            Some(Value::Near(bytes)) => {
                let length = bytes.len();
                if lanes.iter().all(|lane| lane.end() <= length)
                    && let Ok(at) = found
                {
                    let value = self.entries.value_mut(at);
                    lanes.iter().for_each(|lane| lane.apply(value));
                    return Outcome::Done;
                }
                bytes.to_vec()
            }
            Some(Value::Far(cell)) => match cell.bytes() {
                Some(bytes) => bytes.to_vec(),
                None => return Outcome::Load(Arc::clone(cell)),
            },
            None => Vec::new(),
        };
        lanes.apply(&mut value);
        self.put(budget, key, &value, floor)
    }

    /// Removes the entries at positions `from..to`.
    pub(crate) fn remove_range(&mut self, from: usize, to: usize) {
        for at in from..to {
            self.forget_far(at);
        }
        self.entries.remove_range(from, to);
    }

    /// A copy of the entries in `from..to`.
    pub(crate) fn extract(&self, from: usize, to: usize) -> LeafData {
        let entries = self.entries.extract(from, to);
        let mut part = LeafData { entries, far: BTreeMap::new(), next_far: self.next_far };
        if self.has_far() {
            for at in from..to {
                let cell = self.entries.value(at);
                if cell.flagged {
                    let number = far_number(cell.bytes);
                    part.far.insert(number, Arc::clone(&self.far[&number]));
                }
            }
        }
        part
    }

    /// Appends all entries of `other`, whose keys are greater.
    pub(crate) fn extend(&mut self, other: &LeafData) {
        let first = self.entries.len();
        self.entries.extend(&other.entries);
        for at in 0..other.entries.len() {
            if let Value::Far(cell) = other.value(at) {
                let number = self.add_far(Arc::clone(cell));
                let value = Cell { bytes: &far_bytes(number), flagged: true };
                self.entries.set_value(first + at, value);
            }
        }
    }

    /// Appends an entry that was read from disk.
    pub(crate) fn push_near(&mut self, suffix: &[u8], value: &[u8]) {
        self.entries.push_suffix(suffix, Cell { bytes: value, flagged: false });
    }

    /// Appends an entry that was read from disk, whose value is in an overflow node.
    pub(crate) fn push_far(&mut self, suffix: &[u8], cell: OverflowCell) {
        let number = self.add_far(Arc::new(cell));
        self.entries.push_suffix(suffix, Cell { bytes: &far_bytes(number), flagged: true });
    }

    fn add_far(&mut self, cell: Arc<OverflowCell>) -> u32 {
        let number = self.next_far;
        self.next_far += 1;
        self.far.insert(number, cell);
        number
    }

    fn forget_far(&mut self, at: usize) {
        let cell = self.entries.value(at);
        if cell.flagged {
            let number = far_number(cell.bytes);
            self.far.remove(&number);
        }
    }
}
