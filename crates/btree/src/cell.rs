//! Nodes in memory.
//!
//! A tree is a persistent structure: nodes are shared through `Arc`. A thread may find another
//! owner of a node: a clone, a frozen state that a checkpoint writes, a pinned state. It then
//! copies the node before it changes it. `Arc` thereby provides the lazy reference counting of
//! Rodeh's clones: a copy of a node adds one reference to each child and touches nothing below.
//!
//! Invariants:
//! * A cell with a pointer (`disk`) equals the node there. A changed cell has no pointer, nor has
//!   any cell on the path to it from a root.
//! * An interior node is changed only through `&mut`, that is by a thread that holds its tree
//!   exclusively and found no other owner. Filling an empty slot with the node that its pointer
//!   points to is not a change.
//! * A leaf has its own latch. It is changed in place by threads that hold the tree shared and
//!   found that every node on the path has one owner. Its content may be evicted while the cell
//!   stays, so all owners of the cell share its memory.

use std::sync::{Arc, OnceLock};

use device::sync::{RwLock, RwLockWriteGuard};
use format::{POINTER_BYTES, Pointer};

use crate::budget::{Budget, Charge, InteriorCharge};
use crate::entries::Entries;
use crate::leaf::LeafData;
use crate::uses::Uses;

/// A node in memory.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    Leaf(Arc<LeafCell>),
    Interior(Arc<Interior>),
}

impl Node {
    /// Where the node is stored on disk, if it is unchanged.
    pub(crate) fn pointer(&self) -> Option<Pointer> {
        match self {
            Node::Leaf(leaf) => leaf.latch.read().disk,
            Node::Interior(interior) => interior.disk.get().copied(),
        }
    }

    /// The number of owners.
    pub(crate) fn owners(&self) -> usize {
        match self {
            Node::Leaf(leaf) => Arc::strong_count(leaf),
            Node::Interior(interior) => Arc::strong_count(interior),
        }
    }

    /// A number that identifies the cell.
    pub(crate) fn identity(&self) -> usize {
        match self {
            Node::Leaf(leaf) => Arc::as_ptr(leaf) as usize,
            Node::Interior(interior) => Arc::as_ptr(interior) as usize,
        }
    }
}

/// A slot of an interior node, or a root: a pointer, or the cell that was loaded or made.
#[derive(Debug, Clone, Default)]
pub(crate) struct Child {
    /// Where the node is stored. Used only while there is no cell; otherwise the cell's pointer
    /// counts.
    pub(crate) disk: Option<Pointer>,
    pub(crate) cell: OnceLock<Node>,
}

impl Child {
    pub(crate) fn on_disk(pointer: Pointer) -> Child {
        Child { disk: Some(pointer), cell: OnceLock::new() }
    }

    pub(crate) fn in_memory(node: Node) -> Child {
        Child { disk: None, cell: OnceLock::from(node) }
    }

    /// Where the node is stored on disk; `None` when it was changed.
    pub(crate) fn pointer(&self) -> Option<Pointer> {
        self.cell.get().map_or(self.disk, Node::pointer)
    }
}

/// A leaf.
#[derive(Debug)]
pub(crate) struct LeafCell {
    pub(crate) latch: RwLock<LeafState>,
    pub(crate) uses: Uses,
}

/// What a leaf's latch guards.
#[derive(Debug)]
pub(crate) struct LeafState {
    /// `None`: evicted; `disk` is where the content is stored.
    pub(crate) data: Option<LeafData>,
    pub(crate) disk: Option<Pointer>,
    /// Counts changes of a content that is not on disk. A thread that copied the content compares
    /// the count later to see whether it is still the same.
    pub(crate) changes: u64,
    charge: Charge,
}

/// Memory of a cell beside its content.
const LEAF_BYTES: usize = 200;

impl LeafCell {
    pub(crate) fn new(budget: &Arc<Budget>, data: LeafData, disk: Option<Pointer>) -> LeafCell {
        let charge = Charge::new(budget, LEAF_BYTES, data.memory(), disk.is_none());
        let state = LeafState { data: Some(data), disk, changes: 0, charge };
        LeafCell { latch: RwLock::new(state), uses: Uses::default() }
    }

    /// The cell of a leaf on disk, whose content may be in memory.
    pub(crate) fn on_disk(
        budget: &Arc<Budget>,
        pointer: Pointer,
        data: Option<LeafData>,
    ) -> LeafCell {
        let bytes = data.as_ref().map_or(0, LeafData::memory);
        let charge = Charge::new(budget, LEAF_BYTES, bytes, false);
        let state = LeafState { data, disk: Some(pointer), changes: 0, charge };
        LeafCell { latch: RwLock::new(state), uses: Uses::default() }
    }

    /// The memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.latch.read().charge.bytes()
    }

    /// Puts evicted content back.
    pub(crate) fn install(&self, pointer: Pointer, data: LeafData) {
        let mut state = self.latch.write();
        if state.data.is_none() && state.disk == Some(pointer) {
            state.data = Some(data);
            state.recharge();
        }
    }

    /// Records where the content was written, given the change count at that time. Returns `false`
    /// when the content has changed again, or is stored elsewhere.
    pub(crate) fn learn_place(&self, pointer: Pointer, changes: u64) -> bool {
        let mut state = self.latch.write();
        let same = state.disk.is_none() && state.data.is_some() && state.changes == changes;
        if same {
            state.set_disk(Some(pointer));
        }
        same
    }

    /// Drops the content if it is on disk, and returns whether it is. The caller ensures that no
    /// commit relies on it.
    pub(crate) fn evict(&self) -> bool {
        let mut state = self.latch.write();
        if state.disk.is_none() {
            return false;
        }
        state.data = None;
        state.recharge();
        true
    }
}

impl LeafState {
    /// Recomputes the memory that it accounts for.
    pub(crate) fn recharge(&mut self) {
        let bytes = self.data.as_ref().map_or(0, LeafData::memory);
        self.charge.set_bytes(bytes);
    }

    /// Drops the content of a changed leaf which nobody reads before its place on disk is recorded,
    /// if it ever is. Returns the number of bytes dropped.
    pub(crate) fn shed(&mut self) -> usize {
        let bytes = self.charge.bytes();
        self.data = None;
        self.recharge();
        bytes
    }

    /// Sets where the leaf is stored on disk, or `None` when it differs from that.
    pub(crate) fn set_disk(&mut self, disk: Option<Pointer>) {
        self.charge.set_dirty(disk.is_none());
        self.disk = disk;
    }

    /// The content of a leaf that the caller has made resident.
    pub(crate) fn data_mut(&mut self) -> &mut LeafData {
        self.changes += 1;
        self.data.as_mut().expect("invariant: an owned leaf has its content")
    }
}

/// A latched leaf that the thread owns alone and may change.
pub(crate) type Owned<'a> = RwLockWriteGuard<'a, LeafState>;

/// An interior node: `keys` separate `children`; child `i` has the keys from `keys[i - 1]` up to
/// but excluding `keys[i]`.
#[derive(Debug)]
pub(crate) struct Interior {
    pub(crate) level: u8,
    pub(crate) keys: Entries,
    pub(crate) children: Vec<Child>,
    pub(crate) disk: OnceLock<Pointer>,
    charge: InteriorCharge,
}

/// Memory of a child: its slot.
const CHILD_BYTES: usize = size_of::<Child>();

impl Interior {
    pub(crate) fn new(
        budget: &Arc<Budget>,
        level: u8,
        keys: Entries,
        children: Vec<Child>,
        disk: Option<Pointer>,
    ) -> Interior {
        assert!(children.len() == keys.len() + 1, "an interior node has a separator between two");
        let bytes = keys.memory() + children.len() * CHILD_BYTES;
        Interior {
            level,
            keys,
            children,
            disk: disk.map_or_else(OnceLock::new, OnceLock::from),
            charge: InteriorCharge::new(budget, bytes, disk.is_none()),
        }
    }

    pub(crate) fn budget(&self) -> &Arc<Budget> {
        self.charge.budget()
    }

    /// Records where the node is stored.
    pub(crate) fn set_disk(&self, pointer: Pointer) {
        assert!(self.disk.set(pointer).is_ok(), "a node was written twice");
        self.charge.set_clean();
    }

    /// Marks the node as about to differ from its copy on disk; returns whether it was equal
    /// before.
    pub(crate) fn leave_disk(&mut self) -> bool {
        let was = self.disk.take().is_some();
        self.charge.set_dirty();
        was
    }

    /// A copy with the same children, not on disk.
    pub(crate) fn copy(&self) -> Interior {
        let (keys, children) = (self.keys.clone(), self.children.clone());
        Interior::new(self.budget(), self.level, keys, children, None)
    }

    /// An upper bound of the encoded size.
    pub(crate) fn weight(&self) -> usize {
        self.keys.weight() + self.children.len() * POINTER_BYTES
    }

    /// The child that has the key.
    #[inline]
    pub(crate) fn route(&self, key: &[u8]) -> usize {
        self.keys.rank(key)
    }
}
