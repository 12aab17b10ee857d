//! Interfaces to the environment, each real and simulated.
//!
//! Nothing above this crate opens a file, reads a clock, draws a random number or starts a thread
//! directly. A volume gets an [`Env`] and uses it for everything, so a test can replace the
//! operating system with the simulator (`testing::SimDevice`) and cut the power at any write or
//! fsync.

mod blobs;
mod clock;
mod descriptors;
mod direct;
mod error;
mod fanotify;
mod file;
mod guarded;
mod latch;
mod local;
mod map;
mod overlay;
mod random;
#[cfg(feature = "sim")]
pub mod sim;
mod slot;
pub mod sync;
mod thread;

pub use blobs::{Blobs, Found, LocalBlobs, ReadPart, STAGED, compare, part_of};
pub use clock::{Clock, SystemClock, Timestamp};
pub use descriptors::raise_descriptor_limit;
pub use direct::DirectDevice;
pub use error::{Error, Result};
pub use fanotify::{FileSystemEvent, FileSystemWatch, readable};
pub use file::{Device, File, Lock, Metadata, Space};
pub use latch::{Latch, RawLatch};
pub use local::LocalDevice;
pub use map::{FastHasher, Map, Set};
pub use overlay::Overlay;
pub use random::{Random, SystemRandom};
pub use slot::thread_slot;
pub use thread::{Scope, ScopedThread, Thread, scope, spawn, spawn_in, yield_now};

use std::sync::Arc;

/// Everything outside the process that a volume may use. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    /// The volume directory.
    pub device: Arc<dyn Device>,
    /// Wall-clock and monotonic time.
    pub clock: Arc<dyn Clock>,
    /// Entropy for volume ids and hash keys.
    pub random: Arc<dyn Random>,
}

impl Env {
    /// A device, with the operating system's clock and its entropy.
    pub fn on(device: Arc<dyn Device>) -> Env {
        Env { device, clock: Arc::new(SystemClock::new()), random: Arc::new(SystemRandom) }
    }

    /// The operating system's files below `root`, its clock and its entropy.
    pub fn system(root: &std::path::Path) -> Result<Env> {
        Ok(Env::on(Arc::new(LocalDevice::open(root)?)))
    }
}
