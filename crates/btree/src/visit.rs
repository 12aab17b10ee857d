//! Visiting what many trees hold, but what they share only once.
//!
//! A node that was visited is remembered: by its units, as bits of its group, when it is on disk;
//! by its cell while it is not. Its keys below the prefix are the same whichever tree led to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::Set;
use format::Pointer;
use format::space_map::GROUP_UNITS;
use store::{Result, TreeId, prefix_end};

use crate::cell::{Child, LeafCell, Node};
use crate::leaf::Value;
use crate::nodes::Nodes;
use crate::pin::Pin;

/// Words of the bits of a group.
const WORDS: usize = GROUP_UNITS.div_ceil(64);

/// Units, as bits: memory is in proportion to what is marked, a few bytes a node.
#[derive(Debug, Default)]
pub(crate) struct UnitSet {
    groups: BTreeMap<u64, Box<[u64; WORDS]>>,
}

impl UnitSet {
    /// Marks a unit; tells whether it was new.
    pub(crate) fn insert(&mut self, unit: u64) -> bool {
        let (group, index) = (unit / GROUP_UNITS as u64, (unit % GROUP_UNITS as u64) as usize);
        let words = self.groups.entry(group).or_insert_with(|| Box::new([0; WORDS]));
        let (word, bit) = (&mut words[index / 64], 1 << (index % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }
}

struct Visitor<'a> {
    pin: &'a Pin,
    prefix: &'a [u8],
    end: Option<Vec<u8>>,
    units: UnitSet,
    cells: Set<usize>,
    visit: &'a mut dyn FnMut(&[u8], &[u8]),
}

pub(crate) fn visit(
    pin: &Pin,
    trees: &mut dyn Iterator<Item = TreeId>,
    prefix: &[u8],
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<()> {
    let end = prefix_end(prefix);
    let (units, cells) = (UnitSet::default(), Set::default());
    let mut visitor = Visitor { pin, prefix, end, units, cells, visit };
    for id in trees {
        let root = pin.tree(id)?.state.read().clone();
        visitor.child(&root.child, root.level)?;
    }
    Ok(())
}

impl Visitor<'_> {
    fn is_new(&mut self, pointer: Option<Pointer>, node: Option<&Node>) -> bool {
        match (pointer, node) {
            (Some(pointer), _) => self.units.insert(pointer.unit),
            (None, Some(node)) => self.cells.insert(node.identity()),
            (None, None) => unreachable!("a slot has a pointer or a cell"),
        }
    }

    /// Recurses once a level, so no deeper than `LEVEL_MAX`.
    fn child(&mut self, child: &Child, level: u8) -> Result<()> {
        let loaded = child.cell.get();
        if !self.is_new(child.pointer(), loaded) {
            return Ok(());
        }
        let nodes = &self.pin.core.nodes;
        let node = match (loaded, child.disk) {
            (Some(node), _) => node.clone(),
            (None, Some(pointer)) => nodes.load(pointer, level)?,
            (None, None) => unreachable!("a slot has a pointer or a cell"),
        };
        match node {
            Node::Leaf(leaf) => self.leaf(&leaf)?,
            Node::Interior(interior) => {
                let first = interior.keys.rank(self.prefix);
                let last = self.end.as_deref();
                let last = last.map_or(interior.keys.len(), |end| interior.keys.rank_below(end));
                for child in &interior.children[first..=last.max(first)] {
                    self.child(child, level - 1)?;
                }
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
