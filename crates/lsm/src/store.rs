//! `LsmStore`: the engine behind `store::Store`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use device::Env;
use store::{
    Barrier, Batch, CheckProgress, CheckReport, CommitToken, Cursor, DiffCursor, Error, KeyRange,
    Pinned, Read, Result, SortedRun, Stats, Store, TreeId, Waker,
};

use crate::core::Core;
use crate::cursor::{Source, TreeCursor};
use crate::diff::StackDiff;
use crate::ingest::Place;
use crate::layer::Stack;
use crate::options::Options;
use crate::pin::Pin;
use crate::recover;

/// A log-structured store in the directories `lsm` and `log` of a volume.
pub struct LsmStore {
    pub(crate) core: Arc<Core>,
}

impl LsmStore {
    /// Creates an empty store. The directories must not hold one.
    pub fn create(env: &Env, options: &Options) -> Result<Arc<LsmStore>> {
        let core = Arc::new(recover::create(env, options)?);
        Ok(Arc::new(LsmStore { core }))
    }

    /// Opens a store: the newest manifest, and the log after it.
    pub fn open(env: &Env, options: &Options) -> Result<Arc<LsmStore>> {
        let core = Arc::new(recover::open(env, options)?);
        Ok(Arc::new(LsmStore { core }))
    }

    /// Blocks of runs that were read from the disk since opening.
    pub fn blocks_read(&self) -> u64 {
        self.core.files.loads.load(Ordering::Relaxed)
    }

    /// Entries of a tree in memory that cursors and pins copied since opening.
    pub fn entries_copied(&self, tree: TreeId) -> u64 {
        let copied = self.core.tree(tree).map_or(0, |tree| tree.copied.load(Ordering::Relaxed));
        copied + self.core.ids.moved.load(Ordering::Relaxed)
    }

    /// Layers of a tree that are in memory.
    pub fn layers_in_memory(&self, tree: TreeId) -> usize {
        let layers = |stack: &Stack| stack.layers.iter().filter(|layer| layer.in_memory()).count();
        self.core.tree(tree).map_or(0, |tree| layers(&tree.state.read().stack))
    }
}

impl std::fmt::Debug for LsmStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LsmStore").field("stats", &self.stats()).finish()
    }
}

impl Read for LsmStore {
    #[inline]
    fn get_with(&self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.core.tree(tree)?.get(key, found)
    }

    fn scan(&self, tree: TreeId, range: KeyRange) -> Result<Box<dyn Cursor + '_>> {
        let source = Source::Live(self.core.tree(tree)?);
        Ok(Box::new(TreeCursor::new(source, range, self.core.options.prefix_bytes)))
    }
}

impl Store for LsmStore {
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
        Ok(Box::new(Pin::of_trees(&self.core, trees)))
    }

    fn diff(&self, old: TreeId, new: TreeId) -> Result<Box<dyn DiffCursor + '_>> {
        let pin = Pin::new(&self.core);
        let (old, new) = (pin.stack(old)?, pin.stack(new)?);
        Ok(Box::new(StackDiff::new(&old, &new, KeyRange::all())?))
    }

    fn checkpoint(&self) -> Result<bool> {
        let Some(mut state) = self.core.durable.try_lock() else { return Ok(false) };
        self.core.checkpoint_locked(&mut state)?;
        drop(state);
        self.core.keep_merged();
        Ok(true)
    }

    fn set_waker(&self, wake: Waker) {
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
        if self.core.read_only.get().is_some() {
            return false;
        }
        let since = self.core.journal.log_bytes_since();
        since >= self.core.options.common.checkpoint_bytes
            || self.core.dirty.load(Ordering::Relaxed) >= self.core.options.dirty_bytes_due()
            || self.core.tight.load(Ordering::Relaxed) && since > 0
    }

    fn compaction_may_free_space(&self) -> bool {
        self.core.compaction_may_free_space()
    }

    fn reclaim_step(&self, nodes: usize) -> Result<bool> {
        self.core.reclaim(nodes)
    }

    fn tree_exists(&self, tree: TreeId) -> Result<bool> {
        Ok(self.core.tree(tree).is_ok())
    }

    fn read_only(&self) -> Option<Arc<str>> {
        self.core.read_only.get().cloned()
    }

    fn unknown(&self) -> Vec<TreeId> {
        self.core.unknown().into_iter().map(|(id, _)| id).collect()
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
        Stats {
            trees: core.trees.read().len() as u64,
            dropping: core.drops.load(Ordering::Relaxed),
            disk_bytes: core.disk_bytes(),
            cache_bytes: core.files.memory_bytes() + core.dirty_bytes() as u64,
            merges: Some(core.merge_stats()),
            ..core.journal.stats("lsm", core.options.common.durability)
        }
    }

    fn close(&self) -> Result<()> {
        {
            // The merges in progress are in what is made durable here.
            let _gate = self.core.gate.write();
            self.core.journal.close();
        }
        if self.core.read_only.get().is_some() {
            return self.core.log().close();
        }
        let mut state = self.core.durable.lock();
        match self.core.checkpoint_locked(&mut state) {
            // Without space for a checkpoint the log keeps what is durable. It also does so if a
            // server took nothing since the store was opened.
            Err(error)
                if error.is_no_space() || state.inherited && matches!(error, Error::Device(_)) =>
            {
                tracing::warn!(%error, "closed with a log");
            }
            Err(error) => return Err(error),
            // No thread waits any more, and the closed store then has only what it needs.
            Ok(()) => {
                self.core.collect(&mut state, usize::MAX);
            }
        }
        self.core.log().close()
    }
}
