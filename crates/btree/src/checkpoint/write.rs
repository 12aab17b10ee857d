//! Step 2: writing the changed nodes below a root, children first, in long runs.
//!
//! A node gets its place when it is written, never before, so nodes that are written together are
//! adjacent. A cell that several trees share is written once. Cells record their places only when
//! the state is published.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use device::Map;
use format::Pointer;
use format::catalog::RootRecord;
use format::node::{self, Kind, UNIT_BYTES};
use store::Result;

use crate::cell::{Child, Interior, LeafCell, Node};
use crate::codec;
use crate::leaf::LeafData;
use crate::nodes::Nodes;
use crate::overflow::OverflowCell;
use crate::space::{Counts, Work};
use crate::tree::Root;
use crate::two_copies;
use crate::units::unit_offset;

/// Bytes that are gathered before they are written.
const RUN_BYTES: usize = 1 << 20;

/// The written cells, and their places.
#[derive(Default)]
pub(crate) struct Cells {
    pub(crate) nodes: Vec<(Node, Pointer)>,
    pub(crate) values: Vec<(Arc<OverflowCell>, Pointer)>,
}

/// How nodes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Once, adjacent.
    Once,
    /// In disk blocks that contain nothing else.
    Isolated,
    /// The same, with a second copy behind it (`twice`).
    Twice,
}

/// Gives nodes their places and writes them.
pub(crate) struct NodeWriter<'a> {
    nodes: &'a Nodes,
    generation: u64,
    /// Places of the cells that were written, by identity.
    places: Map<usize, Pointer>,
    cells: Cells,
    /// Clean leaves that are to be written again elsewhere, by their place.
    moves: Map<u64, Arc<LeafCell>>,
    run: Vec<u8>,
    /// First unit of the run, and the unit behind it.
    run_units: (u64, u64),
    scratch: Vec<u8>,
    bytes: u64,
    writes: u64,
    manner: Manner,
}

impl<'a> NodeWriter<'a> {
    pub(crate) fn new(nodes: &'a Nodes, generation: u64) -> NodeWriter<'a> {
        NodeWriter {
            nodes,
            generation,
            places: Map::default(),
            cells: Cells::default(),
            moves: Map::default(),
            run: Vec::new(),
            run_units: (0, 0),
            scratch: Vec::new(),
            bytes: 0,
            writes: 0,
            manner: Manner::Once,
        }
    }

    /// Sets how nodes are written from now on.
    pub(super) fn set_manner(&mut self, manner: Manner) {
        self.manner = manner;
    }

    /// Sets the cells of leaves that are moved wherever a slot has them.
    pub(super) fn move_also(&mut self, moves: Map<u64, Arc<LeafCell>>) {
        self.moves = moves;
    }

    pub(super) fn nodes_written(&self) -> usize {
        self.cells.nodes.len() + self.cells.values.len()
    }

    /// Writes the changed nodes below a root.
    pub(super) fn write_root(
        &mut self,
        work: &mut Work<'_>,
        counts: &mut Counts,
        root: &Root,
    ) -> Result<RootRecord> {
        let pointer = self.write_child(work, counts, &root.child, false)?;
        Ok(RootRecord { pointer, level: root.level })
    }

    /// The same below a root of a frozen state. If the root has no other owner (`alone`) it serves
    /// no look-ups. Then contents that only it still has are dropped as soon as they are written.
    pub(super) fn write_frozen(
        &mut self,
        work: &mut Work<'_>,
        counts: &mut Counts,
        root: &Root,
        alone: bool,
    ) -> Result<RootRecord> {
        let pointer = self.write_child(work, counts, &root.child, alone)?;
        Ok(RootRecord { pointer, level: root.level })
    }

    /// Writes the content of a leaf without long values.
    pub(crate) fn write_data(
        &mut self,
        work: &mut Work<'_>,
        counts: &mut Counts,
        data: &LeafData,
    ) -> Result<Pointer> {
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        codec::encode_leaf(&mut out, self.generation, data, &mut std::iter::empty());
        self.place(work, counts, out, false)
    }

    /// Writes a leaf that no tree has yet; returns its place, and those of its long values.
    pub(crate) fn write_one(
        &mut self,
        work: &mut Work<'_>,
        counts: &mut Counts,
        leaf: &Arc<LeafCell>,
    ) -> Result<(Pointer, Vec<Pointer>)> {
        let before = self.cells.values.len();
        let pointer = self.write_leaf(work, counts, leaf)?;
        let overflows = self.cells.values.drain(before..).map(|(_, pointer)| pointer);
        Ok((pointer, overflows.collect()))
    }

    /// Recurses once a level, so no deeper than `LEVEL_MAX`. `alone`: the parent has no other
    /// owner.
    fn write_child(
        &mut self,
        work: &mut Work<'_>,
        counts: &mut Counts,
        child: &Child,
        alone: bool,
    ) -> Result<Pointer> {
        if let Some(pointer) = child.pointer() {
            return match child.cell.get() {
                Some(Node::Leaf(leaf)) if self.is_moved(pointer, leaf) => {
                    self.move_leaf(work, counts, leaf, pointer)
                }
                _ => Ok(pointer),
            };
        }
        let node = child.cell.get().expect("invariant: what is not on disk is in memory");
        if let Some(place) = self.places.get(&node.identity()) {
            return Ok(*place);
        }
        let alone = alone && node.owners() == 1;
        // A former owner had copied its children before it let go: they are counted after that.
        fence(Ordering::Acquire);
        let pointer = match node {
            Node::Leaf(leaf) => {
                let pointer = self.write_leaf(work, counts, leaf)?;
                if alone {
                    leaf.latch.write().shed();
                    work.shed = true;
                }
                pointer
            }
            Node::Interior(interior) => self.write_interior(work, counts, interior, alone)?,
        };
        self.places.insert(node.identity(), pointer);
        self.cells.nodes.push((node.clone(), pointer));
        Ok(pointer)
    }

    /// Whether it is the very cell that was named. Clean nodes may have another cell of the same
    /// leaf, and point to its old place.
    fn is_moved(&self, pointer: Pointer, leaf: &Arc<LeafCell>) -> bool {
        self.moves.get(&pointer.unit).is_some_and(|moved| Arc::ptr_eq(moved, leaf))
    }

    fn write_interior(
        &mut self,
        work: &mut Work<'_>,
        counts: &mut Counts,
        interior: &Interior,
        alone: bool,
    ) -> Result<Pointer> {
        let mut pointers = Vec::with_capacity(interior.children.len());
        for child in &interior.children {
            let pointer = self.write_child(work, counts, child, alone)?;
            counts.refer(pointer);
            pointers.push(pointer);
        }
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        codec::encode_interior(&mut out, self.generation, interior, &pointers);
        self.place(work, counts, out, false)
    }

    /// Writes a clean leaf again. One that cannot be read stays where it is.
    fn move_leaf(
        &mut self,
        work: &mut Work<'_>,
        counts: &mut Counts,
        leaf: &Arc<LeafCell>,
        from: Pointer,
    ) -> Result<Pointer> {
        let identity = Arc::as_ptr(leaf) as usize;
        if let Some(place) = self.places.get(&identity) {
            return Ok(*place);
        }
        let state = leaf.latch.read();
        let out = if let Some(data) = &state.data {
            let (out, _) = self.encode_leaf(work, counts, data)?;
            drop(state);
            out
        } else {
            drop(state);
            let mut out = std::mem::take(&mut self.scratch);
            out.clear();
            let read = self.nodes.read_tree_node(from, 0, |header, body| {
                node::begin(&mut out, Kind::Leaf, 0, self.generation, header.entries);
                out.extend_from_slice(body);
                codec::pointers(header, body)
            });
            let Ok(far) = read else {
                // For all pointers to it.
                self.moves.remove(&from.unit);
                self.scratch = out;
                return Ok(from);
            };
            for pointer in far {
                counts.refer(pointer);
            }
            out
        };
        let pointer = self.place(work, counts, out, from.overflows)?;
        let bytes = u64::from(pointer.units) * UNIT_BYTES as u64;
        self.nodes.moved_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.places.insert(identity, pointer);
        self.cells.nodes.push((Node::Leaf(Arc::clone(leaf)), pointer));
        Ok(pointer)
    }

    fn write_leaf(
        &mut self,
        work: &mut Work<'_>,
        counts: &mut Counts,
        leaf: &LeafCell,
    ) -> Result<Pointer> {
        let state = leaf.latch.read();
        let data = state.data.as_ref().expect("invariant: a changed leaf has its content");
        let (out, overflows) = self.encode_leaf(work, counts, data)?;
        drop(state);
        self.place(work, counts, out, overflows)
    }

    /// Writes the long values of a leaf and encodes it; returns whether there were any.
    fn encode_leaf(
        &mut self,
        work: &mut Work<'_>,
        counts: &mut Counts,
        data: &LeafData,
    ) -> Result<(Vec<u8>, bool)> {
        let mut far = Vec::new();
        if data.has_far() {
            for at in 0..data.entries.len() {
                if let crate::leaf::Value::Far(cell) = data.value(at) {
                    let pointer = self.write_overflow(work, counts, cell)?;
                    counts.refer(pointer);
                    far.push(pointer);
                }
            }
        }
        let overflows = !far.is_empty();
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        codec::encode_leaf(&mut out, self.generation, data, &mut far.into_iter());
        Ok((out, overflows))
    }

    fn write_overflow(
        &mut self,
        work: &mut Work<'_>,
        counts: &mut Counts,
        cell: &Arc<OverflowCell>,
    ) -> Result<Pointer> {
        let identity = Arc::as_ptr(cell) as usize;
        if let Some(pointer) = cell.disk.get().or_else(|| self.places.get(&identity)) {
            return Ok(*pointer);
        }
        let bytes = cell.bytes().expect("invariant: a value that is not on disk is in memory");
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        node::begin(&mut out, Kind::Overflow, 0, self.generation, 1);
        out.extend_from_slice(&bytes);
        let pointer = self.place(work, counts, out, false)?;
        self.places.insert(identity, pointer);
        self.cells.values.push((Arc::clone(cell), pointer));
        Ok(pointer)
    }

    /// Allocates space for an encoded node and appends it to the run.
    fn place(
        &mut self,
        work: &mut Work<'_>,
        counts: &mut Counts,
        mut out: Vec<u8>,
        overflows: bool,
    ) -> Result<Pointer> {
        let units = match self.manner {
            Manner::Once => out.len().div_ceil(UNIT_BYTES) as u16,
            Manner::Isolated => two_copies::block_units(out.len()),
            Manner::Twice => 2 * two_copies::block_units(out.len()),
        };
        let unit = match self.manner {
            Manner::Once => work.alloc(units)?,
            Manner::Isolated | Manner::Twice => work.alloc_blocks(units)?,
        };
        counts.wrote(unit, units);
        let checksum = node::seal(&mut out, unit);
        // The end of a group and the start of the next are not adjacent in the file.
        let joined = unit == self.run_units.1
            && unit_offset(unit) - unit_offset(self.run_units.0) == self.run.len() as u64;
        if !joined || self.run.len() >= RUN_BYTES {
            self.flush()?;
            self.run_units = (unit, unit);
        }
        if self.manner == Manner::Twice {
            let second = self.run.len() + usize::from(units) / 2 * UNIT_BYTES;
            self.run.extend_from_slice(&out);
            self.run.resize(second, 0);
        }
        self.run.extend_from_slice(&out);
        self.run_units.1 = unit + u64::from(units);
        let whole = (self.run_units.1 - self.run_units.0) as usize * UNIT_BYTES;
        self.run.resize(whole, 0);
        self.scratch = out;
        Ok(Pointer { unit, units, overflows, checksum })
    }

    fn flush(&mut self) -> Result<()> {
        if !self.run.is_empty() {
            self.nodes.file.write_at(&self.run, unit_offset(self.run_units.0))?;
            self.bytes += self.run.len() as u64;
            self.writes += 1;
            self.nodes.runs.fetch_add(1, Ordering::Relaxed);
            self.nodes.run_bytes.fetch_add(self.run.len() as u64, Ordering::Relaxed);
            self.run.clear();
        }
        Ok(())
    }

    /// Writes the rest; returns the written cells, the number of bytes, and the number of writes.
    pub(crate) fn finish(mut self) -> Result<(Cells, u64, u64)> {
        self.flush()?;
        Ok((self.cells, self.bytes, self.writes))
    }
}
