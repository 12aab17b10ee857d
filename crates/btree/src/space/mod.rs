//! Space in the node file: the reference counts of its units.
//!
//! The count of a unit is the number of pointers to the node that starts there. It changes only
//! when a checkpoint replaces the durable state by the next. Each pointer in a node that was
//! written adds one to a count, and each in a node that died subtracts one. So counts describe
//! exactly the durable state, writers never touch them, and a crash leaves nothing to repair.

mod clean;
mod alloc;
mod pages;
mod ingested;
mod counts;
mod map;
mod ingested_leaf;
mod page;
mod search;
mod freed;

#[cfg(test)]
mod kept_tests;

pub(crate) use alloc::BLOCK_UNITS;
pub(crate) use clean::region;
pub(crate) use counts::{Counts, Death};
pub(crate) use freed::{Freed, blocks};
pub(crate) use ingested_leaf::Ingested;
pub(crate) use map::{Space, Work};
pub(crate) use page::{PAGE_UNITS, Page};
pub(crate) use pages::{MapSpace, directory_units};
