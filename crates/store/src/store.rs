//! The traits that engines implement, one for each of their sides, and [`Store`], all of them.

use std::sync::Arc;
use std::time::Duration;

use crate::{
    Batch, CheckProgress, CheckReport, CommitToken, DiffCursor, Matching, Patterns, Pinned, Read,
    Result, SortedRun, Stats, TreeId,
};

/// An ordered key-value store of many trees with O(1) clones.
///
/// Every method may be called from any thread. Conflicting commits are applied in the order of
/// their sequence numbers. A batch is atomic to readers of one key, to clones, to pinned states and
/// to recovery. It is not atomic to a live scan of many keys ([`Read::scan`]). Nothing here starts
/// a thread. The daemon's workers call the steps `flush_if_due`, `checkpoint` and `reclaim_step`
/// for background work.
pub trait Store: Read + Commit + Snapshot + Durable + Maintain {
    /// Creates `target` with the keys of `source` that match the patterns: BabuDB's partial
    /// snapshot by patterns, as one commit.
    ///
    /// It holds what `source` holds at the time of the call. Commits continue while it is written,
    /// once and to its final place, as by [`Commit::ingest`]. The bound of that call on the length
    /// of a run applies. It is an ordinary tree from then on, and shares nothing with `source`. Of
    /// `source`, it reads the ranges that can contain such keys, and keeps no other key. To make
    /// the state durable first, at the cost of a clone, clone `source` ([`Batch::clone_tree`]) and
    /// use the clone as the source. Prefixes alone take O(1): [`Batch::clone_prefixes`].
    fn clone_matching(
        &self,
        source: TreeId,
        target: TreeId,
        patterns: &Patterns,
    ) -> Result<CommitToken> {
        let pinned = self.pin_trees(&[source])?;
        let mut run = Matching::new(&*pinned, source, patterns)?;
        self.ingest_new(target, &mut run)
    }
}

impl<S: Read + Commit + Snapshot + Durable + Maintain + ?Sized> Store for S {}

/// Changes of a store.
pub trait Commit {
    /// Applies a batch atomically. Visible on return; durable as [`crate::Durability`] defines.
    ///
    /// A batch that names an absent tree, or creates one that exists, is refused as a whole. On
    /// `NoSpace` nothing happened.
    fn commit(&self, batch: &Batch) -> Result<CommitToken>;

    /// Inserts the entries of a run into a range of a tree that holds no key, as one commit,
    /// atomically for readers, clones and recovery. An engine writes the entries once, to their
    /// final place, and logs their addresses instead of their contents. An empty run is no commit.
    ///
    /// Refuses keys that do not ascend ([`crate::Error::Unsorted`]), and a tree with keys between
    /// the first and the last of the run ([`crate::Error::RangeNotEmpty`]). Also refuses a run
    /// whose addresses do not fit one record ([`crate::Error::RunTooLong`]). Nothing happened then.
    /// Commits continue while the run is read, so it may be a cursor over this store.
    fn ingest(&self, tree: TreeId, run: &mut dyn SortedRun) -> Result<CommitToken>;

    /// As [`Commit::ingest`], into a tree that the same commit creates: it exists with the whole
    /// run, or not at all. An empty run creates an empty tree. The number is as for
    /// [`Batch::create_tree`]; that of an existing tree is refused.
    fn ingest_new(&self, tree: TreeId, run: &mut dyn SortedRun) -> Result<CommitToken>;
}

/// States of a store that do not change.
pub trait Snapshot {
    /// Pins the present state of all trees for reading. Cheap; the space of data deleted meanwhile
    /// is held until the pin drops.
    fn pin(&self) -> Result<Box<dyn Pinned>>;

    /// Pins those of the given trees that exist, and perhaps others too. While no commit changes
    /// these trees, changes of others cost the same as without a pin.
    fn pin_trees(&self, _trees: &[TreeId]) -> Result<Box<dyn Pinned>> {
        self.pin()
    }

    /// Differences from `old` to `new`, at a cost proportional to the differences, not to the
    /// trees.
    fn diff(&self, old: TreeId, new: TreeId) -> Result<Box<dyn DiffCursor + '_>>;

    /// Whether a tree exists.
    fn tree_exists(&self, tree: TreeId) -> Result<bool>;
}

/// What of the commits is on disk.
pub trait Durable: Send + Sync {
    /// Returns when the commit, and all before it, are durable.
    fn sync(&self, up_to: CommitToken) -> Result<()>;

    /// The same, for a commit that is reported to its caller after this: when it fails, no later
    /// commit succeeds.
    fn settle(&self, up_to: CommitToken) -> Result<()> {
        self.sync(up_to)
    }

    /// The last commit that was applied.
    fn last_commit(&self) -> CommitToken;

    /// The last commit that is known to be durable.
    fn durable(&self) -> CommitToken;

    /// Writes and syncs the log when the oldest unwritten record is older than the interval, and
    /// writes what committers left to the caller of this. Returns how long until it is due again.
    fn flush_if_due(&self) -> Result<Duration>;

    /// Sets what must be durable before a log record that names it: called before every write of
    /// the log, in one place. Set once, before the first commit.
    fn set_barrier(&self, barrier: Arc<dyn Barrier>);

    /// Declares after which commits [`Pinned::logged_since`] will be called, so that the log keeps
    /// that much, within the bounds of the store's options. Before the first call, everything is
    /// kept; an engine without a log keeps nothing.
    fn keep_log(&self, _behind: &[CommitToken]) -> Result<()> {
        Ok(())
    }

    /// Returns when the buffer of the log has space for many records, so that the next commit waits
    /// for none. For a caller that holds no lock. Only a log in an object store makes it wait.
    fn await_space(&self) -> Result<()> {
        Ok(())
    }

    /// How often a record was refused because the log has a disk of its own, which is full. Space
    /// on the disk of the rest of the store would not have helped.
    fn refused_by_log(&self) -> u64 {
        0
    }

    /// Fails if another process has taken the store over, as far as a request now can determine.
    /// For work outside of the log that a replaced process must not do. Costs nothing where no
    /// other process can have the store open.
    fn prove_not_replaced(&self) -> Result<()> {
        Ok(())
    }

    /// Until when answers may be given from memory, by the monotonic clock of the store's
    /// environment. `None`: always, for no other process can have the store open. Asks the object
    /// store if the last proof is too old. [`Replaced`](crate::Error::Replaced): another process
    /// has the store.
    fn granted_until(&self) -> Result<Option<Duration>> {
        Ok(None)
    }

    /// From when on changes may be acknowledged to other processes: an earlier opening may have
    /// answered from memory until then. By the same clock.
    fn serve_from(&self) -> Duration {
        Duration::ZERO
    }

    /// Makes everything durable and refuses further commits. Called once, before the last drop; a
    /// store that is dropped without it recovers as after a crash.
    fn close(&self) -> Result<()>;
}

/// Background work, checks and reports.
pub trait Maintain {
    /// Flushes all data that is only in memory and the log, and trims the log. Runs concurrently
    /// with commits. Returns at once, with `false`, when another thread is running one.
    fn checkpoint(&self) -> Result<bool>;

    /// Whether the log has grown enough that a checkpoint should start.
    fn checkpoint_due(&self) -> bool;

    /// Sets `wake`, which a committing thread calls when a checkpoint should start before the next
    /// poll of [`checkpoint_due`](Maintain::checkpoint_due). If none starts, committers eventually
    /// run it themselves.
    fn set_waker(&self, _wake: Waker) {}

    /// Bytes that the next checkpoint may write to the disk of the volume. Contents of files leave
    /// them free: without them nothing can be deleted durably. Where contents take space,
    /// `free_bytes` are free after that; the store counts on no more until it asks the disk again.
    fn unflushed_bytes(&self, _free_bytes: u64) -> u64 {
        0
    }

    /// Whether steps of [`Maintain::reclaim_step`] are compacting deleted data away, or would, for
    /// the space that it takes.
    fn compaction_may_free_space(&self) -> bool {
        false
    }

    /// Frees a bounded part (about `nodes` nodes) of the data that only dropped trees referenced;
    /// `false` when nothing is left to free.
    fn reclaim_step(&self, nodes: usize) -> Result<bool>;

    /// Returns free space that is kept for reuse to the disk at once: for a caller that finds the
    /// disk full. An engine that keeps none has nothing to do.
    fn give_back(&self) -> Result<()> {
        Ok(())
    }

    /// Why the store was opened read-only: damage was found that blocks changes, but affects few
    /// keys. Reads of those return the damage, all others work normally; a commit or checkpoint
    /// returns [`crate::Error::ReadOnly`], and nothing is deleted.
    fn read_only(&self) -> Option<Arc<str>> {
        None
    }

    /// Trees that are partly unknown since the log was replayed, where that is the only reason why
    /// the store is read-only. For a caller that has their contents elsewhere, a commit that drops
    /// all of them is logged, durably, as the only one. The next opening applies it, and the store
    /// accepts changes.
    fn unknown(&self) -> Vec<TreeId> {
        Vec::new()
    }

    /// Reads and verifies the complete on-disk state of the last checkpoint, bypassing the cache,
    /// and recounts all references. Runs concurrently with commits and checkpoints, and changes
    /// nothing; space freed meanwhile is held until it ends. Defects are in the report; fails only
    /// where the disk does not respond.
    fn check(&self, progress: CheckProgress<'_>) -> Result<CheckReport>;

    /// Counters, for `status` and for tests.
    fn stats(&self) -> Stats;
}

/// Called when there is work to do.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// Data that must be durable before the log is.
pub trait Barrier: Send + Sync {
    /// Makes everything durable that a commit made before this call may name.
    fn reach(&self) -> std::result::Result<(), device::Error>;

    /// Whether it can never be reached again, so that waiting for it is in vain.
    fn has_failed(&self) -> bool {
        false
    }
}
