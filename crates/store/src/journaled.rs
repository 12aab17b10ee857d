//! A store that consists of an engine and its journal: what is the same for every engine.
//!
//! The engine keeps the trees. [`Journaled`] answers for the log, drives checkpoints, closes the
//! store, and drops trees that became unknown.

use std::sync::Arc;
use std::time::Duration;

use device::Env;
use device::sync::Mutex;

use crate::{
    Barrier, Batch, CheckProgress, CheckReport, ClosedLog, Commit, CommitToken, Cursor, Cut,
    DiffCursor, Durable, Error, Journal, KeyRange, Maintain, Pinned, Read, Result, Snapshot,
    SortedRun, Stats, TreeId, Waker,
};

/// Trees that an engine keeps, in memory and on disk.
pub trait Engine: Sized + Send + Sync + 'static {
    /// Its name in reports.
    const NAME: &'static str;
    /// How it is opened.
    type Options;
    /// The state on disk. The thread that makes a checkpoint has it locked.
    type State: Send;

    /// Creates an empty store. The directories must not hold one.
    fn create(env: &Env, options: &Self::Options) -> Result<Self>;

    /// Opens a store: the last checkpoint, and the log after it.
    fn open(env: &Env, options: &Self::Options) -> Result<Self>;

    /// Finds the newest state of a store that no process has open, and the log behind it.
    fn closed_log<'a>(env: &'a Env, options: &'a Self::Options) -> Result<ClosedLog<'a>>;

    /// Called before the log of such a store is truncated.
    fn prepare_cut(_log: &ClosedLog<'_>, _options: &Self::Options) -> Result<()> {
        Ok(())
    }

    /// Its journal.
    fn journal(&self) -> &Journal;

    /// The state on disk.
    fn state(&self) -> &Mutex<Self::State>;

    /// Blocks commits until the guard drops.
    fn block_commits(&self) -> impl Sized + '_;

    /// As [`Read::get_with`].
    fn get_with(&self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// As [`Read::scan`].
    fn scan(self: &Arc<Self>, tree: TreeId, range: KeyRange) -> Result<Box<dyn Cursor + '_>>;

    /// As [`Snapshot::tree_exists`].
    fn tree_exists(&self, tree: TreeId) -> Result<bool>;

    /// As [`Commit::commit`].
    fn commit(&self, batch: &Batch) -> Result<CommitToken>;

    /// As [`Commit::ingest`] and [`Commit::ingest_new`].
    fn ingest(
        &self,
        tree: TreeId,
        run: &mut dyn SortedRun,
        into: IngestInto,
    ) -> Result<CommitToken>;

    /// As [`Snapshot::pin_trees`]; without trees, as [`Snapshot::pin`].
    fn pin(self: &Arc<Self>, trees: Option<&[TreeId]>) -> Result<Box<dyn Pinned>>;

    /// As [`Snapshot::diff`].
    fn diff(self: &Arc<Self>, old: TreeId, new: TreeId) -> Result<Box<dyn DiffCursor + '_>>;

    /// Makes a checkpoint.
    fn checkpoint_locked(&self, state: &mut Self::State) -> Result<()>;

    /// Called after a checkpoint that no commit waited for, with the state unlocked.
    fn after_checkpoint(&self);

    /// Whether a checkpoint is due for a reason that the journal does not know.
    fn is_checkpoint_due(&self) -> bool;

    /// Called when a waker is set: committers may continue for longer before they make a
    /// checkpoint.
    fn waker_set(&self) {}

    /// As [`Maintain::unflushed_bytes`].
    fn unflushed_bytes(&self, free_bytes: u64) -> u64;

    /// As [`Maintain::compaction_may_free_space`].
    fn compaction_may_free_space(&self) -> bool {
        false
    }

    /// As [`Maintain::reclaim_step`].
    fn reclaim_step(&self, nodes: usize) -> Result<bool>;

    /// As [`Maintain::give_back`].
    fn give_back(&self) -> Result<()> {
        Ok(())
    }

    /// As [`Maintain::unknown`].
    fn unknown(&self) -> Vec<TreeId>;

    /// Whether the log may be all that has the last changes when the store is closed, because the
    /// last checkpoint failed. For lack of space it always may.
    fn may_close_with_log(&self, _state: &Self::State, _error: &Error) -> bool {
        false
    }

    /// Returns space to the disk when the store is closed, after the last checkpoint.
    fn give_back_all(&self, state: &mut Self::State);

    /// Refuses a batch that could not be applied. Commits are blocked.
    fn check_batch(&self, batch: &Batch) -> Result<()>;

    /// As [`Maintain::check`].
    fn check(self: &Arc<Self>, progress: CheckProgress<'_>) -> Result<CheckReport>;

    /// Completes the counters of the journal.
    fn stats(&self, journal: Stats) -> Stats;
}

/// The destination of an ingested run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IngestInto {
    /// A range of a tree that holds no key.
    Range,
    /// A tree that the same record creates.
    NewTree,
}

/// An engine with its journal, as a store.
pub struct Journaled<E> {
    engine: Arc<E>,
}

impl<E: Engine> Journaled<E> {
    /// Creates an empty store. The directories must not hold one.
    pub fn create(env: &Env, options: &E::Options) -> Result<Arc<Journaled<E>>> {
        Ok(Arc::new(Journaled { engine: Arc::new(E::create(env, options)?) }))
    }

    /// Opens a store: the last checkpoint, and the log after it.
    pub fn open(env: &Env, options: &E::Options) -> Result<Arc<Journaled<E>>> {
        Ok(Arc::new(Journaled { engine: Arc::new(E::open(env, options)?) }))
    }

    /// Truncates a damaged log at its first damage; later records are lost. Fails, with nothing
    /// changed, when the log is likely that of a later state than the one that was found.
    pub fn cut_log(env: &Env, options: &E::Options) -> Result<Cut> {
        let log = E::closed_log(env, options)?;
        E::prepare_cut(&log, options)?;
        log.cut()
    }

    /// The result that [`Journaled::cut_log`] would have, with nothing changed.
    pub fn cost_of_cut(env: &Env, options: &E::Options) -> Result<Cut> {
        E::closed_log(env, options)?.cost_of_cut()
    }

    /// Rewrites headers of log files that have no other damage, as a check reported.
    pub fn repair_log(env: &Env, options: &E::Options) -> Result<()> {
        E::closed_log(env, options)?.repair()
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<E> {
        &self.engine
    }

    #[inline]
    fn journal(&self) -> &Journal {
        self.engine.journal()
    }

    /// Logs a batch that drops the partly unknown trees of a store that is read-only for them.
    /// Returns `None` if it does not drop all of them.
    #[cold]
    fn drop_unknown(&self, batch: &Batch) -> Option<Result<CommitToken>> {
        let _alone = self.engine.block_commits();
        if batch.check().is_err() || !batch.drops_all(&self.engine.unknown()) {
            return None;
        }
        // What refuses it now would refuse it again at replay.
        let checked = self.engine.check_batch(batch);
        Some(checked.and_then(|()| {
            let log = self.journal().log();
            log.append_last(batch.as_bytes())?;
            Ok(CommitToken(log.last()))
        }))
    }
}

impl<E: Engine> std::fmt::Debug for Journaled<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct(E::NAME).field("stats", &self.stats()).finish()
    }
}

impl<E: Engine> Read for Journaled<E> {
    #[inline]
    fn get_with(&self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.engine.get_with(tree, key, found)
    }

    fn scan(&self, tree: TreeId, range: KeyRange) -> Result<Box<dyn Cursor + '_>> {
        self.engine.scan(tree, range)
    }
}

impl<E: Engine> Commit for Journaled<E> {
    #[inline]
    fn commit(&self, batch: &Batch) -> Result<CommitToken> {
        match self.engine.commit(batch) {
            Err(error) if self.journal().read_only().is_some() => {
                self.drop_unknown(batch).unwrap_or(Err(error))
            }
            committed => committed,
        }
    }

    fn ingest(&self, tree: TreeId, run: &mut dyn SortedRun) -> Result<CommitToken> {
        self.engine.ingest(tree, run, IngestInto::Range)
    }

    fn ingest_new(&self, tree: TreeId, run: &mut dyn SortedRun) -> Result<CommitToken> {
        self.engine.ingest(tree, run, IngestInto::NewTree)
    }
}

impl<E: Engine> Snapshot for Journaled<E> {
    fn pin(&self) -> Result<Box<dyn Pinned>> {
        self.engine.pin(None)
    }

    fn pin_trees(&self, trees: &[TreeId]) -> Result<Box<dyn Pinned>> {
        self.engine.pin(Some(trees))
    }

    fn diff(&self, old: TreeId, new: TreeId) -> Result<Box<dyn DiffCursor + '_>> {
        self.engine.diff(old, new)
    }

    fn tree_exists(&self, tree: TreeId) -> Result<bool> {
        self.engine.tree_exists(tree)
    }
}

impl<E: Engine> Durable for Journaled<E> {
    fn sync(&self, up_to: CommitToken) -> Result<()> {
        self.journal().log().sync(up_to.0)
    }

    fn settle(&self, up_to: CommitToken) -> Result<()> {
        self.journal().log().sync_committed(up_to.0)
    }

    fn last_commit(&self) -> CommitToken {
        CommitToken(self.journal().log().last())
    }

    fn durable(&self) -> CommitToken {
        CommitToken(self.journal().log().durable())
    }

    fn flush_if_due(&self) -> Result<Duration> {
        self.journal().log().flush_if_due()
    }

    fn set_barrier(&self, barrier: Arc<dyn Barrier>) {
        self.journal().log().set_barrier(barrier);
    }

    fn keep_log(&self, behind: &[CommitToken]) -> Result<()> {
        let behind: Vec<_> = behind.iter().map(|commit| commit.0).collect();
        self.journal().log().keep(&behind)
    }

    fn refused_by_log(&self) -> u64 {
        self.journal().log().refused()
    }

    fn await_space(&self) -> Result<()> {
        self.journal().log().await_space()
    }

    fn prove_not_replaced(&self) -> Result<()> {
        self.journal().log().prove_not_replaced()
    }

    fn granted_until(&self) -> Result<Option<Duration>> {
        Ok(self.journal().log().grant()?.map(|grant| grant.until()))
    }

    fn serve_from(&self) -> Duration {
        self.journal().log().serve_from()
    }

    fn close(&self) -> Result<()> {
        let (engine, journal) = (&self.engine, self.journal());
        {
            // A thread that commits has a place in the log, or will have one; none begins later.
            let _alone = engine.block_commits();
            journal.close();
        }
        if journal.read_only().is_some() {
            return journal.log().close();
        }
        let mut state = engine.state().lock();
        let written = match engine.checkpoint_locked(&mut state) {
            // The log keeps the changes durable.
            Err(error)
                if error.is_no_space()
                    || engine.may_close_with_log(&state, &error)
                    || journal.log().only_refuses() =>
            {
                tracing::warn!(%error, "closed with a log");
                Ok(())
            }
            Ok(()) => {
                engine.give_back_all(&mut state);
                Ok(())
            }
            failed => failed,
        };
        drop(state);
        journal.log().delete_trimmed();
        // If the checkpoint failed, committed changes are in the log alone.
        let closed = journal.log().close();
        written.and(closed)?;
        journal.log().end_in_order();
        Ok(())
    }
}

impl<E: Engine> Maintain for Journaled<E> {
    fn checkpoint(&self) -> Result<bool> {
        let Some(mut state) = self.engine.state().try_lock() else { return Ok(false) };
        self.engine.checkpoint_locked(&mut state)?;
        drop(state);
        self.journal().log().delete_trimmed();
        self.engine.after_checkpoint();
        Ok(true)
    }

    fn checkpoint_due(&self) -> bool {
        let journal = self.journal();
        journal.read_only().is_none()
            && (journal.is_checkpoint_due() || self.engine.is_checkpoint_due())
    }

    fn set_waker(&self, wake: Waker) {
        self.engine.waker_set();
        self.journal().set_waker(wake);
    }

    fn unflushed_bytes(&self, free_bytes: u64) -> u64 {
        self.engine.unflushed_bytes(free_bytes)
    }

    fn compaction_may_free_space(&self) -> bool {
        self.engine.compaction_may_free_space()
    }

    fn reclaim_step(&self, nodes: usize) -> Result<bool> {
        self.engine.reclaim_step(nodes)
    }

    fn give_back(&self) -> Result<()> {
        self.engine.give_back()
    }

    fn read_only(&self) -> Option<Arc<str>> {
        self.journal().read_only().cloned()
    }

    fn unknown(&self) -> Vec<TreeId> {
        self.engine.unknown()
    }

    fn check(&self, progress: CheckProgress<'_>) -> Result<CheckReport> {
        self.engine.check(progress)
    }

    fn stats(&self) -> Stats {
        self.engine.stats(self.journal().stats(E::NAME))
    }
}
