//! Pinned states: the content of all trees at one moment, for reading.
//!
//! A pinned state has the roots of the trees that differ from the durable state, as versions of the
//! maps that hold them (`changed`). It has the catalog for all other trees. So a pin costs the same
//! however many trees there are. Nodes that it has in memory are not changed in place, because they
//! have another owner. Space that it may still read on disk is not reused before it drops.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::Map;
use device::sync::RwLock;
use format::catalog::CatalogKey;
use store::{CommitToken, Error, Result, TreeId};

use crate::core::Core;
use crate::tree::{Root, States, Tree, get_record};

/// Idle trees of a pin that stay open.
const TREES_KEPT: usize = 256;

/// A pinned state.
pub(crate) struct Pin {
    pub(crate) core: Arc<Core>,
    number: u64,
    /// The last commit in it.
    pub(crate) commit: CommitToken,
    catalog: Root,
    /// Trees that differ from the catalog: first those that changed, then those that a checkpoint
    /// was writing.
    states: [Arc<States>; 2],
    /// Trees that were read; each is made on first use.
    trees: RwLock<Map<TreeId, Arc<Tree>>>,
}

impl Pin {
    pub(crate) fn new(core: &Arc<Core>) -> Pin {
        let _gate = core.gate.between_commits();
        // Before it takes the states, so that no thread takes a root in them to be its alone.
        let number = core.pins.lock().add();
        let states = [Arc::new(core.captured()), Arc::clone(&core.in_flight.lock())];
        core.pins.lock().live.insert(number, states.clone());
        Pin {
            core: Arc::clone(core),
            number,
            commit: CommitToken(core.log().last()),
            catalog: core.catalog.state.read().clone(),
            states,
            trees: RwLock::new(Map::default()),
        }
    }

    /// Pins some trees. The others are read as of the catalog, which may be older.
    pub(crate) fn of_trees(core: &Arc<Core>, trees: &[TreeId]) -> Result<Pin> {
        let mut open = Vec::with_capacity(trees.len());
        for id in trees {
            match core.tree(*id) {
                Ok(tree) => open.push(tree),
                Err(Error::NoTree(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let _gate = core.gate.between_commits();
        let number = core.pins.lock().add();
        let mut states = States::default();
        for tree in &open {
            let dropped = tree.dropped.load(Ordering::Relaxed);
            states.insert_mut(tree.id, (!dropped).then(|| tree.state.read().clone()));
        }
        let states = [Arc::new(states), Arc::default()];
        core.pins.lock().live.insert(number, states.clone());
        Ok(Pin {
            core: Arc::clone(core),
            number,
            commit: CommitToken(core.log().last()),
            catalog: core.catalog.state.read().clone(),
            states,
            trees: RwLock::new(Map::default()),
        })
    }

    /// A tree of the state.
    pub(crate) fn tree(&self, id: TreeId) -> Result<Arc<Tree>> {
        if let Some(tree) = self.trees.read().get(&id) {
            return Ok(Arc::clone(tree));
        }
        let root = if let Some(root) = self.states.iter().find_map(|states| states.get(&id)) {
            root.clone()
        } else {
            let key = CatalogKey::Tree(id.0).encode();
            get_record(&self.core.nodes, &self.catalog, &key)?
                .map(|record| Root::on_disk(record.pointer, record.level))
        };
        let tree = Arc::new(Tree::new(id, root.ok_or(Error::NoTree(id))?, false));
        let mut trees = self.trees.write();
        if let Some(tree) = trees.get(&id) {
            return Ok(Arc::clone(tree));
        }
        if trees.len() >= TREES_KEPT {
            // Trees in use have another owner; the rest is opened again unchanged when needed.
            trees.retain(|_, tree| Arc::strong_count(tree) > 1);
        }
        self.core.pinned_trees.lock().add(&tree);
        trees.insert(id, Arc::clone(&tree));
        Ok(tree)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.core.pins.lock().live.remove(&self.number);
    }
}
