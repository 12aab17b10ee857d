//! Work that nobody waits for, in bounded steps that a caller drives: removal of what was detached,
//! pruning, counting, collection, the trash, the index; and what an operation does that finds no
//! space. [`Upkeep`] is a volume with what the steps keep.

pub mod upkeep;

// What is due, and operations that need space.
pub mod background;
mod calls;
pub mod foreground_reclaim;
pub mod removal;

// Space.
pub mod collect;
pub mod distinct;
pub mod reclaim;

// Import of directories that exist elsewhere.
pub mod scan;

// The index.
pub mod search_bases;
pub mod search_declared;
pub mod search_due;
pub mod search_limits;
pub mod search_upkeep;

pub use reclaim::Waiting;
pub use scan::{
    KnownChild, KnownDirectory, Listed, Names, Outside, Scan, ScanDirectory, ScanDone, ScanInfo,
    ScanOptions,
};
pub use upkeep::Upkeep;
