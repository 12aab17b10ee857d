//! `BtreeStore`: the engine behind `store::Store`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use device::Env;
use store::{
    Barrier, Batch, CheckProgress, CheckReport, CommitToken, Cursor, DiffCursor, KeyRange, Pinned,
    Read, Result, SortedRun, Stats, Store, TreeId, Waker,
};

use crate::checkpoint::FREED_MAX;
use crate::core::Core;
use crate::cursor::TreeCursor;
use crate::diff::{Pins, TreeDiff};
use crate::ingest::Place;
use crate::options::Options;
use crate::pin::Pin;
use crate::recover;

/// A copy-on-write B-tree store in the directories `btree` and `log` of a volume.
pub struct BtreeStore {
    pub(crate) core: Arc<Core>,
}

impl BtreeStore {
    /// Creates an empty store. The directories must not hold one.
    pub fn create(env: &Env, options: &Options) -> Result<Arc<BtreeStore>> {
        let core = Arc::new(recover::create(env, options)?);
        Ok(Arc::new(BtreeStore { core }))
    }

    /// Opens a store: the last checkpoint, and the log after it.
    pub fn open(env: &Env, options: &Options) -> Result<Arc<BtreeStore>> {
        let core = Arc::new(recover::open(env, options)?);
        Ok(Arc::new(BtreeStore { core }))
    }
}

/// Memory use of a store's cache, in bytes, and its activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheStats {
    /// Upper bound of the memory use.
    pub budget: usize,
    /// Present memory use.
    pub resident: usize,
    /// Peak of the memory use.
    pub peak: usize,
    /// Bytes of it that differ from their copy on disk.
    pub dirty: usize,
    /// Nodes read from the disk since the store was opened.
    pub loads: u64,
    /// Open trees.
    pub trees: usize,
}

impl BtreeStore {
    /// Returns the state of the cache.
    pub fn cache(&self) -> CacheStats {
        let budget = &self.core.nodes.budget;
        CacheStats {
            budget: self.core.options.common.cache_bytes,
            resident: budget.resident(),
            peak: budget.peak(),
            dirty: budget.dirty(),
            loads: self.core.nodes.loads.load(Ordering::Relaxed),
            trees: self.core.trees_open.load(Ordering::Relaxed),
        }
    }
}

impl std::fmt::Debug for BtreeStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BtreeStore").field("stats", &self.stats()).finish()
    }
}

impl Read for BtreeStore {
    #[inline]
    fn get_with(&self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        // In most cases everything is in memory, and no reference is needed beyond the look-up.
        if let Some(tree) = self.core.trees.read().get(&tree)
            && let Some(there) = tree.get_in_memory(key, found)
        {
            return Ok(there);
        }
        let there = self.core.tree(tree)?.get(&self.core.nodes, key, found)?;
        self.core.shrink();
        Ok(there)
    }

    fn scan(&self, tree: TreeId, range: KeyRange) -> Result<Box<dyn Cursor + '_>> {
        Ok(Box::new(TreeCursor::new(&self.core, self.core.tree(tree)?, range)))
    }
}

impl Store for BtreeStore {
    fn commit(&self, batch: &Batch) -> Result<CommitToken> {
        self.core.commit(batch)
    }

    fn ingest(&self, tree: TreeId, run: &mut dyn SortedRun) -> Result<CommitToken> {
        self.core.ingest(tree, run, Place::Range)
    }

    fn ingest_new(&self, tree: TreeId, run: &mut dyn SortedRun) -> Result<CommitToken> {
        self.core.ingest(tree, run, Place::NewTree)
    }

    fn sync(&self, up_to: CommitToken) -> Result<()> {
        self.core.log().sync(up_to.0)
    }

    fn last_commit(&self) -> CommitToken {
        CommitToken(self.core.log().last())
    }

    fn durable(&self) -> CommitToken {
        CommitToken(self.core.log().durable())
    }

    fn flush_if_due(&self) -> Result<Duration> {
        self.core.log().flush_if_due()
    }

    fn pin(&self) -> Result<Box<dyn Pinned>> {
        Ok(Box::new(Pin::new(&self.core)))
    }

    fn pin_trees(&self, trees: &[TreeId]) -> Result<Box<dyn Pinned>> {
        Ok(Box::new(Pin::of_trees(&self.core, trees)?))
    }

    fn diff(&self, old: TreeId, new: TreeId) -> Result<Box<dyn DiffCursor + '_>> {
        let pins = Pins::Own(Pin::new(&self.core));
        Ok(Box::new(TreeDiff::new(pins, old, new, KeyRange::all())?))
    }

    fn checkpoint(&self) -> Result<bool> {
        let Some(mut state) = self.core.checkpoint.try_lock() else { return Ok(false) };
        self.core.checkpoint_locked(&mut state, FREED_MAX)?;
        drop(state);
        // Trees that it wrote may be closed.
        self.core.shrink_trees();
        Ok(true)
    }

    fn set_waker(&self, wake: Waker) {
        // Another thread will make checkpoints, so committers may continue for longer.
        self.core.dirty_max.store(self.core.options.dirty_bytes_alone(), Ordering::Relaxed);
        self.core.journal.set_waker(wake);
    }

    fn keep_log(&self, behind: &[CommitToken]) -> Result<()> {
        let behind: Vec<_> = behind.iter().map(|commit| commit.0).collect();
        self.core.log().keep(&behind)
    }

    fn refused_by_log(&self) -> u64 {
        self.core.log().refused()
    }

    fn checkpoint_due(&self) -> bool {
        if self.core.read_only.is_some() {
            return false;
        }
        let (dirty, options) = (self.core.dirty(), &self.core.options);
        // With pre-flushing, only non-leaf changes can exceed this limit.
        let early = self.core.writes_early();
        let due = if early { options.dirty_bytes_max() } else { options.dirty_bytes_due() };
        self.core.journal.log_bytes_since() >= self.core.options.common.checkpoint_bytes
            || self.core.replay_estimate() >= self.core.options.replay_max
            // Nodes that only pins keep cannot be written once more.
            || dirty > due && self.core.journal.log_bytes_since() > 0
            || self.core.tight.load(Ordering::Relaxed) && self.core.journal.log_bytes_since() > 0
    }

    fn reclaim_step(&self, nodes: usize) -> Result<bool> {
        self.core.reclaim(nodes)
    }

    fn give_back(&self) -> Result<()> {
        self.core.give_back_now()
    }

    fn tree_exists(&self, tree: TreeId) -> Result<bool> {
        self.core.exists(tree)
    }

    fn read_only(&self) -> Option<Arc<str>> {
        self.core.read_only.clone()
    }

    fn unknown(&self) -> Vec<TreeId> {
        self.core.unknown()
    }

    fn drop_unknown(&self, batch: &Batch) -> Result<()> {
        self.core.drop_unknown(batch)
    }

    fn set_barrier(&self, barrier: Arc<dyn Barrier>) {
        self.core.log().set_barrier(barrier);
    }

    fn check(&self, progress: CheckProgress<'_>) -> Result<CheckReport> {
        self.core.check_beside(progress)
    }

    fn stats(&self) -> Stats {
        let core = &self.core;
        let waiting = core.trash.load(Ordering::Relaxed);
        Stats {
            trees: core.tree_count.load(Ordering::Relaxed),
            dropping: waiting + core.drops_pending.load(Ordering::Relaxed),
            disk_bytes: core.nodes.file.disk_bytes().unwrap_or(0),
            cache_bytes: core.nodes.budget.resident() as u64,
            ..core.journal.stats("btree", core.options.common.durability)
        }
    }

    fn close(&self) -> Result<()> {
        self.core.journal.close();
        // A thread in the gate has a place in the log, or will have one; none enters later.
        drop(self.core.gate.write());
        if self.core.read_only.is_some() {
            return self.core.log().close();
        }
        let mut state = self.core.checkpoint.lock();
        let written = match self.core.checkpoint_locked(&mut state, FREED_MAX) {
            // Without space for a checkpoint the log keeps the changes durable.
            Err(error) if error.is_no_space() => {
                tracing::warn!(%error, "closed with a log");
                Ok(())
            }
            other => other,
        };
        if written.is_ok() {
            self.core.give_back_all(&mut state);
        }
        // If the checkpoint failed, committed changes are in the log alone.
        let closed = self.core.log().close();
        written.and(closed)
    }
}
