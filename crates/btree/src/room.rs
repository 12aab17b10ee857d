//! Room for the next checkpoint.
//!
//! A full disk must stay one that things can be deleted from, and deleting needs a checkpoint to
//! give room back. So commits that add stop while the disk still has room for what the next
//! checkpoint writes, and a part of the disk that is kept. Commits that remove go on into that
//! part, but they change nodes too, and where a clone has the same nodes that takes room before it
//! gives any: a quarter of it is left to those that drop whole trees, and to checkpoints. The
//! medium is asked only every so many bytes of log, and when what changed since comes near to what
//! there was.

use std::sync::atomic::Ordering;

use format::space_map::PAGE_BYTES;
use store::{Error, Need, ROOM_LOOK_EVERY, Result, kept_for_checkpoints};

use crate::checkpoint::FREED_MAX;
use crate::core::Core;

impl Core {
    /// Answers `NoSpace` while a checkpoint could not be written after the commit, having tried
    /// to make one.
    #[inline]
    pub(crate) fn keep_room(&self, need: Need) -> Result<()> {
        let at = self.journal.log_bytes_about();
        let looked = self.room_looked_at.load(Ordering::Relaxed);
        if at.wrapping_sub(looked) < ROOM_LOOK_EVERY && self.has_room(need, 0) {
            return Ok(());
        }
        self.look_for_room(at, need, 0)
    }

    /// The same for what is neither in the log nor in memory: so many bytes that are about to be
    /// written to their place.
    pub(crate) fn keep_room_beside(&self, bytes: u64) -> Result<()> {
        self.look_for_room(self.journal.log_bytes(), Need::Adds, bytes)
    }

    #[cold]
    fn look_for_room(&self, at: u64, need: Need, beside: u64) -> Result<()> {
        self.room_looked_at.store(at, Ordering::Relaxed);
        self.room_held.store(0, Ordering::Relaxed);
        self.look()?;
        // The checkpoint is to know: it uses the last holes then.
        self.tight.store(!self.has_room(Need::Adds, 0), Ordering::Relaxed);
        if !self.has_room(need, beside) && self.journal.log_bytes_since() > 0 {
            let mut state = self.checkpoint.lock();
            match self.checkpoint_locked(&mut state, FREED_MAX) {
                Ok(()) => {
                    // What only pins keep now, no checkpoint will write.
                    let held = self.nodes.budget.dirty() as u64;
                    self.room_held.store(held, Ordering::Relaxed);
                    self.look()?;
                }
                Err(error) if error.is_no_space() => {}
                Err(error) => return Err(error),
            }
        }
        self.tight.store(!self.has_room(Need::Adds, 0), Ordering::Relaxed);
        let room = self.has_room(need, beside);
        if room { Ok(()) } else { Err(Error::NoSpace("the next checkpoint")) }
    }

    /// Whether there was room, at the last look, for what is to be written now.
    #[inline]
    fn has_room(&self, need: Need, beside: u64) -> bool {
        let held = self.room_held.load(Ordering::Relaxed);
        let budget = &self.nodes.budget;
        let dirty = (budget.dirty() as u64).saturating_sub(held);
        // Nodes that share a leaf with changed ones are written too, and the pages of the map with
        // the places that changed nodes leave: in a large file each of another group.
        let pages = budget.shadowed().min(self.map_groups.load(Ordering::Relaxed));
        let wanted = dirty + dirty / 4 + pages * PAGE_BYTES as u64 + beside;
        let free = self.room_free.load(Ordering::Relaxed);
        let kept = self.room_kept.load(Ordering::Relaxed);
        let segment = self.options.common.log_segment_bytes;
        let kept = match need {
            Need::Adds => kept,
            // The log may take one segment until the next look, if it leaves as much.
            Need::Removes if free >= 2 * segment => segment.max(kept / 4),
            Need::Removes => kept / 4,
            Need::Relieves => return true,
        };
        wanted + kept <= free
    }

    /// Whether so many bytes that are about to be written leave too little room.
    pub(crate) fn is_tight(&self, beside: u64) -> Result<bool> {
        self.look()?;
        Ok(!self.has_room(Need::Adds, beside))
    }

    fn look(&self) -> Result<()> {
        let space = self.env.device.space()?;
        let kept = kept_for_checkpoints(&space);
        let kept = kept.max(2 * self.options.common.log_segment_bytes);
        self.room_kept.store(kept, Ordering::Relaxed);
        self.room_free.store(space.free_bytes, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use store::{Batch, Need, Store, TreeId};

    use crate::{BtreeStore, Options};

    const TREE: TreeId = TreeId(32);

    #[test]
    fn pages_of_the_map_have_room_kept_for_them_too() {
        let sim = testing::sim_env(1);
        let options = Options::with_cache(64 << 20);
        let store = BtreeStore::create(&sim.env(), &options).unwrap();
        let commit = |fill: &dyn Fn(&mut Batch)| {
            let mut batch = Batch::new();
            fill(&mut batch);
            store.commit(&batch).unwrap();
        };
        commit(&|batch| batch.create_tree(TREE));
        for key in 0..20_000_u32 {
            commit(&|batch| batch.put(TREE, &key.to_be_bytes(), &[7; 100]));
        }
        assert!(store.checkpoint().unwrap());
        // A leaf each, mostly.
        for key in (0..20_000_u32).step_by(100) {
            commit(&|batch| batch.put(TREE, &key.to_be_bytes(), &[8; 100]));
        }
        let core = &store.core;
        let changed = core.nodes.budget.shadowed();
        assert!(changed > 100, "{changed} nodes");
        let dirty = core.nodes.budget.dirty() as u64;
        let kept = core.room_kept.load(Ordering::Relaxed);
        core.room_free.store(kept + dirty / 4 * 5 + (1 << 20), Ordering::Relaxed);
        assert!(core.has_room(Need::Adds, 0), "the file is short");
        core.map_groups.store(1 << 20, Ordering::Relaxed);
        assert!(!core.has_room(Need::Adds, 0), "each changed leaf was in a group of its own");
    }
}
