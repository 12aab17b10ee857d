//! Counters of a store.

use crate::Durability;

/// Counters of a store. Sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// `btree`, `lsm` or `memory`.
    pub engine: &'static str,
    /// When commits are durable.
    pub durability: Durability,
    /// Trees that exist.
    pub trees: u64,
    /// Trees that were dropped and are not reclaimed yet.
    pub dropping: u64,
    /// Disk space of the engine's files, without the log.
    pub disk_bytes: u64,
    /// Disk space of the log.
    pub log_bytes: u64,
    /// Part of the log since the last checkpoint: what an opening would replay.
    pub log_bytes_since_checkpoint: u64,
    /// Bytes written since opening, log included.
    pub written_bytes: u64,
    /// Writes since opening, log included. The mean write has `written_bytes / writes`.
    pub writes: u64,
    /// Part of `written_bytes` that checkpoints wrote.
    pub checkpoint_bytes: u64,
    /// Part of `writes` that checkpoints made.
    pub checkpoint_writes: u64,
    /// Part of `written_bytes` that compactions of runs wrote.
    pub merge_bytes: u64,
    /// Part of `written_bytes` that ingested runs took.
    pub ingest_bytes: u64,
    /// Bytes that callers wrote since opening: log records, and keys and values of runs that
    /// bypassed the log.
    pub given_bytes: u64,
    /// Commits since opening: `written_bytes / commits` is the disk's cost of one.
    pub commits: u64,
    /// `fdatasync` calls since opening.
    pub syncs: u64,
    /// Memory of cached nodes.
    pub cache_bytes: u64,
    /// Wall-clock time of the last checkpoint, in nanoseconds since 1970.
    pub last_checkpoint: Option<i64>,
    /// Checkpoints since opening.
    pub checkpoints: u64,
    /// Log records that opening replayed.
    pub replayed: u64,
    /// Compaction state, in an engine that compacts.
    pub merges: Option<MergeStats>,
}

impl Stats {
    /// Bytes written for each byte that callers wrote, since opening; 0 before they wrote any.
    pub fn write_amplification(&self) -> f64 {
        if self.given_bytes == 0 {
            0.0
        } else {
            self.written_bytes as f64 / self.given_bytes as f64
        }
    }
}

/// Value logs of the durable state: blobs of rows that runs point to and that are not compacted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ValueLogStats {
    /// Values of at least this many bytes go to a value log; 0: none do.
    pub values_from: u64,
    /// Number of value logs.
    pub logs: u64,
    /// Their bytes on disk.
    pub disk_bytes: u64,
    /// Bytes of the keys and values of all their rows.
    pub rows_bytes: u64,
    /// Part of them that runs point to.
    pub live_bytes: u64,
    /// Logs of which less than half is live: they are emptied next.
    pub sparse: u64,
    /// Bytes written to value logs since opening.
    pub written_bytes: u64,
}

/// Compactions since opening, the running one, and the next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MergeStats {
    /// Completed compactions.
    pub ended: u64,
    /// Part of them that emptied value logs with little live data.
    pub cleaned: u64,
    /// Value logs.
    pub logs: ValueLogStats,
    /// For the running compaction: bytes written, and bytes of its input.
    pub under_way: Option<(u64, u64)>,
    /// For the next planned compaction: how many runs, and their bytes.
    pub next: Option<(u64, u64)>,
    /// Runs of the deepest tree of the durable state.
    pub depth: u64,
    /// Maximum bytes per second; 0: no bound.
    pub rate: u64,
}
