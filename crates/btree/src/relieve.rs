//! Limits the bytes that are only in memory and in the log, because they cannot be evicted.
//!
//! ```text
//! of the cache    what happens
//! 9/16            a checkpoint is due; the waker of `set_waker` is called
//! 5/8             without a waker, the committing thread makes the checkpoint
//! 11/16           the committing thread makes it in any case; while a checkpoint runs, it drops
//!                 contents that this no longer needs, or waits a little, more and more
//! 3/4             commits wait until contents are dropped, or the checkpoint is published
//! ```
//!
//! With a small cache, changed leaves are pre-flushed before a checkpoint is due (`preflush`). With
//! a cache of any size, leaves that only pins see are pre-flushed after one.
//!
//! The later a checkpoint is due, the more changes share the writing of a leaf. With changes all
//! over a tree that is not much larger than the cache, each checkpoint writes most of the leaves.
//! While it runs, nodes that it froze may be changed again, each in a copy. But contents that it
//! has written and that have no other owner are dropped (`checkpoint::shed`), so memory need not
//! hold everything twice.

use std::sync::atomic::Ordering;
use std::time::Duration;

use store::Result;

use crate::checkpoint::FREED_MAX;
use crate::core::Core;

/// Longest wait of one commit while there is memory left.
const PACE_MAX: Duration = Duration::from_micros(200);
/// How often a commit that waits for the checkpoint looks for contents to drop.
const SHED_AGAIN: Duration = Duration::from_millis(1);

impl Core {
    /// Limits the bytes that are only in memory and in the log. If no other thread writes them,
    /// this one does. If a checkpoint is running, its frozen state will be clean soon, and until
    /// then there is memory for copies. The closer that memory is to its end, the longer commits
    /// wait. So many commits wait a little instead of one for the whole checkpoint. An error means
    /// that the calling commit must not be made.
    pub(crate) fn relieve(&self, frees: bool) -> Result<()> {
        let mut state = loop {
            if let Some(state) = self.checkpoint.try_lock() {
                break state;
            }
            let shed = self.shed();
            let (dirty, from) = (self.dirty(), self.options.dirty_bytes_max());
            let limit = self.options.common.dirty_bytes_limit();
            if dirty < limit {
                if !shed {
                    let part = dirty.saturating_sub(from) as f64 / (limit - from) as f64;
                    self.env.clock.sleep(PACE_MAX.mul_f64(part));
                }
                return Ok(());
            }
            if let Some(state) = self.checkpoint.try_lock_for(SHED_AGAIN) {
                break state;
            }
        };
        let most = self.dirty_max.load(Ordering::Relaxed);
        let dirty = self.dirty();
        if dirty <= most {
            // Another thread did it meanwhile.
            return Ok(());
        }
        match self.checkpoint_locked(&mut state, FREED_MAX) {
            Ok(()) => {
                let usual = if self.journal.has_waker() {
                    self.options.dirty_bytes_alone()
                } else {
                    self.options.dirty_bytes_max()
                };
                // The rest is held by pins, which see a state that no checkpoint writes.
                while self.dirty() > usual / 2 && self.preflush_locked(&mut state)? {}
                let held = self.dirty();
                self.dirty_max.store(usual.max(held + usual / 4), Ordering::Relaxed);
                Ok(())
            }
            // Commits that remove free space, so they must be able to run; each takes little
            // memory.
            Err(error) if error.is_no_space() && frees && dirty < most + most / 4 => {
                tracing::warn!(%error, "a checkpoint failed; it will be tried again");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use store::{Batch, Commit, Maintain, TreeId};

    use crate::{BtreeStore, Options};

    const TREE: TreeId = TreeId(32);
    const CACHE_BYTES: usize = 8 << 20;

    fn store() -> Arc<BtreeStore> {
        let env = testing::sim_env(1).env();
        let options = Options::with_cache(CACHE_BYTES);
        let store = BtreeStore::create(&env, &options).unwrap();
        let mut batch = Batch::new();
        batch.create_tree(TREE);
        store.commit(&batch).unwrap();
        store
    }

    /// Adds entries until `bytes` bytes are only in memory, or a checkpoint was made.
    fn fill(store: &BtreeStore, first: u32, bytes: usize) -> u32 {
        let made = store.stats().checkpoints;
        let mut next = first;
        while store.engine().nodes.budget.dirty() < bytes && store.stats().checkpoints == made {
            let mut batch = Batch::new();
            batch.put(TREE, &next.to_be_bytes(), &[7; 500]);
            store.commit(&batch).unwrap();
            next += 1;
        }
        next
    }

    #[test]
    fn committers_checkpoint_if_no_other_thread_does() {
        let store = store();
        let before = store.stats().checkpoints;
        fill(&store, 0, CACHE_BYTES);
        assert_eq!(store.stats().checkpoints, before + 1);
        assert!(store.engine().nodes.budget.dirty() < CACHE_BYTES / 2);
    }

    #[test]
    fn the_checkpoint_thread_is_notified_once() {
        let store = store();
        let (before, reported) = (store.stats().checkpoints, Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&reported);
        store.set_waker(Arc::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        let next = fill(&store, 0, CACHE_BYTES / 16 * 9 - (256 << 10));
        assert_eq!(reported.load(Ordering::Relaxed), 0);
        assert!(!store.checkpoint_due());
        let next = fill(&store, next, CACHE_BYTES / 32 * 21);
        assert_eq!((reported.load(Ordering::Relaxed), store.stats().checkpoints), (1, before));
        assert!(store.checkpoint_due());
        assert!(store.checkpoint().unwrap());
        assert!(!store.checkpoint_due());
        fill(&store, next, CACHE_BYTES / 32 * 21);
        assert_eq!(reported.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn commits_continue_during_a_checkpoint() {
        let store = store();
        let state = store.engine().checkpoint.lock();
        // A thread that waited for the checkpoint would wait forever: this one holds its lock.
        fill(&store, 0, CACHE_BYTES / 4 * 3 - (64 << 10));
        drop(state);
        assert!(store.engine().nodes.budget.dirty() > CACHE_BYTES / 16 * 11);
    }
}
