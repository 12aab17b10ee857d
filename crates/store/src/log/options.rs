//! Options and statistics of a log.

use std::time::Duration;

use crate::{Durability, Lsn};

/// A secret of the volume: the checksums of records begin with it, so that users' data in records
/// cannot pass for a record. It does not protect the log's bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct LogKey(pub [u8; 16]);

impl std::fmt::Debug for LogKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogKey(..)")
    }
}

/// How a log behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogOptions {
    /// The volume's secret, the same at every opening.
    pub key: LogKey,
    /// Whether [`crate::Log::committed`] waits for the disk.
    pub durability: Durability,
    /// Maximum time that a record stays unsynced while a thread calls [`crate::Log::flush_if_due`].
    pub interval: Duration,
    /// Maximum time that the syncing thread waits, before it begins, for as many threads as the
    /// last sync served (decision 0013).
    pub window: Duration,
    /// Buffered bytes from which a committer writes them.
    pub write_bytes: usize,
    /// Buffered bytes from which committers wait.
    pub buffer_bytes_max: usize,
    /// Length of a segment, which is the unit of pre-allocation and of trimming.
    pub segment_bytes: u64,
    /// Maximum bytes of segments that are kept although recovery does not need them, for
    /// [`crate::Log::read`].
    pub keep_bytes: u64,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            key: LogKey::default(),
            durability: Durability::Async,
            interval: Duration::from_secs(5),
            window: Duration::from_micros(200),
            write_bytes: 1 << 20,
            buffer_bytes_max: 16 << 20,
            segment_bytes: 8 << 20,
            keep_bytes: 0,
        }
    }
}

/// Maximum length of the reserve: some ten thousand records that delete.
const RESERVE_BYTES_MAX: u64 = 1 << 20;

impl LogOptions {
    /// Length of the spare segment that only [`crate::LogSpace::Reserve`] may use.
    pub(super) fn reserve_bytes(&self) -> u64 {
        self.segment_bytes.min(RESERVE_BYTES_MAX)
    }
}

/// Counters of a log since it was opened, and its present contents. Sizes in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogStats {
    /// The last record that was appended.
    pub last: Lsn,
    /// The last record known to be durable.
    pub durable: Lsn,
    /// Disk space of all segments and spares.
    pub disk_bytes: u64,
    /// Segments that hold records.
    pub segments: u64,
    /// Appended since opening, headers included. A replay from the first of two readings to the
    /// second would read their difference.
    pub appended_bytes: u64,
    /// Written since opening.
    pub written_bytes: u64,
    /// Writes since opening.
    pub writes: u64,
    /// `fdatasync` calls since opening.
    pub syncs: u64,
}

/// What opening found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Records that were replayed.
    pub replayed: u64,
    /// Bytes of records that a crash truncated before they were durable.
    pub torn_bytes: u64,
}
