//! `BtreeStore`: the engine as `store::Journaled` uses it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::Env;
use device::sync::Mutex;
use store::{
    Batch, CheckProgress, CheckReport, ClosedLog, CommitToken, Cursor, DiffCursor, Engine,
    IngestInto, Journal, Journaled, KeyRange, Pinned, Result, SortedRun, Stats, TreeId,
};

use crate::check::{check_all, closed_log};
use crate::checkpoint::{CheckpointState, FREED_MAX};
use crate::core::Core;
use crate::cursor::TreeCursor;
use crate::diff::{Pins, TreeDiff};
use crate::options::Options;
use crate::pin::Pin;
use crate::recover;

/// A copy-on-write B-tree store in the directories `btree` and `log` of a volume.
pub type BtreeStore = Journaled<Core>;

/// Checks a store, nodes in memory too. Commits may continue; checkpoints wait.
pub fn check(store: &BtreeStore) -> Result<CheckReport> {
    check_all(store.engine())
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

impl Core {
    /// Returns the state of the cache.
    pub fn cache(&self) -> CacheStats {
        let budget = &self.nodes.budget;
        CacheStats {
            budget: self.options.common.cache_bytes,
            resident: budget.resident(),
            peak: budget.peak(),
            dirty: budget.dirty(),
            loads: self.nodes.loads.load(Ordering::Relaxed),
            trees: self.trees_open.load(Ordering::Relaxed),
        }
    }
}

impl Engine for Core {
    const NAME: &'static str = "btree";
    type Options = Options;
    type State = CheckpointState;

    fn create(env: &Env, options: &Options) -> Result<Core> {
        recover::create(env, options)
    }

    fn open(env: &Env, options: &Options) -> Result<Core> {
        recover::open(env, options)
    }

    fn closed_log<'a>(env: &'a Env, options: &'a Options) -> Result<ClosedLog<'a>> {
        closed_log(env, options)
    }

    #[inline]
    fn journal(&self) -> &Journal {
        &self.journal
    }

    fn state(&self) -> &Mutex<CheckpointState> {
        &self.checkpoint
    }

    fn unflushed_bytes(&self, free_bytes: u64) -> u64 {
        self.counts_on(free_bytes);
        self.bytes_of_next_checkpoint()
    }

    fn block_commits(&self) -> impl Sized + '_ {
        self.gate.write()
    }

    #[inline]
    fn get_with(&self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        // In most cases everything is in memory, and no reference is needed beyond the look-up.
        if let Some(tree) = self.trees.read().get(&tree)
            && let Some(there) = tree.get_in_memory(key, found)
        {
            return Ok(there);
        }
        let there = self.tree(tree)?.get(&self.nodes, key, found)?;
        self.shrink();
        Ok(there)
    }

    fn scan(self: &Arc<Core>, tree: TreeId, range: KeyRange) -> Result<Box<dyn Cursor + '_>> {
        Ok(Box::new(TreeCursor::new(self, self.tree(tree)?, range)))
    }

    fn tree_exists(&self, tree: TreeId) -> Result<bool> {
        self.exists(tree)
    }

    fn commit(&self, batch: &Batch) -> Result<CommitToken> {
        Core::commit(self, batch)
    }

    fn ingest(
        &self,
        tree: TreeId,
        run: &mut dyn SortedRun,
        into: IngestInto,
    ) -> Result<CommitToken> {
        Core::ingest(self, tree, run, into)
    }

    fn pin(self: &Arc<Core>, trees: Option<&[TreeId]>) -> Result<Box<dyn Pinned>> {
        Ok(Box::new(match trees {
            Some(trees) => Pin::of_trees(self, trees)?,
            None => Pin::new(self),
        }))
    }

    fn diff(self: &Arc<Core>, old: TreeId, new: TreeId) -> Result<Box<dyn DiffCursor + '_>> {
        Ok(Box::new(TreeDiff::new(Pins::Own(Pin::new(self)), old, new, KeyRange::all())?))
    }

    fn checkpoint_locked(&self, state: &mut CheckpointState) -> Result<()> {
        Core::checkpoint_locked(self, state, FREED_MAX)
    }

    fn after_checkpoint(&self) {
        // Trees that it wrote may be closed.
        self.shrink_trees();
    }

    fn is_checkpoint_due(&self) -> bool {
        // With pre-flushing, only non-leaf changes can exceed this limit.
        let preflushes = self.preflushes();
        let options = &self.options;
        let due = if preflushes { options.dirty_bytes_max() } else { options.dirty_bytes_due() };
        self.replay_estimate() >= options.replay_max
            // Nodes that only pins keep cannot be written once more.
            || self.dirty() > due && self.journal.log_bytes_since() > 0
    }

    fn waker_set(&self) {
        // Another thread will make checkpoints, so committers may continue for longer.
        self.dirty_max.store(self.options.dirty_bytes_alone(), Ordering::Relaxed);
    }

    fn reclaim_step(&self, nodes: usize) -> Result<bool> {
        self.reclaim(nodes)
    }

    fn give_back(&self) -> Result<()> {
        self.give_back_now()
    }

    fn unknown(&self) -> Vec<TreeId> {
        self.lost_trees.lock().keys().copied().collect()
    }

    fn give_back_all(&self, state: &mut CheckpointState) {
        Core::give_back_all(self, state);
    }

    fn check_batch(&self, batch: &Batch) -> Result<()> {
        self.check(batch)
    }

    fn check(self: &Arc<Core>, progress: CheckProgress<'_>) -> Result<CheckReport> {
        self.check_beside(progress)
    }

    fn stats(&self, journal: Stats) -> Stats {
        let waiting = self.trash.load(Ordering::Relaxed);
        Stats {
            trees: self.tree_count.load(Ordering::Relaxed),
            dropping: waiting + self.drops_pending.load(Ordering::Relaxed),
            disk_bytes: self.nodes.file.disk_bytes().unwrap_or(0),
            cache_bytes: self.nodes.budget.resident() as u64,
            ..journal
        }
    }
}
