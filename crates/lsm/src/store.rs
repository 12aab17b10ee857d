//! `LsmStore`: the engine as `store::Journaled` uses it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::Env;
use device::sync::Mutex;
use store::{
    Batch, CheckProgress, CheckReport, ClosedLog, CommitToken, Cursor, DiffCursor, Engine, Error,
    IngestInto, Journal, Journaled, KeyRange, Pinned, Result, SortedRun, Stats, TreeId,
};

use crate::check::{closed_log, prepare_cut};
use crate::core::Core;
use crate::cursor::{Source, TreeCursor};
use crate::diff::StackDiff;
use crate::durable::Durable;
use crate::fenced;
use crate::layer::Stack;
use crate::options::Options;
use crate::pin::Pin;
use crate::recover;

/// A log-structured store in the directories `lsm` and `log` of a volume.
pub type LsmStore = Journaled<Core>;

/// Checks a store, without progress reports.
pub fn check(store: &LsmStore) -> Result<CheckReport> {
    store.engine().check_beside(&mut |_, _| ControlFlow::Continue(()))
}

impl Core {
    /// Blocks of runs that were read from the disk since opening.
    pub fn blocks_read(&self) -> u64 {
        self.files.loads.load(Ordering::Relaxed)
    }

    /// Entries of a tree in memory that cursors and pins copied since opening.
    pub fn entries_copied(&self, tree: TreeId) -> u64 {
        let copied = self.tree(tree).map_or(0, |tree| tree.copied.load(Ordering::Relaxed));
        copied + self.ids.moved.load(Ordering::Relaxed)
    }

    /// Keys of a tree that cursors visited since opening, deleted ones included.
    pub fn keys_visited(&self, tree: TreeId) -> u64 {
        self.tree(tree).map_or(0, |tree| tree.visited.load(Ordering::Relaxed))
    }

    /// Layers of a tree that are in memory.
    pub fn layers_in_memory(&self, tree: TreeId) -> usize {
        let layers = |stack: &Stack| stack.layers.iter().filter(|layer| layer.in_memory()).count();
        self.tree(tree).map_or(0, |tree| layers(&tree.state.read().stack))
    }
}

impl Engine for Core {
    const NAME: &'static str = "lsm";
    type Options = Options;
    type State = Durable;

    fn create(env: &Env, options: &Options) -> Result<Core> {
        match options.common.log_place.objects() {
            Some(_) => fenced::create(env, options),
            None => recover::create(env, options),
        }
    }

    fn open(env: &Env, options: &Options) -> Result<Core> {
        match options.common.log_place.objects() {
            Some(_) => fenced::open(env, options),
            None => recover::open(env, options),
        }
    }

    fn closed_log<'a>(env: &'a Env, options: &'a Options) -> Result<ClosedLog<'a>> {
        closed_log(env, options)
    }

    fn prepare_cut(log: &ClosedLog<'_>, options: &Options) -> Result<()> {
        prepare_cut(log, options)
    }

    #[inline]
    fn journal(&self) -> &Journal {
        &self.journal
    }

    fn state(&self) -> &Mutex<Durable> {
        &self.durable
    }

    fn block_commits(&self) -> impl Sized + '_ {
        self.gate.write()
    }

    #[inline]
    fn get_with(&self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.tree(tree)?.get(key, found)
    }

    fn scan(self: &Arc<Core>, tree: TreeId, range: KeyRange) -> Result<Box<dyn Cursor + '_>> {
        let source = Source::Live(self.tree(tree)?);
        Ok(Box::new(TreeCursor::new(source, range, self.options.prefix_bytes)))
    }

    fn tree_exists(&self, tree: TreeId) -> Result<bool> {
        Ok(self.tree(tree).is_ok())
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
            Some(trees) => Pin::of_trees(self, trees),
            None => Pin::new(self),
        }))
    }

    fn diff(self: &Arc<Core>, old: TreeId, new: TreeId) -> Result<Box<dyn DiffCursor + '_>> {
        let pin = Pin::new(self);
        let (old, new) = (pin.stack(old)?, pin.stack(new)?);
        Ok(Box::new(StackDiff::new(&old, &new, KeyRange::all())?))
    }

    fn checkpoint_locked(&self, state: &mut Durable) -> Result<()> {
        Core::checkpoint_locked(self, state)
    }

    fn after_checkpoint(&self) {
        self.keep_merged();
    }

    fn is_checkpoint_due(&self) -> bool {
        self.dirty.load(Ordering::Relaxed) >= self.options.dirty_bytes_due()
    }

    fn unflushed_bytes(&self, _: u64) -> u64 {
        self.bytes_of_next_checkpoint()
    }

    fn compaction_may_free_space(&self) -> bool {
        Core::compaction_may_free_space(self)
    }

    fn reclaim_step(&self, nodes: usize) -> Result<bool> {
        self.reclaim(nodes)
    }

    fn unknown(&self) -> Vec<TreeId> {
        Core::unknown(self).into_iter().map(|(id, _)| id).collect()
    }

    fn may_close_with_log(&self, state: &Durable, error: &Error) -> bool {
        // A server that took nothing since the store was opened, or one that has the log, too: then
        // closing makes that durable, or fails.
        let may = state.inherited || self.journal.opening().is_some();
        may && matches!(error, Error::Device(_))
    }

    fn give_back_all(&self, state: &mut Durable) {
        // No thread waits any more, and the closed store then has only what it needs.
        self.collect(state, usize::MAX);
    }

    fn check_batch(&self, batch: &Batch) -> Result<()> {
        Core::check_batch(self, batch)
    }

    fn check(self: &Arc<Core>, progress: CheckProgress<'_>) -> Result<CheckReport> {
        self.check_beside(progress)
    }

    fn stats(&self, journal: Stats) -> Stats {
        Stats {
            trees: self.trees.read().len() as u64,
            dropping: self.drops_waiting(),
            disk_bytes: self.disk_bytes(),
            cache_bytes: self.files.memory_bytes() + self.dirty_bytes() as u64,
            merges: Some(self.merge_stats()),
            ..journal
        }
    }
}
