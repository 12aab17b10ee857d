//! The copy-on-write B-tree engine.
//!
//! A commit enters at [`BtreeStore`] (`store`), is logged and applied in memory (`commit`,
//! `write`). It is durable once the log is synced; a `checkpoint` writes the changed nodes, after
//! which the log is no longer needed. A read descends a `tree` through `cell`s, which `nodes`
//! loads. After O. Rodeh, "B-trees, Shadowing, and Clones".
//!
//! Promises: a checkpoint writes only to units that the last one does not use, so a crash leaves
//! the last checkpoint and the log behind it. A node is verified against the checksum in its parent
//! at every read from disk. A clone of a tree is one record, whatever the tree holds.

mod ahead;
mod budget;
mod cell;
mod changed;
mod check;
mod checkpoint;
mod checkpoint_reserve;
mod codec;
mod commit;
mod copied;
mod core;
mod cursor;
mod diff;
mod ensure;
mod entries;
mod evict;
mod gate;
#[cfg(test)]
mod gate_tests;
mod ingest;
mod layout;
mod leaf;
mod limits;
#[cfg(test)]
mod lock_tests;
mod lost;
mod lost_nodes;
mod merge;
mod nodes;
mod options;
mod pin;
mod plan;
mod preflush;
mod prune;
mod range_delete;
mod reclaim;
mod recover;
mod relieve;
mod replay;
mod ring;
#[cfg(test)]
mod ring_tests;
mod space;
mod split;
mod store;
mod stripes;
mod tree;
mod two_copies;
mod underfull;
mod visit;
mod write;

pub use crate::check::{inspect, repair};
pub use crate::layout::NodeWrites;
pub use crate::options::Options;
pub use crate::store::{BtreeStore, CacheStats, check};
