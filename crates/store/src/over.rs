//! A store over another one: it implements what it changes, and this forwards the rest.

use std::sync::Arc;
use std::time::Duration;

use crate::{
    Barrier, CheckProgress, CheckReport, CommitToken, Durable, Maintain, Result, Stats, Store,
    TreeId, Waker,
};

/// A store over another one, which changes reads, commits or snapshots, and nothing else. The
/// implementations of [`Durable`] and [`Maintain`] are those of the store below.
pub trait Over: Send + Sync {
    /// The store below.
    fn below(&self) -> &dyn Store;
}

impl<S: Over> Durable for S {
    fn sync(&self, up_to: CommitToken) -> Result<()> {
        self.below().sync(up_to)
    }

    fn settle(&self, up_to: CommitToken) -> Result<()> {
        self.below().settle(up_to)
    }

    fn last_commit(&self) -> CommitToken {
        self.below().last_commit()
    }

    fn durable(&self) -> CommitToken {
        self.below().durable()
    }

    fn flush_if_due(&self) -> Result<Duration> {
        self.below().flush_if_due()
    }

    fn set_barrier(&self, barrier: Arc<dyn Barrier>) {
        self.below().set_barrier(barrier);
    }

    fn keep_log(&self, behind: &[CommitToken]) -> Result<()> {
        self.below().keep_log(behind)
    }

    fn refused_by_log(&self) -> u64 {
        self.below().refused_by_log()
    }

    fn await_space(&self) -> Result<()> {
        self.below().await_space()
    }

    fn prove_not_replaced(&self) -> Result<()> {
        self.below().prove_not_replaced()
    }

    fn granted_until(&self) -> Result<Option<Duration>> {
        self.below().granted_until()
    }

    fn serve_from(&self) -> Duration {
        self.below().serve_from()
    }

    fn close(&self) -> Result<()> {
        self.below().close()
    }
}

impl<S: Over> Maintain for S {
    fn checkpoint(&self) -> Result<bool> {
        self.below().checkpoint()
    }

    fn checkpoint_due(&self) -> bool {
        self.below().checkpoint_due()
    }

    fn set_waker(&self, wake: Waker) {
        self.below().set_waker(wake);
    }

    fn unflushed_bytes(&self, free_bytes: u64) -> u64 {
        self.below().unflushed_bytes(free_bytes)
    }

    fn compaction_may_free_space(&self) -> bool {
        self.below().compaction_may_free_space()
    }

    fn reclaim_step(&self, nodes: usize) -> Result<bool> {
        self.below().reclaim_step(nodes)
    }

    fn give_back(&self) -> Result<()> {
        self.below().give_back()
    }

    fn read_only(&self) -> Option<Arc<str>> {
        self.below().read_only()
    }

    fn unknown(&self) -> Vec<TreeId> {
        self.below().unknown()
    }

    fn check(&self, progress: CheckProgress<'_>) -> Result<CheckReport> {
        self.below().check(progress)
    }

    fn stats(&self) -> Stats {
        self.below().stats()
    }
}
