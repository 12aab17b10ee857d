//! Interfaces to the environment, each real and simulated.
//!
//! Nothing above this crate opens a file, reads a clock, draws a random number or starts a thread
//! directly. A volume gets an [`Env`] and uses it for everything. So a test can replace the
//! operating system with the simulator (`testing::SimDevice`), and cut the power at any write or
//! fsync.
//!
//! Promises: bytes of a file survive a power cut once it was synced, and a name once its directory
//! was. Any part of the rest may survive. An object is there as a whole or not at all, and is
//! durable when its creation returns. An [`Error`] names the call and the file or object.
//!
//! Which module decides what:
//! * `file`, `local`, `guarded`: files of a volume directory; which are opened in a directory of
//!   another user
//! * `overlay`, `direct`: changes that stay in memory; reads past the page cache
//! * `file_system`, `fanotify`: which file system it is, and what changed in one
//! * `blobs`, `local_blobs`, `shared_dir`, `directories`: immutable objects in directories
//! * `objects`, `blobs_over`, `blobs_below`, `blobs_overlay`, `blobs_timed`: objects of a volume,
//!   and wrappers of them
//! * `blobs_patient`, `interruptible`: how long a creation is repeated, and who may give it up
//! * `descriptors`, `open_files`: what is closed when descriptors run out
//! * `net`: links between machines
//! * `sync`, `thread`, `latch`, `slot`: locks, channels, threads, data that all threads read
//! * `clock`, `random`, `user_config`: time, entropy, the user's environment
//! * `sim`, `mutation`: what a scheduler of tests decides, and the faults that it plants
//! * `map`: hash maps whose order nobody uses
//! * `error`: failed calls, and which of them mean a full disk or an unread block

// Files of a volume directory, and wrappers.
mod overlay;
mod direct;
mod file_system;
mod local;
mod guarded;
mod fanotify;
mod latch;
mod slot;

// Objects, and wrappers.
mod objects;
mod blobs_below;
mod blobs_overlay;
mod blobs_patient;
mod blobs_timed;
mod blobs_over;
mod interruptible;
mod local_blobs;
mod shared_dir;
mod directories;
mod open_files;
mod blobs;
mod descriptors;

// The network, and the user.
mod net;
mod user_config;

// Time, chance, threads and locks.
mod map;
mod random;
mod mutation;
pub mod sync;
mod thread;
mod clock;
#[cfg(feature = "sim")]
pub mod sim;

// What files are, and what fails.
mod file;
mod error;

pub use blobs::{
    Blobs, Compared, ReadPart, STAGED, check_name, compare, part_of, remove_adopted, valid_name,
};
pub use blobs_below::BlobsBelow;
pub use blobs_over::OverBlobs;
pub use blobs_overlay::OverlayBlobs;
pub use blobs_patient::{Outage, PatientBlobs};
pub use blobs_timed::{CLASSES, TimeCounts, TimedBlobs, Times};
pub use clock::{Clock, SystemClock, Timestamp};
pub use descriptors::{raise_descriptor_limit, with_a_descriptor};
pub use direct::DirectDevice;
pub use error::{Error, Result};
pub use fanotify::{FileSystemEvent, FileSystemWatch, readable};
pub use file::{Device, Entry, File, Lock, Metadata, Space};
pub use file_system::FileSystem;
pub use interruptible::{LOOK_EVERY, interruptible, is_interrupted, is_interruptible};
pub use latch::{Latch, RawLatch};
pub use local::LocalDevice;
pub use local_blobs::LocalBlobs;
pub use map::{FastHasher, Map, Set};
pub use mutation::mutated;
pub use net::{Link, Listener, Net, SystemNet};
pub use objects::Objects;
pub use overlay::Overlay;
pub use random::{Random, SystemRandom};
pub use shared_dir::SharedDir;
pub use slot::thread_slot;
pub use thread::{REST_AFTER, Scope, ScopedThread, Thread, rest, scope, set_rest, spawn};
pub use thread::{spawn_in, spin_loop, yield_now};
pub use user_config::{SystemConfig, UserConfig};

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
    /// The object store that keeps the volume. `None`: the volume directory keeps it. Otherwise
    /// the volume directory belongs to one host, and holds only what the store has or what is not
    /// durable yet.
    pub objects: Option<Objects>,
}

impl Env {
    /// A device, with the operating system's clock and its entropy.
    pub fn on(device: Arc<dyn Device>) -> Env {
        let (clock, random) = (Arc::new(SystemClock::new()), Arc::new(SystemRandom));
        Env { device, clock, random, objects: None }
    }

    /// The operating system's files below `root`, its clock and its entropy.
    pub fn system(root: &std::path::Path) -> Result<Env> {
        Ok(Env::on(Arc::new(LocalDevice::open(root)?)))
    }
}
