//! The trait that engines implement.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use format::batch::Ops;

use crate::{
    Batch, CheckProgress, CheckReport, CommitToken, DiffCursor, Durability, KeyRange, Matching,
    Patterns, Read, Result, SortedRun, TreeId,
};

/// An ordered key-value store of many trees with O(1) clones.
///
/// Every method may be called from any thread. Conflicting commits are applied in the order of
/// their sequence numbers; a batch is atomic to readers of one key, to clones, to pinned states and
/// to recovery, but not to a live scan of many keys ([`Read::scan`]). Nothing here starts a thread:
/// background work is done in the steps `flush_if_due`, `checkpoint` and `reclaim_step`, which the
/// daemon's workers call.
pub trait Store: Read {
    /// Applies a batch atomically. Visible on return; durable as [`Durability`] says.
    ///
    /// A batch that names an absent tree, or creates one that exists, is refused as a whole. On
    /// `NoSpace` nothing happened.
    fn commit(&self, batch: &Batch) -> Result<CommitToken>;

    /// Inserts the entries of a run into a range of a tree that holds no key, as one commit,
    /// atomically for readers, clones and recovery. An engine writes the entries once, to their
    /// final place, and logs their addresses instead of their contents. An empty run is no commit.
    ///
    /// Refused are keys that do not ascend ([`crate::Error::Unsorted`]), keys of the tree between
    /// the first and the last of the run ([`crate::Error::RangeNotEmpty`]), and a run whose
    /// addresses do not fit one record ([`crate::Error::RunTooLong`]); then nothing happened.
    /// Commits continue while the run is read, so it may be a cursor over this store.
    fn ingest(&self, tree: TreeId, run: &mut dyn SortedRun) -> Result<CommitToken>;

    /// As [`Store::ingest`], into a tree that the same commit creates: it exists with the whole
    /// run, or not at all. An empty run creates an empty tree. The number is as for
    /// [`Batch::create_tree`]; that of an existing tree is refused.
    fn ingest_new(&self, tree: TreeId, run: &mut dyn SortedRun) -> Result<CommitToken>;

    /// Creates `target` with the keys of `source` that match the patterns: BabuDB's partial
    /// snapshot by patterns, as one commit.
    ///
    /// It holds what `source` holds at the time of the call; commits continue while it is written,
    /// once and to its final place, as by [`Store::ingest`], whose bound on the length of a run
    /// applies. It is an ordinary tree from then on, and shares nothing with `source`. Of `source`,
    /// it reads the ranges that can contain such keys, and keeps no other key. To make the state
    /// durable first, at the cost of a clone, clone `source` ([`Batch::clone_tree`]) and use the
    /// clone as the source. Prefixes alone take O(1): [`Batch::clone_prefixes`].
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

    /// Returns when the commit, and all before it, are durable.
    fn sync(&self, up_to: CommitToken) -> Result<()>;

    /// The last commit that was applied.
    fn last_commit(&self) -> CommitToken;

    /// The last commit that is known to be durable.
    fn durable(&self) -> CommitToken;

    /// Writes and syncs the log when the oldest unwritten record is older than the interval, writes
    /// what committers left to the caller of this, and returns how long until it is due again.
    fn flush_if_due(&self) -> Result<Duration>;

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

    /// Flushes all data that is only in memory and the log, and trims the log. Runs concurrently
    /// with commits. Returns at once, with `false`, when another thread is running one.
    fn checkpoint(&self) -> Result<bool>;

    /// Sets `wake`, which a committing thread calls when a checkpoint should start before the next
    /// poll of [`checkpoint_due`](Store::checkpoint_due): if none starts, committers eventually run
    /// it themselves.
    fn set_waker(&self, _wake: Waker) {}

    /// Declares after which commits [`Pinned::logged_since`] will be called, so that the log keeps
    /// that much, within the bounds of the store's options. Before the first call, everything is
    /// kept; an engine without a log keeps nothing.
    fn keep_log(&self, _behind: &[CommitToken]) -> Result<()> {
        Ok(())
    }

    /// How often a record was refused because the log has a disk of its own, which is full. Space
    /// on the disk of the rest of the store would not have helped.
    fn refused_by_log(&self) -> u64 {
        0
    }

    /// Whether the log has grown enough that a checkpoint should start.
    fn checkpoint_due(&self) -> bool;

    /// Whether steps of [`Store::reclaim_step`] are compacting deleted data away, or would, for the
    /// space that it takes.
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

    /// Whether a tree exists.
    fn tree_exists(&self, tree: TreeId) -> Result<bool>;

    /// Why the store was opened read-only: damage was found that blocks changes, but affects few
    /// keys. Reads of those return the damage, all others work normally; a commit or checkpoint
    /// returns [`crate::Error::ReadOnly`], and nothing is deleted.
    fn read_only(&self) -> Option<Arc<str>> {
        None
    }

    /// Trees that are partly unknown since the log was replayed, where that is the only reason why
    /// the store is read-only.
    fn unknown(&self) -> Vec<TreeId> {
        Vec::new()
    }

    /// Logs, durably, a batch that drops all partly unknown trees: for a caller that has their
    /// contents elsewhere. The store accepts nothing else; the next opening finds the batch in the
    /// log and accepts changes.
    fn drop_unknown(&self, _batch: &Batch) -> Result<()> {
        Err(crate::Error::ReadOnly(Arc::from("nothing is unknown")))
    }

    /// Sets what must be durable before a log record that names it (DESIGN section 6): called
    /// before every write of the log, in one place. Set once, before the first commit.
    fn set_barrier(&self, barrier: Arc<dyn Barrier>);

    /// Reads and verifies the complete on-disk state of the last checkpoint, bypassing the cache,
    /// and recounts all references. Runs concurrently with commits and checkpoints, and changes
    /// nothing; space freed meanwhile is held until it ends. Defects are in the report; fails only
    /// where the disk does not respond.
    fn check(&self, progress: CheckProgress<'_>) -> Result<CheckReport>;

    /// Counters, for `status` and for tests.
    fn stats(&self) -> Stats;

    /// Makes everything durable and refuses further commits. Called once, before the last drop; a
    /// store that is dropped without it recovers as after a crash.
    fn close(&self) -> Result<()>;
}

/// Called when there is work to do.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// A range of keys of a tree that cannot be read.
#[derive(Debug, Clone)]
pub struct LostRange {
    /// The least key that may have existed there.
    pub from: Vec<u8>,
    /// The least key after the range; `None`: the range extends to the end.
    pub to: Option<Vec<u8>>,
    /// The damage in their place.
    pub damage: Arc<format::Corruption>,
}

/// The progress of a walk of [`Pinned::visit_shared_step`], over one pinned state.
pub struct SharedWalk {
    /// The trees that were not begun.
    pub trees: VecDeque<TreeId>,
    /// The prefix of the keys.
    pub prefix: Vec<u8>,
    /// The engine's state between steps.
    pub state: Option<Box<dyn Any + Send>>,
}

impl SharedWalk {
    /// A walk over the keys of `trees` that start with `prefix`.
    pub fn new(trees: impl IntoIterator<Item = TreeId>, prefix: &[u8]) -> SharedWalk {
        SharedWalk { trees: trees.into_iter().collect(), prefix: prefix.to_vec(), state: None }
    }
}

/// One state of all trees, kept for reading until it drops.
pub trait Pinned: Read {
    /// The last commit that the state contains.
    fn commit(&self) -> CommitToken;

    /// Visits the keys that start with `prefix` in all of `trees`, but what several trees share
    /// only once: the cost is that of the distinct nodes. The order is undefined, and a key that is
    /// in shared and in unshared places may be visited more than once.
    fn visit_shared_once(
        &self,
        trees: &mut dyn Iterator<Item = TreeId>,
        prefix: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<()>;

    /// Does a bounded part of [`Pinned::visit_shared_once`], about `nodes` nodes of it; `false`
    /// when the walk is done. The rest omits what caused an error: a caller that must see
    /// everything abandons the walk, a search for damage continues. An engine that cannot stop in
    /// between does all of it in one step.
    fn visit_shared_step(
        &self,
        walk: &mut SharedWalk,
        _nodes: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<bool> {
        let trees = std::mem::take(&mut walk.trees);
        self.visit_shared_once(&mut trees.into_iter(), &walk.prefix, visit)?;
        Ok(false)
    }

    /// The first range of keys of a tree, from `key` on, that cannot be read because of damage;
    /// `None` when there is none, or the engine cannot determine it. It may begin before `key`.
    /// Seek to the end of the range to find what follows.
    fn lost_from(&self, _tree: TreeId, _key: &[u8]) -> Result<Option<LostRange>> {
        Ok(None)
    }

    /// Differences from `old_tree` of this state to `new_tree` of another state, within a range, at
    /// a cost proportional to the differences. `new` must be a pinned state of the same store, else
    /// [`crate::Error::ForeignPin`]; it need not be the younger one. A tree that its state does not
    /// have is [`crate::Error::NoTree`].
    fn diff<'a>(
        &'a self,
        old_tree: TreeId,
        new: &'a dyn Pinned,
        new_tree: TreeId,
        range: KeyRange,
    ) -> Result<Box<dyn DiffCursor + 'a>>;

    /// Hints that keys of a tree, in order, will be looked up soon, so that the disk may read the
    /// path to them meanwhile. The later lookup reports any error.
    fn prefetch(&self, _tree: TreeId, _keys: &[&[u8]]) {}

    /// Approximate bytes of the log records committed after a commit; `None` where the log does not
    /// reach back so far.
    fn logged_bytes(&self, _behind: CommitToken) -> Option<u64> {
        None
    }

    /// Passes the batches committed after a commit up to this state, as stored in the log, to
    /// `take`, until it returns `false`. `false`: the log does not have all of them, and those
    /// passed are unusable.
    fn logged_since(&self, _behind: CommitToken, _take: &mut dyn FnMut(Ops<'_>) -> bool) -> bool {
        false
    }

    /// The state as its store's own type, for [`Pinned::diff`].
    fn as_any(&self) -> &dyn Any;
}

/// Data that must be durable before the log is.
pub trait Barrier: Send + Sync {
    /// Makes everything durable that a commit made before this call may name.
    fn reach(&self) -> std::result::Result<(), device::Error>;
}

/// Counters of a store. Sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// `btree`, `lsm` or `memory`.
    pub engine: &'static str,
    /// When commits are durable.
    pub durability: Durability,
    /// Trees that exist.
    pub trees: u64,
    /// Trees that were dropped and are not reclaimed yet.
    pub dropping: u64,
    /// Disk space of the engine's files, without the log.
    pub disk_bytes: u64,
    /// Disk space of the log.
    pub log_bytes: u64,
    /// Bytes written since opening, log included.
    pub written_bytes: u64,
    /// Writes since opening, log included. The mean write has `written_bytes / writes`.
    pub writes: u64,
    /// Part of `written_bytes` that checkpoints wrote.
    pub checkpoint_bytes: u64,
    /// Part of `writes` that checkpoints made.
    pub checkpoint_writes: u64,
    /// Part of `written_bytes` that compactions of runs wrote.
    pub merge_bytes: u64,
    /// Part of `written_bytes` that ingested runs took.
    pub ingest_bytes: u64,
    /// Bytes that callers wrote since opening: log records, and keys and values of runs that
    /// bypassed the log.
    pub given_bytes: u64,
    /// Commits since opening: `written_bytes / commits` is the disk's cost of one.
    pub commits: u64,
    /// `fdatasync` calls since opening.
    pub syncs: u64,
    /// Memory of cached nodes.
    pub cache_bytes: u64,
    /// Wall-clock time of the last checkpoint, in nanoseconds since 1970.
    pub last_checkpoint: Option<i64>,
    /// Checkpoints since opening.
    pub checkpoints: u64,
    /// Log records that opening replayed.
    pub replayed: u64,
    /// Compaction state, in an engine that compacts.
    pub merges: Option<MergeStats>,
}

impl Stats {
    /// Bytes written for each byte that callers wrote, since opening; 0 before they wrote any.
    pub fn write_amplification(&self) -> f64 {
        if self.given_bytes == 0 {
            0.0
        } else {
            self.written_bytes as f64 / self.given_bytes as f64
        }
    }
}

/// Value logs of the durable state: blobs of rows that runs point to and that are not compacted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ValueLogStats {
    /// Values of at least this many bytes go to a value log; 0: none do.
    pub values_from: u64,
    /// Number of value logs.
    pub logs: u64,
    /// Their bytes on disk.
    pub disk_bytes: u64,
    /// Bytes of the keys and values of all their rows.
    pub rows_bytes: u64,
    /// Part of them that runs point to.
    pub live_bytes: u64,
    /// Logs of which less than half is live: they are emptied next.
    pub sparse: u64,
    /// Bytes written to value logs since opening.
    pub written_bytes: u64,
}

/// Compactions since opening, the running one, and the next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MergeStats {
    /// Completed compactions.
    pub ended: u64,
    /// Part of them that emptied value logs with little live data.
    pub cleaned: u64,
    /// Value logs.
    pub logs: ValueLogStats,
    /// For the running compaction: bytes written, and bytes of its input.
    pub under_way: Option<(u64, u64)>,
    /// For the next planned compaction: how many runs, and their bytes.
    pub next: Option<(u64, u64)>,
    /// Runs of the deepest tree of the durable state.
    pub depth: u64,
    /// Maximum bytes per second; 0: no bound.
    pub rate: u64,
}
