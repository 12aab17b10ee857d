//! Background work, in bounded steps that the owner's threads drive.
//!
//! One step does the first thing that is due of: writing the log, a checkpoint, removing what
//! nobody holds any more, giving the nodes of dropped trees back.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use format::key;
use parking_lot::Mutex;

use crate::error::{from_store, malformed};
use crate::subvol::VOLUME;
use crate::{Fs, FsResult, Progress};

/// How long a worker sleeps at most: work comes without being announced.
const IDLE: Duration = Duration::from_millis(500);

/// What waits to be removed.
pub(crate) struct Queue {
    orphans: Mutex<VecDeque<(u64, u64)>>,
    detached: AtomicU64,
}

impl Queue {
    /// Nothing waits.
    pub(crate) fn new() -> Queue {
        Queue { orphans: Mutex::new(VecDeque::new()), detached: AtomicU64::new(0) }
    }

    /// Finds what waited when the volume was last open. Nobody holds anything yet.
    pub(crate) fn recover(&self, fs: &Fs) -> FsResult<()> {
        let mut orphans = self.orphans.lock();
        fs.visit_volume(&key::ORPHANS_PREFIX, &mut |key, _| {
            orphans.push_back(key::parse_orphan(key).map_err(|error| malformed(VOLUME, &error))?);
            Ok(())
        })?;
        fs.visit_volume(&key::DETACHED_PREFIX, &mut |_, _| {
            self.detached.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
    }

    /// Adds an inode (subvolume, number) that has neither a name nor a holder.
    pub(crate) fn push_orphan(&self, subvol: u64, ino: u64) {
        self.orphans.lock().push_back((subvol, ino));
    }

    /// The next inode to remove.
    pub(crate) fn pop_orphan(&self) -> Option<(u64, u64)> {
        self.orphans.lock().pop_front()
    }

    /// Detached directories that wait.
    pub(crate) fn detached(&self) -> u64 {
        self.detached.load(Ordering::Relaxed)
    }

    /// One more detached directory waits (or one less).
    pub(crate) fn add_detached(&self, change: i64) {
        self.detached.fetch_add(change as u64, Ordering::Relaxed);
    }
}

impl Fs {
    /// One bounded step of background work, about `budget` records or nodes.
    pub fn background_step(&self, budget: usize) -> FsResult<Progress> {
        let due_in = self.store.flush_if_due().map_err(from_store)?;
        let more = |done| Progress { more: true, due_in: Duration::ZERO, done };
        if self.store.checkpoint_due() && self.store.checkpoint().map_err(from_store)? {
            return Ok(more(1));
        }
        if !self.options.read_only {
            let done = crate::orphan::reclaim_step(self, budget)?;
            if done > 0 {
                return Ok(more(done));
            }
            let done = crate::reclaim::reclaim_step(self, budget)?;
            if done > 0 {
                return Ok(more(done));
            }
        }
        if self.store.reclaim_step(budget).map_err(from_store)? {
            return Ok(more(budget as u64));
        }
        Ok(Progress { more: false, due_in: due_in.min(IDLE), done: 0 })
    }
}
