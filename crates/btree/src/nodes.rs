//! Reading nodes: the file, and the map through which trees share loaded nodes.
//!
//! A node is read without any lock held, verified against the checksum in its pointer, and made a
//! cell. `known` finds the cell of a pointer that another tree loaded, so that clones share memory.
//! It is consulted only on a load, never on the way down. `ring` holds the cells that may be
//! evicted.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use device::sync::Mutex;
use device::{File, Map};
use format::node::{Header, Kind, UNIT_BYTES};
use format::{Malformed, Pointer, node};
use store::{Error, Result};

use crate::budget::Budget;
use crate::cell::{Child, Interior, LeafCell, Node};
use crate::codec;
use crate::leaf::LeafData;
use crate::lost_nodes::LostNodes;
use crate::overflow::OverflowCell;
use crate::ring::Ring;
use crate::units::unit_offset;

/// The file of nodes, below the volume directory.
pub(crate) const NODES_FILE: &str = "btree/nodes";
/// Most units of a leaf or interior node.
const NODE_UNITS_MAX: usize = node::NODE_BYTES_MAX / UNIT_BYTES;

/// A weak reference to a cell.
#[derive(Debug)]
enum WeakNode {
    Leaf(Weak<LeafCell>),
    Interior(Weak<Interior>),
}

impl WeakNode {
    fn of(node: &Node) -> WeakNode {
        match node {
            Node::Leaf(leaf) => WeakNode::Leaf(Arc::downgrade(leaf)),
            Node::Interior(interior) => WeakNode::Interior(Arc::downgrade(interior)),
        }
    }

    fn upgrade(&self) -> Option<Node> {
        match self {
            WeakNode::Leaf(leaf) => leaf.upgrade().map(Node::Leaf),
            WeakNode::Interior(interior) => interior.upgrade().map(Node::Interior),
        }
    }

    fn is_gone(&self) -> bool {
        match self {
            WeakNode::Leaf(leaf) => leaf.strong_count() == 0,
            WeakNode::Interior(interior) => interior.strong_count() == 0,
        }
    }
}

/// The cells of pointers.
#[derive(Debug, Default)]
struct Known {
    cells: Map<u64, WeakNode>,
    /// Size from which on dropped cells are swept out of the map.
    sweep_at: usize,
}

/// The source of nodes.
pub(crate) struct Nodes {
    pub(crate) file: Arc<dyn File>,
    pub(crate) budget: Arc<Budget>,
    known: Mutex<Known>,
    pub(crate) ring: Ring,
    /// Nodes that a replay found damaged.
    pub(crate) lost: LostNodes,
    /// Nodes read from the disk since the store was opened.
    pub(crate) loads: AtomicU64,
    /// Runs of nodes written since the store was opened, their bytes, and those of them that were
    /// only moved.
    pub(crate) runs: AtomicU64,
    pub(crate) run_bytes: AtomicU64,
    pub(crate) moved_bytes: AtomicU64,
    /// The error of the sync that failed.
    sync_failed: Mutex<Option<device::Error>>,
    /// Called before each read, so that a test sees which locks are held.
    #[cfg(test)]
    pub(crate) reading: Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl Nodes {
    pub(crate) fn new(file: Arc<dyn File>) -> Nodes {
        Nodes {
            file,
            budget: Arc::new(Budget::default()),
            known: Mutex::new(Known::default()),
            ring: Ring::default(),
            lost: LostNodes::default(),
            loads: AtomicU64::new(0),
            runs: AtomicU64::new(0),
            run_bytes: AtomicU64::new(0),
            moved_bytes: AtomicU64::new(0),
            sync_failed: Mutex::default(),
            #[cfg(test)]
            reading: Mutex::default(),
        }
    }

    /// Makes written data durable. An operating system reports a write-back failure to one sync and
    /// not to the next, whichever thread wrote the bytes. So syncs take turns, and after one has
    /// failed all later ones fail.
    pub(crate) fn sync(&self) -> device::Result<()> {
        let mut failed = self.sync_failed.lock();
        if let Some(error) = &*failed {
            return Err(error.clone());
        }
        self.file.sync_data().inspect_err(|error| *failed = Some(error.clone()))
    }

    /// Reads and verifies a node, and hands its header and body to `take`.
    pub(crate) fn read<T>(
        &self,
        pointer: Pointer,
        take: impl FnOnce(&Header, &[u8]) -> std::result::Result<T, Malformed>,
    ) -> Result<T> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        #[cfg(test)]
        if let Some(look) = &*self.reading.lock() {
            look();
        }
        let offset = unit_offset(pointer.unit);
        self.lost.check(offset)?;
        let located = |bad: Malformed| -> Error {
            Malformed { at: 0, ..bad }.located(NODES_FILE, offset).into()
        };
        let read = self.bytes_at(offset, usize::from(pointer.units) * UNIT_BYTES);
        let verified = match &read {
            Ok(bytes) => node::verify(bytes, pointer.unit, pointer.checksum).map_err(located),
            Err(error) => Err(error.clone()),
        };
        let error = match verified {
            Ok((header, body)) => return take(&header, body).map_err(located),
            Err(error) => error,
        };
        let Some(bytes) = self.second_copy(pointer, &error) else { return Err(error) };
        let (header, body) =
            node::verify(&bytes, pointer.unit, pointer.checksum).map_err(located)?;
        take(&header, body).map_err(located)
    }

    /// Reads `bytes` bytes of the file, or as many as it has.
    pub(crate) fn bytes_at(&self, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        let mut buffer = vec![0; bytes];
        let read = self.file.read_at(&mut buffer, offset)?;
        buffer.truncate(read);
        Ok(buffer)
    }

    /// Reads a node of a tree and checks that it has the expected level.
    pub(crate) fn read_tree_node<T>(
        &self,
        pointer: Pointer,
        level: u8,
        take: impl FnOnce(&Header, &[u8]) -> std::result::Result<T, Malformed>,
    ) -> Result<T> {
        self.read(pointer, |header, body| {
            let kind = if level == 0 { Kind::Leaf } else { Kind::Interior };
            if header.level != level || header.kind != kind {
                return Err(Malformed {
                    structure: "node",
                    at: 6,
                    expected: "the level below its parent's",
                    found: format!("{:?} of level {}, not {level}", header.kind, header.level),
                });
            }
            if usize::from(pointer.units) > NODE_UNITS_MAX {
                return Err(Malformed {
                    structure: "node",
                    at: 28,
                    expected: "a node within bounds",
                    found: format!("{} units", pointer.units),
                });
            }
            take(header, body)
        })
    }

    /// The cell of a pointer: one that is in memory, or a new one.
    pub(crate) fn load(&self, pointer: Pointer, level: u8) -> Result<Node> {
        if let Some(node) = self.find(pointer) {
            return Ok(node);
        }
        let node = self.read_tree_node(pointer, level, |header, body| {
            codec::decode(&self.budget, pointer, header, body)
        })?;
        Ok(self.remember(pointer, node))
    }

    /// A copy of a leaf's content for a single read: the leaf is not cached. The state from which
    /// the leaf is reachable is pinned, so that no thread changes it meanwhile.
    pub(crate) fn look_at_leaf(&self, child: &Child) -> Result<LeafData> {
        let found = match (child.cell.get(), child.disk) {
            (Some(node), _) => Some(node.clone()),
            (None, Some(pointer)) => match self.find(pointer) {
                None => return self.read_leaf(pointer),
                found => found,
            },
            (None, None) => unreachable!("a slot has a pointer or a cell"),
        };
        let Some(Node::Leaf(cell)) = found else {
            unreachable!("a node is of the kind of its level")
        };
        loop {
            let pointer = {
                let state = cell.latch.read();
                match (&state.data, state.disk) {
                    (Some(data), _) => return Ok(data.clone()),
                    (None, Some(pointer)) => pointer,
                    (None, None) => unreachable!("a leaf is in memory or on disk"),
                }
            };
            match self.read_leaf(pointer) {
                Err(Error::Corrupt(_)) if cell.latch.read().disk != Some(pointer) => {}
                read => return read,
            }
        }
    }

    fn read_leaf(&self, pointer: Pointer) -> Result<LeafData> {
        self.read_tree_node(pointer, 0, |header, body| {
            codec::decode_leaf(&self.budget, header, body)
        })
    }

    /// The content of a leaf that was evicted, and was stored there. The caller checks whether it
    /// still is.
    pub(crate) fn load_leaf(&self, cell: &Arc<LeafCell>, pointer: Pointer) -> Result<()> {
        let data = match self.read_leaf(pointer) {
            Ok(data) => data,
            // A checkpoint has moved it, so the bytes read are another node by now, or none.
            Err(Error::Corrupt(_)) if cell.latch.read().disk != Some(pointer) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        cell.install(pointer, data);
        self.ring.add_leaf(cell);
        Ok(())
    }

    /// The value in an overflow node.
    pub(crate) fn load_overflow(&self, cell: &Arc<OverflowCell>) -> Result<Arc<[u8]>> {
        if let Some(bytes) = cell.bytes() {
            return Ok(bytes);
        }
        let pointer =
            *cell.disk.get().expect("invariant: a value that is not in memory is on disk");
        let bytes: Arc<[u8]> = self.read(pointer, |header, body| {
            expect_value(header, cell.length)?;
            Ok(body.into())
        })?;
        cell.install(Arc::clone(&bytes));
        self.ring.add_value(cell);
        Ok(bytes)
    }

    /// The cell of a pointer, if one is in memory and still equals the node on disk.
    fn find(&self, pointer: Pointer) -> Option<Node> {
        // The upgrade happens under the lock, so that a thread that forgets a pointer before it
        // changes the cell in place sees every other owner.
        let node = self.known.lock().cells.get(&pointer.unit)?.upgrade()?;
        (node.pointer() == Some(pointer)).then_some(node)
    }

    /// Makes a loaded cell known, unless another thread was faster: then that thread's cell is
    /// used.
    fn remember(&self, pointer: Pointer, node: Node) -> Node {
        // The other cell's latch is taken without the map's lock: an owner of a leaf takes them in
        // the opposite order.
        let other = self.known.lock().cells.get(&pointer.unit).and_then(WeakNode::upgrade);
        if let Some(other) = other
            && other.pointer() == Some(pointer)
        {
            return other;
        }
        self.remember_written(pointer, &node);
        node
    }

    /// Makes cells known that were written.
    pub(crate) fn remember_written(&self, pointer: Pointer, node: &Node) {
        self.known.lock().insert(pointer, node);
        self.enlist(node);
    }

    fn enlist(&self, node: &Node) {
        if let Node::Leaf(leaf) = node {
            self.ring.add_leaf(leaf);
        }
    }

    /// Forgets the cell of a pointer, before it is changed in place.
    pub(crate) fn forget(&self, pointer: Pointer) {
        self.known.lock().cells.remove(&pointer.unit);
    }
}

/// Fails unless this is an overflow node with a value of `length` bytes.
pub(crate) fn expect_value(header: &Header, length: u32) -> std::result::Result<(), Malformed> {
    if header.kind == Kind::Overflow && header.body == length {
        return Ok(());
    }
    Err(Malformed {
        structure: "overflow node",
        at: 0,
        expected: "a value of the length in its leaf",
        found: format!("{:?} of {} bytes", header.kind, header.body),
    })
}

impl Known {
    fn insert(&mut self, pointer: Pointer, node: &Node) {
        if self.cells.len() >= self.sweep_at {
            self.cells.retain(|_, cell| !cell.is_gone());
            self.sweep_at = self.cells.len() * 2 + 1024;
        }
        self.cells.insert(pointer.unit, WeakNode::of(node));
    }
}

/// Where a node that is not in memory is stored.
pub(crate) fn unread(child: &Child) -> Option<Range<u64>> {
    let pointer = match child.cell.get() {
        None => child.disk,
        Some(Node::Leaf(leaf)) => {
            let state = leaf.latch.read();
            state.disk.filter(|_| state.data.is_none())
        }
        Some(Node::Interior(_)) => None,
    }?;
    let offset = unit_offset(pointer.unit);
    Some(offset..offset + u64::from(pointer.units) * UNIT_BYTES as u64)
}
