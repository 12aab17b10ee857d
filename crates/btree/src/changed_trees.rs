//! Which trees differ from the durable state: fresh ones, and the captured roots of the others.

use std::collections::VecDeque;
use std::sync::Arc;

use store::TreeId;

use crate::tree::{States, Tree};

/// The trees that differ from the durable state, or from the state that a running checkpoint is
/// about to make durable.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    /// Fresh trees, each once, in the order in which they changed.
    pub(crate) fresh: VecDeque<Arc<Tree>>,
    /// All others.
    pub(crate) captured: States,
}

impl Changed {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.fresh.len() + self.captured.size()
    }

    /// Whether the tree is captured.
    pub(crate) fn has_captured(&self, id: TreeId) -> bool {
        self.captured.contains_key(&id)
    }
}
