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
    /// Memory for in-memory trees and for blocks of runs, in bytes; half for each. Indexes and
    /// filters of runs are always in memory, and come on top.
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
    /// Bytes of a block of a run before it is packed.
    pub block_bytes: usize,
    /// Level of zstd for blocks, 1 to 19; 0 packs none.
    pub compression: i32,
    /// Bytes of a key that name its directory: a filter also tells which directories a run has.
    pub prefix_bytes: usize,
}

/// Less than this for in-memory trees would make a checkpoint of every few commits.
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
            block_bytes: 16 << 10,
            compression: 1,
            // A letter and the number of the directory.
            prefix_bytes: 9,
        }
    }
}

impl Options {
    /// Bytes of in-memory trees from which a checkpoint is due.
    pub(crate) fn dirty_bytes_due(&self) -> usize {
        (self.cache_bytes / 16 * 5).max(DIRTY_BYTES_MIN)
    }

    /// Bytes from which the thread that commits makes the checkpoint, where nobody else does.
    pub(crate) fn dirty_bytes_max(&self) -> usize {
        (self.cache_bytes / 8 * 3).max(DIRTY_BYTES_MIN / 4 * 5)
    }

    /// Bytes, with those that are being written, from which commits wait for the checkpoint.
    pub(crate) fn dirty_bytes_limit(&self) -> usize {
        (self.cache_bytes / 4 * 3).max(DIRTY_BYTES_MIN * 2)
    }

    /// Bytes of cached blocks.
    pub(crate) fn block_cache_bytes(&self) -> usize {
        self.cache_bytes / 2
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
