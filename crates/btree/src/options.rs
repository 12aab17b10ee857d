//! How a store is opened.

use std::time::Duration;

use store::{Durability, LogKey, LogOptions};

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// The volume's id: files of another volume are refused.
    pub volume: [u8; 16],
    /// The volume's secret.
    pub log_key: LogKey,
    /// Memory for nodes, in bytes. Up to three quarters of it may hold
    /// what is not on disk yet, while that is being written.
    pub cache_bytes: usize,
    /// When commits are durable.
    pub durability: Durability,
    /// Longest time that a commit stays unsynced in async mode.
    pub log_interval: Duration,
    /// Log bytes from which the log is written in async mode.
    pub log_write_bytes: usize,
    /// Length of a log segment.
    pub log_segment_bytes: u64,
    /// Log bytes since the last checkpoint from which one is due: what a crash makes replay.
    pub checkpoint_bytes: u64,
    /// Estimated time of a replay from which a checkpoint is due.
    pub replay_max: Duration,
}

/// Half of the two seconds in which a volume shall open after a crash: the log grows on while the
/// checkpoint is written, and there is more to opening than the replay.
const REPLAY_MAX: Duration = Duration::from_secs(1);

/// Less than this for changed nodes would make a checkpoint of every few commits.
const DIRTY_BYTES_MIN: usize = 256 << 10;

impl Default for Options {
    fn default() -> Options {
        let log = LogOptions::default();
        Options {
            volume: [0; 16],
            log_key: log.key,
            cache_bytes: 256 << 20,
            durability: log.durability,
            log_interval: log.interval,
            log_write_bytes: log.write_bytes,
            log_segment_bytes: log.segment_bytes,
            checkpoint_bytes: 128 << 20,
            replay_max: REPLAY_MAX,
        }
    }
}

impl Options {
    /// Bytes of changed nodes from which a checkpoint is due. What is changed again while it is
    /// written is there twice until the older copy is written.
    pub(crate) fn dirty_bytes_due(&self) -> usize {
        (self.cache_bytes / 16 * 9).max(DIRTY_BYTES_MIN / 4 * 3)
    }

    /// Bytes of changed nodes from which committers make a checkpoint themselves, where nobody
    /// has said that somebody else will.
    pub(crate) fn dirty_bytes_max(&self) -> usize {
        (self.cache_bytes / 8 * 5).max(DIRTY_BYTES_MIN)
    }

    /// The same where somebody has.
    pub(crate) fn dirty_bytes_alone(&self) -> usize {
        (self.cache_bytes / 16 * 11).max(DIRTY_BYTES_MIN)
    }

    /// Bytes of changed nodes from which committers wait for the checkpoint that is being written.
    /// The rest of the cache is for reading.
    pub(crate) fn dirty_bytes_limit(&self) -> usize {
        (self.cache_bytes / 4 * 3).max(DIRTY_BYTES_MIN * 2)
    }

    pub(crate) fn log(&self) -> LogOptions {
        LogOptions {
            key: self.log_key,
            durability: self.durability,
            interval: self.log_interval,
            write_bytes: self.log_write_bytes,
            segment_bytes: self.log_segment_bytes,
            ..LogOptions::default()
        }
    }
}
