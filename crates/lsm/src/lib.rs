//! The log-structured engine, after BabuDB (J. Stender et al., section II).
//!
//! A commit enters at [`LsmStore`] (`store`). It is logged and applied to the active in-memory
//! trees (`commit`, `staged`, `mem`). A `checkpoint` freezes those and writes them to sorted runs
//! in one blob (`blob`). Long values go to a value log beside it if the store was created that way
//! (`rows`). A numbered manifest lists the runs of each tree (`manifest`). A read descends a tree's
//! `layer`s, newest first; a scan `merge`s them.

mod appender;
mod blob;
mod candidates;
mod check;
mod check_rows;
mod checkpoint;
mod clean;
mod collect;
mod commit;
mod compact;
mod core;
mod cursor;
mod diff;
mod drops;
mod exchange;
mod fenced;
mod files;
mod flatten;
mod forest;
mod id_allocator;
mod ingest;
mod key;
mod layer;
mod limit;
mod lost;
mod manifest;
mod mem;
mod merge;
mod names;
mod nested;
mod newest;
mod options;
mod pin;
mod plan;
mod quarantine;
mod ranges;
mod recover;
mod relieve;
mod resolve;
mod rows;
mod run;
mod sparse_blobs;
mod staged;
mod store;
mod tree;
mod visit;
mod waiting;

pub use crate::check::{inspect, repair};
pub use crate::options::{BlobStore, Options, Policy};
pub use crate::store::{LsmStore, check};
