//! Keeping the budget: clean leaves and values are given up, those that were used since they were
//! last looked at get a second chance. What is not on disk cannot be given up: when there is much
//! of it, whoever commits makes a checkpoint.

use std::sync::atomic::Ordering;

use store::Result;

use crate::checkpoint::FREED_MAX;
use crate::core::Core;

/// Cells looked at in one go, while commits wait outside of the gate.
const LOOKS_MAX: usize = 512;

impl Core {
    /// Called after operations that may have loaded or made something, without locks.
    #[inline]
    pub(crate) fn keep_budget(&self) -> Result<()> {
        if self.nodes.budget.dirty() > self.dirty_max.load(Ordering::Relaxed) {
            self.relieve()?;
        }
        self.shrink();
        Ok(())
    }

    /// Gives up clean cells while there are too many.
    #[inline]
    pub(crate) fn shrink(&self) {
        if self.nodes.budget.resident() > self.options.cache_bytes {
            self.evict_some();
        }
    }

    fn evict_some(&self) {
        // Inside the gate commits rely on what they loaded.
        let Some(_gate) = self.gate.try_write() else { return };
        self.evicted.store(true, Ordering::Relaxed);
        for _ in 0..LOOKS_MAX {
            if self.nodes.budget.resident() <= self.options.cache_bytes {
                break;
            }
            if !self.nodes.ring.turn() {
                break;
            }
        }
    }

    /// Writes what is only in memory, in the thread that made too much of it.
    fn relieve(&self) -> Result<()> {
        let mut state = self.checkpoint.lock();
        if self.nodes.budget.dirty() <= self.dirty_max.load(Ordering::Relaxed) {
            // Another thread did it meanwhile.
            return Ok(());
        }
        match self.checkpoint_locked(&mut state, FREED_MAX) {
            Ok(()) => {
                self.dirty_max.store(self.options.dirty_bytes_max(), Ordering::Relaxed);
                Ok(())
            }
            Err(error) if error.is_no_space() => {
                // The commit itself is in the log. The next attempt waits until there is more.
                let more = self.nodes.budget.dirty() / 8 * 9;
                self.dirty_max.store(more, Ordering::Relaxed);
                tracing::warn!("a checkpoint found no room; it will be tried again");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
