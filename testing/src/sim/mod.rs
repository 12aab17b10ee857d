//! `SimDevice`: a disk in memory whose power can be cut at any write or sync.
//!
//! From bottom to top: a set of block numbers (`ranges`), and the bytes of a file (`content`). Then
//! come files and directories with their durable and pending state (`disk`), and the state after a
//! power cut (`crash`). Then come faults on order (`fault`), and the handles for the code under
//! test (`device`, `file`). On top are remote objects, which are stored on the simulated disk as
//! well (`objects`). With the feature `sim` there is also what a simulation of several machines
//! takes. A scheduler lets threads run by its seed (`scheduler`, `turns`), and there is a network
//! (`net`), with an object store behind it (`store`).
//!
//! The model of the disk:
//! * A file's bytes and length are durable after `sync_data`. Of the writes since, any subset may
//!   survive a power cut, each torn at sectors of 512 bytes. A sector has the bytes of one of the
//!   writes that covered it, or of none. That covers every order in which a cache may write back.
//! * A directory's creations, renames and removals are durable after `sync_dir` of it, and not by
//!   syncing the file. Any subset of those since may survive. A rename between directories may
//!   leave both names, but never neither.
//! * After a failed `sync_data` some of the pending bytes are durable. No later sync makes the rest
//!   durable, although reads return them: this is what Linux does.
//! * Space is counted in blocks of 4096 bytes. A write that does not fit writes the part that fits.

mod objects;
mod file;
mod device;
mod crash;
mod disk;
mod content;
mod ranges;
mod fault;
#[cfg(feature = "sim")]
mod scheduler;
#[cfg(feature = "sim")]
mod turns;
#[cfg(feature = "sim")]
mod store;
#[cfg(feature = "sim")]
mod net;

pub use crash::CrashPolicy;
pub use device::{Counts, SimDevice};
pub use fault::{Fault, FaultError, FaultOn, Op};
#[cfg(feature = "sim")]
pub use net::{Delays, Fate, Host, SimNet, Watch};
pub use objects::SimObjects;
#[cfg(feature = "sim")]
pub use scheduler::{Run, Scheduler, explore};
#[cfg(feature = "sim")]
pub use store::{Latency, Mishaps, SimStore, StoreCounts};
#[cfg(feature = "sim")]
pub use turns::{Machine, Pace};
