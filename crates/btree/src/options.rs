//! Options of a store.

use std::time::Duration;

use store::{DIRTY_BYTES_MIN, EngineOptions};

/// Options of a store.
#[derive(Debug, Clone)]
pub struct Options {
    /// Options that all engines share.
    pub common: EngineOptions,
    /// Estimated time of a replay from which on a checkpoint is due.
    pub replay_max: Duration,
    /// If a checkpoint is due for fewer bytes of changed nodes than this, changed leaves are
    /// pre-flushed instead. That happens as soon as they would make one due. 0: never.
    pub pre_flush_below: usize,
}

/// Half of the two seconds in which a volume must open after a crash. The log grows while the
/// checkpoint is written, and opening takes more than the replay.
const REPLAY_MAX: Duration = Duration::from_secs(1);

/// Where a checkpoint would write less than this, pre-flushing costs less.
const CHECKPOINT_BYTES_MIN: usize = 16 << 20;

impl Default for Options {
    fn default() -> Options {
        Options {
            common: EngineOptions::default(),
            replay_max: REPLAY_MAX,
            pre_flush_below: CHECKPOINT_BYTES_MIN,
        }
    }
}

impl Options {
    /// The defaults, with a cache of `bytes` bytes.
    pub fn with_cache(bytes: usize) -> Options {
        let common = EngineOptions { cache_bytes: bytes, ..EngineOptions::default() };
        Options { common, ..Options::default() }
    }

    /// Bytes of changed nodes from which on a checkpoint is due. A node that changes again while it
    /// is written is in memory twice until the older copy is written.
    pub(crate) fn dirty_bytes_due(&self) -> usize {
        (self.common.cache_bytes / 16 * 9).max(DIRTY_BYTES_MIN / 4 * 3)
    }

    /// Bytes of changed nodes from which on committers make a checkpoint themselves, if no waker
    /// was set.
    pub(crate) fn dirty_bytes_max(&self) -> usize {
        (self.common.cache_bytes / 8 * 5).max(DIRTY_BYTES_MIN)
    }

    /// The same if a waker was set.
    pub(crate) fn dirty_bytes_alone(&self) -> usize {
        (self.common.cache_bytes / 16 * 11).max(DIRTY_BYTES_MIN)
    }
}
