//! Checkpoints: write the changes that are only in memory and in the log to their place,
//! concurrently with writers.
//!
//! 0. `gather`: choose scattered leaves that are written again along with the changed ones.
//! 1. `freeze`: with the commit gate exclusive, take the roots of the trees that changed and the
//!    number of the last log record. This takes microseconds: from then on writers find that these
//!    nodes have another owner, and copy them.
//! 2. `write`: walk the changed nodes below those roots, children before parents, allocate space
//!    for each node and write it, in long runs.
//! 3. Settle the reference counts; write catalog, map pages and map directory. Sync.
//! 4. `publish`: write both superblocks, one after the other, and sync each. Only now is the old
//!    state released, in memory too: cells record their places, freed space is punched, the log is
//!    trimmed.
//!
//! A crash before the first superblock is durable leaves the old state, of which nothing was
//! overwritten; after it, the new one. A failure before it, such as a full disk, needs no undo. No
//! cell has recorded a place, and the new map is discarded, because it is a copy.

mod publish;
mod run;
mod write;
mod gather;
mod give_back;
mod shed;
mod state;
mod freeze;

#[cfg(test)]
mod gather_tests;

pub(crate) use freeze::Frozen;
pub(crate) use publish::{SUPERBLOCK_FILES, create_superblocks, write_superblocks};
pub(crate) use run::FREED_MAX;
pub(crate) use state::{CheckpointState, Gather, Shedding};
pub(crate) use write::{Manner, NodeWriter};
