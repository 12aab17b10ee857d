//! The oracle behind the trait: one lock around a copy-on-write set of trees.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::sync::Mutex;
use format::batch::Ops;
use store::{
    Barrier, Batch, CheckProgress, CheckReport, Commit, CommitToken, Cursor, DiffCursor,
    Durability, Durable, Error, KeyRange, Logged, Lsn, Maintain, Pinned, Read, Result, SharedWalk,
    Snapshot, SortedRun, Stats, TreeId,
};

use super::commit::{self, Trees};
use super::cursor::{MemCursor, MemDiff, Source, find};

/// How long until a flush would be due when nothing waits.
const FLUSH_INTERVAL: Duration = Duration::from_secs(5);

/// A store in memory whose only guarantee is correct answers.
///
/// Invariants: `durable <= last`; `synced`, if it is kept, is the set of trees as of `durable`.
pub struct MemStore {
    state: Mutex<State>,
    durability: Durability,
    gets: AtomicU64,
    moves: AtomicU64,
    on_read: Mutex<Option<OnRead>>,
}

/// Called at each read.
type OnRead = Arc<dyn Fn() + Send + Sync>;

struct State {
    trees: Arc<Trees>,
    /// Distinguishes stores.
    store: Arc<()>,
    last: Lsn,
    synced: Option<Arc<Trees>>,
    durable: Lsn,
    barrier: Option<Arc<dyn Barrier>>,
    full: bool,
    /// Number of scans until one fails; later ones succeed.
    scans_left: Option<u64>,
    closed: bool,
    dropping: u64,
    syncs: u64,
    written_bytes: u64,
    checkpoints: u64,
}

impl Default for MemStore {
    fn default() -> MemStore {
        MemStore::new()
    }
}

impl MemStore {
    /// An empty store whose commits become durable by `sync`.
    pub fn new() -> MemStore {
        MemStore::with_durability(Durability::Async)
    }

    /// An empty store.
    pub fn with_durability(durability: Durability) -> MemStore {
        MemStore::from_trees(Arc::default(), Lsn(0), durability)
    }

    fn from_trees(trees: Arc<Trees>, last: Lsn, durability: Durability) -> MemStore {
        MemStore {
            state: Mutex::new(State {
                synced: None,
                trees,
                store: Arc::default(),
                last,
                durable: last,
                barrier: None,
                full: false,
                scans_left: None,
                closed: false,
                dropping: 0,
                syncs: 0,
                written_bytes: 0,
                checkpoints: 0,
            }),
            durability,
            gets: AtomicU64::new(0),
            moves: AtomicU64::new(0),
            on_read: Mutex::new(None),
        }
    }

    /// The same store, but it remembers synced states, so that [`MemStore::after_crash`] may be
    /// called. Every sync copies each changed tree.
    #[must_use]
    pub fn keep_synced(self) -> MemStore {
        {
            let mut state = self.state.lock();
            state.synced = Some(Arc::clone(&state.trees));
        }
        self
    }

    /// The store as it would be opened after the power was cut now: what was synced.
    #[must_use]
    pub fn after_crash(&self) -> MemStore {
        let state = self.state.lock();
        let synced = state.synced.clone().expect("invariant: made with keep_synced");
        MemStore::from_trees(synced, state.durable, self.durability).keep_synced()
    }

    /// From now on commits return `NoSpace`, or succeed again.
    pub fn set_full(&self, full: bool) {
        self.state.lock().full = full;
    }

    /// Number of keys looked up so far, for tests of code that promises few look-ups.
    pub fn gets(&self) -> u64 {
        self.gets.load(Ordering::Relaxed)
    }

    /// Entries that cursors moved to so far; those of pinned states do not count.
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    /// Has something called before each look-up, and each entry that a cursor moves to.
    pub fn set_on_read(&self, call: impl Fn() + Send + Sync + 'static) {
        *self.on_read.lock() = Some(Arc::new(call));
    }

    fn note_read(&self, count: &AtomicU64) {
        count.fetch_add(1, Ordering::Relaxed);
        let call = self.on_read.lock().clone();
        if let Some(call) = call {
            call();
        }
    }

    /// The scan after `scans` more fails, once, as on a bad disk.
    pub fn fail_scan_after(&self, scans: u64) {
        self.state.lock().scans_left = Some(scans);
    }

    /// Whether the scan that is to fail has not run yet.
    pub fn scan_will_fail(&self) -> bool {
        self.state.lock().scans_left.is_some()
    }

    /// The trees that exist, in order.
    pub fn trees(&self) -> Vec<TreeId> {
        self.state.lock().trees.keys().copied().collect()
    }

    /// All keys and values of a tree, in order.
    pub fn dump(&self, tree: TreeId) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.look(|trees| {
            let found = find(trees, tree)?;
            Ok(found.iter().map(|(key, value)| (key.clone(), value.to_vec())).collect())
        })
    }

    /// The state as a pinned one, without a box.
    pub fn pin_state(&self) -> MemPinned {
        let state = self.state.lock();
        let (trees, store) = (Arc::clone(&state.trees), Arc::clone(&state.store));
        MemPinned { trees, last: state.last, store }
    }

    /// Reverts all commits since a pinned state.
    pub fn reset_to(&self, pinned: &MemPinned) {
        let mut state = self.state.lock();
        state.trees = Arc::clone(&pinned.trees);
        state.last = pinned.last;
        state.durable = state.durable.min(pinned.last);
    }

    /// Whether a batch would be rejected, and why.
    pub fn check(&self, batch: &Batch) -> Result<()> {
        commit::check(&self.state.lock().trees, batch.ops())
    }

    /// Applies an encoded batch under a number, from a log or a dump.
    pub(crate) fn replay(&self, lsn: Lsn, ops: Ops<'_>) -> Result<()> {
        let mut state = self.state.lock();
        commit::check(&state.trees, ops.clone())?;
        commit::apply(Arc::make_mut(&mut state.trees), ops);
        state.last = lsn;
        Ok(())
    }

    /// Syncs everything committed before the call. Calls the barrier without holding the lock, as
    /// it may read the store.
    fn sync_all(&self) -> Result<()> {
        let (barrier, trees, last) = {
            let state = self.state.lock();
            let trees = state.synced.is_some().then(|| Arc::clone(&state.trees));
            (state.barrier.clone(), trees, state.last)
        };
        if let Some(barrier) = barrier {
            barrier.reach()?;
        }
        let mut state = self.state.lock();
        state.syncs += 1;
        if state.durable < last {
            state.durable = last;
            state.synced = trees;
        }
        Ok(())
    }
}

impl Source for MemStore {
    fn look<T>(&self, body: impl FnOnce(&Trees) -> T) -> T {
        body(&self.state.lock().trees)
    }

    fn note_move(&self) {
        self.note_read(&self.moves);
    }
}

fn get_from(trees: &Trees, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
    let value = find(trees, tree)?.get(key);
    if let Some(value) = value {
        found(value);
    }
    Ok(value.is_some())
}

impl Read for MemStore {
    fn get_with(&self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.note_read(&self.gets);
        let state = self.state.lock();
        get_from(&state.trees, tree, key, found)
    }

    fn scan(&self, tree: TreeId, range: KeyRange) -> Result<Box<dyn Cursor + '_>> {
        {
            let mut state = self.state.lock();
            state.scans_left = match state.scans_left {
                Some(0) => {
                    state.scans_left = None;
                    let failed = std::io::Error::from_raw_os_error(5);
                    return Err(device::Error::new("read", "memory", failed).into());
                }
                left => left.map(|left| left - 1),
            };
        }
        Ok(Box::new(MemCursor::new(self, tree, range)?))
    }
}

impl Commit for MemStore {
    fn commit(&self, batch: &Batch) -> Result<CommitToken> {
        assert!(batch.check().is_ok(), "batch of {} bytes", batch.as_bytes().len());
        if batch.is_empty() {
            return Ok(self.last_commit());
        }
        let token = {
            let mut state = self.state.lock();
            let state = &mut *state;
            if state.closed {
                return Err(Error::ReadOnly(Arc::from("the store was closed")));
            }
            if state.full {
                return Err(Error::NoSpace("the log"));
            }
            commit::check(&state.trees, batch.ops())?;
            state.dropping += commit::apply(Arc::make_mut(&mut state.trees), batch.ops());
            state.last = Lsn(state.last.0 + 1);
            state.written_bytes += batch.as_bytes().len() as u64;
            CommitToken(state.last)
        };
        if self.durability == Durability::Sync {
            self.sync(token)?;
        }
        Ok(token)
    }

    fn ingest(&self, tree: TreeId, run: &mut dyn SortedRun) -> Result<CommitToken> {
        let entries = super::entries(run)?;
        // In the uses of the oracle, no other thread ingests or commits into the range meanwhile.
        let batch = self.look(|trees| super::as_batch(trees, tree, &entries))?;
        self.commit(&batch.unwrap_or_default())
    }

    fn ingest_new(&self, tree: TreeId, run: &mut dyn SortedRun) -> Result<CommitToken> {
        self.commit(&super::as_new_tree(tree, &super::entries(run)?)?)
    }
}

impl Snapshot for MemStore {
    fn pin(&self) -> Result<Box<dyn Pinned>> {
        Ok(Box::new(self.pin_state()))
    }

    fn diff(&self, old: TreeId, new: TreeId) -> Result<Box<dyn DiffCursor + '_>> {
        self.look(|trees| {
            let diff = MemDiff::new(find(trees, old)?, find(trees, new)?, &KeyRange::all());
            Ok(Box::new(diff) as Box<dyn DiffCursor>)
        })
    }

    fn tree_exists(&self, tree: TreeId) -> Result<bool> {
        Ok(self.state.lock().trees.contains_key(&tree))
    }
}

impl Durable for MemStore {
    fn sync(&self, up_to: CommitToken) -> Result<()> {
        if self.durable() >= up_to { Ok(()) } else { self.sync_all() }
    }

    fn last_commit(&self) -> CommitToken {
        CommitToken(self.state.lock().last)
    }

    fn durable(&self) -> CommitToken {
        CommitToken(self.state.lock().durable)
    }

    fn flush_if_due(&self) -> Result<Duration> {
        self.sync(self.last_commit())?;
        Ok(FLUSH_INTERVAL)
    }

    fn set_barrier(&self, barrier: Arc<dyn Barrier>) {
        self.state.lock().barrier = Some(barrier);
    }

    fn close(&self) -> Result<()> {
        self.sync_all()?;
        self.state.lock().closed = true;
        Ok(())
    }
}

impl Maintain for MemStore {
    fn checkpoint(&self) -> Result<bool> {
        self.sync_all()?;
        self.state.lock().checkpoints += 1;
        Ok(true)
    }

    fn checkpoint_due(&self) -> bool {
        false
    }

    fn reclaim_step(&self, nodes: usize) -> Result<bool> {
        let mut state = self.state.lock();
        state.dropping = state.dropping.saturating_sub(nodes as u64);
        Ok(state.dropping > 0)
    }

    fn check(&self, _progress: CheckProgress<'_>) -> Result<CheckReport> {
        let state = self.state.lock();
        let entries = state.trees.values().map(|tree| tree.len() as u64).sum();
        Ok(CheckReport { trees: state.trees.len() as u64, entries, ..CheckReport::default() })
    }

    fn stats(&self) -> Stats {
        let state = self.state.lock();
        Stats {
            engine: "memory",
            durability: self.durability,
            trees: state.trees.len() as u64,
            dropping: state.dropping,
            disk_bytes: 0,
            log_bytes: 0,
            log_bytes_since_checkpoint: 0,
            written_bytes: state.written_bytes,
            writes: 0,
            checkpoint_bytes: 0,
            checkpoint_writes: 0,
            merge_bytes: 0,
            ingest_bytes: 0,
            given_bytes: state.written_bytes,
            commits: state.last.0,
            syncs: state.syncs,
            cache_bytes: 0,
            last_checkpoint: None,
            checkpoints: state.checkpoints,
            replayed: 0,
            merges: None,
        }
    }
}

/// One state of a [`MemStore`].
pub struct MemPinned {
    trees: Arc<Trees>,
    last: Lsn,
    store: Arc<()>,
}

impl MemPinned {
    /// All trees and what they hold.
    pub(crate) fn trees(&self) -> &Trees {
        &self.trees
    }
}

impl Source for MemPinned {
    fn look<T>(&self, body: impl FnOnce(&Trees) -> T) -> T {
        body(&self.trees)
    }
}

impl Read for MemPinned {
    fn get_with(&self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get_from(&self.trees, tree, key, found)
    }

    fn scan(&self, tree: TreeId, range: KeyRange) -> Result<Box<dyn Cursor + '_>> {
        Ok(Box::new(MemCursor::new(self, tree, range)?))
    }
}

impl Pinned for MemPinned {
    fn logged(&self) -> Logged<'_> {
        Logged { commit: CommitToken(self.last), log: None }
    }

    fn visit_shared_step(
        &self,
        walk: &mut SharedWalk,
        _nodes: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<bool> {
        // Trees that were cloned and not changed since are one allocation.
        let mut seen = BTreeSet::new();
        let range = KeyRange::prefix(&walk.prefix);
        for tree in walk.trees.drain(..) {
            let tree = find(&self.trees, tree)?;
            if seen.insert(Arc::as_ptr(tree)) {
                for (key, value) in tree.range(range.from.clone()..) {
                    if !range.contains(key) {
                        break;
                    }
                    visit(key, value);
                }
            }
        }
        Ok(false)
    }

    fn diff<'a>(
        &'a self,
        old_tree: TreeId,
        new: &'a dyn Pinned,
        new_tree: TreeId,
        range: KeyRange,
    ) -> Result<Box<dyn DiffCursor + 'a>> {
        let new = new.as_any().downcast_ref::<MemPinned>().ok_or(Error::ForeignPin)?;
        if !Arc::ptr_eq(&self.store, &new.store) {
            return Err(Error::ForeignPin);
        }
        let (old, new) = (find(&self.trees, old_tree)?, find(&new.trees, new_tree)?);
        Ok(Box::new(MemDiff::new(old, new, &range)))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
