//! What waits to be removed and cannot be, as that was when it was tried last. It is tried again,
//! but who waits for it had better be told.

use std::collections::BTreeMap;

use device::Set;
use inode::FsError;
use parking_lot::Mutex;

use crate::Fs;

/// Failures of what waits; nothing of it need survive a crash.
#[derive(Default)]
pub(crate) struct Failures {
    /// By the number of what is detached.
    detached: Mutex<BTreeMap<u64, FsError>>,
    /// Of giving back the nodes of dropped trees.
    nodes: Mutex<Option<FsError>>,
}

impl Failures {
    /// Something could not be removed. For want of room does not count: other work makes some.
    pub(super) fn note(&self, sequence: u64, error: &FsError) {
        if !matches!(error, FsError::NoSpace) {
            self.detached.lock().insert(sequence, error.clone());
        }
    }

    /// Something was removed, or a part of it.
    pub(super) fn went_on(&self, sequence: u64) {
        self.detached.lock().remove(&sequence);
    }

    /// All that waits.
    pub(super) fn retain(&self, waiting: &Set<u64>) {
        self.detached.lock().retain(|sequence, _| waiting.contains(sequence));
    }

    /// How giving back nodes went.
    pub(crate) fn note_nodes(&self, went: &Result<bool, FsError>) {
        match went {
            Ok(true) => *self.nodes.lock() = None,
            Ok(false) | Err(FsError::NoSpace) => {}
            Err(error) => *self.nodes.lock() = Some(error.clone()),
        }
    }
}

impl Fs {
    /// How many trees of those that wait to be reclaimed cannot be, and why one of them cannot;
    /// `None` when all can, as far as that was tried.
    pub fn stuck(&self) -> Option<(u64, FsError)> {
        let failures = &self.reclaim.failures;
        let dropping = self.store.stats().dropping;
        let nodes = failures.nodes.lock().clone().filter(|_| dropping > 0);
        let detached = failures.detached.lock();
        let trees = detached.len() as u64 + nodes.as_ref().map_or(0, |_| dropping);
        detached.values().next().cloned().or(nodes).map(|error| (trees, error))
    }
}
