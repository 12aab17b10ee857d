//! How often a cell of the cache was used, and where the eviction order has it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// Maximum of the use count.
const USES_MAX: u8 = 3;

/// The use counters of a cell.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    pub(crate) count: AtomicU8,
    /// Whether it is in a queue.
    pub(crate) listed: AtomicBool,
    /// The number of its eviction from the small queue; 0 if it was not evicted from there.
    pub(crate) evicted: AtomicU32,
}

impl Uses {
    /// Counts a use of the cell.
    #[inline]
    pub(crate) fn touch(&self) {
        let count = self.count.load(Ordering::Relaxed);
        if count < USES_MAX {
            // A use that is lost when two threads count at once is harmless.
            self.count.store(count + 1, Ordering::Relaxed);
        }
    }

    /// Decrements the use count; returns whether it was above zero.
    pub(crate) fn spend(&self) -> bool {
        let count = self.get();
        self.count.store(count.saturating_sub(1), Ordering::Relaxed);
        count > 0
    }

    /// How often it was used, up to the maximum.
    pub(crate) fn get(&self) -> u8 {
        self.count.load(Ordering::Relaxed)
    }
}
