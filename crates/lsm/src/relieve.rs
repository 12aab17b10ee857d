//! Bounds the bytes that are only in memory, and keeps space on the disk for them.
//!
//! ```text
//! of the cache    what happens
//! 5/16            a checkpoint is due; the waker that `set_waker` set, if any, is called
//! 3/8             without a waker, the thread that commits makes it
//! 3/4             with what is being written: commits wait for the checkpoint, or make it
//! ```
//!
//! A full disk must still allow deletion, and deletion needs a checkpoint to free space. So commits
//! that add stop while the disk still has space for four things. These are what the next checkpoint
//! writes, a part that only checkpoints may use, the log segment that follows, and a tombstone for
//! each entry. Deletion takes space before a merge frees any, and a merge needs as much as it
//! leaves. Commits that remove may use that reserve. If the log has no space for one of them, a
//! checkpoint is made, which frees segments. Merges leave the reserve, too: they start if there is
//! enough space beside it, and are aborted once there is not. But on a full disk merges that free
//! space use most of it.

use std::sync::atomic::Ordering;

use store::{Error, Result, kept_for_checkpoints};

use crate::core::Core;
use crate::plan::{Limits, TOMBSTONE_BYTES};

/// A manifest may be longer than the last by this much, including the rest of its last block.
const MANIFEST_GROWS: u64 = 8 << 10;

impl Core {
    /// Makes sure that not too much is only in memory. An error means that the calling commit must
    /// not be made.
    #[inline]
    pub(crate) fn keep_memory(&self, frees: bool) -> Result<()> {
        let dirty = self.dirty.load(Ordering::Relaxed);
        if dirty < self.options.dirty_bytes_due() {
            return Ok(());
        }
        self.journal.wake();
        let alone = !self.journal.has_waker();
        let much = alone && dirty >= self.options.dirty_bytes_max();
        if !much && self.dirty_bytes() < self.options.dirty_bytes_limit() {
            return Ok(());
        }
        self.relieve(frees)
    }

    #[cold]
    fn relieve(&self, frees: bool) -> Result<()> {
        let limit = self.options.dirty_bytes_limit();
        let mut state = match self.durable.try_lock() {
            Some(state) => state,
            // Another thread is making one, and there is space until it is done.
            None if self.dirty_bytes() < limit => return Ok(()),
            None => self.durable.lock(),
        };
        if self.dirty.load(Ordering::Relaxed) < self.options.dirty_bytes_due() {
            // Another thread did it meanwhile.
            return Ok(());
        }
        let done = self.checkpoint_locked(&mut state);
        drop(state);
        match done {
            // Commits that remove free space, so they must get through; each needs little memory.
            Err(error) if error.is_no_space() && frees && self.dirty_bytes() < limit / 4 * 5 => {
                tracing::warn!(%error, "a checkpoint failed; it will be tried again");
                Ok(())
            }
            Ok(()) => {
                self.keep_merged();
                Ok(())
            }
            failed => failed,
        }
    }

    /// Returns `NoSpace` while a checkpoint could not be written after the commit, having tried to
    /// make one.
    #[inline]
    pub(crate) fn keep_space(&self) -> Result<()> {
        if !self.journal.is_space_query_due() && !self.journal.is_tight() {
            return Ok(());
        }
        self.look_for_space(0)
    }

    /// The same for what is neither in the log nor in memory: this many bytes that are about to be
    /// written to their place.
    pub(crate) fn keep_space_beside(&self, bytes: u64) -> Result<()> {
        self.look_for_space(bytes)
    }

    #[cold]
    fn look_for_space(&self, beside: u64) -> Result<()> {
        self.journal.queries_space();
        let mut tight = self.is_tight(beside)?;
        if tight && self.journal.log_bytes_since() > 0 {
            let mut state = self.durable.lock();
            match self.checkpoint_locked(&mut state) {
                Ok(()) => {
                    // Here the thread waits for the space.
                    self.collect(&mut state, usize::MAX);
                    tight = self.is_tight(beside)?;
                }
                Err(error) if error.is_no_space() => {}
                Err(error) => return Err(error),
            }
        }
        if tight && self.give_up_merge(false) {
            tight = self.is_tight(beside)?;
        }
        // A long run may need space that short commits do not.
        let also = beside > 0 && tight && !self.is_tight(0)?;
        self.journal.set_tight(tight && !also);
        if tight { Err(Error::NoSpace("the next checkpoint")) } else { Ok(()) }
    }

    /// Called when the log had no space for a commit that removes: makes the checkpoint that frees
    /// its segments, unless another thread did meanwhile.
    #[cold]
    pub(crate) fn relieve_log(&self) -> Result<()> {
        let last = self.log().last();
        let mut state = self.durable.lock();
        self.journal.check_open()?;
        if state.lsn < last {
            self.checkpoint_locked(&mut state)?;
            self.collect(&mut state, usize::MAX);
        }
        Ok(())
    }

    /// Whether the disk has too little space for commits that add, and for this many bytes beside.
    pub(crate) fn is_tight(&self, beside: u64) -> Result<bool> {
        let space = self.env.device.space()?;
        // The log takes no segment if less than two are free.
        let log = 2 * self.options.common.log_segment_bytes;
        let kept = kept_for_checkpoints(&space).max(log) + self.space_of_tombstones();
        let dirty = self.dirty_bytes() as u64 + self.space_of_manifests();
        Ok(space.free_bytes < kept + dirty + beside)
    }

    /// Bytes that the next checkpoint may write to the disk.
    pub(crate) fn bytes_of_next_checkpoint(&self) -> u64 {
        match (self.dirty_bytes() as u64, &self.options.blobs) {
            (dirty @ 1.., None) => dirty + self.space_of_manifests(),
            // Nothing, or it goes where the runs are.
            _ => 0,
        }
    }

    /// The space needed to delete everything in the runs.
    fn space_of_tombstones(&self) -> u64 {
        match &self.options.blobs {
            None => self.durable_entries.load(Ordering::Relaxed) * TOMBSTONE_BYTES,
            // They go where the runs are.
            Some(_) => 0,
        }
    }

    /// The space of the next manifest, under both names.
    fn space_of_manifests(&self) -> u64 {
        2 * (self.manifest_bytes.load(Ordering::Relaxed) + MANIFEST_GROWS)
    }

    /// Bytes that merges may write to the disk until they end. The next checkpoint has space beside
    /// them, and so do the checkpoints that make deletions durable. A merge that frees space may
    /// use half of what is reserved for these, otherwise a full disk would stay full.
    pub(crate) fn space_to_merge(&self) -> Result<Limits> {
        let space = self.env.device.space()?;
        let free = space.free_bytes.saturating_sub(self.dirty_bytes() as u64);
        let kept = kept_for_checkpoints(&space);
        Ok(Limits { bytes: free.saturating_sub(kept), returning: free.saturating_sub(kept / 2) })
    }
}
