//! Visits the content of many trees, shared nodes only once.
//!
//! A visited node is remembered: by its units, as bits of its group, when it is on disk; by its
//! cell while it is not. Its keys below the prefix are the same from whichever tree it is reached.
//! Pending nodes are in a list instead of on the stack, so that a walk can be made in steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::Map;
use format::Pointer;
use format::space_map::GROUP_UNITS;
use store::{Error, LostRange, Result, SharedWalk, TreeId, prefix_end};

use crate::cell::{Child, LeafCell, Node};
use crate::leaf::Value;
use crate::nodes::Nodes;
use crate::pin::Pin;

/// Words of the bits of a group.
const WORDS: usize = GROUP_UNITS.div_ceil(64);

/// A set of units, as bits: memory is proportional to the marked units, a few bytes a node.
#[derive(Debug, Default)]
pub(crate) struct UnitSet {
    groups: BTreeMap<u64, Box<[u64; WORDS]>>,
}

impl UnitSet {
    /// Marks a unit; returns whether it was new.
    pub(crate) fn insert(&mut self, unit: u64) -> bool {
        let (group, index) = (unit / GROUP_UNITS as u64, (unit % GROUP_UNITS as u64) as usize);
        let words = self.groups.entry(group).or_insert_with(|| Box::new([0; WORDS]));
        let (word, bit) = (&mut words[index / 64], 1 << (index % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }
}

/// A walk between its steps.
#[derive(Default)]
struct Progress {
    units: UnitSet,
    /// Nodes that were in memory only. They are kept: otherwise another node could reuse the
    /// address of one and would be taken for it.
    cells: Map<usize, Node>,
    /// Pending nodes with their levels; the next one last.
    left: Vec<(Child, u8)>,
}

/// The parameters of one step.
struct Visitor<'a> {
    pin: &'a Pin,
    prefix: &'a [u8],
    end: Option<Vec<u8>>,
    state: &'a mut Progress,
    visit: &'a mut dyn FnMut(&[u8], &[u8]),
}

/// Visits about `nodes` nodes; `false` when nothing is left.
pub(crate) fn step(
    pin: &Pin,
    walk: &mut SharedWalk,
    nodes: usize,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<bool> {
    let state = walk.state.get_or_insert_with(|| Box::new(Progress::default()));
    let state = state.downcast_mut::<Progress>().expect("invariant: the walk is of this engine");
    let end = prefix_end(&walk.prefix);
    let mut visitor = Visitor { pin, prefix: &walk.prefix, end, state, visit };
    for _ in 0..nodes {
        if let Some((child, level)) = visitor.state.left.pop() {
            visitor.child(&child, level)?;
        } else if let Some(id) = walk.trees.pop_front() {
            let root = pin.tree(id)?.state.read().clone();
            visitor.state.left.push((root.child, root.level));
        } else {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Visitor<'_> {
    fn is_new(&mut self, pointer: Option<Pointer>, node: Option<&Node>) -> bool {
        match (pointer, node) {
            (Some(pointer), _) => self.state.units.insert(pointer.unit),
            (None, Some(node)) => self.state.cells.insert(node.identity(), node.clone()).is_none(),
            (None, None) => unreachable!("a slot has a pointer or a cell"),
        }
    }

    fn child(&mut self, child: &Child, level: u8) -> Result<()> {
        let loaded = child.cell.get();
        if !self.is_new(child.pointer(), loaded) {
            return Ok(());
        }
        match node_of(&self.pin.core.nodes, child, level)? {
            Node::Leaf(leaf) => self.leaf(&leaf)?,
            Node::Interior(interior) => {
                let first = interior.keys.rank(self.prefix);
                let last = self.end.as_deref();
                let last = last.map_or(interior.keys.len(), |end| interior.keys.rank_below(end));
                let below = interior.children[first..=last.max(first)].iter().rev();
                self.state.left.extend(below.map(|child| (child.clone(), level - 1)));
                self.pin.core.shrink();
            }
        }
        Ok(())
    }

    fn leaf(&mut self, leaf: &Arc<LeafCell>) -> Result<()> {
        let data = copy_leaf(&self.pin.core.nodes, leaf)?;
        let entries = &data.entries;
        let end = self.end.as_deref().map_or(entries.len(), |end| entries.rank_below(end));
        let mut key = Vec::new();
        for at in entries.rank_below(self.prefix)..end {
            key.clear();
            entries.key_to(at, &mut key);
            match data.value(at) {
                Value::Near(value) => (self.visit)(&key, value),
                Value::Far(cell) => {
                    let value = self.pin.core.nodes.load_overflow(cell)?;
                    (self.visit)(&key, &value);
                }
            }
        }
        Ok(())
    }
}

/// The node of a slot, loaded if it must be.
fn node_of(nodes: &Nodes, child: &Child, level: u8) -> Result<Node> {
    match (child.cell.get(), child.disk) {
        (Some(node), _) => Ok(node.clone()),
        (None, Some(pointer)) => nodes.load(pointer, level),
        (None, None) => unreachable!("a slot has a pointer or a cell"),
    }
}

/// The first range from `key` on that damage makes unreadable, by the separators of the nodes above
/// it.
pub(crate) fn lost_from(pin: &Pin, id: TreeId, key: &[u8]) -> Result<Option<LostRange>> {
    let mut key = key.to_vec();
    loop {
        match lost_in_leaf(pin, id, &key)? {
            Leaf::Lost(lost) => return Ok(Some(lost)),
            Leaf::Whole(None) => return Ok(None),
            Leaf::Whole(Some(next)) => key = next,
        }
    }
}

/// Whether the leaf of a key can be read.
enum Leaf {
    /// It can be read; the next leaf, if any, begins at this key.
    Whole(Option<Vec<u8>>),
    /// The leaf, or a node above it, or a long value of it, cannot be read.
    Lost(LostRange),
}

fn lost_in_leaf(pin: &Pin, id: TreeId, key: &[u8]) -> Result<Leaf> {
    let root = pin.tree(id)?.state.read().clone();
    let nodes = &pin.core.nodes;
    let (mut child, mut level) = (root.child, root.level);
    let (mut from, mut to) = (Vec::new(), None);
    let lost = |error: Error, from, to| match error.as_damage() {
        Error::Corrupt(damage) => Ok(Leaf::Lost(LostRange { from, to, damage })),
        error => Err(error),
    };
    let leaf = loop {
        let interior = match node_of(nodes, &child, level) {
            Ok(Node::Leaf(leaf)) => break leaf,
            Ok(Node::Interior(interior)) => interior,
            Err(error) => return lost(error, from, to),
        };
        let at = interior.keys.rank(key);
        if at > 0 {
            from = interior.keys.key(at - 1);
        }
        if at < interior.keys.len() {
            to = Some(interior.keys.key(at));
        }
        child = interior.children[at].clone();
        level -= 1;
    };
    let data = match copy_leaf(nodes, &leaf) {
        Ok(data) => data,
        Err(error) => return lost(error, from, to),
    };
    // A long value is stored elsewhere, and may be damaged alone.
    for at in data.entries.rank_below(key)..data.entries.len() {
        if let Value::Far(cell) = data.value(at)
            && let Err(error) = nodes.load_overflow(cell)
        {
            let from = data.entries.key(at);
            let to = [from.as_slice(), &[0]].concat();
            return lost(error, from, Some(to));
        }
    }
    Ok(Leaf::Whole(to))
}

/// A copy of a leaf's content, loaded if it must be.
pub(crate) fn copy_leaf(nodes: &Nodes, leaf: &Arc<LeafCell>) -> Result<crate::leaf::LeafData> {
    loop {
        let pointer = {
            let state = leaf.latch.read();
            match (&state.data, state.disk) {
                (Some(data), _) => return Ok(data.clone()),
                (None, Some(pointer)) => pointer,
                (None, None) => unreachable!("a leaf is in memory or on disk"),
            }
        };
        nodes.load_leaf(leaf, pointer)?;
    }
}
