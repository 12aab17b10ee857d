//! Step 1 of a checkpoint, and its undo.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use store::Lsn;

use crate::core::Core;
use crate::tree::States;

/// One state of all trees that differ from the durable ones.
pub(crate) struct Frozen {
    pub(crate) lsn: Lsn,
    pub(crate) log_bytes: u64,
    pub(crate) log_records: u64,
    /// Number of nodes that had been changed since the last one.
    pub(crate) shadowed: u64,
    pub(crate) states: Arc<States>,
    /// How many of them were dropped.
    pub(crate) dropped: u64,
    /// Pins after this one may have a version of the states.
    pub(crate) pins_from: u64,
}

impl Core {
    /// Takes the roots. No thread changes the nodes below them any more.
    pub(crate) fn freeze(&self) -> Frozen {
        let _gate = self.gate.between_commits();
        self.freeze_inside()
    }

    /// The same for a caller that has the gate exclusively.
    fn freeze_inside(&self) -> Frozen {
        let states = Arc::new(self.take_captured());
        *self.in_flight.lock() = Arc::clone(&states);
        let pins_from = self.pins_at_freeze.swap(self.pins.lock().last(), Ordering::Relaxed);
        let dropped = self.drops_pending.swap(0, Ordering::Relaxed);
        let log_bytes = self.journal.log_bytes();
        self.journal.may_wake();
        let log_records = self.journal.log_records();
        let shadowed = self.nodes.budget.take_shadowed();
        Frozen {
            lsn: self.journal.last(),
            log_bytes,
            log_records,
            shadowed,
            states,
            dropped,
            pins_from,
        }
    }

    /// Puts the trees back that were frozen for a checkpoint that failed.
    pub(crate) fn thaw(&self, frozen: &Frozen) {
        self.end_shedding();
        let _gate = self.gate.write();
        self.put_back(&frozen.states);
        *self.in_flight.lock() = Arc::default();
        self.drops_pending.fetch_add(frozen.dropped, Ordering::Relaxed);
        self.nodes.budget.add_shadowed(frozen.shadowed);
    }
}
