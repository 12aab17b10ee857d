//! Nodes that count as damaged from the moment when a replay could not read them, even if a later
//! read of them succeeds. What the log changes in them is missing (`lost`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::sync::Mutex;
use format::{Corruption, Pointer};
use store::{Error, Result, TreeId};

use crate::units::unit_offset;

/// Trees whose content is partly unknown, and why.
pub(crate) type LostTrees = BTreeMap<TreeId, Arc<Corruption>>;

/// Nodes that count as damaged, by their places.
#[derive(Debug, Default)]
pub(crate) struct LostNodes {
    any: AtomicBool,
    nodes: Mutex<BTreeMap<u64, Arc<Corruption>>>,
}

impl LostNodes {
    /// Fails where the node at an offset counts as damaged.
    #[inline]
    pub(crate) fn check(&self, offset: u64) -> Result<()> {
        if !self.any.load(Ordering::Acquire) {
            return Ok(());
        }
        match self.nodes.lock().get(&offset) {
            Some(damage) => Err(Error::Corrupt(Arc::clone(damage))),
            None => Ok(()),
        }
    }

    /// Whether the node at a place counts as damaged.
    pub(crate) fn has(&self, pointer: Pointer) -> bool {
        self.nodes.lock().contains_key(&unit_offset(pointer.unit))
    }

    /// Has a node count as damaged.
    pub(crate) fn add(&self, damage: &Arc<Corruption>) {
        self.nodes.lock().insert(damage.offset, Arc::clone(damage));
        self.any.store(true, Ordering::Release);
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        self.nodes.lock().clear();
        self.any.store(false, Ordering::Release);
    }
}
