//! The log-structured engine, after BabuDB (J. Stender et al., section II).
//!
//! A commit enters at [`LsmStore`] (`store`), is logged and applied to the active in-memory trees
//! (`commit`, `staged`, `mem`). A `checkpoint` freezes those and writes them to sorted runs in one
//! blob (`blob`), and a numbered manifest says which runs each tree is made of (`manifest`). A
//! read goes down a tree's `layer`s, newest first; a scan `merge`s them.

mod blob;
mod check;
mod checkpoint;
mod collect;
mod commit;
mod compact;
mod core;
mod cursor;
mod diff;
mod exchange;
mod files;
mod ingest;
mod key;
mod layer;
mod limit;
mod manifest;
mod mem;
mod merge;
mod options;
mod pin;
mod plan;
mod ranges;
mod recover;
mod relieve;
mod resolve;
mod run;
mod staged;
mod store;
mod tree;
mod visit;

pub use crate::check::{check, cut_log, inspect};
pub use crate::options::{BlobStore, Options};
pub use crate::store::LsmStore;
