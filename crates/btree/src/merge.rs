//! Rebalances an underfull child: it is merged with a sibling, or the two share evenly.
//!
//! A thread that changes a tree holds it exclusively, and all its readers wait; so only a sibling
//! in memory is used. Where none is in memory, the child stays underfull for the moment. The thread
//! reads a sibling after it has released the tree (`underfull`).
//!
//! A sibling that cannot be read leaves the child underfull. That wastes a little space and is
//! harmless, while failing the operation, which is in the log already, would not be.

use store::Result;

use crate::cell::Interior;
use crate::entries::separator;
use crate::limits::MERGE_MAX;
use crate::nodes::{Nodes, unread};

/// Where siblings are taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Siblings {
    /// Memory only: other threads wait for the locks of this one.
    InMemory,
    /// The disk too: no other thread waits.
    Anywhere,
}

/// The result of rebalancing.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rebalanced {
    /// No node is underfull any more, except where siblings cannot be read.
    Now,
    /// A node may be underfull: no sibling of it is in memory.
    Later,
}

impl Rebalanced {
    /// The result of two rebalancings.
    pub(crate) fn and(self, other: Rebalanced) -> Rebalanced {
        if self == Rebalanced::Now { other } else { self }
    }
}

/// The left one of the child and the sibling that it is rebalanced with, if a sibling is available.
fn left_of(parent: &Interior, at: usize, siblings: Siblings) -> Option<usize> {
    let had = |&sibling: &usize| {
        siblings == Siblings::Anywhere || unread(&parent.children[sibling]).is_none()
    };
    let right = (at + 1 < parent.children.len()).then_some(at + 1);
    let sibling = right.filter(had).or_else(|| at.checked_sub(1).filter(had))?;
    Some(sibling.min(at))
}

/// Rebalances a child with a sibling, if that is in memory or may be read.
fn rebalance(
    parent: &mut Interior,
    at: usize,
    siblings: Siblings,
    with_next: impl FnOnce(&mut Interior, usize) -> Result<()>,
) -> Rebalanced {
    let Some(left) = left_of(parent, at, siblings) else { return Rebalanced::Later };
    if let Err(error) = with_next(parent, left) {
        tracing::warn!(%error, "a node stays underfull because its sibling cannot be read");
    }
    Rebalanced::Now
}

impl Nodes {
    /// Rebalances the leaf that is child `at`. The parent can lose a child.
    pub(crate) fn rebalance_leaf(
        &self,
        parent: &mut Interior,
        at: usize,
        siblings: Siblings,
    ) -> Rebalanced {
        rebalance(parent, at, siblings, |parent, left| self.try_rebalance_leaf(parent, left))
    }

    /// Rebalances a leaf with the one behind it; either may be underfull.
    fn try_rebalance_leaf(&self, parent: &mut Interior, at: usize) -> Result<()> {
        let (first, second) = parent.children.split_at_mut(at + 1);
        let mut right = self.own_leaf(&mut second[0])?;
        let mut left = self.own_leaf(&mut first[at])?;
        let (from, into) = (right.data_mut(), left.data_mut());
        into.extend(from);
        let weight = into.entries.weight();
        if weight <= MERGE_MAX {
            left.recharge();
            drop((left, right));
            parent.keys.remove(at);
            parent.children.remove(at + 1);
            return Ok(());
        }
        let middle = into.entries.split_point(weight / 2);
        *from = into.extract(middle, into.entries.len());
        *into = into.extract(0, middle);
        let between = separator(&into.entries.key(middle - 1), &from.entries.key(0));
        left.recharge();
        right.recharge();
        drop((left, right));
        parent.set_separator(at, &between);
        Ok(())
    }

    /// Rebalances the interior node that is child `at`. The parent can lose a child.
    pub(crate) fn rebalance_interior(
        &self,
        parent: &mut Interior,
        at: usize,
        siblings: Siblings,
    ) -> Rebalanced {
        rebalance(parent, at, siblings, |parent, left| self.try_rebalance_interior(parent, left))
    }

    /// Rebalances an interior node with the one behind it; either may be underfull.
    fn try_rebalance_interior(&self, parent: &mut Interior, at: usize) -> Result<()> {
        let below = parent.level - 1;
        let key = parent.keys.key(at);
        let (first, second) = parent.children.split_at_mut(at + 1);
        let right = self.own_interior(&mut second[0], below)?;
        let left = self.own_interior(&mut first[at], below)?;
        left.append(&key, right);
        if left.weight() <= MERGE_MAX {
            parent.keys.remove(at);
            parent.children.remove(at + 1);
            return Ok(());
        }
        let (between, half) = left.halve();
        *right = half;
        parent.set_separator(at, &between);
        Ok(())
    }
}
