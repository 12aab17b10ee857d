//! Memory accounting of the cache, in bytes. Cells count themselves when they are made and dropped;
//! eviction compares the total with the budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, Ordering};

use device::thread_slot;

/// Accounts for the bytes of an interior node; releases them when it drops.
#[derive(Debug)]
pub(crate) struct InteriorCharge {
    budget: Arc<Budget>,
    bytes: usize,
    dirty: AtomicBool,
}

impl InteriorCharge {
    pub(crate) fn new(budget: &Arc<Budget>, bytes: usize, dirty: bool) -> InteriorCharge {
        budget.add(bytes as isize);
        budget.add_interior(bytes as isize);
        if dirty {
            budget.add_dirty(bytes as isize);
        }
        InteriorCharge { budget: Arc::clone(budget), bytes, dirty: AtomicBool::new(dirty) }
    }

    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Notes that the node differs from its copy on disk.
    pub(crate) fn set_dirty(&self) {
        if !self.dirty.swap(true, Ordering::Relaxed) {
            self.budget.add_dirty(self.bytes as isize);
        }
    }

    /// Notes that the node equals its copy on disk.
    pub(crate) fn set_clean(&self) {
        if self.dirty.swap(false, Ordering::Relaxed) {
            self.budget.add_dirty(-(self.bytes as isize));
        }
    }
}

impl Drop for InteriorCharge {
    fn drop(&mut self) {
        self.set_clean();
        self.budget.add(-(self.bytes as isize));
        self.budget.add_interior(-(self.bytes as isize));
    }
}

/// Counters that all cells of a store share.
///
/// Each thread counts in its own part, and adds that part to the totals once it is large enough to
/// matter. Every commit reads the totals, and would otherwise reload their cache line each time a
/// node grows a little. A total is off by less than `part_bytes` a thread.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    parts: [ThreadCounts; PARTS],
    totals: Totals,
    /// A part is added to the total from this many bytes on. Set once.
    part_bytes: AtomicIsize,
}

/// Number of parts. More threads than this share them.
const PARTS: usize = 8;
/// A part is added to the total when it reaches one in this many of the cache. So all parts
/// together are less than a hundredth of the cache ...
const PART_SHARE: usize = 1024;
/// ... but not more than this, which is rare enough for a cache of any size.
const PART_BYTES_MAX: usize = 128 << 10;

/// Counts of one part's threads that are not in the totals yet.
#[derive(Debug, Default)]
#[repr(align(128))]
struct ThreadCounts {
    resident: AtomicIsize,
    interior: AtomicIsize,
    dirty: AtomicIsize,
}

/// The totals.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Totals {
    /// Bytes of all nodes in memory.
    resident: AtomicIsize,
    /// The maximum of `resident` so far.
    peak: AtomicUsize,
    /// Bytes of the interior nodes among them, and of leaves without their content: memory that is
    /// only freed when nothing below it is in memory.
    interior: AtomicIsize,
    /// Bytes of nodes that differ from their copy on disk and therefore cannot be evicted.
    dirty: AtomicIsize,
    /// Nodes of the last frozen state that changed since: a replay has to read them.
    shadowed: AtomicU64,
}

/// A sum that parts may make negative for a moment: one thread may subtract what another has not
/// added yet.
fn sum(total: &AtomicIsize) -> usize {
    usize::try_from(total.load(Ordering::Relaxed)).unwrap_or(0)
}

impl Budget {
    /// Sets the size of the cache.
    pub(crate) fn set_cache(&self, bytes: usize) {
        let part = (bytes / PART_SHARE).min(PART_BYTES_MAX);
        self.part_bytes.store(part as isize, Ordering::Relaxed);
    }

    /// Counts a change. Returns the new total when the part was large enough to be added to it.
    #[inline]
    fn count(&self, part: &AtomicIsize, total: &AtomicIsize, change: isize) -> Option<isize> {
        let gathered = part.fetch_add(change, Ordering::Relaxed) + change;
        if gathered.abs() < self.part_bytes.load(Ordering::Relaxed) {
            return None;
        }
        let gathered = part.swap(0, Ordering::Relaxed);
        Some(total.fetch_add(gathered, Ordering::Relaxed) + gathered)
    }

    pub(crate) fn shadowed(&self) -> u64 {
        self.totals.shadowed.load(Ordering::Relaxed)
    }

    pub(crate) fn add_shadowed(&self, nodes: u64) {
        self.totals.shadowed.fetch_add(nodes, Ordering::Relaxed);
    }

    pub(crate) fn take_shadowed(&self) -> u64 {
        self.totals.shadowed.swap(0, Ordering::Relaxed)
    }

    #[inline]
    fn part(&self) -> &ThreadCounts {
        &self.parts[thread_slot() % PARTS]
    }

    /// Counts bytes added, or removed where the number is negative.
    fn add(&self, change: isize) {
        let total = self.count(&self.part().resident, &self.totals.resident, change);
        if let Some(total) = total.and_then(|total| usize::try_from(total).ok())
            && total > self.totals.peak.load(Ordering::Relaxed)
        {
            self.totals.peak.fetch_max(total, Ordering::Relaxed);
        }
    }

    fn add_interior(&self, change: isize) {
        self.count(&self.part().interior, &self.totals.interior, change);
    }

    fn add_dirty(&self, change: isize) {
        self.count(&self.part().dirty, &self.totals.dirty, change);
    }

    /// The peak of resident bytes, approximately.
    pub(crate) fn peak(&self) -> usize {
        self.totals.peak.load(Ordering::Relaxed)
    }

    pub(crate) fn resident(&self) -> usize {
        sum(&self.totals.resident)
    }

    pub(crate) fn interior(&self) -> usize {
        sum(&self.totals.interior)
    }

    pub(crate) fn dirty(&self) -> usize {
        sum(&self.totals.dirty)
    }
}

/// Accounts for the bytes of one cell; releases them when it drops.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    /// Bytes of the content.
    bytes: usize,
    /// Bytes of the cell itself, which stays when the content is evicted.
    cell: usize,
    dirty: bool,
}

impl Charge {
    pub(crate) fn new(budget: &Arc<Budget>, cell: usize, bytes: usize, dirty: bool) -> Charge {
        budget.add(cell as isize);
        budget.add_interior(cell as isize);
        let mut charge = Charge { budget: Arc::clone(budget), bytes: 0, cell, dirty };
        charge.set_bytes(bytes);
        charge
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn set_bytes(&mut self, bytes: usize) {
        let change = bytes as isize - self.bytes as isize;
        if change == 0 {
            return;
        }
        self.budget.add(change);
        if self.dirty {
            self.budget.add_dirty(change);
        }
        self.bytes = bytes;
    }

    pub(crate) fn set_dirty(&mut self, dirty: bool) {
        if dirty && !self.dirty {
            self.budget.add_dirty(self.bytes as isize);
        } else if !dirty && self.dirty {
            self.budget.add_dirty(-(self.bytes as isize));
        }
        self.dirty = dirty;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set_bytes(0);
        self.budget.add(-(self.cell as isize));
        self.budget.add_interior(-(self.cell as isize));
    }
}
