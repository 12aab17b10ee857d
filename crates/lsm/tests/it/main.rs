//! The engine's tests: the suite that every engine must pass, and tests specific to this one.

mod checking;
mod column;
mod conformance;
mod cuts;
mod damaged;
mod deleted;
mod drops;
mod far;
mod far_suite;
mod fenced;
mod fenced_suite;
mod full_server;
mod held;
mod ingest;
mod killed;
mod layers;
mod manifests;
mod many;
mod merging;
mod pins;
mod reads;
mod unreplayed_block;
mod unordered;
mod util;
mod variants;

/// Tests allocate much, which takes less time here than in the allocator of the system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
