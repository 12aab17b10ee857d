//! The log-structured engine, after BabuDB (J. Stender et al., section II).
//!
//! A commit enters at [`LsmStore`] (`store`). It is logged and applied to the active in-memory
//! trees (`commit`, `staged`, `mem`). A `checkpoint` freezes those and writes them to sorted runs
//! in one blob (`blob`). Long values go to a value log beside it if the store was created that way
//! (`rows`). A numbered manifest lists the runs of each tree (`manifest`). A read descends a tree's
//! `layer`s, newest first; a scan `merge`s them.
//!
//! Promises: runs and manifests are written once and never changed. A state is durable when both
//! copies of its manifest are. Until then the state before it is whole, with the log after it, and
//! nothing of it is deleted. A block is verified at every read from disk. A damaged block hides its
//! own keys only, and merges skip runs in which damage was found. A clone of a tree shares its
//! layers, whatever it holds. After the log has accepted a batch, applying it cannot fail. Any
//! thread may commit and read; a checkpoint, a merge and a collection are steps that a caller runs.
//!
//! Which module decides what:
//! * `store`: the traits, and when a checkpoint is due
//! * `recover`, `newest`, `fenced`: opening: which manifest is the newest; one owner where several
//!   may try
//! * `check`, `check_rows`, `lost`: verification, and which keys damage hides
//! * `commit`, `resolve`, `staged`: one commit; merges before it is logged; commits that make or
//!   drop trees
//! * `ingest`: sorted runs, written to a blob once
//! * `pin`, `pinning`, `cursor`, `diff`, `visit`: readers: kept states and how they are collected,
//!   ranges, differences, walks
//! * `checkpoint`, `manifest`: trees in memory become runs, and a manifest lists them
//! * `relieve`: space on the disk and memory for the next checkpoint
//! * `plan`, `candidates`, `forest`: which runs are merged next
//! * `compact`, `merge`, `limit`, `exchange`, `flatten`: how they are merged, how fast, and put
//!   into trees
//! * `collect`, `drops`, `clean`, `sparse_blobs`: space of runs, dropped trees, value logs, sparse
//!   blobs
//! * `quarantine`: what merges skip
//! * `tree`, `layer`, `mem`, `ranges`, `key`: a tree: entries in memory over layers
//! * `run`, `blob`, `rows`, `waiting`, `appender`: runs and value logs: reading and writing
//! * `files`, `names`, `nested`, `id_allocator`: blobs: their cache, names and numbers
//! * `core`, `durable`, `merging`, `options`: what the parts share: the durable state, the merge
//!   under way

// The engine as a store, and opening it.
mod store;
mod fenced;
mod check;
mod recover;
mod check_rows;
mod lost;

// A commit.
mod ingest;
mod commit;
mod staged;
mod resolve;

// Readers.
mod pin;
mod visit;
mod diff;
mod cursor;
mod pinning;

// Checkpoints: trees in memory become runs.
mod checkpoint;
mod relieve;
mod manifest;
mod newest;

// Merges, and the space of what they replace.
mod flatten;
mod compact;
mod exchange;
mod collect;
mod drops;
mod candidates;
mod plan;
mod merge;
mod clean;
mod sparse_blobs;
mod forest;
mod quarantine;
mod limit;

// Trees: layers in memory, and runs in blobs.
mod core;
mod durable;
mod merging;
mod tree;
mod layer;
mod blob;
mod run;
mod rows;
mod appender;
mod id_allocator;
mod mem;
mod ranges;
mod key;
mod waiting;
mod files;
mod nested;
mod names;
mod options;

pub use crate::check::{inspect, repair};
pub use crate::options::{BlobStore, Options, Policy};
pub use crate::store::{LsmStore, check};
