//! State that the parts of the engine share: trees, catalog, gate, log, the durable state.
//!
//! Locks, in the order in which they may be taken: the durable state, the turn of pins, the gate.
//! Then come the commit locks of trees (by number), the set of trees, what a pin collects, a tree,
//! and the small ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use device::sync::{Mutex, RwLock};
use device::{Env, Map};
use store::{Error, Journal, Log, MergeStats, Result, TreeId, ValueLogStats};

use crate::candidates::CompactionCandidates;
use crate::durable::{Collected, Durable, Frozen};
use crate::files::Files;
use crate::layer::{Catalog, Layer, LayerId, Stack};
use crate::merging::Merging;
use crate::options::Options;
use crate::pinning::Pinning;
use crate::tree::{Ids, Tree};

/// The engine.
pub struct Core {
    pub(crate) env: Env,
    pub(crate) options: Options,
    pub(crate) files: Arc<Files>,
    pub(crate) journal: Journal,
    /// Shared by commits; exclusive to see a state between commits, and to exchange layers.
    pub(crate) gate: RwLock<()>,
    pub(crate) trees: RwLock<Map<TreeId, Arc<Tree>>>,
    /// The numbers of layers.
    pub(crate) ids: Ids,
    /// Trees that changed since the last freeze of a checkpoint.
    pub(crate) changed: Mutex<BTreeMap<TreeId, Arc<Tree>>>,
    /// What the running checkpoint froze; none for trees that were dropped.
    pub(crate) in_flight: Mutex<Arc<Frozen>>,
    /// The pin that is being collected.
    pub(crate) pinning: Pinning<Collected>,
    /// The trees of the durable state, with the merges since then applied.
    pub(crate) catalog: Mutex<Arc<Catalog>>,
    pub(crate) durable: Mutex<Durable>,
    /// Candidates for the next merge of the durable trees. Changed with the durable state locked.
    pub(crate) candidates: Mutex<CompactionCandidates>,
    /// The merge of runs in progress.
    pub(crate) merging: Mutex<Merging>,
    /// Whether it is made to free space, or to empty value logs.
    pub(crate) returning: AtomicBool,
    /// Its inputs and progress after its last step.
    pub(crate) merge_stats: Mutex<MergeStats>,
    /// Bytes of value logs that were written since opening.
    pub(crate) log_bytes_written: AtomicU64,
    /// The value logs of the durable state.
    pub(crate) log_stats: Mutex<ValueLogStats>,
    /// Bytes of in-memory trees since the last freeze, and of those that are being written.
    pub(crate) dirty: AtomicUsize,
    pub(crate) dirty_in_flight: AtomicUsize,
    /// Trees that were dropped since the last checkpoint, and those among them whose space does not
    /// wait for the next one (`drops`).
    pub(crate) drops: AtomicU64,
    pub(crate) needless_drops: AtomicU64,
    /// Runs of the deepest tree of the durable state.
    pub(crate) depth: AtomicUsize,
    /// Bytes of the blobs of the durable state.
    pub(crate) blob_bytes: AtomicU64,
    /// Bytes of the last manifest: the next needs about the same, twice.
    pub(crate) manifest_bytes: AtomicU64,
    /// Entries of all durable runs that are not tombstones.
    pub(crate) durable_entries: AtomicU64,
}

impl Core {
    pub(crate) fn new(
        env: &Env,
        options: Options,
        files: Arc<Files>,
        (durable, journal): (Durable, Journal),
        catalog: Catalog,
        next_layer: LayerId,
    ) -> Core {
        let trees = catalog.iter().map(|(&id, stack)| {
            let tree = Tree::new(id, Arc::clone(stack));
            (id, Arc::new(tree))
        });
        let candidates = CompactionCandidates::new(options.policy, &catalog);
        Core {
            env: env.clone(),
            files,
            journal,
            gate: RwLock::new(()),
            trees: RwLock::new(trees.collect()),
            ids: Ids::new(next_layer),
            changed: Mutex::default(),
            in_flight: Mutex::default(),
            pinning: Pinning::default(),
            catalog: Mutex::new(Arc::new(catalog)),
            durable: Mutex::new(durable),
            merging: Mutex::new(Merging::new(options.merge_bytes_per_second)),
            returning: AtomicBool::new(false),
            merge_stats: Mutex::new(MergeStats::default()),
            log_bytes_written: AtomicU64::new(0),
            log_stats: Mutex::new(ValueLogStats::default()),
            dirty: AtomicUsize::new(0),
            dirty_in_flight: AtomicUsize::new(0),
            drops: AtomicU64::new(0),
            needless_drops: AtomicU64::new(0),
            depth: AtomicUsize::new(candidates.depth()),
            candidates: Mutex::new(candidates),
            blob_bytes: AtomicU64::new(0),
            manifest_bytes: AtomicU64::new(0),
            durable_entries: AtomicU64::new(0),
            options,
        }
    }

    #[inline]
    pub(crate) fn log(&self) -> &Log {
        self.journal.log()
    }

    /// An existing tree.
    #[inline]
    pub(crate) fn tree(&self, id: TreeId) -> Result<Arc<Tree>> {
        match self.trees.read().get(&id) {
            Some(tree) if !tree.dropped.load(Ordering::Relaxed) => Ok(Arc::clone(tree)),
            _ => Err(Error::NoTree(id)),
        }
    }

    /// Notes that a tree will differ from the durable one, before it is changed. The caller has its
    /// lock for commits and is in the gate, or is alone there.
    #[inline]
    pub(crate) fn mark_changed(&self, tree: &Arc<Tree>) {
        if tree.pinned.load(Ordering::Relaxed) != self.pinning.count() {
            self.give_to_pin(tree);
        }
        if !tree.changed.load(Ordering::Relaxed) {
            self.note_changed(tree);
        }
    }

    #[cold]
    fn note_changed(&self, tree: &Arc<Tree>) {
        tree.changed.store(true, Ordering::Relaxed);
        let before = self.changed.lock().insert(tree.id, Arc::clone(tree));
        // One that was dropped, whose number another one has now.
        if let Some(before) = before.filter(|before| !Arc::ptr_eq(before, tree))
            && before.pinned.load(Ordering::Relaxed) != self.pinning.count()
        {
            self.give_to_pin(&before);
        }
    }

    /// A tree that no pin has. The caller is alone in the gate.
    pub(crate) fn new_tree(&self, id: TreeId, stack: Arc<Stack>) -> Arc<Tree> {
        let tree = Tree::new(id, stack);
        tree.pinned.store(self.pinning.count(), Ordering::Relaxed);
        Arc::new(tree)
    }

    /// The stack of a tree whose active part was made a layer; none if the tree was dropped. The
    /// caller keeps the tree from changing, and is in the gate.
    pub(crate) fn freeze_tree(&self, tree: &Tree) -> Option<Arc<Stack>> {
        (!tree.dropped.load(Ordering::Relaxed)).then(|| tree.freeze(&self.ids))
    }

    /// Why the value of some key is unknown, if one is.
    pub(crate) fn any_unknown(&self) -> Option<Error> {
        self.unknown().into_iter().next().map(|(_, why)| why)
    }

    /// The trees that have keys with unknown values, ascending, and why they are unknown.
    pub(crate) fn unknown(&self) -> Vec<(TreeId, Error)> {
        let changed = self.changed.lock();
        let trees = changed.values().filter(|tree| !tree.dropped.load(Ordering::Relaxed));
        let mut unknown: Vec<_> = trees
            .filter_map(|tree| {
                let state = tree.state.read();
                let of_layer = |layer: &Arc<Layer>| layer.as_memory()?.any_unknown().cloned();
                let frozen = || state.stack.layers.iter().find_map(of_layer);
                let why = state.active.any_unknown().cloned().or_else(frozen)?;
                Some((tree.id, why))
            })
            .collect();
        unknown.sort_unstable_by_key(|(id, _)| *id);
        unknown
    }

    /// Bytes that are only in memory and the log.
    pub(crate) fn dirty_bytes(&self) -> usize {
        self.dirty.load(Ordering::Relaxed) + self.dirty_in_flight.load(Ordering::Relaxed)
    }
}
