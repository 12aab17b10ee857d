//! Empties sparse regions of the file, along with the regular writes of a checkpoint.
//!
//! Over time free space in the middle of the file is in short holes. If one leaf in ten changes
//! between two checkpoints, the nine around it stay. So before a checkpoint freezes anything, it
//! looks for sparse regions. It has the leaves there written again with the changed ones, in key
//! order. Then the region is one run.
//!
//! 1. `Space::sparse` names the regions, with no more in use than the checkpoint has to write.
//! 2. `look` searches the nodes in memory that are parents of leaves in those regions, round the
//!    trees. A node that several trees share is skipped, with all below it. Nothing is read with a
//!    tree latched: a page of the map that is not in memory is read between two looks.
//! 3. A leaf is moved only if as many slots were found as its reference count: otherwise it would
//!    be stored in both places. `loosen` marks the path to each slot changed, so that the
//!    checkpoint visits it, and puts a cell there that no other slot has.
//! 4. `NodeWriter` copies the bytes to the new place. When the state is published, the cell records
//!    the place like one that was written.
//!
//! **Why that is sound.** The moved object is a cell, and only slots that were loosened have it, or
//! copies of them. They have no pointer of their own (`Child::disk`), nor has a copy that a writer
//! makes later. So their place is the one in the cell. All nodes that have such a slot are changed
//! ones. Either the next checkpoint writes them, all with the new place. Or a pin has them, and
//! then the old place is held while it reads. Other cells of the same leaf stay where they are.
//! Clean nodes may have them, in slots without a pointer too, and point to the old place on disk. A
//! leaf that is changed meanwhile is copied before or after, as usual. Counts follow from the
//! written nodes: the old leaf dies because nothing points to it any more, and if something does,
//! it stays.
//!
//! **Cost.** At most as many bytes of leaves as are changed, and as many again of nodes above them.

use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use device::{Map, Set};
use format::Pointer;
use format::node::UNIT_BYTES;
use store::TreeId;

use super::state::CheckpointState;
use crate::cell::{Child, Interior, LeafCell, Node};
use crate::core::Core;
use crate::nodes::Nodes;
use crate::space::{Space, region};
use crate::tree::Root;

/// A checkpoint that writes less needs one or two writes in any case.
const WRITTEN_UNITS_MIN: u64 = 256;
/// Nodes of level 1, and trees, that are visited before one checkpoint.
const LOOKS_MAX: usize = 4096;
/// Share of the cache that may be changed already, five of eight.
const DIRTY_SHARE: (usize, usize) = (5, 8);
/// Checkpoints after which regions that could not be emptied are tried again.
const QUARANTINED_FOR: u64 = 16;

/// A node in a sparse region, and a path to it.
struct SparseNode {
    tree: TreeId,
    key: Vec<u8>,
    level: u8,
    pointer: Pointer,
}

impl SparseNode {
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
    found: Vec<SparseNode>,
    /// Interior nodes among them.
    interior: Set<u64>,
    /// Counts that were read from pages of the map that were not in memory; none where a page
    /// cannot be read.
    counts: Map<u64, Option<u32>>,
    /// A unit whose count the last look needs in order to continue.
    asks: Option<u64>,
}

impl Core {
    /// Chooses the leaves that the next checkpoint moves, and marks the paths to them changed.
    /// Cannot fail: if something cannot be read or queried, fewer leaves are moved.
    pub(super) fn gather(&self, state: &mut CheckpointState) {
        state.gather.moves.clear();
        let dirty = (self.nodes.budget.dirty() / UNIT_BYTES) as u64;
        let wanted = dirty + state.space.uncounted();
        // While a pin reads the old place, moving frees no space.
        if wanted < WRITTEN_UNITS_MIN || self.pins.lock().newest().is_some() {
            return;
        }
        // Nodes that are marked changed here must not make committers wait.
        if self.dirty() > self.options.common.cache_bytes / DIRTY_SHARE.1 * DIRTY_SHARE.0 {
            return;
        }
        if state.generation.is_multiple_of(QUARANTINED_FOR) {
            state.gather.quarantine.clear();
        }
        let file = self.nodes.file.as_ref();
        let sparse = state.space.sparse(file, wanted, &state.gather.quarantine);
        if sparse.is_empty() {
            return;
        }
        // A disk that does not report its free space may have little.
        if self.is_tight(2 * wanted * UNIT_BYTES as u64).unwrap_or(true) {
            return;
        }
        let mut found = self.look_for_nodes(state, &sparse);
        // If the search ends in the tree that it began in, it has visited some slots twice.
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
            // A leaf that no checkpoint has counted yet was written just now.
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
                state.gather.quarantine.insert(region, used);
            }
        }
    }

    /// Looks for nodes in sparse regions, from where the last search ended.
    fn look_for_nodes(
        &self,
        state: &mut CheckpointState,
        sparse: &BTreeSet<u64>,
    ) -> Vec<SparseNode> {
        let CheckpointState { space, gather, .. } = state;
        let mut looking = Looking {
            nodes: &self.nodes,
            space,
            sparse,
            tree: TreeId(gather.tree),
            found: Vec::new(),
            interior: Set::default(),
            counts: Map::default(),
            asks: None,
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
            // The tree is no longer latched.
            looking.answer();
            if ended {
                gather.tree = id.0 + 1;
                gather.from.clear();
            }
        }
        looking.found
    }

    /// Marks the path to a node changed, if the node is still there. Makes the slot of a leaf take
    /// its place from its cell; `cells` has those cells. Returns whether it did.
    fn loosen(&self, found: &SparseNode, cells: &mut Map<u64, Arc<LeafCell>>) -> bool {
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
            return there && self.nodes.own_loaded(&mut root.child, level).is_some();
        }
        let mut slot = &mut root.child;
        for level in (found.level + 1..=level).rev() {
            let Some(interior) = self.nodes.own_loaded(slot, level) else { return false };
            let at = interior.route(&found.key);
            slot = &mut interior.children[at];
        }
        if slot.pointer() != Some(found.pointer) {
            return false;
        }
        if found.level > 0 {
            return self.nodes.own_loaded(slot, found.level).is_some();
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
    /// Makes its tree the only owner of an interior node, and marks the node changed. Nothing is
    /// read with the tree latched: a node that was unloaded since it was found is not moved.
    fn own_loaded<'c>(&self, slot: &'c mut Child, level: u8) -> Option<&'c mut Interior> {
        slot.cell.get()?;
        self.own_interior(slot, level).ok()
    }

    /// A cell of the clean leaf in a slot that no other slot has or will get.
    fn cell_alone(&self, slot: &mut Child, pointer: Pointer) -> Arc<LeafCell> {
        // From here on no thread finds the cell by its pointer; one that did so before is counted.
        self.forget(pointer);
        let data = match slot.cell.get_mut() {
            Some(Node::Leaf(leaf)) if Arc::strong_count(leaf) == 1 => return Arc::clone(leaf),
            // Content in memory stays there: a commit may rely on it.
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

    /// Copies the content that a slot has in memory to the cell that it is about to get, for the
    /// same reason.
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
    /// Visits the slots of one node of level 1 from a key on, or skips a part that is shared or not
    /// in memory. Returns whether the tree ended. If it needs a count that is not in memory, it
    /// requests the count, and the next look begins where this one did.
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
        if self.asks.is_some() {
            return false;
        }
        let ended = fence.is_none();
        *from = fence.unwrap_or_default();
        ended
    }

    /// Reads the count that the last look requested.
    fn answer(&mut self) {
        if let Some(unit) = self.asks.take() {
            let count = self.space.count(self.nodes.file.as_ref(), unit);
            self.counts.insert(unit, count);
        }
    }

    /// The count of a unit, if it is known; otherwise requests it.
    fn count(&mut self, unit: u64) -> Option<u32> {
        if let Some(&count) = self.counts.get(&unit) {
            return count;
        }
        let known = self.space.known_count(unit);
        if known.is_none() {
            self.asks = Some(unit);
        }
        known
    }

    /// Notes the leaves in sparse regions, unless they are too small compared with the node itself,
    /// which would have to be written too.
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
        self.found.push(SparseNode { tree: self.tree, key: key.to_vec(), level, pointer });
    }

    fn is_sparse(&self, pointer: &Pointer) -> bool {
        self.sparse.contains(&region(pointer.unit))
    }

    /// The interior node in a slot, if it is in memory and has no other parent.
    fn sole<'c>(&mut self, child: &'c Child) -> Option<&'c Interior> {
        let Node::Interior(interior) = child.cell.get()? else { return None };
        if Arc::strong_count(interior) > 1 {
            return None;
        }
        let Some(pointer) = interior.disk.get() else { return Some(interior) };
        // For a node with nothing to move, no count is requested.
        let moved = || interior.children.iter().filter_map(Child::pointer);
        if interior.level == 1
            && !self.is_sparse(pointer)
            && !moved().any(|pointer| self.is_sparse(&pointer))
        {
            return Some(interior);
        }
        (self.count(pointer.unit) == Some(1)).then_some(interior)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use device::{Map, Set};
    use store::{Batch, Commit, Maintain, TreeId};
    use testing::Op;

    use super::Looking;
    use crate::space::Space;
    use crate::{BtreeStore, Options};

    const TREE: TreeId = TreeId(32);

    #[test]
    fn inspecting_a_tree_reads_no_nodes() {
        let sim = testing::sim_env(1);
        let store = BtreeStore::create(&sim.env(), &Options::with_cache(64 << 20)).unwrap();
        let mut batch = Batch::new();
        batch.create_tree(TREE);
        for key in 0..1000_u32 {
            batch.put(TREE, &key.to_be_bytes(), &[7; 1000]);
        }
        store.commit(&batch).unwrap();
        assert!(store.checkpoint().unwrap());
        let core = store.engine();
        let tree = core.tree(TREE).unwrap();
        let durable = core.checkpoint.lock().space.directory.unwrap();
        // No page of it is in memory.
        let mut space = Space::open(&core.nodes, durable).unwrap();
        let sparse: BTreeSet<u64> = (0..1000).collect();
        let mut looking = Looking {
            nodes: &core.nodes,
            space: &mut space,
            sparse: &sparse,
            tree: TREE,
            found: Vec::new(),
            interior: Set::default(),
            counts: Map::default(),
            asks: None,
        };
        let reads = || sim.device.counts().of(Op::Read);
        let (before, mut from) = (reads(), Vec::new());
        assert!(!looking.look(&tree.state.read(), &mut from), "it has to know counts");
        assert!(looking.asks.is_some() && looking.found.is_empty() && from.is_empty());
        assert_eq!(reads(), before);
        looking.answer();
        assert_eq!(reads(), before + 1);
        while !looking.look(&tree.state.read(), &mut from) {
            looking.answer();
        }
        assert_eq!(reads(), before + 1, "one page has all counts");
        assert!(looking.found.len() > 50, "{} leaves", looking.found.len());
    }
}
