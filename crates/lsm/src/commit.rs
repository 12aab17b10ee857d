//! Committing a batch.
//!
//! 1. Read what merges change, holding nothing, so that it is in memory or an error.
//! 2. Enter the gate: shared, or exclusive when the batch makes, clones or drops trees.
//! 3. Shared: lock the trees that it changes, in order (BabuDB II.D: one writer an index). Work
//!    out the values of merges.
//! 4. Append to the log. This may refuse the batch, and then nothing happened; after it nothing
//!    can fail.
//! 5. Apply. Leave. Wait for the sync if the mode requires it.
//!
//! A batch that makes, clones or drops trees is applied to a staged copy first (`staged`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::sync::MutexGuard;
use format::batch::{Op, Ops, foreign};
use store::{Batch, CommitToken, Error, LogSpace, Lsn, Need, Result, TreeId};

use crate::core::Core;
use crate::resolve::{Origin, Resolver, changed_tree, find, malformed};
use crate::staged::Staging;
use crate::tree::Tree;

/// What is known of a batch before it is applied.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Whether it must be alone.
    alone: bool,
    merges: usize,
    /// The space that the caller declares it needs.
    need: Need,
    /// The trees that it changes, ascending.
    trees: Vec<TreeId>,
}

impl Plan {
    /// Whether the batch frees space, so that it may use the reserve.
    fn frees_space(&self) -> bool {
        self.need != Need::Adds
    }
}

/// Inspects a batch.
pub(crate) fn plan(ops: Ops<'_>) -> Result<Plan> {
    let mut plan = Plan::default();
    for op in ops {
        let tree = match op.map_err(malformed)? {
            Op::Put { tree, .. } | Op::Delete { tree, .. } | Op::DeleteRange { tree, .. } => tree,
            Op::Merge { tree, .. } => {
                plan.merges += 1;
                tree
            }
            Op::DropTree { .. } | Op::CreateTree { .. } | Op::CloneTree { .. } => {
                plan.alone = true;
                continue;
            }
            // Replay handles links before it reaches this.
            Op::Ingest { .. } | Op::Link { .. } => return Err(malformed(foreign())),
        };
        if plan.trees.last() != Some(&TreeId(tree)) {
            plan.trees.push(TreeId(tree));
        }
    }
    plan.trees.sort_unstable();
    plan.trees.dedup();
    Ok(plan)
}

impl Core {
    /// Commits a batch.
    pub(crate) fn commit(&self, batch: &Batch) -> Result<CommitToken> {
        if batch.is_empty() {
            return Ok(CommitToken(self.log().last()));
        }
        batch.check().map_err(|_| Error::NoSpace("one log record"))?;
        let plan = Plan { need: batch.need(), ..plan(batch.ops())? };
        self.admit(plan.frees_space())?;
        let apply = || self.apply(batch.as_bytes(), &plan, Origin::Caller);
        let lsn = match apply() {
            Err(error) if error.is_no_space() && plan.frees_space() => {
                self.relieve_log()?;
                apply()?
            }
            applied => applied?,
        };
        self.log().committed(lsn)?;
        Ok(CommitToken(lsn))
    }

    /// Refuses a commit if there is no space for it, in memory or for the next checkpoint.
    pub(crate) fn admit(&self, frees: bool) -> Result<()> {
        self.journal.check_open()?;
        self.keep_memory(frees)?;
        if frees { Ok(()) } else { self.keep_space() }
    }

    /// Logs and applies a batch.
    pub(crate) fn apply(&self, bytes: &[u8], plan: &Plan, origin: Origin) -> Result<Lsn> {
        if plan.merges > 0 && matches!(origin, Origin::Caller) {
            self.read_ahead(bytes)?;
        }
        if plan.alone {
            return self.apply_alone(bytes, plan, origin);
        }
        let _gate = self.gate.read();
        self.apply_in_gate(bytes, plan, origin)
    }

    /// Logs and applies a batch of changes. The caller is in the gate.
    pub(crate) fn apply_in_gate(&self, bytes: &[u8], plan: &Plan, origin: Origin) -> Result<Lsn> {
        let trees: Vec<Arc<Tree>> =
            plan.trees.iter().map(|&id| self.tree(id)).collect::<Result<_>>()?;
        let _locks: Vec<MutexGuard<'_, ()>> = trees.iter().map(|tree| tree.commit.lock()).collect();
        let resolver = Resolver::new(bytes, plan.merges, &trees, origin)?;
        let lsn = self.number(bytes, plan, origin)?;
        let added = self.change(bytes, &trees, resolver)?;
        self.dirty.fetch_add(added, Ordering::Relaxed);
        Ok(lsn)
    }

    /// Gives a batch its place in the log. The caller is in the gate: either closing waits for it,
    /// or it gets the error that the store was closed.
    fn number(&self, bytes: &[u8], plan: &Plan, origin: Origin) -> Result<Lsn> {
        if matches!(origin, Origin::Caller) {
            self.journal.check_open()?;
        }
        match origin {
            Origin::Caller if plan.frees_space() => self.log().append(bytes, LogSpace::Reserve),
            Origin::Caller => self.log().append(bytes, LogSpace::Normal),
            Origin::Log(lsn) => {
                self.journal.replayed_to(lsn);
                Ok(lsn)
            }
        }
    }

    /// Applies a batch of changes to trees that are locked; returns the bytes that it added.
    fn change(&self, bytes: &[u8], trees: &[Arc<Tree>], mut resolver: Resolver) -> Result<usize> {
        let mut ops = Ops::new(bytes).peekable();
        let mut added = 0;
        while let Some(op) = ops.peek() {
            let tree =
                find(trees, changed_tree(op.as_ref().map_err(|bad| malformed(bad.clone()))?));
            self.mark_changed(tree);
            let mut state = tree.state.write();
            let below = state.below();
            let before = state.active.bytes();
            while let Some(Ok(op)) = ops.peek()
                && changed_tree(op) == tree.id
            {
                let Some(op) = ops.next() else { break };
                match op.map_err(malformed)? {
                    Op::Put { key, value, .. } => state.active.put(key, value),
                    Op::Delete { key, .. } => state.active.delete(key, below),
                    Op::DeleteRange { from, to, .. } => {
                        state.active.delete_range(from, Some(to), below);
                    }
                    Op::Merge { key, .. } => match resolver.next_value() {
                        Ok(value) => state.active.put(key, value),
                        Err(why) => state.active.put_unknown(key, why.clone()),
                    },
                    _ => unreachable!("all others want to be alone"),
                }
            }
            added += state.active.bytes().saturating_sub(before);
        }
        Ok(added)
    }

    /// Reads the keys that are merged into, so that their blocks are in memory.
    fn read_ahead(&self, bytes: &[u8]) -> Result<()> {
        for op in Ops::new(bytes) {
            if let Op::Merge { tree, key, .. } = op.map_err(malformed)?
                && let Ok(tree) = self.tree(TreeId(tree))
            {
                tree.get(key, &mut |_| ())?;
            }
        }
        Ok(())
    }

    fn apply_alone(&self, bytes: &[u8], plan: &Plan, origin: Origin) -> Result<Lsn> {
        let gate = self.gate.write();
        let mut staging = Staging::new(self, origin);
        for op in Ops::new(bytes) {
            staging.apply(op.map_err(malformed)?)?;
        }
        let lsn = self.number(bytes, plan, origin)?;
        let (added, gone) = staging.install();
        self.dirty.fetch_add(added, Ordering::Relaxed);
        drop(gate);
        drop(gone);
        Ok(lsn)
    }
}
