//! What may be evicted, in a ring with a second chance for what was used.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::cell::{LeafCell, OverflowCell};

/// A cell that may be evicted, if it is still there.
#[derive(Debug)]
enum Evictable {
    Leaf(Weak<LeafCell>),
    Value(Weak<OverflowCell>),
}

impl Evictable {
    fn is_gone(&self) -> bool {
        match self {
            Evictable::Leaf(leaf) => leaf.strong_count() == 0,
            Evictable::Value(value) => value.strong_count() == 0,
        }
    }
}

#[derive(Debug, Default)]
struct Cells {
    cells: VecDeque<Evictable>,
    /// Length from which it is swept of cells that are gone.
    sweep_at: usize,
}

impl Cells {
    fn push(&mut self, cell: Evictable) {
        if self.cells.len() >= self.sweep_at {
            self.cells.retain(|cell| !cell.is_gone());
            self.sweep_at = self.cells.len() * 2 + 1024;
        }
        self.cells.push_back(cell);
    }
}

/// The ring. A cell is in it at most once.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    cells: Mutex<Cells>,
}

impl Ring {
    pub(crate) fn add_leaf(&self, leaf: &Arc<LeafCell>) {
        if !leaf.listed.swap(true, Ordering::Relaxed) {
            self.cells.lock().push(Evictable::Leaf(Arc::downgrade(leaf)));
        }
    }

    pub(crate) fn add_value(&self, value: &Arc<OverflowCell>) {
        if !value.listed.swap(true, Ordering::Relaxed) {
            self.cells.lock().push(Evictable::Value(Arc::downgrade(value)));
        }
    }

    /// Looks at the next cell: one that was used goes to the end, one that was not is evicted.
    /// One that is not on disk leaves the ring until it is. `false` when the ring is empty.
    pub(crate) fn turn(&self) -> bool {
        let Some(cell) = self.cells.lock().cells.pop_front() else { return false };
        let again = match &cell {
            Evictable::Leaf(leaf) => leaf.upgrade().is_some_and(|leaf| {
                let used = leaf.untouch();
                if !used {
                    leaf.listed.store(false, Ordering::Relaxed);
                    leaf.evict();
                }
                used
            }),
            Evictable::Value(value) => value.upgrade().is_some_and(|value| {
                let used = value.untouch();
                if !used {
                    value.listed.store(false, Ordering::Relaxed);
                    value.evict();
                }
                used
            }),
        };
        if again {
            self.cells.lock().push(cell);
        }
        true
    }
}
