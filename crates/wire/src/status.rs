//! The answer to `status`: a volume, its daemon, and the object store that keeps it.

use serde::{Deserialize, Serialize};

use crate::{Bytes, Failure};

/// The state of a volume and of its daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Volume id.
    pub volume: String,
    /// Version of the format on disk.
    pub format_version: u32,
    /// Name of the engine.
    pub engine: String,
    /// `sync` or `async`.
    pub durability: String,
    /// The daemon's process.
    pub pid: u32,
    /// Where it is mounted.
    pub mount_point: Option<Bytes>,
    /// Inodes of all kinds, root included.
    pub files: u64,
    /// Bytes of contents.
    pub bytes: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// Clones.
    pub clones: u64,
    /// Other subvolumes, with the volume's root.
    pub subvolumes: u64,
    /// Disk space of the volume, log included.
    pub disk_bytes: u64,
    /// Disk space of the log.
    pub log_bytes: u64,
    /// Bytes of log records since the last checkpoint: what an opening would replay.
    pub log_bytes_since_checkpoint: u64,
    /// Memory of cached nodes.
    pub cache_bytes: u64,
    /// Bytes written since the daemon opened the volume.
    pub written_bytes: u64,
    /// Writes since then.
    pub writes: u64,
    /// Part of the bytes that checkpoints wrote.
    pub checkpoint_bytes: u64,
    /// Part of the writes that checkpoints made.
    pub checkpoint_writes: u64,
    /// Part of the bytes that compactions wrote.
    pub merge_bytes: u64,
    /// Part of the bytes that ingested runs took.
    pub ingest_bytes: u64,
    /// Bytes that operations wrote to the store.
    pub given_bytes: u64,
    /// Compaction state, in an engine that compacts.
    pub merges: Option<Merges>,
    /// Checkpoints since then.
    pub checkpoints: u64,
    /// Batches committed since then.
    pub commits: u64,
    /// Log records that opening replayed.
    pub replayed: u64,
    /// Inodes referenced by the kernel and other clients.
    pub nodes: u64,
    /// When the volume was created, in nanoseconds since 1970.
    pub created: i64,
    /// Wall-clock time of the last checkpoint, in nanoseconds since 1970.
    pub last_checkpoint: Option<i64>,
    /// Pending background work.
    pub background: Background,
    /// Why the store refuses writes, if it does.
    pub read_only: Option<String>,
    /// Known damage to the volume's own records, found when they were read.
    pub damaged: Option<String>,
    /// Background removals that cannot proceed.
    pub stuck: Option<Stuck>,
    /// The object store that keeps the volume, if one does.
    pub store: Option<StoreStatus>,
}

/// The object store of a volume, and what the daemon requested of it since it started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreStatus {
    /// Its URL.
    pub url: String,
    /// Requests that create objects.
    pub creates: u64,
    /// Requests that read.
    pub reads: u64,
    /// Requests that list names.
    pub lists: u64,
    /// Requests for lengths.
    pub heads: u64,
    /// Requests that delete.
    pub deletes: u64,
    /// Part of these that repeat one that failed.
    pub retries: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// The cache on the host's disk, if there is one.
    pub cache: Option<StoreCache>,
    /// Seconds since the daemon opened it: the time of these counts.
    pub seconds: u64,
    /// Bytes that it has of the volume, as last measured.
    pub stored_bytes: Option<u64>,
    /// Objects of contents.
    pub content_objects: u64,
    /// How many commits took up to how many milliseconds; `None`: longer than all others.
    pub commit_times: Vec<(Option<u64>, u64)>,
    /// Sum of the times of all commits, in microseconds.
    pub commit_micros: u64,
    /// For how many seconds other hosts have seen no sign of this daemon, if the next one is
    /// overdue: they may replace it.
    pub silent: Option<u64>,
    /// For how many seconds the store has failed requests, and why.
    pub unreachable: Option<(u64, String)>,
    /// For how many seconds changes have waited to become durable, and why.
    pub waits: Option<(u64, String)>,
}

/// The cache of an object store on a host's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreCache {
    /// Reads that it answered.
    pub hits: u64,
    /// Reads that went to the store.
    pub misses: u64,
    /// Bytes in it.
    pub bytes: u64,
}

/// Trees that cannot be reclaimed, as of the last attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stuck {
    /// How many of the waiting trees.
    pub trees: u64,
    /// The failure of one of them.
    pub failure: Failure,
}

/// Compactions since the daemon opened the volume, and the current one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merges {
    /// Completed compactions.
    pub ended: u64,
    /// Part of them that emptied value logs.
    pub cleaned: u64,
    /// Value logs, in a volume that has them.
    pub logs: Option<ValueLogs>,
    /// For the running compaction: bytes written, and bytes of its input.
    pub under_way: Option<(u64, u64)>,
    /// For the next planned one: its runs and their bytes.
    pub next: Option<(u64, u64)>,
    /// Runs of the deepest tree of the durable state. A file has all runs that one checkpoint or
    /// compaction wrote, so there may be more runs than files.
    pub depth: u64,
    /// Maximum bytes per second; 0: no bound.
    pub rate: u64,
}

/// Value logs of a volume with the column-style layout.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueLogs {
    /// Records of at least this many bytes go to a value log.
    pub values_from: u64,
    /// Number of value logs.
    pub logs: u64,
    /// Their bytes on disk.
    pub disk_bytes: u64,
    /// Bytes of all their rows, unpacked.
    pub rows_bytes: u64,
    /// Part of them that is live.
    pub live_bytes: u64,
    /// Logs to be emptied: less than half is live.
    pub sparse: u64,
}

/// Pending background work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Background {
    /// Detached trees that are not reclaimed yet.
    pub detached: u64,
    /// Dropped engine trees that are not freed yet.
    pub dropping: u64,
    /// Clones to be pruned.
    pub prunes: u64,
    /// Bytes of removed contents that are not yet freed on disk.
    pub freeing_bytes: u64,
    /// Bytes of contents freed on disk since the daemon started.
    pub freed_bytes: u64,
    /// Whether garbage collection may find more contents to free.
    pub collecting: bool,
    /// Clones whose files are still being counted.
    pub counting: u64,
    /// Records and nodes reclaimed since the daemon started.
    pub reclaimed: u64,
    /// How many of them in each of the last ten seconds.
    pub reclaimed_a_second: u64,
}

impl Background {
    /// Whether no work is left.
    pub fn is_idle(&self) -> bool {
        self.trees() == 0 && self.freeing_bytes == 0 && !self.collecting
    }

    /// Trees to be removed whose space is not free yet.
    pub fn trees(&self) -> u64 {
        self.detached + self.dropping + self.prunes
    }
}
