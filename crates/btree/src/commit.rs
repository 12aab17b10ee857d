//! Committing a batch.
//!
//! 1. Load the nodes that the batch's keys need, without holding any lock (`ensure`). Skipped when
//!    all of them are in memory, which step 3 verifies. Repeated if something was evicted before
//!    step 2 was done.
//! 2. Enter the gate: shared, or exclusive when the batch makes, clones or drops trees or removes
//!    ranges. Nothing is evicted while a thread is inside.
//! 3. Shared: lock the stripes of its keys, shared where it only adds. Check again that everything
//!    is in memory.
//! 4. Append to the log. This may refuse the batch, and then nothing happened; after it nothing can
//!    fail.
//! 5. Apply. Leave the gate. Wait for the disk where the durability mode requires it.
//! 6. Rebalance underfull nodes that had no sibling in memory (`underfull`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::batch::{Op, Ops, foreign};
use store::{Batch, CommitToken, Error, LogSpace, Result, TreeId, prefix_end};

use crate::core::Core;
use crate::gate::Gate;
use crate::leaf::Change;
use crate::merge::{Rebalanced, Siblings};
use crate::plan::{Plan, Step, malformed};
use crate::range_delete::Range;
use crate::tree::{Root, Tree};
use crate::underfull::Underfull;
use crate::write::InPlace;

/// Nodes loaded before the gate may be evicted before it is entered. After this many attempts they
/// are loaded inside.
const LOADS_MAX: usize = 3;

/// The tree that was used last: most batches name few trees.
#[derive(Default)]
pub(crate) struct Last(Option<Arc<Tree>>);

impl Last {
    #[inline]
    fn tree(&mut self, core: &Core, id: u64) -> Result<&Arc<Tree>> {
        if self.0.as_ref().is_none_or(|tree| tree.id.0 != id) {
            self.0 = Some(core.tree(TreeId(id))?);
        }
        Ok(self.0.as_ref().expect("invariant: it was set"))
    }
}

impl Core {
    /// Commits a batch.
    pub(crate) fn commit(&self, batch: &Batch) -> Result<CommitToken> {
        if batch.is_empty() {
            return Ok(CommitToken(self.log().last()));
        }
        self.journal.check_open()?;
        batch.check().map_err(|_| Error::NoSpace("one log record"))?;
        let mut plan = Plan::of(batch)?;
        self.keep_dirty(plan.frees_space())?;
        self.keep_space(plan.need)?;
        let mut underfull = Underfull::default();
        let token = match self.commit_warm(batch, &mut plan, &mut underfull)? {
            Some(token) => token,
            None => self.commit_any(batch, &mut plan, &mut underfull)?,
        };
        self.log().committed(token.0)?;
        self.rebalance_underfull(&underfull);
        self.shrink();
        self.settle();
        Ok(token)
    }

    /// Commits a batch of changes to keys that are in memory, without adding a reference to their
    /// trees. Two threads that add one would write to the same cache line. Returns `None` when the
    /// batch is of another kind; then nothing happened.
    #[inline]
    fn commit_warm(
        &self,
        batch: &Batch,
        plan: &mut Plan<'_>,
        underfull: &mut Underfull,
    ) -> Result<Option<CommitToken>> {
        if plan.alone {
            return Ok(None);
        }
        let _gate = self.gate.read();
        let _locks = self.stripes.lock(&mut plan.wanted);
        if !self.are_ready(&plan.steps)? {
            return Ok(None);
        }
        // Not while holding the set of trees shared: this may wait for the disk. A thread that
        // waits for the set exclusively would then block all readers.
        let lsn = self.append(batch, plan)?;
        let trees = self.trees.read();
        let mut last: Option<&Arc<Tree>> = None;
        for step in &plan.steps {
            let tree = match last {
                Some(tree) if tree.id.0 == step.tree => tree,
                _ => trees
                    .get(&TreeId(step.tree))
                    .expect("invariant: no tree goes while a commit is in the gate"),
            };
            self.applied(self.change(tree, step.key, step.change, underfull))?;
            last = Some(tree);
        }
        Ok(Some(CommitToken(lsn)))
    }

    /// Whether everything that the steps need is in memory. It stays there, and the trees stay
    /// open, because the caller is inside the gate.
    #[inline]
    fn are_ready(&self, steps: &[Step<'_>]) -> Result<bool> {
        let evicted = self.evictions.load(Ordering::Relaxed) != 0;
        let trees = self.trees.read();
        let mut last: Option<&Arc<Tree>> = None;
        for step in steps {
            let tree = match last {
                Some(tree) if tree.id.0 == step.tree => tree,
                _ => {
                    let Some(tree) = trees.get(&TreeId(step.tree)) else { return Ok(false) };
                    tree.touch();
                    if tree.dropped.load(Ordering::Relaxed) {
                        return Err(Error::NoTree(tree.id));
                    }
                    tree
                }
            };
            let whole = !evicted && tree.resident.load(Ordering::Relaxed);
            if !whole && !tree.has_ready(step.key, matches!(step.change, Change::Merge(_))) {
                return Ok(false);
            }
            last = Some(tree);
        }
        Ok(true)
    }

    /// Commits any batch.
    fn commit_any(
        &self,
        batch: &Batch,
        plan: &mut Plan<'_>,
        underfull: &mut Underfull,
    ) -> Result<CommitToken> {
        if plan.alone {
            let load = || self.check(batch).and_then(|()| self.ensure(batch));
            let _gate = self.load_and_enter(|gate| gate.between_commits(), load)?;
            // Other threads may have moved the edges of a range. In most cases everything is in
            // memory.
            load()?;
            self.log_and_apply(batch, plan, underfull)
        } else {
            let _gate = self.load_and_enter(|gate| gate.read(), || self.ensure(batch))?;
            let _locks = self.stripes.lock(&mut plan.wanted);
            self.check(batch)?;
            self.log_and_apply(batch, plan, underfull)
        }
    }

    /// Enters the gate once everything that `load` loads is in memory. Nothing is evicted inside.
    pub(crate) fn load_and_enter<'c, G>(
        &'c self,
        enter: impl Fn(&'c Gate) -> G,
        load: impl Fn() -> Result<()>,
    ) -> Result<G> {
        for _ in 0..LOADS_MAX {
            let evictions = self.evictions.load(Ordering::Relaxed);
            load()?;
            let gate = enter(&self.gate);
            if self.evictions.load(Ordering::Relaxed) == evictions {
                return Ok(gate);
            }
        }
        // Other threads evict as fast as this one loads.
        let gate = enter(&self.gate);
        load()?;
        Ok(gate)
    }

    /// Appends a batch to the log. Called inside the gate, so that `close`, which passes the gate,
    /// sees every batch that was appended.
    fn append(&self, batch: &Batch, plan: &Plan<'_>) -> Result<store::Lsn> {
        self.journal.check_open()?;
        let space = if plan.frees_space() { LogSpace::Reserve } else { LogSpace::Normal };
        self.log().append(batch.as_bytes(), space)
    }

    /// Handles the result of applying a batch that is in the log.
    fn applied(&self, done: Result<()>) -> Result<()> {
        if let Err(error) = &done {
            // Everything was loaded before, so this is a disk that fails between two reads.
            self.log().fail(&format!("a commit could not be applied: {error}"));
        }
        done
    }

    fn log_and_apply(
        &self,
        batch: &Batch,
        plan: &Plan<'_>,
        underfull: &mut Underfull,
    ) -> Result<CommitToken> {
        let lsn = self.append(batch, plan)?;
        self.applied(self.apply(batch.as_bytes(), underfull))?;
        Ok(CommitToken(lsn))
    }

    /// Refuses a batch that names an absent tree, or makes one that exists.
    pub(crate) fn check(&self, batch: &Batch) -> Result<()> {
        let mut last = Last::default();
        // Trees that the batch itself makes and drops.
        let mut own: Vec<(u64, bool)> = Vec::new();
        for op in batch.ops() {
            let (named, made) = match op.map_err(malformed)? {
                Op::Put { tree, .. }
                | Op::Delete { tree, .. }
                | Op::DeleteRange { tree, .. }
                | Op::Merge { tree, .. }
                | Op::Ingest { tree, .. }
                | Op::Link { tree, .. } => (Some(tree), None),
                Op::DropTree { tree } => {
                    self.check_named(&mut last, &own, tree)?;
                    own.push((tree, false));
                    continue;
                }
                Op::CreateTree { tree } => (None, Some(tree)),
                Op::CloneTree { source, target, .. } => (Some(source), Some(target)),
            };
            if let Some(named) = named {
                self.check_named(&mut last, &own, named)?;
            }
            if let Some(made) = made {
                let mine = own.iter().rev().find(|(tree, _)| *tree == made);
                let exists = mine.map_or_else(|| self.exists(TreeId(made)), |own| Ok(own.1))?;
                if exists || self.trees.read().contains_key(&TreeId(made)) {
                    return Err(Error::TreeExists(TreeId(made)));
                }
                own.push((made, true));
            }
        }
        Ok(())
    }

    #[inline]
    fn check_named(&self, last: &mut Last, own: &[(u64, bool)], tree: u64) -> Result<()> {
        match own.iter().rev().find(|(own, _)| *own == tree) {
            Some((_, true)) => Ok(()),
            Some((_, false)) => Err(Error::NoTree(TreeId(tree))),
            None => last.tree(self, tree).map(|_| ()),
        }
    }

    /// Applies a batch whose record is in the log. The caller has locked everything that the batch
    /// touches, and rebalances the nodes in `underfull` after it has released the locks.
    pub(crate) fn apply(&self, bytes: &[u8], underfull: &mut Underfull) -> Result<()> {
        let last_tree = &mut Last::default();
        for op in Ops::new(bytes) {
            self.apply_op(&op.map_err(malformed)?, last_tree, underfull)?;
        }
        Ok(())
    }

    /// Applies one operation of it.
    #[inline]
    pub(crate) fn apply_op(
        &self,
        op: &Op<'_>,
        last_tree: &mut Last,
        underfull: &mut Underfull,
    ) -> Result<()> {
        match *op {
            Op::Put { tree, key, value } => {
                self.change(last_tree.tree(self, tree)?, key, Change::Put(value), underfull)
            }
            Op::Delete { tree, key } => {
                self.change(last_tree.tree(self, tree)?, key, Change::Delete, underfull)
            }
            Op::Merge { tree, key, lanes } => {
                self.change(last_tree.tree(self, tree)?, key, Change::Merge(lanes), underfull)
            }
            _ => self.apply_to_tree(op, last_tree, underfull),
        }
    }

    fn apply_to_tree(
        &self,
        op: &Op<'_>,
        last_tree: &mut Last,
        underfull: &mut Underfull,
    ) -> Result<()> {
        match *op {
            Op::DeleteRange { tree, from, to } => {
                let tree = last_tree.tree(self, tree)?;
                self.mark_changed(tree);
                let range = Range { from, to: Some(to) };
                let mut cut = Vec::new();
                let done = self.nodes.delete_range(&mut tree.state.write(), range, &mut cut);
                self.graveyard.lock().extend(cut);
                let rebalanced = done?;
                underfull.note(tree, from, rebalanced);
                underfull.note(tree, to, rebalanced);
            }
            Op::CreateTree { tree } => {
                let root = Root::empty(&self.nodes.budget);
                self.add_tree(Tree::new(TreeId(tree), root, true));
            }
            Op::CloneTree { source, target, ref prefixes } => {
                let source = last_tree.tree(self, source)?;
                let root = source.state.read().clone();
                let resident = source.resident.load(Ordering::Relaxed);
                let (root, rebalanced) = self.keep_prefixes(root, prefixes)?;
                let tree = self.add_tree(Tree::new(TreeId(target), root, resident));
                for prefix in prefixes {
                    underfull.note(&tree, prefix, rebalanced);
                    underfull.note(&tree, &prefix_end(prefix).unwrap_or_default(), rebalanced);
                }
            }
            Op::Ingest { tree, first, last, ref leaves } => {
                self.graft(last_tree.tree(self, tree)?, first, last, leaves, underfull)?;
            }
            Op::Link { .. } => return Err(malformed(foreign())),
            Op::DropTree { tree } => {
                self.drop_tree(&self.tree(TreeId(tree))?);
                *last_tree = Last::default();
            }
            Op::Put { .. } | Op::Delete { .. } | Op::Merge { .. } => {
                unreachable!("these change one key")
            }
        }
        Ok(())
    }

    #[inline]
    fn change(
        &self,
        tree: &Arc<Tree>,
        key: &[u8],
        change: Change<'_>,
        underfull: &mut Underfull,
    ) -> Result<()> {
        #[cfg(test)]
        self.gate.probe.before_change();
        match tree.change_in_place(&self.nodes, key, change) {
            InPlace::Done => return Ok(()),
            // The leaf is changed already, so its tree is marked.
            InPlace::TooFull => {
                if tree.split_ahead(&self.nodes, key)
                    && matches!(tree.change_in_place(&self.nodes, key, change), InPlace::Done)
                {
                    return Ok(());
                }
            }
            InPlace::Not => {}
        }
        self.mark_changed(tree);
        let root = &mut tree.state.write();
        let rebalanced = self.nodes.change_with(root, key, change, Siblings::InMemory)?;
        underfull.note(tree, key, rebalanced);
        Ok(())
    }

    pub(crate) fn add_tree(&self, tree: Tree) -> Arc<Tree> {
        let tree = Arc::new(tree);
        self.mark_changed(&tree);
        self.tree_count.fetch_add(1, Ordering::Relaxed);
        self.insert_tree(&mut self.trees.write(), &tree);
        tree
    }

    /// Removes the tree for all readers; the nodes that it alone had are freed step by step.
    fn drop_tree(&self, tree: &Arc<Tree>) {
        tree.dropped.store(true, Ordering::Relaxed);
        self.mark_changed(tree);
        let empty = Root::empty(&self.nodes.budget);
        let root = std::mem::replace(&mut *tree.state.write(), empty);
        self.graveyard.lock().extend(root.child.cell.into_inner());
        self.tree_count.fetch_sub(1, Ordering::Relaxed);
        self.drops_pending.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes the keys between the prefixes of a partial clone.
    fn keep_prefixes(&self, mut root: Root, prefixes: &[&[u8]]) -> Result<(Root, Rebalanced)> {
        let mut rebalanced = Rebalanced::Now;
        if prefixes.is_empty() {
            return Ok((root, rebalanced));
        }
        let mut cut = Vec::new();
        let mut from = Some(Vec::new());
        for prefix in prefixes {
            if let Some(from) = &from {
                let range = Range { from, to: Some(prefix) };
                rebalanced = rebalanced.and(self.nodes.delete_range(&mut root, range, &mut cut)?);
            }
            from = prefix_end(prefix);
        }
        if let Some(from) = &from {
            let range = Range { from, to: None };
            rebalanced = rebalanced.and(self.nodes.delete_range(&mut root, range, &mut cut)?);
        }
        self.graveyard.lock().extend(cut);
        Ok((root, rebalanced))
    }
}

#[cfg(test)]
mod tests {
    use store::{Commit, Durable};

    use super::*;
    use crate::{BtreeStore, Options};

    #[test]
    fn a_commit_after_the_end_of_the_log_is_refused() {
        let sim = testing::sim_env(1);
        let store = BtreeStore::create(&sim.env(), &Options::default()).unwrap();
        let mut batch = Batch::new();
        batch.create_tree(TreeId(32));
        store.commit(&batch).unwrap();
        let mut batch = Batch::new();
        batch.put(TreeId(32), b"key", b"value");
        // The thread has seen that the store is open, and the log is closed before it gets there.
        let mut plan = Plan::of(&batch).unwrap();
        store.close().unwrap();
        let last = store.last_commit();
        let underfull = &mut Underfull::default();
        let refused = store.engine().commit_warm(&batch, &mut plan, underfull).unwrap_err();
        assert!(matches!(refused, Error::ReadOnly(_)), "{refused}");
        let refused = store.engine().commit_any(&batch, &mut plan, underfull).unwrap_err();
        assert!(matches!(refused, Error::ReadOnly(_)), "{refused}");
        assert_eq!((store.last_commit(), store.durable()), (last, last));
    }
}
