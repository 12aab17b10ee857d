//! How a store is opened.

use std::time::Duration;

use store::{DIRTY_BYTES_MIN, EngineOptions};

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// What every engine is told.
    pub common: EngineOptions,
    /// Estimated time of a replay from which a checkpoint is due.
    pub replay_max: Duration,
}

/// Half of the two seconds in which a volume shall open after a crash: the log grows on while the
/// checkpoint is written, and there is more to opening than the replay.
const REPLAY_MAX: Duration = Duration::from_secs(1);

impl Default for Options {
    fn default() -> Options {
        Options { common: EngineOptions::default(), replay_max: REPLAY_MAX }
    }
}

impl Options {
    /// The defaults, with a cache of so many bytes.
    pub fn with_cache(bytes: usize) -> Options {
        let common = EngineOptions { cache_bytes: bytes, ..EngineOptions::default() };
        Options { common, ..Options::default() }
    }

    /// Bytes of changed nodes from which a checkpoint is due. What is changed again while it is
    /// written is there twice until the older copy is written.
    pub(crate) fn dirty_bytes_due(&self) -> usize {
        (self.common.cache_bytes / 16 * 9).max(DIRTY_BYTES_MIN / 4 * 3)
    }

    /// Bytes of changed nodes from which committers make a checkpoint themselves, where nobody
    /// has said that somebody else will.
    pub(crate) fn dirty_bytes_max(&self) -> usize {
        (self.common.cache_bytes / 8 * 5).max(DIRTY_BYTES_MIN)
    }

    /// The same where somebody has.
    pub(crate) fn dirty_bytes_alone(&self) -> usize {
        (self.common.cache_bytes / 16 * 11).max(DIRTY_BYTES_MIN)
    }
}
