//! What the parts of the engine share: trees, catalog, gate, log, the durable state.
//!
//! Locks, in the order in which they may be taken: the durable state, the gate, the commit locks
//! of trees (by number), the set of trees, a tree, then the small ones.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use device::{Env, Map};
use parking_lot::{Mutex, RwLock};
use store::{Error, Log, Result, TreeId, Waker};

use crate::checkpoint::Durable;
use crate::compact::Merging;
use crate::files::Files;
use crate::layer::{LayerId, Stack};
use crate::options::Options;
use crate::tree::Tree;

/// The trees of a state.
pub(crate) type Catalog = BTreeMap<TreeId, Arc<Stack>>;

/// The engine.
pub(crate) struct Core {
    pub(crate) env: Env,
    pub(crate) options: Options,
    pub(crate) files: Arc<Files>,
    log: OnceLock<Log>,
    /// Shared by commits; exclusive to see a state between commits, and to exchange layers.
    pub(crate) gate: RwLock<()>,
    pub(crate) trees: RwLock<Map<TreeId, Arc<Tree>>>,
    /// The number of the next layer.
    pub(crate) ids: AtomicU64,
    /// Trees that changed since the last freeze of a checkpoint.
    pub(crate) changed: Mutex<BTreeMap<TreeId, Arc<Tree>>>,
    /// What the running checkpoint froze; none for trees that were dropped.
    pub(crate) in_flight: Mutex<BTreeMap<TreeId, Option<Arc<Stack>>>>,
    /// The trees of the durable state.
    pub(crate) catalog: Mutex<Arc<Catalog>>,
    pub(crate) durable: Mutex<Durable>,
    /// The merge of runs that is under way.
    pub(crate) merging: Mutex<Merging>,
    /// The last record that was applied, while the log is replayed.
    pub(crate) replayed_to: AtomicU64,
    /// Bytes and records that opening replayed.
    pub(crate) replayed_bytes: AtomicU64,
    pub(crate) replayed: AtomicU64,
    opened_at: AtomicU64,
    /// Log bytes at the last checkpoint's freeze.
    pub(crate) checkpointed_bytes: AtomicU64,
    /// Bytes of in-memory trees since the last freeze, and of those that are being written.
    pub(crate) dirty: AtomicUsize,
    pub(crate) dirty_in_flight: AtomicUsize,
    /// Trees that were dropped since the last checkpoint.
    pub(crate) drops: AtomicU64,
    pub(crate) last_checkpoint: AtomicI64,
    pub(crate) checkpoints: AtomicU64,
    /// Bytes, writes and syncs of checkpoints and merges since opening.
    pub(crate) written_bytes: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) closed: AtomicBool,
    /// Runs of the deepest tree of the durable state.
    pub(crate) depth: AtomicUsize,
    /// Told, once between two freezes, that a checkpoint should start.
    pub(crate) waker: Mutex<Option<Waker>>,
    pub(crate) woken: AtomicBool,
    /// Log bytes at the last look at the medium's room, and whether there was too little.
    pub(crate) room_looked_at: AtomicU64,
    pub(crate) tight: AtomicBool,
}

impl Core {
    pub(crate) fn new(
        env: &Env,
        options: Options,
        files: Arc<Files>,
        durable: Durable,
        catalog: Catalog,
        next_layer: LayerId,
    ) -> Core {
        let trees = catalog.iter().map(|(&id, stack)| {
            let tree = Tree::new(id, Arc::clone(stack));
            (id, Arc::new(tree))
        });
        Core {
            env: env.clone(),
            files,
            log: OnceLock::new(),
            gate: RwLock::new(()),
            trees: RwLock::new(trees.collect()),
            ids: AtomicU64::new(next_layer),
            changed: Mutex::default(),
            in_flight: Mutex::default(),
            catalog: Mutex::new(Arc::new(catalog)),
            replayed_to: AtomicU64::new(durable.lsn.0),
            durable: Mutex::new(durable),
            merging: Mutex::default(),
            replayed_bytes: AtomicU64::new(0),
            replayed: AtomicU64::new(0),
            opened_at: AtomicU64::new(0),
            checkpointed_bytes: AtomicU64::new(0),
            dirty: AtomicUsize::new(0),
            dirty_in_flight: AtomicUsize::new(0),
            drops: AtomicU64::new(0),
            last_checkpoint: AtomicI64::new(0),
            checkpoints: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            depth: AtomicUsize::new(0),
            waker: Mutex::new(None),
            woken: AtomicBool::new(false),
            room_looked_at: AtomicU64::new(0),
            tight: AtomicBool::new(false),
            options,
        }
    }

    /// Gives the core its log, which was opened by replaying into the core.
    pub(crate) fn set_log(&self, log: Log) {
        self.opened_at.store(log.last().0, Ordering::Relaxed);
        assert!(self.log.set(log).is_ok(), "the log is set once");
    }

    pub(crate) fn log(&self) -> &Log {
        self.log.get().expect("invariant: the log is set before the store is handed out")
    }

    /// The last commit that was applied.
    pub(crate) fn last(&self) -> store::Lsn {
        match self.log.get() {
            Some(log) => log.last(),
            None => store::Lsn(self.replayed_to.load(Ordering::Relaxed)),
        }
    }

    /// A tree that exists.
    #[inline]
    pub(crate) fn tree(&self, id: TreeId) -> Result<Arc<Tree>> {
        match self.trees.read().get(&id) {
            Some(tree) if !tree.dropped.load(Ordering::Relaxed) => Ok(Arc::clone(tree)),
            _ => Err(Error::NoTree(id)),
        }
    }

    /// Notes that a tree differs from the durable one.
    #[inline]
    pub(crate) fn mark_changed(&self, tree: &Arc<Tree>) {
        if !tree.changed.swap(true, Ordering::Relaxed) {
            self.changed.lock().insert(tree.id, Arc::clone(tree));
        }
    }

    /// The stack of a tree whose active part was made a layer; none when it was dropped. The
    /// caller has the gate alone.
    pub(crate) fn freeze_tree(&self, tree: &Tree) -> Option<Arc<Stack>> {
        (!tree.dropped.load(Ordering::Relaxed)).then(|| tree.freeze(&self.ids))
    }

    /// Records appended since opening.
    pub(crate) fn commits(&self) -> u64 {
        let last = self.log.get().map_or(0, |log| log.last().0);
        last.saturating_sub(self.opened_at.load(Ordering::Relaxed))
    }

    /// Bytes of log records that were replayed or appended.
    pub(crate) fn log_bytes(&self) -> u64 {
        let appended = self.log.get().map_or(0, Log::appended_bytes);
        self.replayed_bytes.load(Ordering::Relaxed) + appended
    }

    /// Log bytes since the last checkpoint.
    pub(crate) fn log_bytes_since(&self) -> u64 {
        self.log_bytes().saturating_sub(self.checkpointed_bytes.load(Ordering::Relaxed))
    }

    /// Bytes that are in memory and the log only.
    pub(crate) fn dirty_bytes(&self) -> usize {
        self.dirty.load(Ordering::Relaxed) + self.dirty_in_flight.load(Ordering::Relaxed)
    }
}
