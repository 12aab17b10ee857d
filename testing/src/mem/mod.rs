//! `MemStore`: the oracle. Every tree is an ordered map behind an `Arc`, so that a clone and a
//! pinned state are exact by construction.

mod store;
mod ingest;
mod cursor;
mod commit;

pub(crate) use ingest::{as_batch, as_new_tree, entries};
pub use store::{MemPinned, MemStore};
