//! Pre-flushes changed leaves before a checkpoint does, so that they can be evicted.
//!
//! Changes are only in memory and in the log. When there are too many, a checkpoint writes all of
//! them. But a checkpoint also syncs four times and writes interior nodes and the map, which pays
//! only if it writes much. With a small cache, leaves are pre-flushed instead; so too when most
//! changes are seen by pins alone, which no checkpoint writes. Pre-flushed leaves are written to
//! their shadow places, in long runs, and record where they are stored. The nodes above them stay
//! changed, in memory.
//!
//! The next checkpoint treats such leaves like ingested ones (`space::Ingested`). Nobody else gets
//! their space. The checkpoint counts them, or frees those that are no longer reachable, unless a
//! pin reads them. A crash before it leaves units that the map calls free, and the log, which has
//! all that is in them. Nothing is synced before the checkpoint syncs everything.
//!
//! The search for changed leaves goes round the trees, and when those have none, the pinned states.
//! It skips leaves that were used since the last round once, and leaves with values in overflow
//! nodes always.
//!
//! While a log is replayed over damage (`lost`) no checkpoint counts the pre-flushed leaves, and
//! none will. So more of them may wait then, until the store is opened again.

use std::sync::{Arc, Weak};

use store::{Result, TreeId, Writer};

use crate::cell::{LeafCell, Node};
use crate::checkpoint::{CheckpointState, NodeWriter};
use crate::core::Core;
use crate::preflush_place::{Preflush, TreeKey};
use crate::space::{Counts, Ingested, Work};
use crate::tree::{Root, States};

/// Interior nodes may take one part in this many of the cache. If they take more, evicting leaves
/// does not help.
const INTERIOR_SHARE: usize = 4;
/// Bytes that are written in one run.
const RUN_BYTES_MAX: usize = 1 << 20;
/// Nodes of level 1, and trees, that are visited in one step.
const LOOKS_MAX: usize = 2048;
/// Leaves that may wait to be counted: one for this many bytes of the cache, ...
const LEAF_SHARE: usize = 8 << 10;
/// ... but at least this many. A record of some hundred bytes is kept of each.
const LEAVES_MIN: usize = 1024;
/// The limit is multiplied by this where no checkpoint can be made. The records take a part of the
/// cache; the leaves that they describe would take much more than all of it.
const LEAVES_LOST: usize = 8;

/// Leaves that were found.
struct LeafBatch<'a> {
    writer: NodeWriter<'a>,
    work: Work<'a>,
    counts: Counts,
    /// The leaves, with their change count and location at the time of encoding.
    leaves: Vec<(Weak<LeafCell>, u64, Ingested)>,
    bytes: usize,
    enough: usize,
}

impl Core {
    /// Whether changed leaves are pre-flushed as soon as they make a checkpoint due.
    pub(crate) fn preflushes(&self) -> bool {
        self.options.dirty_bytes_due() < self.options.pre_flush_below
    }

    /// Pre-flushes some changed leaves unless a checkpoint is running; returns whether it did.
    pub(crate) fn preflush(&self) -> Result<bool> {
        let Some(mut state) = self.checkpoint.try_lock() else { return Ok(false) };
        self.preflush_locked(&mut state)
    }

    /// The same for a caller that may make checkpoints. Where there is no space, nothing is
    /// written: a checkpoint, for which space is reserved, must do.
    pub(crate) fn preflush_locked(&self, state: &mut CheckpointState) -> Result<bool> {
        match self.try_preflush(state) {
            Err(error) if error.is_no_space() => Ok(false),
            done => done,
        }
    }

    fn try_preflush(&self, state: &mut CheckpointState) -> Result<bool> {
        let cache = self.options.common.cache_bytes;
        let enough = (cache / 32).min(RUN_BYTES_MAX);
        let most = (cache / LEAF_SHARE).max(LEAVES_MIN);
        let is_lost = !self.is_whole();
        // Interior nodes are only written by checkpoints.
        let interior = !is_lost && self.nodes.budget.interior() > cache / INTERIOR_SHARE;
        let most = if is_lost { most * LEAVES_LOST } else { most };
        let waiting = state.space.ingested.len() >= most;
        if interior || waiting || self.is_tight(2 * enough as u64)? {
            return Ok(false);
        }
        self.journal.check_log()?;
        let mut preflush = self.preflush.lock();
        let generation = state.generation + 1;
        let mut work = Work::new(&self.nodes, &mut state.space, generation, false);
        work.resume(preflush.unit);
        let mut found = LeafBatch {
            writer: NodeWriter::new(&self.nodes, generation),
            work,
            counts: Counts::default(),
            leaves: Vec::new(),
            bytes: 0,
            enough,
        };
        self.look_in_trees(&mut preflush.at, &mut found)?;
        if found.bytes == 0 {
            self.look_in_pins(&mut preflush, &mut found)?;
        }
        let LeafBatch { writer, work, leaves, .. } = found;
        let (_, bytes, writes) = writer.finish()?;
        preflush.unit = work.place();
        drop(work);
        self.journal.wrote(Writer::Checkpoint, bytes, writes);
        let mut any = false;
        for (leaf, changes, written) in leaves {
            let Some(leaf) = leaf.upgrade() else { continue };
            // If the leaf has changed again, its space stays as free as it was.
            if leaf.learn_place(written.pointer, changes) {
                self.nodes.remember_written(written.pointer, &Node::Leaf(leaf));
                state.space.hold(&written);
                state.space.ingested.push(written);
                any = true;
            }
        }
        Ok(any)
    }

    /// Looks for changed leaves in the trees, from where the last search ended.
    fn look_in_trees(&self, place: &mut TreeKey, found: &mut LeafBatch<'_>) -> Result<()> {
        let mut wrapped = false;
        for _ in 0..LOOKS_MAX {
            let next = self.trees_order.lock().range(place.tree..).next().copied();
            let Some(id) = next else {
                if wrapped {
                    break;
                }
                wrapped = true;
                *place = TreeKey::default();
                continue;
            };
            if id != place.tree {
                *place = TreeKey { tree: id, from: Vec::new() };
            }
            let tree = self.trees.read().get(&id).cloned();
            // Nothing is freed while the tree is shared: the structure is stable.
            let ended = match tree {
                // Its leaves go to blocks of their own, with a checkpoint.
                Some(_) if self.is_isolated(id) => true,
                Some(tree) => found.look(&tree.state.read(), &mut place.from)?,
                None => true,
            };
            if found.bytes >= found.enough {
                return Ok(());
            }
            if ended {
                place.next_tree(id);
            }
        }
        Ok(())
    }

    /// The same in states that pins see.
    fn look_in_pins(&self, preflush: &mut Preflush, found: &mut LeafBatch<'_>) -> Result<()> {
        let (mut wrapped, isolated) = (false, self.options.common.isolated_tree);
        for _ in 0..LOOKS_MAX {
            let next = self.pins.lock().states_from(preflush.pin);
            let Some((pin, states)) = next else {
                if wrapped {
                    break;
                }
                wrapped = true;
                preflush.pin = (0, 0);
                continue;
            };
            if pin != preflush.pin {
                preflush.pin = pin;
                preflush.pinned = TreeKey::default();
            }
            if look_in_states(&states, &mut preflush.pinned, found, isolated)? {
                preflush.pin = (pin.0, pin.1 + 1);
                preflush.pinned = TreeKey::default();
            }
            if found.bytes >= found.enough {
                break;
            }
        }
        Ok(())
    }
}

/// Continues in a map of states; returns whether it ended.
fn look_in_states(
    states: &States,
    place: &mut TreeKey,
    found: &mut LeafBatch<'_>,
    isolated: Option<TreeId>,
) -> Result<bool> {
    for _ in 0..LOOKS_MAX {
        let Some((&id, root)) = states.range(place.tree..).next() else { return Ok(true) };
        if id != place.tree {
            *place = TreeKey { tree: id, from: Vec::new() };
        }
        // No thread changes the nodes below it, because it has another owner.
        let ended = match root {
            Some(root) if isolated != Some(id) => found.look(root, &mut place.from)?,
            Some(_) | None => true,
        };
        if ended {
            place.next_tree(id);
        }
        if found.bytes >= found.enough {
            return Ok(false);
        }
    }
    Ok(false)
}

impl LeafBatch<'_> {
    /// Visits the leaves below one node, or skips a part in which nothing is changed, from a key
    /// on; returns whether the tree ended.
    fn look(&mut self, root: &Root, from: &mut Vec<u8>) -> Result<bool> {
        let (mut child, mut fence) = (&root.child, None);
        while let Some(Node::Interior(interior)) = child.cell.get()
            && interior.disk.get().is_none()
        {
            let at = interior.route(from);
            if interior.level > 1 {
                if at < interior.keys.len() {
                    fence = Some(interior.keys.key(at));
                }
                child = &interior.children[at];
                continue;
            }
            for (at, child) in interior.children.iter().enumerate().skip(at) {
                if let Some(Node::Leaf(leaf)) = child.cell.get() {
                    self.write(leaf)?;
                }
                if self.bytes >= self.enough && at < interior.keys.len() {
                    *from = interior.keys.key(at);
                    return Ok(false);
                }
            }
            break;
        }
        let ended = fence.is_none();
        *from = fence.unwrap_or_default();
        Ok(ended)
    }

    /// Writes a leaf, if it is changed and has not been used for a while.
    fn write(&mut self, leaf: &Arc<LeafCell>) -> Result<()> {
        let Some(state) = leaf.latch.try_read() else { return Ok(()) };
        let Some(data) = state.data.as_ref().filter(|_| state.disk.is_none()) else {
            return Ok(());
        };
        if data.has_far() || leaf.uses.spend() {
            return Ok(());
        }
        let (memory, changes) = (data.memory(), state.changes);
        let pointer = self.writer.write_data(&mut self.work, &mut self.counts, data)?;
        drop(state);
        self.bytes += memory;
        let written = Ingested { pointer, overflows: Vec::new() };
        self.leaves.push((Arc::downgrade(leaf), changes, written));
        Ok(())
    }
}
