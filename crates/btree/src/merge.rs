//! Mending a child that is too light: it becomes one with a sibling, or they share evenly.
//!
//! A sibling that cannot be read leaves the child light: that costs a little room and harms
//! nothing, while failing the operation, which is in the log already, would.

use store::Result;

use crate::cell::Interior;
use crate::entries::separator;
use crate::limits::MERGE_MAX;
use crate::nodes::Nodes;

/// The left one of the child and the sibling that it is mended with.
fn left_of(parent: &Interior, at: usize) -> usize {
    if at + 1 < parent.children.len() { at } else { at - 1 }
}

impl Nodes {
    /// Mends the leaf that is child `at`. The parent can lose a child.
    pub(crate) fn mend_leaf(&self, parent: &mut Interior, at: usize) {
        if let Err(error) = self.try_mend_leaf(parent, at) {
            tracing::warn!(%error, "a leaf stays light because its sibling cannot be read");
        }
    }

    fn try_mend_leaf(&self, parent: &mut Interior, at: usize) -> Result<()> {
        let at = left_of(parent, at);
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

    /// Mends the interior node that is child `at`. The parent can lose a child.
    pub(crate) fn mend_interior(&self, parent: &mut Interior, at: usize) {
        if let Err(error) = self.try_mend_interior(parent, at) {
            tracing::warn!(%error, "a node stays light because its sibling cannot be read");
        }
    }

    fn try_mend_interior(&self, parent: &mut Interior, at: usize) -> Result<()> {
        let (at, below) = (left_of(parent, at), parent.level - 1);
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
