//! Where the log of a store is.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use device::Blobs;

/// Where the log of a store is.
#[derive(Debug, Clone, Default)]
pub enum LogPlace {
    /// In segment files on the volume's own device.
    #[default]
    Device,
    /// In numbered objects `log/EPOCH/NUMBER` of the store that also has the engine's manifests.
    /// Only the engine `lsm` can have its log there, and only with its blobs in the same store.
    Objects(LogObjects),
}

impl LogPlace {
    /// The objects, if the log is in objects.
    pub fn objects(&self) -> Option<&LogObjects> {
        match self {
            LogPlace::Device => None,
            LogPlace::Objects(objects) => Some(objects),
        }
    }
}

/// An object store for a log, and how the log uses it.
#[derive(Clone)]
pub struct LogObjects {
    /// The store. A log object is written once and read only by recovery, so a cache is useless
    /// here.
    pub blobs: Arc<dyn Blobs>,
    /// How the log uses it.
    pub settings: ObjectLogSettings,
}

impl fmt::Debug for LogObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogObjects").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// How a log uses an object store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectLogSettings {
    /// Minimum time between the starts of two group commits: each costs one request. Zero: a group
    /// commit starts as soon as a thread requests it.
    pub commit_interval: Duration,
    /// Maximum number of log objects that are being written at the same time, each by a thread that
    /// waits for its records.
    pub in_flight: usize,
    /// How long a thread that waits for a record keeps trying to write it when the store fails.
    /// After that it gets the error. The records stay, and the next thread continues.
    pub patience: Duration,
    /// The pause after a failed attempt; it doubles up to 32 times this.
    pub pause: Duration,
    /// How long a proof of ownership allows reads, counted from when its request was sent.
    pub grant: Duration,
    /// What the next daemon waits after a grant of its predecessor has ended, for answers that are
    /// on their way.
    pub drain: Duration,
    /// Log objects since the last checkpoint from which one is due: recovery reads each of them.
    pub objects_max: u64,
}

impl Default for ObjectLogSettings {
    fn default() -> ObjectLogSettings {
        ObjectLogSettings {
            commit_interval: Duration::ZERO,
            in_flight: 8,
            patience: Duration::from_secs(600),
            pause: Duration::from_millis(100),
            grant: Duration::from_secs(2),
            drain: Duration::from_secs(1),
            objects_max: 1024,
        }
    }
}
