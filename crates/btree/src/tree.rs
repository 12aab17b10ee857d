//! One tree in memory: its root and its latch, and the descent for readers.
//!
//! **Latches.** A descent holds the tree shared and takes the latch of the leaf only. A thread that
//! changes the structure - splits, merges, shadows a node that has another owner - holds the tree
//! exclusively. Lock coupling would take two more atomic operations a level. It would contend for
//! the latch of the root just as this contends for the tree's. A reader reads nothing from the disk
//! while it holds a latch. A descent that misses a node in memory releases its latches, loads the
//! node, and starts again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use device::Latch;
use format::Pointer;
use format::catalog::RootRecord;
use rpds::RedBlackTreeMapSync;
use store::{Error, Result, TreeId};

use crate::budget::Budget;
use crate::cell::{Child, Interior, LeafCell, Node};
use crate::leaf::{LeafData, Value};
use crate::nodes::Nodes;
use crate::overflow::OverflowCell;

/// Memory of a tree beside its nodes, in bytes. It has a latch, with a lock for each of up to eight
/// threads that used it, and its place in the sets of trees.
pub(crate) const TREE_BYTES: usize = 1500;

/// Roots of trees at one moment, without dropped trees.
pub(crate) type States = RedBlackTreeMapSync<TreeId, Option<Root>>;

/// One tree.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) id: TreeId,
    pub(crate) state: Latch<Root>,
    /// Whether it is fresh among the trees that the next checkpoint writes (`changed`).
    pub(crate) changed: AtomicBool,
    /// Whether it was dropped.
    pub(crate) dropped: AtomicBool,
    /// Whether it was used since its last visit.
    pub(crate) used: AtomicBool,
    /// Whether all of it has been in memory since it was made.
    pub(crate) resident: AtomicBool,
}

/// A root and its level.
#[derive(Debug, Clone)]
pub(crate) struct Root {
    pub(crate) child: Child,
    pub(crate) level: u8,
}

impl Root {
    /// An empty tree.
    pub(crate) fn empty(budget: &Arc<Budget>) -> Root {
        let leaf = LeafCell::new(budget, LeafData::default(), None);
        Root { child: Child::in_memory(Node::Leaf(Arc::new(leaf))), level: 0 }
    }

    pub(crate) fn on_disk(pointer: Pointer, level: u8) -> Root {
        Root { child: Child::on_disk(pointer), level }
    }

    /// The leaf of a key, if no node on the path to it has another owner.
    #[inline]
    pub(crate) fn owned_leaf(&self, key: &[u8]) -> Option<&Arc<LeafCell>> {
        let mut child = &self.child;
        loop {
            match child.cell.get()? {
                Node::Leaf(leaf) => {
                    // Pairs with the release of an owner that has just dropped its reference, so
                    // that its changes of the cell are seen.
                    fence(Ordering::Acquire);
                    return (Arc::strong_count(leaf) == 1).then_some(leaf);
                }
                Node::Interior(interior) => {
                    if Arc::strong_count(interior) != 1 {
                        return None;
                    }
                    child = &interior.children[interior.route(key)];
                }
            }
        }
    }

    /// The leaf that `route` reaches. `faults` fills slots with the nodes that were loaded for
    /// them.
    #[inline]
    pub(crate) fn leaf(
        &self,
        faults: &mut Faults,
        route: &mut impl Route,
    ) -> std::result::Result<&Arc<LeafCell>, Miss> {
        route.start();
        let (mut child, mut level) = (&self.child, self.level);
        loop {
            let node = match child.cell.get() {
                Some(node) => node,
                None => faults.fill(child, level)?,
            };
            match node {
                Node::Leaf(leaf) => return Ok(leaf),
                Node::Interior(interior) => {
                    child = &interior.children[route.pick(interior)];
                    level -= 1;
                }
            }
        }
    }
}

/// A node or value that a descent needs and that is not in memory.
#[derive(Debug)]
pub(crate) enum Miss {
    Node(Pointer, u8),
    Leaf(Arc<LeafCell>, Pointer),
    Overflow(Arc<OverflowCell>),
}

/// State that a restarted descent keeps from its earlier attempts.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    loaded: Option<(Pointer, Node)>,
    /// A pointer that could not be read. A block that was freed and reused while it was being read
    /// looks damaged, but then its pointer is gone from the tree. If the pointer is met a second
    /// time, it is current and the damage is real.
    failed: Option<Pointer>,
}

impl Faults {
    /// Fills an empty slot, if something was loaded for it.
    pub(crate) fn fill<'c>(
        &mut self,
        child: &'c Child,
        level: u8,
    ) -> std::result::Result<&'c Node, Miss> {
        let pointer = child.disk.expect("invariant: a slot without a cell has a pointer");
        match self.loaded.take() {
            Some((loaded, node)) if loaded == pointer => Ok(child.cell.get_or_init(|| node)),
            _ => Err(Miss::Node(pointer, level)),
        }
    }

    /// Loads what was missing. Called without latches.
    pub(crate) fn resolve(&mut self, nodes: &Nodes, miss: Miss) -> Result<()> {
        let (pointer, result) = match miss {
            Miss::Node(pointer, level) => {
                let loaded = nodes.load(pointer, level);
                (Some(pointer), loaded.map(|node| self.loaded = Some((pointer, node))))
            }
            Miss::Leaf(cell, pointer) => (Some(pointer), nodes.load_leaf(&cell, pointer)),
            Miss::Overflow(cell) => {
                (cell.disk.get().copied(), nodes.load_overflow(&cell).map(|_| ()))
            }
        };
        match result {
            Err(Error::Corrupt(_)) if pointer.is_some() && self.failed != pointer => {
                self.failed = pointer;
                Ok(())
            }
            other => other,
        }
    }
}

impl Tree {
    pub(crate) fn new(id: TreeId, root: Root, resident: bool) -> Tree {
        Tree {
            id,
            state: Latch::new(root),
            changed: AtomicBool::new(false),
            dropped: AtomicBool::new(false),
            used: AtomicBool::new(true),
            resident: AtomicBool::new(resident),
        }
    }

    /// Marks the tree as used.
    #[inline]
    pub(crate) fn touch(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Reads from the leaf that `route` reaches.
    #[inline]
    pub(crate) fn read<T>(
        &self,
        nodes: &Nodes,
        route: &mut impl Route,
        mut read: impl FnMut(&LeafData) -> std::result::Result<T, Miss>,
    ) -> Result<T> {
        let mut faults = Faults::default();
        loop {
            let done = self.state.read().try_read(&mut faults, route, &mut read);
            match done {
                Ok(done) => return Ok(done),
                Err(miss) => faults.resolve(nodes, miss)?,
            }
        }
    }

    /// Looks a key up; `None` when the tree is gone or something must be loaded first.
    #[inline]
    pub(crate) fn get_in_memory(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Option<bool> {
        if self.dropped.load(Ordering::Relaxed) {
            return None;
        }
        self.touch();
        self.find_in_memory(&mut ToKey(key), |leaf| find(leaf, key, found)).ok()
    }

    /// Reads from the leaf that `route` reaches, unless something must be loaded first.
    #[inline]
    pub(crate) fn find_in_memory<T>(
        &self,
        route: &mut impl Route,
        mut read: impl FnMut(&LeafData) -> std::result::Result<T, Miss>,
    ) -> std::result::Result<T, Miss> {
        self.state.read().try_read(&mut Faults::default(), route, &mut read)
    }

    /// Looks a key up.
    #[inline]
    pub(crate) fn get(
        &self,
        nodes: &Nodes,
        key: &[u8],
        found: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        self.read(nodes, &mut ToKey(key), |leaf| find(leaf, key, found))
    }
}

/// Looks a key up in its leaf.
#[inline]
fn find(
    leaf: &LeafData,
    key: &[u8],
    found: &mut dyn FnMut(&[u8]),
) -> std::result::Result<bool, Miss> {
    let Ok(at) = leaf.entries.search(key) else { return Ok(false) };
    match leaf.value(at) {
        Value::Near(bytes) => found(bytes),
        Value::Far(cell) => match cell.bytes() {
            Some(bytes) => found(&bytes),
            None => return Err(Miss::Overflow(Arc::clone(cell))),
        },
    }
    Ok(true)
}

impl Root {
    /// One attempt to read from the leaf that `route` reaches.
    #[inline]
    fn try_read<T>(
        &self,
        faults: &mut Faults,
        route: &mut impl Route,
        read: &mut impl FnMut(&LeafData) -> std::result::Result<T, Miss>,
    ) -> std::result::Result<T, Miss> {
        let leaf = self.leaf(faults, route)?;
        let state = leaf.latch.read();
        match (&state.data, state.disk) {
            (Some(data), _) => {
                // Not when it must be loaded first, or one use would count as two.
                leaf.uses.touch();
                read(data)
            }
            (None, Some(pointer)) => Err(Miss::Leaf(Arc::clone(leaf), pointer)),
            (None, None) => unreachable!("a leaf is in memory or on disk"),
        }
    }

    /// Reads from the leaf that `route` reaches, in a tree that no other thread changes.
    pub(crate) fn read<T>(
        &self,
        nodes: &Nodes,
        route: &mut impl Route,
        mut read: impl FnMut(&LeafData) -> std::result::Result<T, Miss>,
    ) -> Result<T> {
        let mut faults = Faults::default();
        loop {
            match self.try_read(&mut faults, route, &mut read) {
                Ok(done) => return Ok(done),
                Err(miss) => faults.resolve(nodes, miss)?,
            }
        }
    }

    /// Looks a key up, in a tree that no other thread changes.
    pub(crate) fn get(
        &self,
        nodes: &Nodes,
        key: &[u8],
        found: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        self.read(nodes, &mut ToKey(key), |leaf| find(leaf, key, found))
    }
}

/// The route of a descent.
pub(crate) trait Route {
    /// A descent starts, perhaps again.
    #[inline]
    fn start(&mut self) {}

    /// Returns the child to descend to.
    fn pick(&mut self, interior: &Interior) -> usize;
}

/// Descends to the leaf of a key.
pub(crate) struct ToKey<'a>(pub(crate) &'a [u8]);

impl Route for ToKey<'_> {
    #[inline]
    fn pick(&mut self, interior: &Interior) -> usize {
        interior.route(self.0)
    }
}

/// A record of the catalog.
pub(crate) fn get_record(nodes: &Nodes, catalog: &Root, key: &[u8]) -> Result<Option<RootRecord>> {
    let mut record = None;
    catalog.get(nodes, key, &mut |bytes| {
        record = Some(RootRecord::decode(bytes));
    })?;
    let decoded = record.transpose().map_err(|malformed| malformed.located("btree/nodes", 0))?;
    Ok(decoded)
}
