//! What every engine keeps beside its trees: its log, its counters, and the checkpoint waker.
//!
//! An engine is created before its log, because opening the log replays into the engine. The log is
//! set once, before the store is returned to its caller.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use device::sync::Mutex;
use format::log_record::HEADER_BYTES;

use crate::{Durability, Log, Stats, Waker};

/// Writers of data beside the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// A checkpoint, or pre-flushing before one.
    Checkpoint,
    /// A compaction of runs.
    Merge,
    /// An ingested run.
    Ingest,
}

/// Bytes and writes.
#[derive(Debug, Default)]
struct Written {
    bytes: AtomicU64,
    writes: AtomicU64,
}

/// The log of an engine, and its counters since it was opened.
#[derive(Default)]
pub struct Journal {
    log: OnceLock<Log>,
    /// The last record when the log was opened.
    opened_at: AtomicU64,
    /// Bytes of records that opening replayed. The log counts what is appended later: a counter
    /// here would be one more cache line that all commits write.
    replayed_bytes: AtomicU64,
    replayed: AtomicU64,
    /// Log bytes when the last checkpoint was frozen.
    checkpointed_bytes: AtomicU64,
    checkpoints: AtomicU64,
    last_checkpoint: AtomicI64,
    /// In the order of [`Writer`].
    written: [Written; 3],
    syncs: AtomicU64,
    /// Keys and values that bypassed the log.
    given_beside: AtomicU64,
    closed: AtomicBool,
    /// Called once between two freezes when a checkpoint should start.
    waker: Mutex<Option<Waker>>,
    woken: AtomicBool,
}

impl Journal {
    /// Sets the log, which was opened by replaying into the engine.
    pub fn set_log(&self, log: Log) {
        self.opened_at.store(log.last().0, Ordering::Relaxed);
        assert!(self.log.set(log).is_ok(), "the log is set once");
    }

    /// The log of a store that is open.
    #[inline]
    pub fn log(&self) -> &Log {
        self.log.get().expect("invariant: the log is set before the store is handed out")
    }

    /// The log; none while it is replayed.
    #[inline]
    pub fn opened_log(&self) -> Option<&Log> {
        self.log.get()
    }

    /// Counts a record that opening replays.
    pub fn replays(&self, payload: &[u8]) {
        let bytes = (HEADER_BYTES + payload.len()) as u64;
        self.replayed_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.replayed.fetch_add(1, Ordering::Relaxed);
    }

    /// Records appended since opening.
    pub fn commits(&self) -> u64 {
        let last = self.log.get().map_or(0, |log| log.last().0);
        last.saturating_sub(self.opened_at.load(Ordering::Relaxed))
    }

    /// Bytes of log records that were replayed or appended.
    pub fn log_bytes(&self) -> u64 {
        let appended = self.log.get().map_or(0, Log::appended_bytes);
        self.replayed_bytes.load(Ordering::Relaxed) + appended
    }

    /// The same, approximately: it may report less, but reads no cache line that all commits write.
    #[inline]
    pub fn log_bytes_about(&self) -> u64 {
        let appended = self.log.get().map_or(0, Log::appended_about);
        self.replayed_bytes.load(Ordering::Relaxed) + appended
    }

    /// Records that were replayed or appended.
    pub fn log_records(&self) -> u64 {
        self.replayed.load(Ordering::Relaxed) + self.commits()
    }

    /// Log bytes since the last checkpoint was frozen.
    pub fn log_bytes_since(&self) -> u64 {
        self.log_bytes().saturating_sub(self.checkpointed_bytes.load(Ordering::Relaxed))
    }

    /// Records that a checkpoint was frozen at this many log bytes.
    pub fn checkpointed(&self, log_bytes: u64) {
        self.checkpointed_bytes.store(log_bytes, Ordering::Relaxed);
    }

    /// Sets the wall-clock time of the last checkpoint, in nanoseconds since 1970, as read from
    /// disk.
    pub fn found_checkpoint(&self, time: i64) {
        self.last_checkpoint.store(time, Ordering::Relaxed);
    }

    /// Counts a checkpoint made at this time.
    pub fn made_checkpoint(&self, time: i64) {
        self.last_checkpoint.store(time, Ordering::Relaxed);
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts data written beside the log.
    pub fn wrote(&self, writer: Writer, bytes: u64, writes: u64) {
        let written = &self.written[writer as usize];
        written.bytes.fetch_add(bytes, Ordering::Relaxed);
        written.writes.fetch_add(writes, Ordering::Relaxed);
    }

    /// Counts callers' keys and values that bypassed the log.
    pub fn gave(&self, bytes: u64) {
        self.given_beside.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts syncs beside those of the log.
    pub fn synced(&self, syncs: u64) {
        self.syncs.fetch_add(syncs, Ordering::Relaxed);
    }

    /// Bytes that compactions wrote.
    pub fn merged_bytes(&self) -> u64 {
        self.written[Writer::Merge as usize].bytes.load(Ordering::Relaxed)
    }

    /// Refuses further commits.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Whether the store was closed.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Sets the function to call when a checkpoint should start.
    pub fn set_waker(&self, wake: Waker) {
        *self.waker.lock() = Some(wake);
    }

    /// Whether a waker is set.
    pub fn has_waker(&self) -> bool {
        self.waker.lock().is_some()
    }

    /// Calls the waker, once between two freezes, because a checkpoint should start.
    pub fn wake(&self) {
        if !self.woken.load(Ordering::Relaxed)
            && !self.woken.swap(true, Ordering::Relaxed)
            && let Some(wake) = self.waker.lock().clone()
        {
            wake();
        }
    }

    /// A checkpoint was frozen: the waker may be called for the next one.
    pub fn may_wake(&self) {
        self.woken.store(false, Ordering::Relaxed);
    }

    /// The counters that all engines have; the others are zero.
    pub fn stats(&self, engine: &'static str, durability: Durability) -> Stats {
        let log = self.log().stats();
        let of = |writer: Writer| {
            let written = &self.written[writer as usize];
            (written.bytes.load(Ordering::Relaxed), written.writes.load(Ordering::Relaxed))
        };
        let [checkpoint, merge, ingest] =
            [Writer::Checkpoint, Writer::Merge, Writer::Ingest].map(of);
        let last_checkpoint = self.last_checkpoint.load(Ordering::Relaxed);
        Stats {
            engine,
            durability,
            trees: 0,
            dropping: 0,
            disk_bytes: 0,
            log_bytes: log.disk_bytes,
            written_bytes: log.written_bytes + checkpoint.0 + merge.0 + ingest.0,
            writes: log.writes + checkpoint.1 + merge.1 + ingest.1,
            checkpoint_bytes: checkpoint.0,
            checkpoint_writes: checkpoint.1,
            merge_bytes: merge.0,
            ingest_bytes: ingest.0,
            given_bytes: log.appended_bytes + self.given_beside.load(Ordering::Relaxed),
            commits: self.commits(),
            syncs: log.syncs + self.syncs.load(Ordering::Relaxed),
            cache_bytes: 0,
            last_checkpoint: (last_checkpoint != 0).then_some(last_checkpoint),
            checkpoints: self.checkpoints.load(Ordering::Relaxed),
            replayed: self.replayed.load(Ordering::Relaxed),
            merges: None,
        }
    }
}
