//! Emptying sparse regions of the file, beside what a checkpoint writes anyway.
//!
//! What is free in the middle of a long life lies in short holes: where one leaf in ten changes
//! between two checkpoints, the nine around it stay. So before a checkpoint freezes anything, it
//! looks for regions in which little is left, and has the leaves there written again with the
//! changed ones, in the order of keys. Then the region is one run.
//!
//! 1. `Space::sparse` names the regions, with no more in use than the checkpoint has to write.
//! 2. `look`: nodes above leaves that lie there are looked for in memory, round the trees. Nothing
//!    is read for that. A node that several trees share is passed over, with all below it.
//! 3. A leaf is moved when as many slots were found as its count says that lead to it: else it
//!    would be in both places. `loosen` makes the way to each slot changed, so that the checkpoint
//!    comes by, and puts a cell there that no other slot has.
//! 4. `NodeWriter` copies the bytes to the new place. When the state is published, the cell learns
//!    it like one that was written.
//!
//! **Why that is sound.** What is moved is a cell, and only slots that were loosened have it, or
//! copies of them: they have no pointer of their own (`Child::disk`), nor has a copy that a writer
//! makes later, so they lie where the cell says. All nodes that have such a slot are changed ones;
//! the next checkpoint writes them, all with the new place, or a pin has them, and then the old
//! place is held while it reads. Other cells of the same leaf stay where they are: clean nodes may
//! have them, in slots without a pointer too, and say so on disk. A leaf that is changed meanwhile
//! is copied before or after, as ever. Counts follow from what is written: the old leaf dies
//! because nothing leads there any more, and where something does, it stays.
//!
//! **Cost.** At most as many bytes of leaves as are changed, and as many again of nodes above them.

use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use device::{Map, Set};
use format::Pointer;
use format::node::UNIT_BYTES;
use store::{Result, TreeId};

use super::State;
use crate::cell::{Child, Interior, LeafCell, Node};
use crate::core::Core;
use crate::nodes::Nodes;
use crate::space::{Space, region};
use crate::tree::Root;

/// A checkpoint that writes less is one or two writes in any case.
const WRITTEN_UNITS_MIN: u64 = 256;
/// Nodes of level 1, and trees, that are looked at before one checkpoint.
const LOOKS_MAX: usize = 4096;
/// Share of the cache that may be changed already, five of eight.
const DIRTY_SHARE: (usize, usize) = (5, 8);
/// Checkpoints after which regions are tried again that could not be emptied.
const PASSED_FOR: u64 = 16;

/// What is kept from one checkpoint to the next.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    /// Where looking goes on.
    tree: u64,
    from: Vec<u8>,
    /// Regions that could not be emptied, and how many units were in use.
    passed: Map<u64, u64>,
    /// The leaves that the next checkpoint moves, by where they lie: cells that `loosen` chose.
    pub(super) moves: Map<u64, Arc<LeafCell>>,
}

impl Gather {
    /// What is to be moved now.
    pub(super) fn take(&mut self) -> Map<u64, Arc<LeafCell>> {
        std::mem::take(&mut self.moves)
    }
}

/// A node in a sparse region, and a way to it.
struct Found {
    tree: TreeId,
    key: Vec<u8>,
    level: u8,
    pointer: Pointer,
}

impl Found {
    fn slot(&self) -> (TreeId, &[u8], u8) {
        (self.tree, &self.key, self.level)
    }
}

/// The search.
struct Looking<'a> {
    nodes: &'a Nodes,
    space: &'a mut Space,
    sparse: &'a BTreeSet<u64>,
    tree: TreeId,
    found: Vec<Found>,
    /// Interior nodes among them.
    interior: Set<u64>,
}

impl Core {
    /// Chooses what the next checkpoint moves, and makes the way there changed.
    pub(super) fn gather(&self, state: &mut State) -> Result<()> {
        state.gather.moves.clear();
        let dirty = (self.nodes.budget.dirty() / UNIT_BYTES) as u64;
        let wanted = dirty + state.space.uncounted();
        // While a pin reads what is moved, moving makes no room.
        if wanted < WRITTEN_UNITS_MIN || self.pins.lock().newest().is_some() {
            return Ok(());
        }
        // What is made changed here is not to make committers wait.
        if self.dirty() > self.options.common.cache_bytes / DIRTY_SHARE.1 * DIRTY_SHARE.0 {
            return Ok(());
        }
        if state.generation.is_multiple_of(PASSED_FOR) {
            state.gather.passed.clear();
        }
        let file = self.nodes.file.as_ref();
        let sparse = state.space.sparse(file, wanted, &state.gather.passed);
        if sparse.is_empty() || self.is_tight(2 * wanted * UNIT_BYTES as u64)? {
            return Ok(());
        }
        let mut found = self.look_for_nodes(state, &sparse);
        // Where the search ends in the tree that it began in, it has been at some slots twice.
        found.sort_unstable_by(|a, b| a.slot().cmp(&b.slot()));
        found.dedup_by(|a, b| a.slot() == b.slot());
        let mut slots: Map<u64, u32> = Map::default();
        for found in &found {
            *slots.entry(found.pointer.unit).or_default() += 1;
        }
        let mut cells = Map::default();
        let mut moved: Map<u64, u64> = Map::default();
        for found in found {
            let pointer = found.pointer;
            // One that no checkpoint has counted yet was written just now.
            let counted = state.space.count(file, pointer.unit).filter(|&count| count > 0);
            let all = counted.is_some_and(|count| slots[&pointer.unit] >= count);
            if all && self.loosen(&found, &mut cells) {
                *moved.entry(region(pointer.unit)).or_default() += u64::from(pointer.units);
            }
        }
        state.gather.moves = cells;
        for &region in &sparse {
            let used = state.space.used_in(file, region);
            if moved.get(&region).copied().unwrap_or(0) < used / 2 {
                state.gather.passed.insert(region, used);
            }
        }
        Ok(())
    }

    /// Looks for nodes in sparse regions, from where the last search ended.
    fn look_for_nodes(&self, state: &mut State, sparse: &BTreeSet<u64>) -> Vec<Found> {
        let State { space, gather, .. } = state;
        let mut looking = Looking {
            nodes: &self.nodes,
            space,
            sparse,
            tree: TreeId(gather.tree),
            found: Vec::new(),
            interior: Set::default(),
        };
        // Once round, and to the end of the tree that the search began in.
        let (first, mut wrapped) = (gather.tree, false);
        for _ in 0..LOOKS_MAX {
            let next = self.trees_order.lock().range(TreeId(gather.tree)..).next().copied();
            let Some(id) = next.filter(|id| !wrapped || id.0 <= first) else {
                if wrapped {
                    break;
                }
                wrapped = true;
                gather.tree = 0;
                gather.from.clear();
                continue;
            };
            if id.0 != gather.tree {
                gather.tree = id.0;
                gather.from.clear();
            }
            let tree = self.trees.read().get(&id).cloned();
            looking.tree = id;
            let ended = tree.is_none_or(|tree| looking.look(&tree.state.read(), &mut gather.from));
            if ended {
                gather.tree = id.0 + 1;
                gather.from.clear();
            }
        }
        looking.found
    }

    /// Makes the way to a node changed, if it lies there yet, and the slot of a leaf one that lies
    /// where its cell says; `cells` has those cells. Tells whether it did.
    fn loosen(&self, found: &Found, cells: &mut Map<u64, Arc<LeafCell>>) -> bool {
        let _gate = self.gate.read();
        let Ok(tree) = self.tree(found.tree) else { return false };
        self.mark_changed(&tree);
        let mut root = tree.state.write();
        let level = root.level;
        if level < found.level || level == 0 {
            return false;
        }
        if level == found.level {
            let there = root.child.pointer() == Some(found.pointer);
            return there && self.nodes.own_interior(&mut root.child, level).is_ok();
        }
        let mut slot = &mut root.child;
        for level in (found.level + 1..=level).rev() {
            // What cannot be read stays where it is.
            let Ok(interior) = self.nodes.own_interior(slot, level) else { return false };
            let at = interior.route(&found.key);
            slot = &mut interior.children[at];
        }
        if slot.pointer() != Some(found.pointer) {
            return false;
        }
        if found.level > 0 {
            return self.nodes.own_interior(slot, found.level).is_ok();
        }
        let cell = match cells.entry(found.pointer.unit) {
            Entry::Vacant(vacant) => vacant.insert(self.nodes.cell_alone(slot, found.pointer)),
            Entry::Occupied(occupied) => {
                let cell = occupied.into_mut();
                self.nodes.keep_content(slot, cell, found.pointer);
                cell
            }
        };
        slot.disk = None;
        slot.cell = Node::Leaf(Arc::clone(cell)).into();
        true
    }
}

impl Nodes {
    /// A cell of the clean leaf in a slot that no other slot has, nor comes to have.
    fn cell_alone(&self, slot: &mut Child, pointer: Pointer) -> Arc<LeafCell> {
        // From here on nobody finds the cell by its pointer; who did so before is counted.
        self.forget(pointer);
        let data = match slot.cell.get_mut() {
            Some(Node::Leaf(leaf)) if Arc::strong_count(leaf) == 1 => return Arc::clone(leaf),
            // What is in memory stays there: a commit may rely on it.
            Some(Node::Leaf(leaf)) => leaf.latch.read().data.clone(),
            _ => None,
        };
        let there = data.is_some();
        let cell = Arc::new(LeafCell::on_disk(&self.budget, pointer, data));
        if there {
            self.ring.add_leaf(&cell);
        }
        cell
    }

    /// Gives the cell that a slot is about to have what the slot has in memory, for the same
    /// reason.
    fn keep_content(&self, slot: &Child, cell: &Arc<LeafCell>, pointer: Pointer) {
        let Some(Node::Leaf(leaf)) = slot.cell.get() else { return };
        if Arc::ptr_eq(leaf, cell) || cell.latch.read().data.is_some() {
            return;
        }
        if let Some(data) = leaf.latch.read().data.clone() {
            cell.install(pointer, data);
            self.ring.add_leaf(cell);
        }
    }
}

impl Looking<'_> {
    /// Looks at the slots of one node of level 1, or passes over a part that is shared or not in
    /// memory, from a key on; tells whether the tree ended.
    fn look(&mut self, root: &Root, from: &mut Vec<u8>) -> bool {
        let (mut child, mut fence) = (&root.child, None);
        while let Some(interior) = self.sole(child) {
            if let Some(pointer) = interior.disk.get()
                && self.is_sparse(pointer)
                && self.interior.insert(pointer.unit)
            {
                self.add(from, interior.level, *pointer);
            }
            if interior.level == 1 {
                self.look_at_leaves(interior, from);
                break;
            }
            let at = interior.route(from);
            if at < interior.keys.len() {
                fence = Some(interior.keys.key(at));
            }
            child = &interior.children[at];
        }
        let ended = fence.is_none();
        *from = fence.unwrap_or_default();
        ended
    }

    /// Notes the leaves in sparse regions, unless too little would be moved for what the node
    /// itself takes, which would have to be written too.
    fn look_at_leaves(&mut self, interior: &Interior, from: &[u8]) {
        let before = self.found.len();
        let mut units = 0;
        for (at, child) in interior.children.iter().enumerate() {
            let Some(pointer) = child.pointer().filter(|pointer| self.is_sparse(pointer)) else {
                continue;
            };
            units += pointer.units;
            match at.checked_sub(1) {
                Some(before) => self.add(&interior.keys.key(before), 0, pointer),
                None => self.add(from, 0, pointer),
            }
        }
        if interior.disk.get().is_some_and(|pointer| units < pointer.units) {
            self.found.truncate(before);
        }
    }

    fn add(&mut self, key: &[u8], level: u8, pointer: Pointer) {
        self.found.push(Found { tree: self.tree, key: key.to_vec(), level, pointer });
    }

    fn is_sparse(&self, pointer: &Pointer) -> bool {
        self.sparse.contains(&region(pointer.unit))
    }

    /// The interior node in a slot, if it is in memory and nothing else leads to it.
    fn sole<'c>(&mut self, child: &'c Child) -> Option<&'c Interior> {
        let Node::Interior(interior) = child.cell.get()? else { return None };
        let file = self.nodes.file.as_ref();
        if Arc::strong_count(interior) > 1 {
            return None;
        }
        let Some(pointer) = interior.disk.get() else { return Some(interior) };
        // Of a node with nothing to be moved, no page of the map is read.
        let moved = || interior.children.iter().filter_map(Child::pointer);
        if interior.level == 1
            && !self.is_sparse(pointer)
            && !moved().any(|pointer| self.is_sparse(&pointer))
        {
            return Some(interior);
        }
        (self.space.count(file, pointer.unit) == Some(1)).then_some(interior)
    }
}
