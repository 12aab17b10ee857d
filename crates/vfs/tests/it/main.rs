//! Virtual directories over a file system in memory.

mod search;
mod snapshots;
mod support;
