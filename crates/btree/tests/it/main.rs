//! The engine's tests: the suite that every engine must pass, and what is particular to this one.

mod budget;
mod cache;
mod checking;
mod clones;
mod conformance;
mod cramped;
mod damage;
mod diffs;
mod preflush;
mod falsified;
mod ingest;
mod invariants;
mod load;
mod lost;
mod moving;
mod reads;
mod replay;
mod replay_budget;
mod unreplayed_node;
mod unreplayed_random;
mod runs;
mod shrink;
mod space;
mod splits;
mod superblocks;
mod thread_faults;
mod threads;
mod catalog_copies;
mod unread;
mod util;

/// Tests allocate much, which takes less time here than in the allocator of the system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
