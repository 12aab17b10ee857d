//! Shared by tests of every crate: the oracle store, the simulated disk, conformance suites.
//!
//! [`MemStore`] gives the expected answers of a store. [`SimDevice`] is a disk whose power can be
//! cut at any write or sync. [`FarBlobs`] are objects behind an unreliable connection. Other crates
//! do not write doubles of their own for these.

pub mod store_conformance;
mod env;
mod ports;
mod kit;
pub mod device_conformance;
mod split;
pub mod sim;
pub mod run;
mod logged;
mod mem;
pub mod blobs_conformance;
mod far;
mod flat_blobs;
pub mod memory_fs;
pub mod linear;
pub mod model;

pub use env::{SeededRandom, SimClock, SimEnv, sim_env};
pub use far::{Call, FarBlobs, Mishap};
pub use flat_blobs::FlatBlobs;
pub use kit::{SetAtEnd, commit, entries, fails, has_exactly, noise, numbered};
pub use logged::LoggedStore;
pub use mem::{MemPinned, MemStore};
pub use memory_fs::MemoryFs;
pub use ports::unused_port;
pub use sim::{CrashPolicy, Fault, FaultError, FaultOn, Op, SimDevice, SimObjects};
pub use split::SplitDevice;
