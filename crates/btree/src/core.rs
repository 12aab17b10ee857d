//! State that the parts of the engine share: trees, catalog, gate, log, checkpoint state.
//!
//! Locks, in the order in which they may be taken: checkpoint state, gate, key stripes, the set of
//! trees, a tree, a leaf. Then come the small ones: changed trees, known cells, ring.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use device::sync::Mutex;
use device::{Env, File, Latch, Map};
use format::catalog::CatalogKey;
use store::{Error, Journal, Log, Result, TreeId};

use crate::cell::Node;
use crate::changed_trees::Changed;
use crate::checkpoint::{CheckpointState, Shedding};
use crate::gate::Gate;
use crate::lost_nodes::LostTrees;
use crate::nodes::Nodes;
use crate::options::Options;
use crate::pins::{PinnedTrees, Pins};
use crate::preflush_place::Preflush;
use crate::stripes::Stripes;
use crate::tree::{Root, States, Tree};

/// The engine.
pub struct Core {
    pub(crate) env: Env,
    pub(crate) options: Options,
    pub(crate) nodes: Nodes,
    pub(crate) superblocks: [Arc<dyn File>; 2],
    /// Trees whose content is partly unknown, if that is the reason.
    pub(crate) lost_trees: Mutex<LostTrees>,
    pub(crate) journal: Journal,
    pub(crate) gate: Gate,
    pub(crate) stripes: Stripes,
    /// The tree of trees, as the last checkpoint left it.
    pub(crate) catalog: Tree,
    /// Trees that were used since the store was opened.
    pub(crate) trees: Latch<Map<TreeId, Arc<Tree>>>,
    /// The same in order, for round-robin scans.
    pub(crate) trees_order: Mutex<BTreeSet<TreeId>>,
    /// Where the scan for unused trees continues.
    pub(crate) trees_looked_at: Mutex<TreeId>,
    pub(crate) trees_open: AtomicUsize,
    /// Number of trees in `changed`, and of fresh ones among them.
    pub(crate) changed_trees: AtomicUsize,
    pub(crate) fresh_trees: AtomicUsize,
    /// Trees that changed since the last freeze.
    pub(crate) changed: Mutex<Changed>,
    /// The state that the running checkpoint froze.
    pub(crate) in_flight: Mutex<Arc<States>>,
    /// The last pin at the time when the last checkpoint was frozen.
    pub(crate) pins_at_freeze: AtomicU64,
    /// Number of states published since the store was opened.
    pub(crate) published: AtomicU64,
    pub(crate) pins: Mutex<Pins>,
    /// Trees of pinned states that were read.
    pub(crate) pinned_trees: Mutex<PinnedTrees>,
    /// Cells that are no longer reachable, to be dropped step by step.
    pub(crate) graveyard: Mutex<Vec<Node>>,
    pub(crate) checkpoint: Mutex<CheckpointState>,
    /// The state that the running checkpoint froze, once it is written completely.
    pub(crate) shedding: Mutex<Option<Shedding>>,
    /// Where the search for changed leaves to pre-flush continues.
    pub(crate) preflush: Mutex<Preflush>,
    /// Number of evictions since the store was opened.
    pub(crate) evictions: AtomicU64,
    /// Bytes of changed nodes from which on committers make a checkpoint themselves.
    pub(crate) dirty_max: AtomicUsize,
    /// Number of records, replayed and appended, when the last checkpoint was frozen.
    pub(crate) checkpointed_records: AtomicU64,
    /// How long a replay takes on this machine compared with a reference, in 256ths.
    pub(crate) replay_scale: AtomicU64,
    pub(crate) drops_pending: AtomicU64,
    /// Trash records of the catalog: dead nodes that are not freed yet.
    pub(crate) trash: AtomicU64,
    pub(crate) tree_count: AtomicU64,
    /// Free bytes of the disk at the last query, and those of them that are reserved for
    /// checkpoints.
    pub(crate) space_free: AtomicU64,
    pub(crate) space_reserved: AtomicU64,
    /// Dirty bytes that a checkpoint left, for which no space needs to be reserved.
    pub(crate) space_held: AtomicU64,
    /// Groups of the file, each of which has a page of the map.
    pub(crate) map_groups: AtomicU64,
    /// The last log record when `reclaim` was last called with nothing to reclaim.
    pub(crate) rested_at: AtomicU64,
    /// Where unloading of interior nodes continues.
    pub(crate) pruned: Mutex<(TreeId, usize)>,
}

impl Core {
    pub(crate) fn new(
        env: &Env,
        options: Options,
        nodes: Nodes,
        superblocks: [Arc<dyn File>; 2],
        catalog: Root,
        (state, journal): (CheckpointState, Journal),
    ) -> Core {
        let dirty_max = options.dirty_bytes_max();
        let map_groups = AtomicU64::new(state.space.groups.len() as u64);
        nodes.budget.set_cache(options.common.cache_bytes);
        Core {
            env: env.clone(),
            options,
            nodes,
            superblocks,
            lost_trees: Mutex::default(),
            journal,
            gate: Gate::default(),
            stripes: Stripes::new(),
            catalog: Tree::new(TreeId(0), catalog, false),
            trees: Latch::new(Map::default()),
            trees_order: Mutex::new(BTreeSet::new()),
            trees_looked_at: Mutex::new(TreeId(0)),
            trees_open: AtomicUsize::new(0),
            changed_trees: AtomicUsize::new(0),
            fresh_trees: AtomicUsize::new(0),
            changed: Mutex::new(Changed::default()),
            in_flight: Mutex::default(),
            pins_at_freeze: AtomicU64::new(0),
            published: AtomicU64::new(0),
            pins: Mutex::new(Pins::default()),
            pinned_trees: Mutex::default(),
            graveyard: Mutex::new(Vec::new()),
            checkpoint: Mutex::new(state),
            shedding: Mutex::new(None),
            preflush: Mutex::default(),
            evictions: AtomicU64::new(0),
            dirty_max: AtomicUsize::new(dirty_max),
            checkpointed_records: AtomicU64::new(0),
            replay_scale: AtomicU64::new(256),
            drops_pending: AtomicU64::new(0),
            trash: AtomicU64::new(0),
            tree_count: AtomicU64::new(0),
            space_free: AtomicU64::new(0),
            space_reserved: AtomicU64::new(0),
            space_held: AtomicU64::new(0),
            map_groups,
            rested_at: AtomicU64::new(u64::MAX),
            pruned: Mutex::new((TreeId(0), 0)),
        }
    }

    #[inline]
    pub(crate) fn log(&self) -> &Log {
        self.journal.log()
    }

    /// Releases the part of the log that checkpoints of the replay made superfluous.
    pub(crate) fn trim_replayed(&self) {
        if self.log().check().is_ok() && self.published.load(Ordering::Relaxed) > 0 {
            let lsn = self.checkpoint.lock().lsn;
            if let Err(error) = self.log().trim(lsn) {
                self.log().fail(&format!("the log could not be trimmed: {error}"));
            }
        }
    }

    /// Returns a tree that exists.
    #[inline]
    pub(crate) fn tree(&self, id: TreeId) -> Result<Arc<Tree>> {
        if let Some(tree) = self.trees.read().get(&id) {
            tree.touch();
            return alive(tree).map(Arc::clone);
        }
        self.open_tree(id)
    }

    /// Whether a tree exists.
    pub(crate) fn exists(&self, id: TreeId) -> Result<bool> {
        match self.tree(id) {
            Ok(_) => Ok(true),
            Err(Error::NoTree(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Opens a tree from the catalog.
    fn open_tree(&self, id: TreeId) -> Result<Arc<Tree>> {
        loop {
            let published = self.published.load(Ordering::Acquire);
            let mut record = None;
            self.catalog.get(&self.nodes, &CatalogKey::Tree(id.0).encode(), &mut |bytes| {
                record = Some(format::catalog::RootRecord::decode(bytes));
            })?;
            let record = record.transpose().map_err(|bad| bad.located("btree/nodes", 0))?;
            let mut trees = self.trees.write();
            if let Some(tree) = trees.get(&id) {
                return alive(tree).map(Arc::clone);
            }
            // A checkpoint that was published meanwhile may have removed the tree for good.
            if self.published.load(Ordering::Acquire) != published {
                continue;
            }
            let Some(record) = record else { return Err(Error::NoTree(id)) };
            let root = Root::on_disk(record.pointer, record.level);
            let tree = Arc::new(Tree::new(id, root, false));
            self.insert_tree(&mut trees, &tree);
            return Ok(tree);
        }
    }

    /// Adds a tree to the set.
    pub(crate) fn insert_tree(&self, trees: &mut Map<TreeId, Arc<Tree>>, tree: &Arc<Tree>) {
        trees.insert(tree.id, Arc::clone(tree));
        self.trees_order.lock().insert(tree.id);
        self.trees_open.store(trees.len(), Ordering::Relaxed);
    }

    /// Removes trees from the set that were dropped from the durable state too.
    pub(crate) fn remove_dropped(&self, ids: &[TreeId]) {
        // Readers wait during this.
        for ids in ids.chunks(256) {
            let mut trees = self.trees.write();
            let mut order = self.trees_order.lock();
            for id in ids {
                if trees.get(id).is_some_and(|tree| tree.dropped.load(Ordering::Relaxed)) {
                    trees.remove(id);
                    order.remove(id);
                }
            }
            self.trees_open.store(trees.len(), Ordering::Relaxed);
        }
    }
}

fn alive(tree: &Arc<Tree>) -> Result<&Arc<Tree>> {
    if tree.dropped.load(Ordering::Relaxed) { Err(Error::NoTree(tree.id)) } else { Ok(tree) }
}
