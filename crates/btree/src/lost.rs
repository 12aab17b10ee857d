//! Log records that a replay could not apply because they change a damaged leaf.
//!
//! That is no reason to refuse everything else. The replay skips an operation on such a key. The
//! node that could not be read counts as damaged from then on, even if a later read of it succeeds.
//! A reader of anything in it gets an error, in the tree, in clones of it and in pinned states. If
//! an operation on more than a key - a range, a run, a partial clone - is skipped, the whole tree
//! counts as unknown. While there is such a tree the store is read-only. No checkpoint is made, and
//! the log stays as it is, so that a later opening that can read the node again misses nothing.
//! Leaves that the replay pre-flushes, to keep the cache's budget, are written to units that the
//! map calls free.
//!
//! A tree that the log drops later does not count. Nor does a damaged node that is, in the end, not
//! reachable from a tree that missed something. Its content was removed later with a range, or
//! replaced.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::Set;
use format::batch::{Op, Ops};
use format::{Corruption, Pointer};
use store::{Error, Result, TreeId};

use crate::cell::{Child, LeafCell, Node};
use crate::commit::Last;
use crate::core::Core;
use crate::leaf::Value;
use crate::nodes::NODES_FILE;
use crate::plan::malformed;
use crate::tree::{Root, Tree};
use crate::underfull::Underfull;
use crate::units::unit_at;

impl Core {
    /// Applies a log record, except the parts that a damaged node prevents.
    pub(crate) fn apply_replayed(&self, bytes: &[u8], underfull: &mut Underfull) -> Result<()> {
        let last_tree = &mut Last::default();
        for op in Ops::new(bytes) {
            let op = op.map_err(malformed)?;
            match self.apply_op(&op, last_tree, underfull) {
                Err(Error::Corrupt(damage)) if damage.file == NODES_FILE => {
                    self.lose(&op, &damage)?;
                    *last_tree = Last::default();
                }
                applied => applied?,
            }
            self.follow_lost(&op);
        }
        Ok(())
    }

    /// Notes that an operation was not applied. If the list of trees itself is damaged, nothing can
    /// be done about it.
    #[cold]
    fn lose(&self, op: &Op<'_>, damage: &Arc<Corruption>) -> Result<()> {
        let (tree, of_a_key) = match *op {
            Op::Put { tree, .. } | Op::Delete { tree, .. } | Op::Merge { tree, .. } => (tree, true),
            Op::DeleteRange { tree, .. } | Op::Ingest { tree, .. } => (tree, false),
            Op::CloneTree { source, target, .. } => {
                self.tree(TreeId(source))?;
                self.add_tree(Tree::new(TreeId(target), Root::empty(&self.nodes.budget), false));
                (target, false)
            }
            Op::CreateTree { .. } | Op::DropTree { .. } | Op::Link { .. } => {
                return Err(Error::Corrupt(Arc::clone(damage)));
            }
        };
        let tree = self.tree(TreeId(tree))?;
        self.nodes.lost.add(damage);
        if !of_a_key {
            self.lose_tree(&tree, damage);
        }
        let first = self.lost_trees.lock().insert(tree.id, Arc::clone(damage)).is_none();
        if first {
            tracing::error!(%damage, tree = tree.id.0, "cannot read a node that the log changes");
        }
        Ok(())
    }

    /// Makes the tree point to the damaged node, and to nothing else.
    fn lose_tree(&self, tree: &Tree, damage: &Corruption) {
        let unit = unit_at(damage.offset);
        let damaged = Pointer { unit, units: 1, overflows: false, checksum: 0 };
        tree.resident.store(false, Ordering::Relaxed);
        let root = std::mem::replace(&mut *tree.state.write(), Root::on_disk(damaged, 0));
        self.graveyard.lock().extend(root.child.cell.into_inner());
    }

    /// Passes unknown content of a tree on to its clones; a dropped tree no longer counts.
    fn follow_lost(&self, op: &Op<'_>) {
        let mut lost = self.lost_trees.lock();
        match *op {
            Op::CloneTree { source, target, .. } => {
                if let Some(damage) = lost.get(&TreeId(source)).cloned() {
                    lost.insert(TreeId(target), damage);
                }
            }
            Op::DropTree { tree } => {
                lost.remove(&TreeId(tree));
                if lost.is_empty() {
                    self.nodes.lost.clear();
                }
            }
            _ => {}
        }
    }

    /// Whether everything in the log that still matters was applied.
    pub(crate) fn is_whole(&self) -> bool {
        self.lost_trees.lock().is_empty()
    }

    /// Whether a tree that missed something still misses it: it reaches a damaged node.
    fn misses_any(&self, tree: TreeId, whole: &mut Set<usize>) -> bool {
        let Ok(tree) = self.tree(tree) else { return true };
        let root = tree.state.read();
        self.points_to_lost(&root.child, whole)
    }

    /// Recurses once a level, so no deeper than `LEVEL_MAX`. `whole`: changed nodes that reach no
    /// damaged node. The replay searched for every change below a node from the root down, and made
    /// each node on the path a changed one.
    fn points_to_lost(&self, child: &Child, whole: &mut Set<usize>) -> bool {
        if let Some(pointer) = child.pointer() {
            return self.nodes.lost.has(pointer);
        }
        let Some(node) = child.cell.get() else { return false };
        if whole.contains(&node.identity()) {
            return false;
        }
        let leads = match node {
            Node::Leaf(leaf) => self.has_lost_value(leaf),
            Node::Interior(interior) => {
                interior.children.iter().any(|child| self.points_to_lost(child, whole))
            }
        };
        if !leads {
            whole.insert(node.identity());
        }
        leads
    }

    fn has_lost_value(&self, leaf: &LeafCell) -> bool {
        let state = leaf.latch.read();
        let Some(data) = state.data.as_ref().filter(|data| data.has_far()) else { return false };
        (0..data.entries.len()).any(|at| match data.value(at) {
            Value::Far(cell) => {
                cell.disk.get().is_some_and(|pointer| self.nodes.lost.has(*pointer))
            }
            Value::Near(_) => false,
        })
    }

    /// Sets why the store takes no changes after its log was replayed, if the replay skipped
    /// anything.
    pub(crate) fn settle_lost(&self) {
        let mut whole = Set::default();
        let mut lost = std::mem::take(&mut *self.lost_trees.lock());
        lost.retain(|&tree, _| self.misses_any(tree, &mut whole));
        *self.lost_trees.lock() = lost;
        let Some(damage) = self.lost_trees.lock().values().next().cloned() else {
            // Trees that reach a damaged node, and miss nothing, read it themselves.
            self.nodes.lost.clear();
            return;
        };
        if self.journal.read_only().is_some() || self.journal.check_log().is_err() {
            // Written data is discarded, or must not be written.
            self.lost_trees.lock().clear();
            return;
        }
        self.journal.open_read_only(format!("cannot read a node that the log changes: {damage}"));
    }
}
