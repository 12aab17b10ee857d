//! What checkpoints keep between them, and while one runs. The engine (`Core`) owns it, so nothing
//! here knows the engine.

use std::sync::Arc;

use device::Map;
use format::catalog::RootRecord;
use store::{Lsn, TreeId};

use crate::cell::LeafCell;
use crate::space::Space;
use crate::tree::States;

/// State that the checkpointing thread keeps from one checkpoint to the next.
#[derive(Debug)]
pub struct CheckpointState {
    pub(crate) space: Space,
    /// Number of the last durable checkpoint.
    pub(crate) generation: u64,
    /// The last log record in it.
    pub(crate) lsn: Lsn,
    pub(crate) catalog: Option<RootRecord>,
    pub(crate) next_trash: u64,
    pub(crate) gather: Gather,
}

/// Where the search for leaves to move continues, and what it found.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    /// Where the search continues.
    pub(super) tree: u64,
    pub(super) from: Vec<u8>,
    /// Regions that could not be emptied, and how many units were in use.
    pub(super) quarantine: Map<u64, u64>,
    /// The leaves that the next checkpoint moves, by their place: cells that `loosen` chose.
    pub(super) moves: Map<u64, Arc<LeafCell>>,
}

impl Gather {
    /// Takes the leaves to move now.
    pub(super) fn take(&mut self) -> Map<u64, Arc<LeafCell>> {
        std::mem::take(&mut self.moves)
    }
}

/// A frozen state that is written completely.
#[derive(Debug)]
pub(crate) struct Shedding {
    pub(super) states: Arc<States>,
    pub(super) pins_from: u64,
    /// Where the search continues: a tree, and a child of its root.
    pub(super) at: (TreeId, usize),
}
