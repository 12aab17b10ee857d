//! Freeing what dropped trees alone owned, a bounded step at a time.
//!
//! Memory: cells of dropped trees wait in the graveyard and are taken apart here. Room on the
//! medium: a checkpoint finds what nothing refers to any more, frees a bounded number of nodes,
//! and lists in the catalog, as trash, what it did not get to.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use store::Result;

use crate::cell::Node;
use crate::core::Core;

impl Core {
    /// Frees about `most` nodes, or gives room back; `false` when nothing is left, or left for when
    /// nobody commits.
    pub(crate) fn reclaim(&self, most: usize) -> Result<bool> {
        if self.bury(most) {
            return Ok(true);
        }
        if self.read_only.is_some() {
            return Ok(false);
        }
        if !self.reclaim_pending() {
            return Ok(self.give_back_at_rest());
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

    /// Drops up to `most` cells that nothing leads to; tells whether there were any.
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
