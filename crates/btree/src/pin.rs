//! Pinned states: the content of all trees at one moment, for reading.
//!
//! A pinned state consists of the roots of the trees that differ from the durable state, as
//! versions of the maps that hold them (`changed`), and of the catalog for all other trees. So a
//! pin costs the same however many trees there are. Nodes that it has in memory are not changed in
//! place, because they have another owner. Space that it may still read on disk is not reused
//! before it drops.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use device::Map;
use device::sync::RwLock;
use format::catalog::CatalogKey;
use store::{
    CommitToken, Cursor, DiffCursor, Error, KeyRange, Logged, LostRange, Pinned, Read, Result,
    SharedWalk, TreeId,
};

use crate::core::Core;
use crate::cursor::TreeCursor;
use crate::diff::{self, TreeDiff};
use crate::tree::{Root, States, Tree, get_record};

/// Live pins, numbered in order.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    last: u64,
    /// Each with its states of trees that differ from its catalog.
    live: BTreeMap<u64, [Arc<States>; 2]>,
}

impl Pins {
    fn add(&mut self) -> u64 {
        self.last += 1;
        self.live.insert(self.last, Default::default());
        self.last
    }

    /// The next map of states of a pin, starting with the given map of the given pin.
    pub(crate) fn states_from(&self, from: (u64, usize)) -> Option<((u64, usize), Arc<States>)> {
        let here = self.live.get(&from.0).and_then(|states| Some((from, states.get(from.1)?)));
        let next =
            || self.live.range(from.0 + 1..).next().map(|(&pin, [first, _])| ((pin, 0), first));
        here.or_else(next).map(|(at, states)| (at, Arc::clone(states)))
    }

    /// The oldest pin; greater than all pins when there is none.
    pub(crate) fn oldest(&self) -> u64 {
        self.live.first_key_value().map_or(u64::MAX, |(&pin, _)| pin)
    }

    /// The number of the last pin that was made.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Whether there is a pin that was made after the given one.
    pub(crate) fn any_after(&self, pin: u64) -> bool {
        self.newest().is_some_and(|newest| newest > pin)
    }

    /// The newest pin.
    pub(crate) fn newest(&self) -> Option<u64> {
        self.live.last_key_value().map(|(&pin, _)| pin)
    }
}

/// Idle trees of a pin that stay open.
const TREES_KEPT: usize = 256;

/// Trees of pinned states that were read, for unloading their nodes in memory.
#[derive(Debug, Default)]
pub(crate) struct PinnedTrees {
    trees: Vec<Weak<Tree>>,
    /// Length from which on dropped trees are swept out.
    sweep_at: usize,
    /// The tree to unload next, and the part of it.
    at: (usize, usize),
}

impl PinnedTrees {
    fn add(&mut self, tree: &Arc<Tree>) {
        if self.trees.len() >= self.sweep_at {
            self.trees.retain(|tree| tree.strong_count() > 0);
            self.sweep_at = self.trees.len() * 2 + 64;
        }
        self.trees.push(Arc::downgrade(tree));
    }

    /// The next tree, and the part of it; `None` when no tree is left.
    pub(crate) fn next(&mut self) -> Option<(Arc<Tree>, usize)> {
        for _ in 0..=self.trees.len() {
            let (at, part) = self.at;
            if let Some(tree) = self.trees.get(at).and_then(Weak::upgrade) {
                self.at = (at, part + 1);
                return Some((tree, part));
            }
            self.at = (if at < self.trees.len() { at + 1 } else { 0 }, 0);
        }
        None
    }

    /// Notes that the tree had no further part.
    pub(crate) fn ended(&mut self) {
        self.at = (self.at.0 + 1, 0);
    }
}

/// A pinned state.
pub(crate) struct Pin {
    pub(crate) core: Arc<Core>,
    number: u64,
    commit: CommitToken,
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

impl Read for Pin {
    fn get_with(&self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let there = self.tree(tree)?.get(&self.core.nodes, key, found)?;
        self.core.shrink();
        Ok(there)
    }

    fn scan(&self, tree: TreeId, range: KeyRange) -> Result<Box<dyn Cursor + '_>> {
        Ok(Box::new(TreeCursor::new(&self.core, self.tree(tree)?, range)))
    }
}

impl Pinned for Pin {
    fn logged(&self) -> Logged<'_> {
        Logged { commit: self.commit, log: Some(self.core.log()) }
    }

    fn visit_shared_step(
        &self,
        walk: &mut SharedWalk,
        nodes: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<bool> {
        crate::visit::step(self, walk, nodes, visit)
    }

    fn lost_from(&self, tree: TreeId, key: &[u8]) -> Result<Option<LostRange>> {
        crate::visit::lost_from(self, tree, key)
    }

    fn diff<'a>(
        &'a self,
        old_tree: TreeId,
        new: &'a dyn Pinned,
        new_tree: TreeId,
        range: KeyRange,
    ) -> Result<Box<dyn DiffCursor + 'a>> {
        let new = new.as_any().downcast_ref::<Pin>().ok_or(Error::ForeignPin)?;
        Ok(Box::new(TreeDiff::new(diff::Pins::Two(self, new), old_tree, new_tree, range)?))
    }

    fn prefetch(&self, tree: TreeId, keys: &[&[u8]]) {
        if let Ok(tree) = self.tree(tree) {
            self.core.nodes.prefetch(&tree.state.read(), keys);
        }
        self.core.shrink();
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
