//! What waits to be removed and cannot be, as that was when it was tried last. It is tried again,
//! but who waits for it had better be told.
//!
//! Want of room passes when other work makes some, so it is told only once background work has met
//! nothing else for a while, and has given nothing back meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use device::Set;
use inode::FsError;
use parking_lot::Mutex;

use crate::Fs;

/// How long there was no room when that is told.
const TOLD_AFTER: Duration = Duration::from_secs(10);
/// Want of room that was met so long ago may be over: all that finds none is tried again sooner.
const TRIED_WITHIN: Duration = Duration::from_secs(10);

/// When there was no room for background work.
#[derive(Debug, Clone, Copy)]
struct NoRoom {
    first: Duration,
    last: Duration,
}

/// Failures of what waits; nothing of it need survive a crash.
#[derive(Default)]
pub(crate) struct Failures {
    /// By the number of what is detached.
    detached: Mutex<BTreeMap<u64, FsError>>,
    /// Of giving back the nodes of dropped trees.
    nodes: Mutex<Option<FsError>>,
    no_room: Mutex<Option<NoRoom>>,
}

impl Failures {
    /// Something could not be removed. For lack of room counts for all that waits.
    pub(super) fn note(&self, sequence: u64, error: &FsError, now: Duration) {
        if matches!(error, FsError::NoSpace) {
            self.note_no_room(now);
        } else {
            self.detached.lock().insert(sequence, error.clone());
        }
    }

    /// Something was removed, or a part of it.
    pub(super) fn went_on(&self, sequence: u64) {
        self.detached.lock().remove(&sequence);
        self.gave_back();
    }

    /// Background work found no room.
    pub(crate) fn note_no_room(&self, now: Duration) {
        let mut no_room = self.no_room.lock();
        let first = match &*no_room {
            Some(before) if now.saturating_sub(before.last) <= TRIED_WITHIN => before.first,
            _ => now,
        };
        *no_room = Some(NoRoom { first, last: now });
    }

    /// Something was given back: there is room, or will be.
    pub(crate) fn gave_back(&self) {
        *self.no_room.lock() = None;
    }

    /// Whether there was no room for a while, and is none now.
    fn has_no_room(&self, now: Duration) -> bool {
        self.no_room.lock().is_some_and(|NoRoom { first, last }| {
            last.saturating_sub(first) >= TOLD_AFTER && now.saturating_sub(last) <= TRIED_WITHIN
        })
    }

    /// Whether something could not be removed when that was tried last.
    pub(super) fn is_stuck(&self, sequence: u64) -> bool {
        self.detached.lock().contains_key(&sequence)
    }

    /// All that waits.
    pub(super) fn retain(&self, waiting: &Set<u64>) {
        self.detached.lock().retain(|sequence, _| waiting.contains(sequence));
    }

    /// How giving back nodes went.
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

impl Fs {
    /// How many trees of those that wait to be reclaimed cannot be, and why one of them cannot;
    /// `None` when all can, as far as that was tried. Where there is no room to go on, that is all
    /// of them, and may be none, when only the room of contents waits.
    pub fn stuck(&self) -> Option<(u64, FsError)> {
        let failures = &self.reclaim.failures;
        let dropping = self.store.stats().dropping;
        let trees = self.queue.detached() + dropping + u64::from(self.reclaim.is_pruning());
        let waits = trees > 0 || self.freeing_bytes() > 0;
        if waits && failures.has_no_room(self.env.clock.monotonic()) {
            return Some((trees, FsError::NoSpace));
        }
        let nodes = failures.nodes.lock().clone().filter(|_| dropping > 0);
        let detached = failures.detached.lock();
        let trees = detached.len() as u64 + nodes.as_ref().map_or(0, |_| dropping);
        detached.values().next().cloned().or(nodes).map(|error| (trees, error))
    }
}
