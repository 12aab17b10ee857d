//! What the cache holds, in bytes: counted where cells come and go, compared with the budget by
//! whoever evicts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Bytes of an interior node; given back when it drops.
#[derive(Debug)]
pub(crate) struct InteriorCharge {
    budget: Arc<Budget>,
    bytes: usize,
    dirty: AtomicBool,
}

impl InteriorCharge {
    pub(crate) fn new(budget: &Arc<Budget>, bytes: usize, dirty: bool) -> InteriorCharge {
        budget.add(bytes);
        budget.interior.fetch_add(bytes, Ordering::Relaxed);
        if dirty {
            budget.dirty.fetch_add(bytes, Ordering::Relaxed);
        }
        InteriorCharge { budget: Arc::clone(budget), bytes, dirty: AtomicBool::new(dirty) }
    }

    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Says that it is not on disk as it is.
    pub(crate) fn set_dirty(&self) {
        if !self.dirty.swap(true, Ordering::Relaxed) {
            self.budget.dirty.fetch_add(self.bytes, Ordering::Relaxed);
        }
    }

    /// Says that it is.
    pub(crate) fn set_clean(&self) {
        if self.dirty.swap(false, Ordering::Relaxed) {
            self.budget.dirty.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for InteriorCharge {
    fn drop(&mut self) {
        self.set_clean();
        self.budget.resident.fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget.interior.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Counters shared by all cells of a store.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    /// Bytes of all nodes in memory.
    resident: AtomicUsize,
    /// The most that it ever was.
    peak: AtomicUsize,
    /// Bytes of the interior nodes among them, and of leaves without their content: what is only
    /// given up when nothing below it is in memory.
    interior: AtomicUsize,
    /// Bytes of those that are not on disk as they are, which cannot be evicted.
    dirty: AtomicUsize,
    /// Nodes of the last frozen state that were changed since: what a replay has to read.
    shadowed: AtomicU64,
}

impl Budget {
    pub(crate) fn shadowed(&self) -> u64 {
        self.shadowed.load(Ordering::Relaxed)
    }

    pub(crate) fn add_shadowed(&self, nodes: u64) {
        self.shadowed.fetch_add(nodes, Ordering::Relaxed);
    }

    pub(crate) fn take_shadowed(&self) -> u64 {
        self.shadowed.swap(0, Ordering::Relaxed)
    }

    /// Counts bytes that came, or went where the number wraps: the sum over all cells is what
    /// matters.
    fn add(&self, change: usize) {
        let now = self.resident.fetch_add(change, Ordering::Relaxed).wrapping_add(change);
        if now > self.peak.load(Ordering::Relaxed) && isize::try_from(now).is_ok() {
            self.peak.fetch_max(now, Ordering::Relaxed);
        }
    }

    pub(crate) fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    pub(crate) fn resident(&self) -> usize {
        self.resident.load(Ordering::Relaxed)
    }

    pub(crate) fn interior(&self) -> usize {
        self.interior.load(Ordering::Relaxed)
    }

    pub(crate) fn dirty(&self) -> usize {
        self.dirty.load(Ordering::Relaxed)
    }
}

/// The bytes of one cell; given back when it drops.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    /// Of the content.
    bytes: usize,
    /// Of the cell itself, which stays when the content is evicted.
    cell: usize,
    dirty: bool,
}

impl Charge {
    pub(crate) fn new(budget: &Arc<Budget>, cell: usize, bytes: usize, dirty: bool) -> Charge {
        budget.add(cell);
        budget.interior.fetch_add(cell, Ordering::Relaxed);
        let mut charge = Charge { budget: Arc::clone(budget), bytes: 0, cell, dirty };
        charge.set_bytes(bytes);
        charge
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn set_bytes(&mut self, bytes: usize) {
        // Wrapping: the sum over all cells is what matters.
        let change = bytes.wrapping_sub(self.bytes);
        self.budget.add(change);
        if self.dirty {
            self.budget.dirty.fetch_add(change, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }

    pub(crate) fn set_dirty(&mut self, dirty: bool) {
        if dirty && !self.dirty {
            self.budget.dirty.fetch_add(self.bytes, Ordering::Relaxed);
        } else if !dirty && self.dirty {
            self.budget.dirty.fetch_sub(self.bytes, Ordering::Relaxed);
        }
        self.dirty = dirty;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set_bytes(0);
        self.budget.resident.fetch_sub(self.cell, Ordering::Relaxed);
        self.budget.interior.fetch_sub(self.cell, Ordering::Relaxed);
    }
}
