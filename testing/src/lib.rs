//! What tests of every crate share: the oracle store, the simulated medium, conformance suites.
//!
//! [`MemStore`] says what a store answers; [`SimDevice`] is a disk whose power can be cut at any
//! write or sync, [`FarBlobs`] are objects at the far end of a bad way. Private doubles of either
//! are not written anywhere else.

pub mod device_conformance;
mod env;
mod far;
mod kit;
mod logged;
mod mem;
pub mod model;
pub mod run;
pub mod sim;
mod split;
pub mod store_conformance;

pub use env::{SeededRandom, SimClock, SimEnv, sim_env};
pub use far::{Call, FarBlobs, Mishap};
pub use kit::{commit, entries, noise, numbered};
pub use logged::LoggedStore;
pub use mem::{MemPinned, MemStore};
pub use sim::{CrashPolicy, Fault, FaultError, FaultOn, Op, SimDevice, SimObjects};
pub use split::SplitDevice;
