//! Virtual directories over a file system in memory.

mod links;
mod search;
mod snapshots;
mod support;
