//! A value too long for its leaf, in memory or on disk.

use std::sync::{Arc, OnceLock};

use device::sync::RwLock;
use format::Pointer;

use crate::budget::{Budget, Charge};
use crate::uses::Uses;

/// A value too long for its leaf. It never changes; a new value gets a new cell.
#[derive(Debug)]
pub(crate) struct OverflowCell {
    pub(crate) length: u32,
    pub(crate) disk: OnceLock<Pointer>,
    state: RwLock<(Option<Arc<[u8]>>, Charge)>,
    pub(crate) uses: Uses,
}

impl OverflowCell {
    pub(crate) fn new(budget: &Arc<Budget>, bytes: &[u8]) -> OverflowCell {
        let charge = Charge::new(budget, 0, bytes.len(), true);
        OverflowCell {
            length: bytes.len() as u32,
            disk: OnceLock::new(),
            state: RwLock::new((Some(bytes.into()), charge)),
            uses: Uses::default(),
        }
    }

    pub(crate) fn on_disk(budget: &Arc<Budget>, pointer: Pointer, length: u32) -> OverflowCell {
        OverflowCell {
            length,
            disk: OnceLock::from(pointer),
            state: RwLock::new((None, Charge::new(budget, 0, 0, false))),
            uses: Uses::default(),
        }
    }

    /// The value, if it is in memory.
    pub(crate) fn bytes(&self) -> Option<Arc<[u8]>> {
        let bytes = self.state.read().0.clone();
        if bytes.is_some() {
            self.uses.touch();
        }
        bytes
    }

    pub(crate) fn install(&self, bytes: Arc<[u8]>) {
        let mut state = self.state.write();
        state.1.set_bytes(bytes.len());
        state.0 = Some(bytes);
    }

    /// Records where the value was written.
    pub(crate) fn set_disk(&self, pointer: Pointer) {
        if self.disk.set(pointer).is_ok() {
            self.state.write().1.set_dirty(false);
        }
    }

    /// Drops the value if it is on disk, and returns whether it is.
    pub(crate) fn evict(&self) -> bool {
        if self.disk.get().is_none() {
            return false;
        }
        let mut state = self.state.write();
        state.0 = None;
        state.1.set_bytes(0);
        true
    }
}
