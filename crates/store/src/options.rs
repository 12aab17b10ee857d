//! Options common to all engines.

use std::time::Duration;

use crate::{Durability, LogKey, LogOptions, LogPlace, TreeId};

/// How a store is opened, whatever its engine.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The volume's id: files of another volume are refused.
    pub volume: [u8; 16],
    /// The volume's secret.
    pub log_key: LogKey,
    /// Memory for an engine's cache and for data that is not on disk yet, in bytes. The engine
    /// divides it.
    pub cache_bytes: usize,
    /// When commits are durable.
    pub durability: Durability,
    /// Where the log is.
    pub log_place: LogPlace,
    /// Maximum time that a commit stays unsynced in async mode.
    pub log_interval: Duration,
    /// Log bytes from which the log is written in async mode.
    pub log_write_bytes: usize,
    /// Log bytes in memory from which commits wait.
    pub log_buffer_bytes: usize,
    /// Length of a log segment.
    pub log_segment_bytes: u64,
    /// Maximum log bytes that are kept, though no recovery replays them, for
    /// [`crate::Pinned::logged_since`].
    pub log_keep_bytes: u64,
    /// Log bytes since the last checkpoint from which one is due: the bytes that recovery replays.
    pub checkpoint_bytes: u64,
    /// A tree that shares no 4 KiB of a file, which a disk may lose as one unit, with any other
    /// tree. It holds copies of what another holds.
    pub isolated_tree: Option<TreeId>,
}

/// A lower limit for unflushed data would cause a checkpoint every few commits.
pub const DIRTY_BYTES_MIN: usize = 256 << 10;

/// The part of the disk that is reserved for checkpoints, as a divisor.
const KEPT_SHARE: u64 = 32;
/// Maximum of that reserve.
const KEPT_BYTES_MAX: u64 = 32 << 20;

/// Bytes of a disk that commits which add data must leave free, so that later deletions can be made
/// durable and their space reclaimed.
pub fn kept_for_checkpoints(space: &device::Space) -> u64 {
    (space.total_bytes / KEPT_SHARE).min(KEPT_BYTES_MAX)
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        let log = LogOptions::default();
        EngineOptions {
            volume: [0; 16],
            log_key: log.key,
            cache_bytes: 256 << 20,
            durability: log.durability,
            log_place: LogPlace::Device,
            log_interval: log.interval,
            log_write_bytes: log.write_bytes,
            log_buffer_bytes: log.buffer_bytes_max,
            log_segment_bytes: log.segment_bytes,
            log_keep_bytes: log.keep_bytes,
            checkpoint_bytes: 128 << 20,
            isolated_tree: None,
        }
    }
}

impl EngineOptions {
    /// The options of the log.
    pub fn log(&self) -> LogOptions {
        LogOptions {
            key: self.log_key,
            durability: self.durability,
            interval: self.log_interval,
            write_bytes: self.log_write_bytes.min(self.log_buffer_bytes),
            buffer_bytes_max: self.log_buffer_bytes,
            segment_bytes: self.log_segment_bytes,
            keep_bytes: self.log_keep_bytes,
            ..LogOptions::default()
        }
    }

    /// Bytes that are only in memory, including those being written, from which commits wait for
    /// the checkpoint. The rest of the cache is for reading.
    pub fn dirty_bytes_limit(&self) -> usize {
        (self.cache_bytes / 4 * 3).max(DIRTY_BYTES_MIN * 2)
    }
}
