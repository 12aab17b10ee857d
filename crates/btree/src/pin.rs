//! Pinned states: what all trees held at one moment, for reading.
//!
//! A pinned state is the roots of the trees that differ from the durable state, and for all others
//! the catalog. Nodes that it has in memory are not changed in place, for they have another owner;
//! room that it may still read on the medium is not used again before it drops.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::Map;
use format::catalog::CatalogKey;
use parking_lot::RwLock;
use store::{CommitToken, Cursor, DiffCursor, Error, KeyRange, Pinned, Read, Result, TreeId};

use crate::checkpoint::get_record;
use crate::core::Core;
use crate::cursor::TreeCursor;
use crate::diff::{self, TreeDiff};
use crate::tree::{Root, Tree};

/// Pins that exist, numbered in order.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    last: u64,
    live: BTreeSet<u64>,
}

impl Pins {
    fn add(&mut self) -> u64 {
        self.last += 1;
        self.live.insert(self.last);
        self.last
    }

    /// The oldest pin; greater than all when there is none.
    pub(crate) fn oldest(&self) -> u64 {
        self.live.first().copied().unwrap_or(u64::MAX)
    }

    /// The newest pin.
    pub(crate) fn newest(&self) -> Option<u64> {
        self.live.last().copied()
    }
}

/// A pinned state.
pub(crate) struct Pin {
    pub(crate) core: Arc<Core>,
    number: u64,
    commit: CommitToken,
    catalog: Root,
    /// Trees that differ from the catalog; none for those that were dropped.
    changed: BTreeMap<TreeId, Option<Root>>,
    /// Trees that were read, made when first asked for.
    trees: RwLock<Map<TreeId, Arc<Tree>>>,
}

impl Pin {
    pub(crate) fn new(core: &Arc<Core>) -> Pin {
        let _gate = core.gate.write();
        let mut changed = BTreeMap::new();
        for trees in [&core.in_flight, &core.changed] {
            for (id, tree) in &*trees.lock() {
                let dropped = tree.dropped.load(Ordering::Relaxed);
                changed.insert(*id, (!dropped).then(|| tree.state.read().clone()));
            }
        }
        Pin {
            core: Arc::clone(core),
            number: core.pins.lock().add(),
            commit: CommitToken(core.log().last()),
            catalog: core.catalog.state.read().clone(),
            changed,
            trees: RwLock::new(Map::default()),
        }
    }

    /// A tree of the state.
    pub(crate) fn tree(&self, id: TreeId) -> Result<Arc<Tree>> {
        if let Some(tree) = self.trees.read().get(&id) {
            return Ok(Arc::clone(tree));
        }
        let root = if let Some(root) = self.changed.get(&id) {
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
        let mut pinned = self.core.pinned_trees.lock();
        pinned.retain(|tree| tree.strong_count() > 0);
        pinned.push(Arc::downgrade(&tree));
        drop(pinned);
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
    fn commit(&self) -> CommitToken {
        self.commit
    }

    fn visit_shared_once(
        &self,
        trees: &mut dyn Iterator<Item = TreeId>,
        prefix: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        crate::visit::visit(self, trees, prefix, visit)
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

    fn as_any(&self) -> &dyn Any {
        self
    }
}
