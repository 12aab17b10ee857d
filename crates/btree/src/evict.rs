//! Keeping the budget.
//!
//! Clean leaves and values are given up in the order that `ring` says, interior nodes when they
//! take much of the cache, trees that nobody uses when there are many. What is not on disk cannot
//! be given up: when there is much of it, whoever is about to add to it makes a checkpoint first,
//! which writes it to its shadow place in long runs.
//!
//! What is held stays below the budget because eviction begins somewhat before it: each thread
//! adds at most what one operation loads or makes between two looks.
//!
//! One operation is a batch, and all leaves that it changes are in memory at once: they were
//! loaded before it was logged, so that nothing fails after it, and while it is applied nobody may
//! take them away. So what may be held is the budget and the leaves of the batches that are being
//! committed, up to 16 KiB for each key that lies in a leaf of its own. A thread that has committed
//! such a batch brings that down again before it goes on ([`Core::settle`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use store::{Result, TreeId};

use crate::core::Core;
use crate::tree::{TREE_BYTES, Tree};

/// Interior nodes may take one part in this many of the cache before they are unloaded.
const INTERIOR_SHARE: usize = 4;
/// Cells looked at in one go, while commits wait outside of the gate.
const LOOKS_MAX: usize = 256;
/// Dead cells that are taken apart in one go.
const BURIED_MAX: usize = 64;
/// Eviction begins when this part of the budget, one in so many, is left; it waits for the gate
/// when half of that is left ...
const BEGIN_SHARE: usize = 16;
/// ... but with a small budget earlier: a few operations of some threads are that large.
const BEGIN_BYTES_MIN: usize = 512 << 10;
/// It ends when so much less is held than where it begins, so that it is not done for every
/// operation.
const STEP_SHARE: usize = 128;
/// Trees that are kept open though nobody uses them. Each takes about two kilobytes.
const TREES_KEPT: usize = 1024;
/// Trees that are kept open when interior nodes take much of the cache: what a tree that is used
/// now and then has in memory goes with it.
const TREES_KEPT_AT_LEAST: usize = 64;
/// Trees looked at in one go.
const TREES_LOOKS_MAX: usize = 64;

impl Core {
    /// Called before a commit, without locks: sees to it that there is not too much that only
    /// memory and log hold. `frees`: the commit makes room, so it may go on a little longer.
    #[inline]
    pub(crate) fn keep_dirty(&self, frees: bool) -> Result<()> {
        let dirty = self.dirty();
        if dirty > self.options.dirty_bytes_due() {
            let limit = self.options.common.dirty_bytes_limit();
            if self.writes_early() && self.write_early()? && self.dirty() < limit {
                return Ok(());
            }
            self.journal.wake();
            if dirty > self.dirty_max.load(Ordering::Relaxed) {
                self.relieve(frees)?;
            }
        }
        Ok(())
    }

    /// Bytes that only memory and log hold.
    pub(crate) fn dirty(&self) -> usize {
        let trees = self.changed_trees.load(Ordering::Relaxed);
        self.nodes.budget.dirty() + trees * TREE_BYTES
    }

    /// Called after operations that may have loaded something, without locks: gives up what can be
    /// given up while there is too much.
    #[inline]
    pub(crate) fn shrink(&self) {
        if self.nodes.budget.resident() > self.options.common.cache_bytes - self.reserve() {
            self.evict_some();
        }
        if self.trees_open.load(Ordering::Relaxed) > TREES_KEPT {
            self.close_idle_trees();
        }
        self.capture_some();
    }

    /// Called after a commit, without locks: where it took more than there is, writes what it
    /// changed, and evicts until the budget is kept.
    #[inline]
    pub(crate) fn settle(&self) {
        if self.nodes.budget.resident() > self.options.common.cache_bytes {
            self.settle_now();
        }
    }

    #[cold]
    fn settle_now(&self) {
        if self.dirty() > self.dirty_max.load(Ordering::Relaxed)
            && let Err(error) = self.relieve(false)
        {
            // The batch is committed; whoever commits next is told.
            tracing::warn!(%error, "what a large batch changed stays in memory");
        }
        self.evict_to_budget();
    }

    /// Evicts until the budget is kept, or nothing is left that can be. Called without locks.
    pub(crate) fn evict_to_budget(&self) {
        while self.nodes.budget.resident() > self.options.common.cache_bytes && self.evict_some() {}
    }

    /// What is left of the budget when eviction begins.
    #[inline]
    fn reserve(&self) -> usize {
        let budget = self.options.common.cache_bytes;
        (budget / BEGIN_SHARE).max(BEGIN_BYTES_MIN.min(budget / 4))
    }

    /// Tells whether there is more to look at.
    #[cold]
    fn evict_some(&self) -> bool {
        let budget = self.options.common.cache_bytes;
        let enough = budget - self.reserve() - budget / STEP_SHARE;
        // What closed trees held is freed outside of the gate.
        let mut closed = Vec::new();
        // Inside the gate commits rely on what they loaded.
        let _gate = if self.nodes.budget.resident() > budget - self.reserve() / 2 {
            self.gate.write()
        } else {
            let Some(gate) = self.gate.try_write() else { return false };
            gate
        };
        self.evictions.fetch_add(1, Ordering::Relaxed);
        let mut more = true;
        for _ in 0..LOOKS_MAX {
            if self.nodes.budget.resident() <= enough {
                return false;
            }
            if !self.nodes.ring.turn() {
                more = self.bury(BURIED_MAX);
                break;
            }
        }
        if self.nodes.budget.interior() > budget / INTERIOR_SHARE {
            self.prune_next();
            if self.trees_open.load(Ordering::Relaxed) > TREES_KEPT_AT_LEAST {
                self.close_some(&mut closed);
            }
        }
        more
    }

    /// Unloads interior nodes below which nothing is in memory, in the next part of a tree.
    fn prune_next(&self) {
        let mut place = self.pruned.lock();
        let (id, at) = *place;
        let trees = self.trees.read();
        if let Some(tree) = trees.get(&id)
            && self.nodes.prune_part(&mut tree.state.write(), at)
        {
            *place = (id, at + 1);
            return;
        }
        // The next tree in order, or the first again.
        let next = self.trees_order.lock().range(TreeId(id.0 + 1)..).next().copied();
        *place = (next.unwrap_or(TreeId(0)), 0);
        // Trees of pinned states are fewer; they take their turns.
        let mut pinned = self.pinned_trees.lock();
        if let Some((tree, at)) = pinned.next()
            && !self.nodes.prune_part(&mut tree.state.write(), at)
        {
            pinned.ended();
        }
    }

    /// Closes idle trees while there are many, in steps. Called without locks.
    pub(crate) fn shrink_trees(&self) {
        // Each is looked at twice at most: to see that it was used, and that it was not since.
        for _ in 0..2 * self.trees_open.load(Ordering::Relaxed) / TREES_LOOKS_MAX {
            if self.trees_open.load(Ordering::Relaxed) <= TREES_KEPT {
                break;
            }
            self.close_idle_trees();
        }
    }

    /// Closes some of the trees that nobody uses and that are on disk as they are; they are opened
    /// again from the catalog.
    #[cold]
    fn close_idle_trees(&self) {
        let mut closed = Vec::new();
        if let Some(_gate) = self.gate.try_write() {
            self.close_some(&mut closed);
        }
    }

    /// The same with the gate exclusive. The trees go to `closed`.
    fn close_some(&self, closed: &mut Vec<Arc<Tree>>) {
        let mut trees = self.trees.write();
        let mut order = self.trees_order.lock();
        let mut place = self.trees_looked_at.lock();
        for _ in 0..TREES_LOOKS_MAX.min(order.len()) {
            let next = order.range(*place..).next().or_else(|| order.first()).copied();
            let Some(id) = next else { break };
            *place = TreeId(id.0 + 1);
            let Some(tree) = trees.get(&id) else { continue };
            if !tree.used.swap(false, Ordering::Relaxed) && self.is_idle(tree) {
                closed.extend(trees.remove(&id));
                order.remove(&id);
            }
        }
        self.trees_open.store(trees.len(), Ordering::Relaxed);
        if !closed.is_empty() {
            // Commits rely on what they loaded, as with cells.
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether a tree could be opened again from the catalog as it is. Called with the set of
    /// trees and the gate exclusive, so that nobody can begin to use it.
    fn is_idle(&self, tree: &Arc<Tree>) -> bool {
        // Fresh trees have another owner.
        Arc::strong_count(tree) == 1
            && !tree.dropped.load(Ordering::Relaxed)
            && tree.state.read().child.pointer().is_some()
            && !self.changed.lock().has_captured(tree.id)
            && !self.in_flight.lock().contains_key(&tree.id)
    }
}
