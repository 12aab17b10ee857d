//! Room for the next checkpoint.
//!
//! A full medium must stay one that things can be deleted from, and deleting needs a checkpoint to
//! give room back. So commits that add stop while the medium still has room for what the next
//! checkpoint writes, and a part of the medium that only checkpoints may use; commits that remove
//! go on. The medium is asked only every so many bytes of log.

use std::sync::atomic::Ordering;

use store::{Error, Result};

use crate::checkpoint::FREED_MAX;
use crate::core::Core;

/// Log bytes between two looks at the medium.
const LOOK_EVERY: u64 = 256 << 10;
/// The part of the medium that is kept for checkpoints: one in so many.
const KEPT_SHARE: u64 = 32;
/// And the most of it.
const KEPT_BYTES_MAX: u64 = 32 << 20;

impl Core {
    /// Answers `NoSpace` while a checkpoint could not be written after the commit, having tried
    /// to make one.
    #[inline]
    pub(crate) fn keep_room(&self) -> Result<()> {
        let at = self.log_bytes();
        let looked = self.room_looked_at.load(Ordering::Relaxed);
        if at.wrapping_sub(looked) < LOOK_EVERY && !self.tight.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.look_for_room(at)
    }

    #[cold]
    fn look_for_room(&self, at: u64) -> Result<()> {
        self.room_looked_at.store(at, Ordering::Relaxed);
        let mut tight = self.is_tight()?;
        if tight && self.log_bytes_since() > 0 {
            let mut state = self.checkpoint.lock();
            match self.checkpoint_locked(&mut state, FREED_MAX) {
                Ok(()) => tight = self.is_tight()?,
                Err(error) if error.is_no_space() => {}
                Err(error) => return Err(error),
            }
        }
        self.tight.store(tight, Ordering::Relaxed);
        if tight { Err(Error::NoSpace("the next checkpoint")) } else { Ok(()) }
    }

    fn is_tight(&self) -> Result<bool> {
        let space = self.env.device.space()?;
        let kept = (space.total_bytes / KEPT_SHARE).min(KEPT_BYTES_MAX);
        // Nodes that share a leaf with changed ones, and the map, are written too.
        let dirty = self.nodes.budget.dirty() as u64;
        Ok(space.free_bytes < kept + dirty + dirty / 4)
    }
}
