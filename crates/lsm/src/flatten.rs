//! Merges layers in memory, so that look-ups pass through few of them.
//!
//! A tree may be pinned repeatedly while it is written. It then gets a layer at each freeze that
//! had too much to copy while no commit is running (`tree`). The pinning thread merges these layers
//! here, and so does the background. Commits continue, except during the exchange.
//!
//! A merged layer becomes part of one that is at least half as large again. So an entry is copied a
//! few times before a checkpoint writes it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::Map;
use store::TreeId;

use crate::checkpoint::origin;
use crate::core::Core;
use crate::durable::{Durable, Exchange};
use crate::layer::{Layer, Stack};
use crate::mem::{Below, Mem};
use crate::tree::merged;

/// Layers in memory that a tree may have before they are merged.
const LAYERS_MAX: usize = 12;

impl Core {
    /// Merges layers in memory of trees that have many of them, unless the durable state is locked,
    /// for example by a checkpoint. The caller is not in the gate.
    pub(crate) fn flatten(&self) {
        let deep = || self.changed.lock().values().any(|tree| is_deep(&tree.state.read().stack));
        if deep()
            && let Some(mut state) = self.durable.try_lock()
        {
            while self.flatten_step(&mut state) {}
        }
    }

    /// Merges layers of one tree; returns whether there were any. While the durable state is locked
    /// nothing else exchanges layers.
    pub(crate) fn flatten_step(&self, _state: &mut Durable) -> bool {
        let stacks: Vec<(TreeId, Arc<Stack>)> = {
            let changed = self.changed.lock();
            changed.values().map(|tree| (tree.id, Arc::clone(&tree.state.read().stack))).collect()
        };
        if !stacks.iter().any(|(_, stack)| is_deep(stack)) {
            return false;
        }
        let mut sharers: Map<usize, usize> = Map::default();
        for layer in stacks.iter().flat_map(|(_, stack)| in_memory(stack)) {
            *sharers.entry(address(layer)).or_default() += 1;
        }
        let Some(pick) = stacks.iter().find_map(|(_, stack)| pick(stack, &sharers)) else {
            return false;
        };
        let Pick { layers, lowest } = pick;
        let mems: Vec<Arc<Mem>> = layers.iter().filter_map(|layer| layer.as_memory()).collect();
        let below = if lowest { Below::Nothing } else { Below::Layers };
        let mem = merged(mems.iter().map(|mem| &**mem), None, below);
        self.ids.moved.fetch_add(mem.entries.len() as u64, Ordering::Relaxed);
        let id = self.ids.take();
        let origin = origin(&layers, id);
        let new = (!mem.is_empty()).then(|| Arc::new(Layer::merged(id, origin, mem)));
        self.exchange(&[Exchange { old: layers, new }]);
        true
    }
}

/// Layers that are merged: adjacent layers that the same trees have.
struct Pick {
    layers: Vec<Arc<Layer>>,
    /// Whether nothing is below them.
    lowest: bool,
}

/// The layers of a stack that are merged next, if it has too many.
fn pick(stack: &Stack, sharers: &Map<usize, usize>) -> Option<Pick> {
    let all: Vec<&Arc<Layer>> = in_memory(stack).collect();
    let same = |one: &&Arc<Layer>, two: &&Arc<Layer>| {
        sharers.get(&address(one)) == sharers.get(&address(two))
    };
    let mut at = 0;
    for group in all.chunk_by(same) {
        let begin = at;
        at += group.len();
        if group.len() <= LAYERS_MAX {
            continue;
        }
        let (mut entries, mut end) = (0, 0);
        for (index, layer) in group.iter().enumerate() {
            let more = layer.as_memory().map_or(0, |mem| mem.len());
            if more <= 2 * entries {
                end = index + 1;
            }
            entries += more;
        }
        if end > 1 {
            let layers = stack.layers[begin..begin + end].to_vec();
            return Some(Pick { layers, lowest: begin + end == stack.layers.len() });
        }
    }
    None
}

/// The newest layers of a stack up to the first that is written.
fn in_memory(stack: &Stack) -> impl Iterator<Item = &Arc<Layer>> {
    stack.layers.iter().take_while(|layer| layer.in_memory())
}

fn is_deep(stack: &Stack) -> bool {
    in_memory(stack).nth(LAYERS_MAX).is_some()
}

fn address(layer: &Arc<Layer>) -> usize {
    Arc::as_ptr(layer) as usize
}
