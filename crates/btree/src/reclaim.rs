//! Frees the nodes that dropped trees alone owned, a bounded step at a time.
//!
//! Memory: cells of dropped trees wait in the graveyard and are dropped here. Disk space: a
//! checkpoint finds the nodes that are no longer referenced and frees a bounded number of them. It
//! lists the remaining ones in the catalog, as trash.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use store::Result;

use crate::cell::Node;
use crate::core::Core;

impl Core {
    /// Frees about `most` nodes, or punches free space out of the file. Returns `false` when
    /// nothing is left, or nothing before the store is idle.
    pub(crate) fn reclaim(&self, most: usize) -> Result<bool> {
        if self.bury(most) {
            return Ok(true);
        }
        if self.journal.read_only().is_some() {
            return Ok(false);
        }
        if !self.reclaim_pending() {
            return Ok(self.give_back_idle());
        }
        let mut state = self.checkpoint.lock();
        if self.reclaim_pending() {
            self.checkpoint_locked(&mut state, most)?;
        }
        Ok(self.reclaim_pending())
    }

    fn reclaim_pending(&self) -> bool {
        self.trash.load(Ordering::Relaxed) > 0 || self.drops_pending.load(Ordering::Relaxed) > 0
    }

    /// Drops up to `most` unreachable cells; returns whether there were any.
    pub(crate) fn bury(&self, most: usize) -> bool {
        let mut waiting = std::mem::take(&mut *self.graveyard.lock());
        if waiting.is_empty() {
            return false;
        }
        for _ in 0..most.max(1) {
            // A cell that has another owner stays with it.
            match waiting.pop() {
                None => break,
                Some(Node::Leaf(_)) => {}
                Some(Node::Interior(interior)) => {
                    if let Ok(interior) = Arc::try_unwrap(interior) {
                        let cells = interior.children.into_iter();
                        waiting.extend(cells.filter_map(|child| child.cell.into_inner()));
                    }
                }
            }
        }
        self.graveyard.lock().append(&mut waiting);
        true
    }
}
