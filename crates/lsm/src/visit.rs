//! Visits the content of many trees, but what they share only once.
//!
//! For each tree it visits what differs from the earlier tree that it shares most with, so the cost
//! is that of the distinct layers. Damage is reported after everything else was visited: nothing
//! behind it in its tree is visited, and no later tree is compared with that one.

use std::sync::Arc;

use device::Map;
use store::{Error, KeyRange, Result};

use crate::diff::visit_new;
use crate::layer::{LayerId, Stack};

pub(crate) fn visit(
    trees: &mut dyn Iterator<Item = Result<Arc<Stack>>>,
    prefix: &[u8],
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<()> {
    let range = KeyRange::prefix(prefix);
    let nothing = Arc::new(Stack::default());
    // The last visited stack that has a layer.
    let mut having: Map<LayerId, Arc<Stack>> = Map::default();
    let mut damaged = Ok(());
    for stack in trees {
        let stack = stack?;
        let like = stack.layers.iter().find_map(|layer| having.get(&layer.id));
        let like = Arc::clone(like.unwrap_or(&nothing));
        match visit_new(&like, &stack, &range, visit) {
            Err(error @ Error::Corrupt(_)) => {
                damaged = damaged.and(Err(error));
                continue;
            }
            done => done?,
        }
        for layer in &stack.layers {
            having.insert(layer.id, Arc::clone(&stack));
        }
    }
    damaged
}
