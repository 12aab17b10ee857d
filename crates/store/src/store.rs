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
/// their sequence numbers; a batch is atomic to readers of one key, to clones, to pinned states
/// and to recovery, but not to a live scan of many keys ([`Read::scan`]). Nothing here starts a
/// thread: background work is done in the steps
/// `flush_if_due`, `checkpoint` and `reclaim_step`, which the owner's workers drive.
pub trait Store: Read {
    /// Applies a batch atomically. Visible when it returns; durable as [`Durability`] says.
    ///
    /// A batch that names an absent tree, or creates one that exists, is refused whole. On
    /// `NoSpace` nothing happened.
    fn commit(&self, batch: &Batch) -> Result<CommitToken>;

    /// Puts the entries of a run into a range of a tree that holds no key, as one commit: all or
    /// none of them, to readers, clones and recovery. An engine writes them to their place once,
    /// and logs where that is instead of what they are. An empty run is no commit.
    ///
    /// Refused are keys that do not ascend ([`crate::Error::Unsorted`]), keys of the tree between
    /// the first and the last of the run ([`crate::Error::RangeNotEmpty`]), and a run whose places
    /// do not fit one record ([`crate::Error::RunTooLong`]); then nothing happened. Commits go on
    /// while the run is read, so it may be a cursor over this store.
    fn ingest(&self, tree: TreeId, run: &mut dyn SortedRun) -> Result<CommitToken>;

    /// As [`Store::ingest`], into a tree that the same commit creates: it is there with all of the
    /// run, or not at all. An empty run makes an empty tree. The number is as for
    /// [`Batch::create_tree`]; that of a tree that exists is refused.
    fn ingest_new(&self, tree: TreeId, run: &mut dyn SortedRun) -> Result<CommitToken>;

    /// Creates `target` with those keys of `source` that are some patterns': BabuDB's partial
    /// snapshot by patterns, as one commit.
    ///
    /// It has what `source` holds when this is called; commits go on while it is written, to its
    /// place and once, as by [`Store::ingest`], whose bound on the length of a run is its own too.
    /// It is a tree like any other from then on, and shares nothing with `source`: of that the
    /// ranges are read in which such keys can be, and no key of others is kept. To have the moment
    /// durable before, at the cost of a clone, clone `source` first ([`Batch::clone_tree`]) and
    /// take this of the clone. Prefixes alone are had in O(1): [`Batch::clone_prefixes`].
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
    /// what committers left for whoever calls this, and tells how long until it will be due.
    fn flush_if_due(&self) -> Result<Duration>;

    /// Pins the present state of all trees for reading. Cheap; the space of what is deleted
    /// meanwhile is held until it drops.
    fn pin(&self) -> Result<Box<dyn Pinned>>;

    /// Pins some trees, those of them that exist, and perhaps others too. Where nobody changes
    /// these trees, changes of others cost what they cost without a pin.
    fn pin_trees(&self, _trees: &[TreeId]) -> Result<Box<dyn Pinned>> {
        self.pin()
    }

    /// Differences from `old` to `new`, at a cost of what differs, not of what is there.
    fn diff(&self, old: TreeId, new: TreeId) -> Result<Box<dyn DiffCursor + '_>>;

    /// Writes all that is only in memory and the log to its place, and trims the log. Runs beside
    /// commits. Returns at once, with `false`, when another thread is at it.
    fn checkpoint(&self) -> Result<bool>;

    /// Has `wake` called, from a thread that commits, when a checkpoint should start that had
    /// better not wait for the next look at [`checkpoint_due`](Store::checkpoint_due): whoever
    /// commits on makes it himself after a while.
    fn set_waker(&self, _wake: Waker) {}

    /// Says behind which commits [`Pinned::logged_since`] will be asked for what followed, so that
    /// of the log so much is kept, within the bounds of the store's options. Before it is first
    /// called, all is; an engine without a log keeps nothing.
    fn keep_log(&self, _behind: &[CommitToken]) -> Result<()> {
        Ok(())
    }

    /// How often a record was refused because the log has a disk of its own, which is full. Room
    /// where the rest of the store is would have been of no use.
    fn refused_by_log(&self) -> u64 {
        0
    }

    /// Whether the log has grown so far that a checkpoint should start.
    fn checkpoint_due(&self) -> bool;

    /// Whether steps of [`Store::reclaim_step`] are merging what was deleted away, or would, for
    /// the room that it takes.
    fn merge_may_return(&self) -> bool {
        false
    }

    /// Frees a bounded part (about `nodes` nodes) of what dropped trees alone owned; `false` when
    /// nothing is left to free.
    fn reclaim_step(&self, nodes: usize) -> Result<bool>;

    /// Gives room back to the disk at once that is free and kept to be used again: for whoever
    /// finds the disk full. An engine that keeps none has nothing to do.
    fn give_back(&self) -> Result<()> {
        Ok(())
    }

    /// Whether a tree exists.
    fn tree_exists(&self, tree: TreeId) -> Result<bool>;

    /// Why the store was opened for reading only: damage was met that is in the way of changes, and
    /// in the way of few keys. Those are answered with what is damaged, all others as ever; a
    /// commit or checkpoint is [`crate::Error::ReadOnly`], and nothing is deleted.
    fn read_only(&self) -> Option<Arc<str>> {
        None
    }

    /// Trees of which something is not known since the log was replayed, where that is why the
    /// store is read-only, and the only reason.
    fn unknown(&self) -> Vec<TreeId> {
        Vec::new()
    }

    /// Logs, durably, a batch that drops all trees of which something is not known: for whoever has
    /// what they held elsewhere. The store takes nothing else; the next opening finds the batch in
    /// the log and takes changes.
    fn drop_unknown(&self, _batch: &Batch) -> Result<()> {
        Err(crate::Error::ReadOnly(Arc::from("nothing is unknown")))
    }

    /// What must be durable before a log record that names it (DESIGN section 6): called before
    /// every write of the log, in one place. Set once, before the first commit.
    fn set_barrier(&self, barrier: Arc<dyn Barrier>);

    /// Reads and verifies everything of the last checkpoint's state that is on disk, past
    /// the cache, and counts all references again. Runs beside commits and checkpoints, and changes
    /// nothing; what is freed meanwhile is held until it ends. What is wrong is in the report;
    /// fails only where the disk does not answer.
    fn check(&self, progress: CheckProgress<'_>) -> Result<CheckReport>;

    /// Counters, for `status` and for tests.
    fn stats(&self) -> Stats;

    /// Makes everything durable and takes no more commits. Called once, before the last drop; a
    /// store that is dropped without it recovers as after a crash.
    fn close(&self) -> Result<()>;
}

/// Told that there is work to do.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// Keys of a tree that cannot be read.
#[derive(Debug, Clone)]
pub struct LostRange {
    /// The least key that may have been there.
    pub from: Vec<u8>,
    /// The least key behind it that was not; `None`: all up to the end.
    pub to: Option<Vec<u8>>,
    /// What stands in their place.
    pub damage: Arc<format::Corruption>,
}

/// How far a walk of [`Pinned::visit_shared_step`] has come. For one pinned state.
pub struct SharedWalk {
    /// The trees that were not begun.
    pub trees: VecDeque<TreeId>,
    /// What the keys start with.
    pub prefix: Vec<u8>,
    /// What the engine keeps between steps.
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
    /// only once: the cost is that of the distinct nodes. The order is open, and a key that is in
    /// shared and in unshared places may be visited more than once.
    fn visit_shared_once(
        &self,
        trees: &mut dyn Iterator<Item = TreeId>,
        prefix: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<()>;

    /// One bounded part of what [`Pinned::visit_shared_once`] does, about `nodes` nodes of it;
    /// `false` when the walk is done. What an error was met at is left out of the rest: who must
    /// see everything gives the walk up, who looks for damage goes on. An engine that cannot stop
    /// in between does all of it in one step.
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
    /// `None` when there is none, or the engine cannot tell. It may begin before `key`. What lies
    /// behind it is found by seeking there.
    fn lost_from(&self, _tree: TreeId, _key: &[u8]) -> Result<Option<LostRange>> {
        Ok(None)
    }

    /// Differences from `old_tree` of this state to `new_tree` of another state, within a range,
    /// at a cost of what differs there. `new` must be a pinned state of the same store, else
    /// [`crate::Error::ForeignPin`]; it need not be the younger one. A tree that its state does
    /// not have is [`crate::Error::NoTree`].
    fn diff<'a>(
        &'a self,
        old_tree: TreeId,
        new: &'a dyn Pinned,
        new_tree: TreeId,
        range: KeyRange,
    ) -> Result<Box<dyn DiffCursor + 'a>>;

    /// Says that keys of a tree, in order, will be looked up soon, so that the disk may read
    /// what leads to them meanwhile. A hint: whoever looks them up is told of what goes wrong.
    fn prefetch(&self, _tree: TreeId, _keys: &[&[u8]]) {}

    /// About how many bytes of the log hold what was committed behind a commit; `None` where the
    /// log does not reach back so far.
    fn logged_bytes(&self, _behind: CommitToken) -> Option<u64> {
        None
    }

    /// Shows the batches that were committed behind a commit up to this state, as they stand in the
    /// log, until `take` answers `false`. `false`: the log does not have all of them, and what was
    /// shown is of no use.
    fn logged_since(&self, _behind: CommitToken, _take: &mut dyn FnMut(Ops<'_>) -> bool) -> bool {
        false
    }

    /// The state as what its store made it, for [`Pinned::diff`].
    fn as_any(&self) -> &dyn Any;
}

/// Something that must be durable before the log is.
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
    /// Room that the engine's files occupy on disk, without the log.
    pub disk_bytes: u64,
    /// Room of the log.
    pub log_bytes: u64,
    /// Written since opening, log included.
    pub written_bytes: u64,
    /// Writes since opening, log included. The mean write has `written_bytes / writes`.
    pub writes: u64,
    /// Of `written_bytes`, what checkpoints wrote.
    pub checkpoint_bytes: u64,
    /// Of `writes`, those of checkpoints.
    pub checkpoint_writes: u64,
    /// Of `written_bytes`, what merges of runs wrote.
    pub merge_bytes: u64,
    /// Of `written_bytes`, what ingested runs took.
    pub ingest_bytes: u64,
    /// What callers gave since opening: bytes of log records, and keys and values of runs that
    /// did not pass through the log.
    pub given_bytes: u64,
    /// Commits since opening: `written_bytes / commits` is what one costs the disk.
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
    /// What merging is at, in an engine that merges.
    pub merges: Option<MergeStats>,
}

impl Stats {
    /// Bytes written for each byte that callers gave, since opening; 0 before they gave any.
    pub fn write_amplification(&self) -> f64 {
        if self.given_bytes == 0 {
            0.0
        } else {
            self.written_bytes as f64 / self.given_bytes as f64
        }
    }
}

/// Value logs of the durable state: blobs of rows that runs point to and that are not merged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ValueLogStats {
    /// Bytes from which a value goes to one; 0: none does.
    pub values_from: u64,
    /// How many there are.
    pub logs: u64,
    /// Their bytes on disk.
    pub disk_bytes: u64,
    /// Bytes of the keys and values of all their rows.
    pub rows_bytes: u64,
    /// Of those, such as runs point to.
    pub live_bytes: u64,
    /// Logs of which less than half is live: they are emptied next.
    pub sparse: u64,
    /// Bytes that were written to value logs since opening.
    pub written_bytes: u64,
}

/// What merging has done since opening, what it is at, and what comes next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MergeStats {
    /// Merges that ended.
    pub ended: u64,
    /// Of those, such as emptied value logs of which little was live.
    pub cleaned: u64,
    /// Value logs.
    pub logs: ValueLogStats,
    /// Of the merge that is under way, bytes that were written, and bytes of what is merged.
    pub under_way: Option<(u64, u64)>,
    /// Of the merge that is planned next, how many runs, and their bytes.
    pub next: Option<(u64, u64)>,
    /// Runs of the deepest tree of the durable state.
    pub depth: u64,
    /// Most bytes a second; 0: no bound.
    pub rate: u64,
}
