//! A batch that makes, clones or drops trees. It is applied to copies of their states, which
//! replace the originals when the batch has its place in the log.
//!
//! The active tree of each tree that the batch names is frozen first, which has no visible effect.
//! So a copy is a stack, and a failed read leaves everything as it was.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::batch::Op;
use store::{Batch, Error, Result, TreeId, prefix_end};

use crate::core::Core;
use crate::layer::Stack;
use crate::mem::{Below, Known, Mem};
use crate::resolve::{Origin, malformed, merged};
use crate::tree::{State, Tree, push};

/// The state of a tree after the batch.
struct StagedTree {
    /// None for a tree that the batch creates.
    tree: Option<Arc<Tree>>,
    active: Mem,
    stack: Arc<Stack>,
    dropped: bool,
}

impl StagedTree {
    fn below(&self) -> Below {
        if self.stack.layers.is_empty() { Below::Nothing } else { Below::Layers }
    }

    fn value(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = None;
        match self.active.get(key)? {
            Known::Value(bytes) => value = Some(bytes.to_vec()),
            Known::Deleted => {}
            Known::Nothing => {
                self.stack.get(key, &mut |bytes| value = Some(bytes.to_vec()))?;
            }
        }
        Ok(value)
    }
}

/// The trees that a batch names.
pub(crate) struct Staging<'c> {
    core: &'c Core,
    origin: Origin,
    trees: BTreeMap<TreeId, StagedTree>,
}

impl<'c> Staging<'c> {
    /// The initial state. The caller holds the gate exclusively.
    pub(crate) fn new(core: &'c Core, origin: Origin) -> Staging<'c> {
        Staging { core, origin, trees: BTreeMap::new() }
    }

    fn tree(&mut self, id: u64) -> Result<&mut StagedTree> {
        let id = TreeId(id);
        if !self.trees.contains_key(&id) {
            let tree = self.core.tree(id)?;
            let stack = tree.freeze(&self.core.ids);
            let (active, dropped) = (Mem::default(), false);
            self.trees.insert(id, StagedTree { tree: Some(tree), active, stack, dropped });
        }
        let staged = self.trees.get_mut(&id).expect("invariant: it was inserted");
        if staged.dropped { Err(Error::NoTree(id)) } else { Ok(staged) }
    }

    fn add(&mut self, id: u64, active: Mem, stack: Arc<Stack>) -> Result<()> {
        let id = TreeId(id);
        if self.trees.contains_key(&id) || self.core.tree(id).is_ok() {
            return Err(Error::TreeExists(id));
        }
        self.trees.insert(id, StagedTree { tree: None, active, stack, dropped: false });
        Ok(())
    }

    /// Applies one operation.
    pub(crate) fn apply(&mut self, op: Op<'_>) -> Result<()> {
        match op {
            Op::Put { tree, key, value } => self.tree(tree)?.active.put(key, value),
            Op::Delete { tree, key } => {
                let tree = self.tree(tree)?;
                let below = tree.below();
                tree.active.delete(key, below);
            }
            Op::DeleteRange { tree, from, to } => {
                let tree = self.tree(tree)?;
                let below = tree.below();
                tree.active.delete_range(from, Some(to), below);
            }
            Op::Merge { tree, key, lanes } => {
                let origin = self.origin;
                let tree = self.tree(tree)?;
                let value = tree.value(key).map(|old| merged(old, &lanes));
                match origin.known(value)? {
                    Ok(value) => tree.active.put(key, &value),
                    Err(why) => tree.active.put_unknown(key, why),
                }
            }
            Op::CreateTree { tree } => self.add(tree, Mem::default(), Arc::default())?,
            Op::CloneTree { source, target, prefixes } => {
                let ids = &self.core.ids;
                let source = self.tree(source)?;
                if !source.active.is_empty() {
                    push(&mut source.stack, std::mem::take(&mut source.active), ids);
                }
                let stack = Arc::clone(&source.stack);
                let active = keep_prefixes(&stack, &prefixes);
                self.add(target, active, stack)?;
            }
            Op::DropTree { tree } => self.tree(tree)?.dropped = true,
            Op::Ingest { .. } | Op::Link { .. } => unreachable!("a plan refuses it"),
        }
        Ok(())
    }

    /// Installs the staged states; returns the bytes that they add, and the contents of dropped
    /// trees, to be freed when no thread waits for that.
    pub(crate) fn install(self) -> (usize, Vec<State>) {
        let core = self.core;
        let (mut added, mut gone) = (0, Vec::new());
        for (id, staged) in self.trees {
            added += staged.active.bytes();
            match (staged.tree, staged.dropped) {
                (Some(tree), true) => {
                    core.mark_changed(&tree);
                    tree.dropped.store(true, Ordering::Relaxed);
                    // The memory and the layers are freed with the last reader.
                    gone.push(std::mem::take(&mut *tree.state.write()));
                    core.trees.write().remove(&id);
                    core.drops.fetch_add(1, Ordering::Relaxed);
                }
                (Some(tree), false) => {
                    core.mark_changed(&tree);
                    let mut state = tree.state.write();
                    state.active = staged.active;
                    state.stack = staged.stack;
                }
                (None, true) => {}
                (None, false) => {
                    let tree = core.new_tree(id, staged.stack);
                    tree.state.write().active = staged.active;
                    core.mark_changed(&tree);
                    core.trees.write().insert(id, tree);
                }
            }
        }
        (added, gone)
    }
}

impl Core {
    /// Refuses a batch that could not be applied. The caller has the gate exclusively.
    pub(crate) fn check_batch(&self, batch: &Batch) -> Result<()> {
        let mut staging = Staging::new(self, Origin::Caller);
        for op in batch.ops() {
            staging.apply(op.map_err(malformed)?)?;
        }
        Ok(())
    }
}

/// The ranges that hide all keys except those that begin with one of the prefixes, if there are
/// any.
fn keep_prefixes(stack: &Stack, prefixes: &[&[u8]]) -> Mem {
    let mut mem = Mem::default();
    if prefixes.is_empty() || stack.layers.is_empty() {
        return mem;
    }
    let mut from = Some(Vec::new());
    for prefix in prefixes {
        if let Some(from) = &from {
            mem.delete_range(from, Some(prefix), Below::Layers);
        }
        from = prefix_end(prefix);
    }
    if let Some(from) = &from {
        mem.delete_range(from, None, Below::Layers);
    }
    mem
}
