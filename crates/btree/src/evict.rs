//! Keeping the budget: clean leaves and values are given up, those that were used since they were
//! last looked at get a second chance. What is not on disk cannot be given up: when there is much
//! of it, it is written (`relieve`).

use std::sync::atomic::Ordering;

use store::{Result, TreeId};

use crate::core::Core;

/// Interior nodes may take one part in this many of the cache before they are unloaded.
const INTERIOR_SHARE: usize = 4;
/// Cells looked at in one go, while commits wait outside of the gate.
const LOOKS_MAX: usize = 512;

impl Core {
    /// Called after operations that may have loaded or made something, without locks.
    #[inline]
    pub(crate) fn keep_budget(&self) -> Result<()> {
        let dirty = self.nodes.budget.dirty();
        if dirty > self.options.dirty_bytes_due() {
            self.wake();
            if dirty > self.dirty_max.load(Ordering::Relaxed) {
                self.relieve()?;
            }
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
        self.evictions.fetch_add(1, Ordering::Relaxed);
        for _ in 0..LOOKS_MAX {
            if self.nodes.budget.resident() <= self.options.cache_bytes {
                return;
            }
            if !self.nodes.ring.turn() {
                break;
            }
        }
        if self.nodes.budget.interior() > self.options.cache_bytes / INTERIOR_SHARE {
            self.prune_next();
        }
    }

    /// Unloads interior nodes below which nothing is in memory, in the next part of a tree.
    fn prune_next(&self) {
        let mut place = self.pruned.lock();
        let (id, at) = *place;
        let trees = self.trees.read();
        let Some(tree) = trees.get(&id) else {
            // The next tree in order, or the first again.
            let next = trees.keys().copied().filter(|tree| *tree > id).min();
            *place = (next.unwrap_or(TreeId(0)), 0);
            return;
        };
        let more = self.nodes.prune_part(&mut tree.state.write(), at);
        *place = if more {
            (id, at + 1)
        } else {
            let next = trees.keys().copied().filter(|tree| *tree > id).min();
            (next.unwrap_or(TreeId(0)), 0)
        };
    }
}
