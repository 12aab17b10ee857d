//! Exchanging layers for others that say the same, in every tree that has them.

use std::sync::Arc;

use device::Map;

use crate::core::{Catalog, Core};
use crate::layer::{Layer, Stack};

/// Layers that follow each other in stacks, and the one that says what they say together; none
/// where that is nothing.
pub(crate) struct Exchange {
    pub(crate) old: Vec<Arc<Layer>>,
    pub(crate) new: Option<Arc<Layer>>,
}

/// Exchanges layers in stacks. Stacks that were one stay one.
pub(crate) struct Exchanger<'a> {
    exchanges: &'a [Exchange],
    /// By the address of the old stack, which is held so that it stays taken.
    done: Map<usize, (Arc<Stack>, Arc<Stack>)>,
}

impl<'a> Exchanger<'a> {
    pub(crate) fn new(exchanges: &'a [Exchange]) -> Exchanger<'a> {
        Exchanger { exchanges, done: Map::default() }
    }

    /// The stack with new layers in the place of old ones.
    pub(crate) fn apply(&mut self, stack: &Arc<Stack>) -> Arc<Stack> {
        if stack.layers.is_empty() {
            return Arc::clone(stack);
        }
        let address = Arc::as_ptr(stack) as usize;
        let exchanges = self.exchanges;
        let entry = self.done.entry(address).or_insert_with(|| {
            let mut now = Arc::clone(stack);
            for exchange in exchanges {
                if let Some(replaced) = now.replaced(&exchange.old, exchange.new.as_ref()) {
                    now = Arc::new(replaced);
                }
            }
            (Arc::clone(stack), now)
        });
        Arc::clone(&entry.1)
    }

    /// The same in all trees of a catalog.
    pub(crate) fn apply_all(&mut self, catalog: &mut Catalog) {
        for stack in catalog.values_mut() {
            *stack = self.apply(stack);
        }
    }
}

impl Core {
    /// Exchanges layers in all trees, also those that are being checkpointed, while no commit is
    /// under way: a tree that is cloned meanwhile would keep the old ones.
    pub(crate) fn exchange(&self, exchanges: &[Exchange]) {
        if exchanges.is_empty() {
            return;
        }
        let mut exchanger = Exchanger::new(exchanges);
        let _gate = self.gate.write();
        #[expect(clippy::iter_over_hash_type, reason = "each on its own")]
        for tree in self.trees.read().values() {
            let mut state = tree.state.write();
            state.stack = exchanger.apply(&state.stack);
        }
        for stack in self.in_flight.lock().values_mut().flatten() {
            *stack = exchanger.apply(stack);
        }
    }
}
