//! Exchanges layers for equivalent ones, in every tree that has them.
//!
//! The engine does not search all trees for them. `candidates` knows the trees that did not change
//! since the durable state, and only the others are searched. The durable trees are exchanged with
//! the rest, so the next plan sees the present layers. The manifest still names the old layers,
//! which are equivalent.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::Map;
use store::TreeId;

use crate::candidates::{CompactionCandidates, Made};
use crate::core::Core;
use crate::durable::Exchange;
use crate::layer::{Layer, Stack};

/// Exchanges layers in stacks. Equal stacks stay one shared stack.
pub(crate) struct Exchanger<'a> {
    exchanges: &'a [Exchange],
    /// The exchanges that begin with a layer, by its address.
    by_first: Map<usize, Vec<usize>>,
    /// By the address of the old stack, which is held so that it stays taken.
    done: Map<usize, (Arc<Stack>, Arc<Stack>)>,
}

impl<'a> Exchanger<'a> {
    pub(crate) fn new(exchanges: &'a [Exchange]) -> Exchanger<'a> {
        let mut by_first: Map<usize, Vec<usize>> = Map::default();
        for (at, exchange) in exchanges.iter().enumerate() {
            let first = exchange.old.first().map(address);
            by_first.entry(first.unwrap_or_default()).or_default().push(at);
        }
        Exchanger { exchanges, by_first, done: Map::default() }
    }

    /// The durable trees that have anything to exchange.
    fn durable_trees(&self, candidates: &CompactionCandidates) -> BTreeSet<TreeId> {
        let mut found = BTreeSet::new();
        for first in self.exchanges.iter().filter_map(|exchange| exchange.old.first()) {
            candidates.trees_with(first.id, &mut found);
        }
        found
    }

    /// The stack with new layers in the place of old ones.
    pub(crate) fn apply(&mut self, stack: &Arc<Stack>) -> Arc<Stack> {
        if stack.layers.is_empty() {
            return Arc::clone(stack);
        }
        let place = Arc::as_ptr(stack) as usize;
        if let Some((_, now)) = self.done.get(&place) {
            return Arc::clone(now);
        }
        let mut now = Arc::clone(stack);
        // In the order in which they were made, also if one exchange uses the result of another.
        let begin =
            |layer: &Arc<Layer>| self.by_first.get(&address(layer)).into_iter().flatten().copied();
        let mut due: BTreeSet<usize> = stack.layers.iter().flat_map(begin).collect();
        while let Some(at) = due.pop_first() {
            let exchange = &self.exchanges[at];
            if let Some(replaced) = now.replaced(&exchange.old, exchange.new.as_ref()) {
                now = Arc::new(replaced);
                due.extend(exchange.new.iter().flat_map(begin).filter(|later| *later > at));
            }
        }
        self.done.insert(place, (Arc::clone(stack), Arc::clone(&now)));
        now
    }

    /// Whether no exchange begins in a stack that was to be exchanged.
    fn has_none_of(&self, stack: &Stack) -> bool {
        stack.layers.iter().all(|layer| !self.by_first.contains_key(&address(layer)))
    }
}

fn address(layer: &Arc<Layer>) -> usize {
    Arc::as_ptr(layer) as usize
}

/// A tree and what it is made of.
type Owned = (TreeId, Arc<Stack>);

fn made(of: &[Owned]) -> Vec<Made<'_>> {
    of.iter().map(|(id, stack)| (*id, stack)).collect()
}

impl Core {
    /// Exchanges layers in all trees: the live ones, the durable ones, and those that are being
    /// checkpointed. No commit runs meanwhile, because a tree that is cloned meanwhile would keep
    /// the old layers. The caller has the durable state locked.
    pub(crate) fn exchange(&self, exchanges: &[Exchange]) {
        if exchanges.is_empty() {
            return;
        }
        let mut exchanger = Exchanger::new(exchanges);
        let mut ids = exchanger.durable_trees(&self.candidates.lock());
        let gate = self.gate.write();
        let (taken, put) = self.exchange_durable(&mut exchanger, &ids);
        ids.extend(self.changed.lock().keys());
        for (id, stack) in Arc::make_mut(&mut self.in_flight.lock()) {
            ids.insert(*id);
            if let Some(stack) = stack {
                *stack = exchanger.apply(stack);
            }
        }
        let trees = self.trees.read();
        for tree in ids.iter().filter_map(|id| trees.get(id)) {
            let mut state = tree.state.write();
            state.stack = exchanger.apply(&state.stack);
        }
        debug_assert!(
            trees.values().all(|tree| exchanger.has_none_of(&tree.state.read().stack)),
            "a tree that has what was exchanged was found"
        );
        drop((trees, gate));
        let mut candidates = self.candidates.lock();
        candidates.replace(&made(&taken), &made(&put));
        self.depth.store(candidates.depth(), Ordering::Relaxed);
    }

    /// The same in the durable trees; returns their old and new stacks. What the manifest names is
    /// held until the next manifest is durable (`Durable::pending`).
    fn exchange_durable(
        &self,
        exchanger: &mut Exchanger<'_>,
        ids: &BTreeSet<TreeId>,
    ) -> (Vec<Owned>, Vec<Owned>) {
        let (mut taken, mut put) = (Vec::new(), Vec::new());
        if ids.is_empty() {
            return (taken, put);
        }
        let mut catalog = self.catalog.lock();
        let catalog = Arc::make_mut(&mut catalog);
        for id in ids {
            if let Some(stack) = catalog.get_mut(id) {
                let now = exchanger.apply(stack);
                taken.push((*id, std::mem::replace(stack, Arc::clone(&now))));
                put.push((*id, now));
            }
        }
        debug_assert!(
            catalog.values().all(|stack| exchanger.has_none_of(stack)),
            "a durable tree that has what was exchanged was found"
        );
        (taken, put)
    }
}
