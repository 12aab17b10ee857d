//! Background work in bounded steps that a caller drives: removal of what was detached, pruning,
//! counting, collection, the trash, the index. Also what an operation does that finds no space.
//! [`Upkeep`] is a volume with what the steps keep.
//!
//! Promises: no step is needed for a change to be right or durable. Steps return space, make
//! reading cheaper, and finish counts. They run in any order, beside all operations. A step that a
//! crash or an error interrupted is continued or begun again. Nothing that a step keeps in memory
//! is needed for that. Each does a bounded part, in one commit, and holds locks for that part only.
//! Nothing is removed because a read failed: what is unread may be in use. Front ends are notified
//! of what is removed, with no lock and no gate held.
//!
//! Where to begin: `background` is the order in which steps take turns; `foreground_reclaim` and
//! `removal` are what an operation does on a full disk. `reclaim` and `scan` know the volume and
//! its policies, and their own state, but not [`Upkeep`], which owns it; `calls` joins the two.
//!
//! Which module decides what:
//! * `background`: which step is next
//! * `foreground_reclaim`, `removal`: what an operation does on a full disk
//! * `reclaim`: detached trees, pruning, counts of copies
//! * `collect`: contents that clones shared
//! * `search_due`, `search_upkeep`, `search_bases`: when a base is made, how, and its records
//! * `search_declared`, `search_limits`: searchable attributes; sizes of clusters
//! * `scan`: indexes of other file systems
//! * `upkeep`, `calls`: a volume with its steps; calls that need them
//! * `distinct`: how many differ, about
//! * `state`: what work keeps in memory between steps
//! * `rest`: how long a step rests that failed

// The index.
pub mod search_declared;
pub mod search_limits;
pub mod search_upkeep;
pub mod search_due;
pub mod search_bases;

// What is due, and operations that need space.
pub mod background;
mod calls;
pub mod removal;
pub mod foreground_reclaim;
pub mod upkeep;

// Import of directories that exist elsewhere.
pub mod scan;

// Space.
pub mod collect;
pub mod reclaim;
pub mod distinct;

// What work keeps between steps, and how long it rests.
pub mod state;
mod rest;

pub use reclaim::Waiting;
pub use scan::{
    KnownChild, KnownDirectory, Listed, Names, Outside, Scan, ScanDirectory, ScanDone, ScanInfo,
    ScanOptions,
};
pub use upkeep::Upkeep;
