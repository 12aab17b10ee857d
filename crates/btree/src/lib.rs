//! The copy-on-write B-tree engine.
//!
//! A commit enters at [`BtreeStore`] (`store`), is logged and applied in memory (`commit`,
//! `write`). It is durable once the log is synced; a `checkpoint` writes the changed nodes, after
//! which the log is no longer needed. A read descends a `tree` through `cell`s, which `nodes`
//! loads. After O. Rodeh, "B-trees, Shadowing, and Clones".
//!
//! Promises: a checkpoint writes only to units that the last one does not use. So a crash leaves
//! the last checkpoint and the log behind it. A node is verified against the checksum in its parent
//! at every read from disk. If it is wrong, it is read a second time, or from its second copy if it
//! has one, before the reader gets an error. Other nodes of the tree are read as before. If a
//! replay meets a damaged leaf that the log changes, the store is open for reading only. A clone of
//! a tree is one record, whatever the tree holds.
//!
//! Which module decides what:
//! * `store`: the traits, and when a checkpoint is due
//! * `recover`, `replay`, `lost`: opening: which superblock, what the log changes, what it cannot
//! * `check`: verification, also without opening; rebuilding the map of reference counts
//! * `commit`, `plan`, `ensure`, `stripes`, `gate`: one commit: what is loaded first, which locks,
//!   in which order
//! * `write`, `split`, `merge`, `underfull`, `limits`, `range_delete`: how a key changes a tree,
//!   and how full nodes are
//! * `ingest`: sorted runs, written to their place once
//! * `pinned`, `pin`, `cursor`, `diff`, `sides`, `visit`, `ahead`: readers: kept states, ranges,
//!   differences, walks
//! * `checkpoint`, `changed`, `preflush`: what is written, in which order, and what before
//! * `checkpoint_reserve`, `relieve`: space on the disk and memory for the next checkpoint
//! * `space`, `reclaim`: free places in the file, and nodes of dropped trees
//! * `two_copies`: nodes that are stored twice
//! * `nodes`, `units`, `codec`, `lost_nodes`: reading a node, verified
//! * `tree`, `cell`, `leaf`, `overflow`, `entries`, `copied`: a tree and its nodes in memory
//! * `evict`, `ring`, `uses`, `prune`, `budget`: what leaves the cache
//! * `core`, `options`, `layout`: what the parts share; `pins`, `changed_trees`, `preflush_place`:
//!   what a store keeps of each

// The engine as a store, and opening it.
mod store;
mod check;
mod recover;
mod replay;
mod lost;

// A commit: what it needs is loaded, then it is logged and applied.
mod ensure;
mod ingest;
mod split;
mod commit;
mod plan;
mod range_delete;
mod underfull;
mod write;
mod merge;
mod stripes;
mod gate;

// Readers.
mod pinned;
mod visit;
mod diff;
mod cursor;
mod ahead;
mod sides;
mod pin;

// Checkpoints, and what they free.
mod checkpoint_reserve;
mod relieve;
mod reclaim;
mod changed;
mod preflush;
mod checkpoint;
mod two_copies;
mod space;

// Trees, their nodes in memory, and the cache.
mod layout;
mod evict;
mod core;
mod pins;
mod changed_trees;
mod preflush_place;
mod options;
mod prune;
mod copied;
mod tree;
mod nodes;
mod lost_nodes;
mod codec;
mod ring;
mod cell;
mod leaf;
mod overflow;
mod uses;
mod limits;
mod entries;
mod units;
mod budget;

#[cfg(test)]
mod gate_tests;
#[cfg(test)]
mod lock_tests;
#[cfg(test)]
mod ring_tests;

pub use crate::check::{inspect, repair};
pub use crate::layout::NodeWrites;
pub use crate::options::Options;
pub use crate::store::{BtreeStore, CacheStats, check};
