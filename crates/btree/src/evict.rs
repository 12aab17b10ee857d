//! Keeps the cache within its budget.
//!
//! Clean leaves and values are evicted in the order of `ring`. Interior nodes are evicted when they
//! take much of the cache, and idle trees when there are many. Changed nodes cannot be evicted.
//! When there are many, the thread that is about to add more makes a checkpoint first. It writes
//! them to their shadow places in long runs.
//!
//! Memory use stays below the budget because eviction begins before the budget is reached. Between
//! two checks each thread adds at most what one operation loads or makes.
//!
//! One operation is a batch, and all leaves that it changes are in memory at once. They were loaded
//! before it was logged, so that nothing fails after that, and no thread may evict them while the
//! batch is applied. So the upper bound is the budget plus the leaves of the batches that are being
//! committed. That is up to 16 KiB for each key that is in a leaf of its own. A thread that has
//! committed such a batch evicts down to the budget before it continues ([`Core::settle`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use store::{Result, TreeId};

use crate::core::Core;
use crate::tree::{TREE_BYTES, Tree};

/// Interior nodes may take one part in this many of the cache before they are unloaded.
const INTERIOR_SHARE: usize = 4;
/// Cells visited in one step, while commits wait outside the gate.
const LOOKS_MAX: usize = 256;
/// Dead cells that are dropped in one step.
const BURIED_MAX: usize = 64;
/// Eviction begins when one part in this many of the budget is left. It waits for the gate
/// when half of that is left ...
const BEGIN_SHARE: usize = 16;
/// ... but with a small budget earlier: a few operations of some threads are that large.
const BEGIN_BYTES_MIN: usize = 512 << 10;
/// It ends this far below the point where it begins, so that it does not run for every operation.
const STEP_SHARE: usize = 128;
/// Idle trees that are kept open. Each takes about two kilobytes.
const TREES_KEPT: usize = 1024;
/// Trees that are kept open when interior nodes take much of the cache. Closing a tree that is used
/// now and then also drops its nodes in memory.
const TREES_KEPT_AT_LEAST: usize = 64;
/// Trees visited in one step.
const TREES_LOOKS_MAX: usize = 64;

impl Core {
    /// Called before a commit, without locks. Limits the bytes that only memory and log hold.
    /// `frees`: the commit frees space, so its limit is a little higher.
    #[inline]
    pub(crate) fn keep_dirty(&self, frees: bool) -> Result<()> {
        let dirty = self.dirty();
        if dirty > self.options.dirty_bytes_due() {
            let limit = self.options.common.dirty_bytes_limit();
            if self.preflushes() && self.preflush()? && self.dirty() < limit {
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

    /// Called after operations that may have loaded something, without locks: evicts while the
    /// cache is over its limit.
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

    /// Called after a commit, without locks. If the commit exceeded the budget, writes the nodes
    /// that it changed, and evicts until the budget is kept.
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
            // The batch is committed; the next commit gets the error.
            tracing::warn!(%error, "cannot evict what a large batch changed");
        }
        self.evict_to_budget();
    }

    /// Evicts until the budget is kept, or nothing is left to evict. Called without locks.
    pub(crate) fn evict_to_budget(&self) {
        while self.nodes.budget.resident() > self.options.common.cache_bytes && self.evict_some() {}
    }

    /// The free part of the budget at which eviction begins.
    #[inline]
    fn reserve(&self) -> usize {
        let budget = self.options.common.cache_bytes;
        (budget / BEGIN_SHARE).max(BEGIN_BYTES_MIN.min(budget / 4))
    }

    /// Returns whether there is more to visit.
    #[cold]
    fn evict_some(&self) -> bool {
        let budget = self.options.common.cache_bytes;
        let enough = budget - self.reserve() - budget / STEP_SHARE;
        // Memory of closed trees is freed outside the gate.
        let mut closed = Vec::new();
        // Commits inside the gate rely on the nodes that they loaded.
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
        // There are fewer trees of pinned states; they take turns.
        let mut pinned = self.pinned_trees.lock();
        if let Some((tree, at)) = pinned.next()
            && !self.nodes.prune_part(&mut tree.state.write(), at)
        {
            pinned.ended();
        }
    }

    /// Closes idle trees while there are many, in steps. Called without locks.
    pub(crate) fn shrink_trees(&self) {
        // Each is visited twice at most: once to clear its use mark, once to find that it stayed
        // unused.
        for _ in 0..2 * self.trees_open.load(Ordering::Relaxed) / TREES_LOOKS_MAX {
            if self.trees_open.load(Ordering::Relaxed) <= TREES_KEPT {
                break;
            }
            self.close_idle_trees();
        }
    }

    /// Closes some of the trees that are idle and equal their copy on disk; they are opened again
    /// from the catalog.
    #[cold]
    fn close_idle_trees(&self) {
        let mut closed = Vec::new();
        if let Some(_gate) = self.gate.try_write() {
            self.close_some(&mut closed);
        }
    }

    /// The same with the gate exclusive. The trees are moved to `closed`.
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
            // Commits rely on trees that they loaded, as with cells.
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether a tree could be opened again from the catalog unchanged. Called with the set of
    /// trees and the gate exclusive, so that no thread can begin to use it.
    fn is_idle(&self, tree: &Arc<Tree>) -> bool {
        // Fresh trees have another owner.
        Arc::strong_count(tree) == 1
            && !tree.dropped.load(Ordering::Relaxed)
            && tree.state.read().child.pointer().is_some()
            && !self.changed.lock().has_captured(tree.id)
            && !self.in_flight.lock().contains_key(&tree.id)
    }
}
