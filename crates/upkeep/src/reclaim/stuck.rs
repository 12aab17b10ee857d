//! What waits to be removed and could not be, at the last attempt. It is tried again, but those who
//! wait for it are notified.
//!
//! A lack of space passes when other work frees some. So it is reported only once background work
//! has met nothing else for a while, and has freed nothing meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use device::sync::Mutex;
use inode::FsError;

/// How long there must be no space before that is reported.
const REPORTED_AFTER: Duration = Duration::from_secs(10);
/// A lack of space that was met so long ago may be over: whatever finds none is tried again sooner.
const TRIED_WITHIN: Duration = Duration::from_secs(10);

/// When there was no space for background work.
#[derive(Debug, Clone, Copy)]
struct NoSpace {
    first: Duration,
    last: Duration,
}

/// Failures of what waits; none of it needs to survive a crash.
#[derive(Default)]
pub struct Failures {
    /// By the number of the detached object.
    detached: Mutex<BTreeMap<u64, FsError>>,
    /// The failure of freeing the nodes of dropped trees.
    nodes: Mutex<Option<FsError>>,
    no_space: Mutex<Option<NoSpace>>,
}

impl Failures {
    /// An object could not be removed. A lack of space counts for everything that waits.
    pub(super) fn note(&self, sequence: u64, error: &FsError, now: Duration) {
        if matches!(error, FsError::NoSpace) {
            self.note_no_space(now);
        } else {
            self.detached.lock().insert(sequence, error.clone());
        }
    }

    /// An object was removed, or a part of it.
    pub(super) fn progressed(&self, sequence: u64) {
        self.detached.lock().remove(&sequence);
        self.gave_back();
    }

    /// Background work found no space.
    pub(crate) fn note_no_space(&self, now: Duration) {
        let mut no_space = self.no_space.lock();
        let first = match &*no_space {
            Some(before) if now.saturating_sub(before.last) <= TRIED_WITHIN => before.first,
            _ => now,
        };
        *no_space = Some(NoSpace { first, last: now });
    }

    /// Something was freed: there is space, or will be.
    pub fn gave_back(&self) {
        *self.no_space.lock() = None;
    }

    /// Whether there was no space for a while, and is none now.
    pub(crate) fn has_no_space(&self, now: Duration) -> bool {
        self.no_space.lock().is_some_and(|NoSpace { first, last }| {
            last.saturating_sub(first) >= REPORTED_AFTER && now.saturating_sub(last) <= TRIED_WITHIN
        })
    }

    /// Whether the last attempt to remove an object failed.
    pub(super) fn is_stuck(&self, sequence: u64) -> bool {
        self.detached.lock().contains_key(&sequence)
    }

    /// How many trees cannot be removed, if so many are being dropped; and why not one of them.
    pub(crate) fn trees(&self, dropping: u64) -> Option<(u64, FsError)> {
        let nodes = self.nodes.lock().clone().filter(|_| dropping > 0);
        let detached = self.detached.lock();
        let trees = detached.len() as u64 + nodes.as_ref().map_or(0, |_| dropping);
        detached.values().next().cloned().or(nodes).map(|error| (trees, error))
    }

    /// Forgets failures of what waits no longer.
    pub(super) fn retain(&self, waits: impl Fn(u64) -> bool) {
        self.detached.lock().retain(|sequence, _| waits(*sequence));
    }

    /// The result of freeing nodes.
    pub(crate) fn note_nodes(&self, went: &Result<bool, FsError>) {
        match went {
            Ok(true) => {
                *self.nodes.lock() = None;
                self.gave_back();
            }
            Ok(false) | Err(FsError::NoSpace) => {}
            Err(error) => *self.nodes.lock() = Some(error.clone()),
        }
    }
}
