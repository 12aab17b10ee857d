//! Reserves disk space for the next checkpoint.
//!
//! Deleting must stay possible on a full disk, and it needs a checkpoint to free space. So commits
//! that add stop while the disk still has space for the next checkpoint, and for a reserve. Commits
//! that remove may use the reserve. But they change nodes too, and if a clone has the same nodes
//! that takes space before it frees any. So a quarter of the reserve is left to commits that drop
//! whole trees, and to checkpoints. The free space of the disk is queried only every so many bytes
//! of log, and when the changes since come near to that space.

use std::sync::atomic::Ordering;

use format::space_map::PAGE_BYTES;
use store::{Error, Need, Result, kept_for_checkpoints};

use crate::checkpoint::FREED_MAX;
use crate::core::Core;

impl Core {
    /// Returns `NoSpace` while a checkpoint could not be written after the commit, having tried to
    /// make one.
    #[inline]
    pub(crate) fn keep_space(&self, need: Need) -> Result<()> {
        if !self.journal.is_space_query_due() && self.has_space(need, 0) {
            return Ok(());
        }
        self.look_for_space(need, 0)
    }

    /// The same for `bytes` bytes that are about to be written to their place and are neither in
    /// the log nor in memory.
    pub(crate) fn keep_space_beside(&self, bytes: u64) -> Result<()> {
        self.look_for_space(Need::Adds, bytes)
    }

    #[cold]
    fn look_for_space(&self, need: Need, beside: u64) -> Result<()> {
        self.journal.queries_space();
        self.space_held.store(0, Ordering::Relaxed);
        self.look()?;
        // The checkpoint needs to know: it uses the last holes then.
        self.journal.set_tight(!self.has_space(Need::Adds, 0));
        if !self.has_space(need, beside) && self.journal.log_bytes_since() > 0 {
            let mut state = self.checkpoint.lock();
            match self.checkpoint_locked(&mut state, FREED_MAX) {
                Ok(()) => {
                    // No checkpoint will write the nodes that only pins keep now.
                    let held = self.nodes.budget.dirty() as u64;
                    self.space_held.store(held, Ordering::Relaxed);
                    self.look()?;
                }
                Err(error) if error.is_no_space() => {}
                Err(error) => return Err(error),
            }
        }
        self.journal.set_tight(!self.has_space(Need::Adds, 0));
        let space = self.has_space(need, beside);
        if space { Ok(()) } else { Err(Error::NoSpace("the next checkpoint")) }
    }

    /// Whether the free space at the last query is enough for what is to be written now.
    #[inline]
    fn has_space(&self, need: Need, beside: u64) -> bool {
        let wanted = self.bytes_of_next_checkpoint() + beside;
        let free = self.space_free.load(Ordering::Relaxed);
        let kept = self.space_reserved.load(Ordering::Relaxed);
        let segment = self.options.common.log_segment_bytes;
        let kept = match need {
            Need::Adds => kept,
            // The log may take one segment until the next query, if it leaves as much.
            Need::Removes if free >= 2 * segment => segment.max(kept / 4),
            Need::Removes => kept / 4,
            Need::Relieves => return true,
        };
        wanted + kept <= free
    }

    /// Bytes that the next checkpoint may write.
    #[inline]
    pub(crate) fn bytes_of_next_checkpoint(&self) -> u64 {
        let held = self.space_held.load(Ordering::Relaxed);
        let budget = &self.nodes.budget;
        let dirty = (budget.dirty() as u64).saturating_sub(held);
        // Nodes that share a leaf with changed ones are written too. So are the pages of the map
        // with the old places of changed nodes: in a large file each of another group.
        let pages = budget.shadowed().min(self.map_groups.load(Ordering::Relaxed));
        dirty + dirty / 4 + pages * PAGE_BYTES as u64
    }

    /// Counts on this many free bytes, or fewer, until the disk is asked again.
    pub(crate) fn counts_on(&self, free_bytes: u64) {
        self.space_free.fetch_min(free_bytes, Ordering::Relaxed);
    }

    /// Whether `beside` bytes that are about to be written leave too little space.
    pub(crate) fn is_tight(&self, beside: u64) -> Result<bool> {
        self.look()?;
        Ok(!self.has_space(Need::Adds, beside))
    }

    fn look(&self) -> Result<()> {
        let space = self.env.device.space()?;
        let kept = kept_for_checkpoints(&space);
        let kept = kept.max(2 * self.options.common.log_segment_bytes);
        self.space_reserved.store(kept, Ordering::Relaxed);
        self.space_free.store(space.free_bytes, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use store::{Batch, Commit, Maintain, Need, TreeId};

    use crate::{BtreeStore, Options};

    const TREE: TreeId = TreeId(32);

    #[test]
    fn space_is_reserved_for_pages_of_the_map_too() {
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
        // In most cases a leaf each.
        for key in (0..20_000_u32).step_by(100) {
            commit(&|batch| batch.put(TREE, &key.to_be_bytes(), &[8; 100]));
        }
        let core = store.engine();
        let changed = core.nodes.budget.shadowed();
        assert!(changed > 100, "{changed} nodes");
        let dirty = core.nodes.budget.dirty() as u64;
        let kept = core.space_reserved.load(Ordering::Relaxed);
        core.space_free.store(kept + dirty / 4 * 5 + (1 << 20), Ordering::Relaxed);
        assert!(core.has_space(Need::Adds, 0), "the file is short");
        core.map_groups.store(1 << 20, Ordering::Relaxed);
        assert!(!core.has_space(Need::Adds, 0), "each changed leaf was in a group of its own");
    }
}
