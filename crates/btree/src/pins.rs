//! Which pins there are, and which trees were read through them.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::tree::{States, Tree};

/// Live pins, numbered in order.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    last: u64,
    /// Each with its states of trees that differ from its catalog.
    pub(crate) live: BTreeMap<u64, [Arc<States>; 2]>,
}

impl Pins {
    /// Adds one.
    pub(crate) fn add(&mut self) -> u64 {
        self.last += 1;
        self.live.insert(self.last, Default::default());
        self.last
    }

    /// The next map of states of a pin, starting with the given map of the given pin.
    pub(crate) fn states_from(&self, from: (u64, usize)) -> Option<((u64, usize), Arc<States>)> {
        let here = self.live.get(&from.0).and_then(|states| Some((from, states.get(from.1)?)));
        let next =
            || self.live.range(from.0 + 1..).next().map(|(&pin, [first, _])| ((pin, 0), first));
        here.or_else(next).map(|(at, states)| (at, Arc::clone(states)))
    }

    /// The oldest pin; greater than all pins when there is none.
    pub(crate) fn oldest(&self) -> u64 {
        self.live.first_key_value().map_or(u64::MAX, |(&pin, _)| pin)
    }

    /// The number of the last pin that was made.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Whether there is a pin that was made after the given one.
    pub(crate) fn any_after(&self, pin: u64) -> bool {
        self.newest().is_some_and(|newest| newest > pin)
    }

    /// The newest pin.
    pub(crate) fn newest(&self) -> Option<u64> {
        self.live.last_key_value().map(|(&pin, _)| pin)
    }
}

/// Trees of pinned states that were read, for unloading their nodes in memory.
#[derive(Debug, Default)]
pub(crate) struct PinnedTrees {
    trees: Vec<Weak<Tree>>,
    /// Length from which on dropped trees are swept out.
    sweep_at: usize,
    /// The tree to unload next, and the part of it.
    at: (usize, usize),
}

impl PinnedTrees {
    /// Adds one.
    pub(crate) fn add(&mut self, tree: &Arc<Tree>) {
        if self.trees.len() >= self.sweep_at {
            self.trees.retain(|tree| tree.strong_count() > 0);
            self.sweep_at = self.trees.len() * 2 + 64;
        }
        self.trees.push(Arc::downgrade(tree));
    }

    /// The next tree, and the part of it; `None` when no tree is left.
    pub(crate) fn next(&mut self) -> Option<(Arc<Tree>, usize)> {
        for _ in 0..=self.trees.len() {
            let (at, part) = self.at;
            if let Some(tree) = self.trees.get(at).and_then(Weak::upgrade) {
                self.at = (at, part + 1);
                return Some((tree, part));
            }
            self.at = (if at < self.trees.len() { at + 1 } else { 0 }, 0);
        }
        None
    }

    /// Notes that the tree had no further part.
    pub(crate) fn ended(&mut self) {
        self.at = (self.at.0 + 1, 0);
    }
}
