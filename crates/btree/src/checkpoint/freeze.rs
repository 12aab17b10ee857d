//! Step 1 of a checkpoint, and its undoing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use store::Lsn;

use crate::core::Core;
use crate::tree::{Root, Tree};

/// Changed trees with their roots; none for those that were dropped.
pub(crate) type Roots = Vec<(Arc<Tree>, Option<Root>)>;

/// One state of all trees that differ from the durable ones.
pub(crate) struct Frozen {
    pub(crate) lsn: Lsn,
    pub(crate) log_bytes: u64,
    pub(crate) log_records: u64,
    /// Nodes that had been changed since the last one.
    pub(crate) shadowed: u64,
    pub(crate) roots: Arc<Roots>,
    /// How many of them were dropped.
    pub(crate) dropped: u64,
}

impl Core {
    /// Takes the roots. What hangs on them is not changed any more by anyone.
    pub(crate) fn freeze(&self) -> Frozen {
        #[cfg(not(test))]
        let _gate = self.gate.write();
        #[cfg(test)]
        let _gate = (!self.freeze_past_gate.load(Ordering::Relaxed)).then(|| self.gate.write());
        let changed = std::mem::take(&mut *self.changed.lock());
        self.changed_trees.store(0, Ordering::Relaxed);
        let mut roots = Vec::with_capacity(changed.len());
        for tree in changed.values() {
            tree.changed.store(false, Ordering::Relaxed);
            let dropped = tree.dropped.load(Ordering::Relaxed);
            roots.push((Arc::clone(tree), (!dropped).then(|| tree.state.read().clone())));
        }
        *self.in_flight.lock() = changed;
        let dropped = self.drops_pending.swap(0, Ordering::Relaxed);
        let log_bytes = self.log_bytes();
        self.woken.store(false, Ordering::Relaxed);
        let log_records = self.log_records();
        let shadowed = self.nodes.budget.take_shadowed();
        Frozen {
            lsn: self.log().last(),
            log_bytes,
            log_records,
            shadowed,
            roots: Arc::new(roots),
            dropped,
        }
    }

    /// Takes the trees back that were frozen for a checkpoint that failed.
    pub(crate) fn thaw(&self, frozen: &Frozen) {
        self.end_shedding();
        let _gate = self.gate.write();
        let mut changed = self.changed.lock();
        for (id, tree) in std::mem::take(&mut *self.in_flight.lock()) {
            tree.changed.store(true, Ordering::Relaxed);
            changed.insert(id, tree);
        }
        self.changed_trees.store(changed.len(), Ordering::Relaxed);
        self.drops_pending.fetch_add(frozen.dropped, Ordering::Relaxed);
        self.nodes.budget.add_shadowed(frozen.shadowed);
    }
}
