//! Repairing a child that is too light: it becomes one with a sibling, or they share evenly.
//!
//! Whoever changes a tree has it exclusively, and all who read it wait; so a sibling is taken that
//! is in memory. Where none is, the child stays light for the moment, and whoever changed it reads
//! one when he has let go (`light`).
//!
//! A sibling that cannot be read leaves the child light: that costs a little room and harms
//! nothing, while failing the operation, which is in the log already, would.

use store::Result;

use crate::ahead::unread;
use crate::cell::Interior;
use crate::entries::separator;
use crate::limits::MERGE_MAX;
use crate::nodes::Nodes;

/// Where siblings are taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Siblings {
    /// Memory: others wait for what this thread has.
    InMemory,
    /// The disk too: nobody does.
    Anywhere,
}

/// What became of what was light.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mended {
    /// Nothing is light any more, but for siblings that cannot be read.
    Now,
    /// Something may be: no sibling of it is in memory.
    Later,
}

impl Mended {
    /// What became of two.
    pub(crate) fn and(self, other: Mended) -> Mended {
        if self == Mended::Now { other } else { self }
    }
}

/// The left one of the child and the sibling that it is rebalanced with, if there is one to be had.
fn left_of(parent: &Interior, at: usize, siblings: Siblings) -> Option<usize> {
    let had = |&sibling: &usize| {
        siblings == Siblings::Anywhere || unread(&parent.children[sibling]).is_none()
    };
    let right = (at + 1 < parent.children.len()).then_some(at + 1);
    let sibling = right.filter(had).or_else(|| at.checked_sub(1).filter(had))?;
    Some(sibling.min(at))
}

impl Nodes {
    /// Repairs the leaf that is child `at`. The parent can lose a child.
    pub(crate) fn mend_leaf(&self, parent: &mut Interior, at: usize, siblings: Siblings) -> Mended {
        let Some(left) = left_of(parent, at, siblings) else { return Mended::Later };
        if let Err(error) = self.try_mend_leaf(parent, left) {
            tracing::warn!(%error, "a leaf stays light because its sibling cannot be read");
        }
        Mended::Now
    }

    /// Repairs a leaf, or the one behind it, with the other.
    fn try_mend_leaf(&self, parent: &mut Interior, at: usize) -> Result<()> {
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

    /// Repairs the interior node that is child `at`. The parent can lose a child.
    pub(crate) fn mend_interior(
        &self,
        parent: &mut Interior,
        at: usize,
        siblings: Siblings,
    ) -> Mended {
        let Some(left) = left_of(parent, at, siblings) else { return Mended::Later };
        if let Err(error) = self.try_mend_interior(parent, left) {
            tracing::warn!(%error, "a node stays light because its sibling cannot be read");
        }
        Mended::Now
    }

    /// Repairs an interior node, or the one behind it, with the other.
    fn try_mend_interior(&self, parent: &mut Interior, at: usize) -> Result<()> {
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
