//! Loads the nodes that a batch will touch before it is logged, so that applying it cannot fail.
//!
//! For each key it loads the path to its leaf, and the leaf. For a merge it loads the old value,
//! when that is an overflow node. If a leaf or node may become underfull, the siblings to rebalance
//! it with are looked up when that happens. A missing sibling only leaves a node underfull.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::batch::Op;
use store::{Batch, Result, TreeId, prefix_end};

use crate::copied::{Copied, copy_on};
use crate::core::Core;
use crate::leaf::{LeafData, Value};
use crate::plan::malformed;
use crate::tree::{Miss, ToKey, Tree};

impl Core {
    /// Loads the nodes that a batch will touch.
    pub(crate) fn ensure(&self, batch: &Batch) -> Result<()> {
        // Trees that the batch makes, and their sources.
        let mut made: Vec<(u64, Option<u64>)> = Vec::new();
        let mut last: Option<Arc<Tree>> = None;
        for op in batch.ops() {
            let op = op.map_err(malformed)?;
            let named = match &op {
                Op::Put { tree, .. }
                | Op::Delete { tree, .. }
                | Op::DeleteRange { tree, .. }
                | Op::Merge { tree, .. }
                | Op::DropTree { tree }
                | Op::Ingest { tree, .. }
                | Op::Link { tree, .. } => *tree,
                Op::CloneTree { source, target, .. } => {
                    made.push((*target, Some(*source)));
                    *source
                }
                Op::CreateTree { tree } => {
                    made.push((*tree, None));
                    continue;
                }
            };
            let Some(id) = origin(&made, named) else { continue };
            if last.as_ref().is_none_or(|tree| tree.id.0 != id) {
                last = Some(self.tree(TreeId(id))?);
            }
            let Some(tree) = &last else { continue };
            if tree.resident.load(Ordering::Relaxed) && self.evictions.load(Ordering::Relaxed) == 0
            {
                continue;
            }
            self.ensure_op(tree, &op)?;
        }
        Ok(())
    }

    fn ensure_op(&self, tree: &Tree, op: &Op<'_>) -> Result<()> {
        match op {
            Op::Put { key, .. } | Op::Delete { key, .. } => self.ensure_key(tree, key, false),
            Op::Merge { key, .. } => self.ensure_key(tree, key, true),
            Op::DeleteRange { from, to, .. } => self.ensure_edges(tree, from, Some(to)),
            Op::CloneTree { prefixes, .. } => {
                let mut from = Some(Vec::new());
                for prefix in prefixes {
                    if let Some(from) = &from {
                        self.ensure_edges(tree, from, Some(prefix))?;
                    }
                    from = prefix_end(prefix);
                }
                match from {
                    Some(from) if !prefixes.is_empty() => self.ensure_edges(tree, &from, None),
                    _ => Ok(()),
                }
            }
            Op::Ingest { first, last, .. } => self.ensure_edges(tree, first, Some(last)),
            Op::CreateTree { .. } | Op::DropTree { .. } | Op::Link { .. } => Ok(()),
        }
    }

    fn ensure_key(&self, tree: &Tree, key: &[u8], value: bool) -> Result<()> {
        tree.read(&self.nodes, &mut ToKey(key), |leaf| is_ready(leaf, key, value))
    }

    /// The leaves at both ends of a range: those of `from`, and of what is just below `to`.
    pub(crate) fn ensure_edges(&self, tree: &Tree, from: &[u8], to: Option<&[u8]>) -> Result<()> {
        self.ensure_key(tree, from, false)?;
        let mut copied = Copied::default();
        crate::copied::copy_back(&self.nodes, tree, &[], to, &mut copied)?;
        match to {
            Some(to) => copy_on(&self.nodes, tree, to, Some(to), &mut copied).map(|_| ()),
            None => Ok(()),
        }
    }
}

impl Tree {
    /// Whether everything that a change of a key needs is in memory; `value`: it needs the old
    /// value.
    #[inline]
    pub(crate) fn has_ready(&self, key: &[u8], value: bool) -> bool {
        self.find_in_memory(&mut ToKey(key), |leaf| is_ready(leaf, key, value)).is_ok()
    }
}

#[inline]
fn is_ready(leaf: &LeafData, key: &[u8], value: bool) -> std::result::Result<(), Miss> {
    if value
        && leaf.has_far()
        && let Ok(at) = leaf.entries.search(key)
        && let Value::Far(cell) = leaf.value(at)
        && cell.bytes().is_none()
    {
        return Err(Miss::Overflow(Arc::clone(cell)));
    }
    Ok(())
}

/// The tree outside of the batch that a named tree is, or is a clone of.
fn origin(made: &[(u64, Option<u64>)], mut tree: u64) -> Option<u64> {
    // Each step goes to a tree that was made earlier.
    for (target, source) in made.iter().rev() {
        if *target == tree {
            tree = (*source)?;
        }
    }
    Some(tree)
}
