//! Segments: the files of the log, and how one is created, used, and reused.
//!
//! A segment is created as `spare-N`: fully allocated, with arbitrary content. To be used, it gets
//! a header, is synced, and only then renamed to `<first LSN in hex>.log`. `sync_dir` makes that
//! name durable before the first record is written. So a named segment has an intact header and a
//! predecessor that was synced to its end. Trimming removes a segment, renames it back to a spare,
//! or renames it to `<first LSN in hex>.kept` where readers need its records. Files that recovery
//! must not use have names that it ignores.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::{Device, File};
use format::log_record;
use format::log_segment::{RECORDS_START, SegmentHeader};

use super::LogKey;
use crate::{Error, Result};

/// Start of a spare's name.
pub(super) const SPARE_PREFIX: &str = "spare-";

/// End of the name of a segment with records.
pub(super) const SEGMENT_SUFFIX: &str = ".log";

/// End of the name of a segment that recovery does not need.
pub(super) const KEPT_SUFFIX: &str = ".kept";

/// The directory of the log.
pub(super) struct Files {
    pub(super) device: Arc<dyn Device>,
    pub(super) directory: String,
    pub(super) volume: [u8; 16],
    /// The seed of record checksums.
    pub(super) seed: u32,
    /// Number of the next spare.
    pub(super) next_spare: AtomicU64,
}

/// A segment without an LSN name yet.
pub(super) struct Spare {
    pub(super) path: String,
    pub(super) bytes: u64,
}

/// A segment with records.
pub(super) struct Segment {
    pub(super) first: u64,
    pub(super) bytes: u64,
    pub(super) path: String,
}

/// State of the leader: the segments, and the last one's file.
pub(super) struct Writer {
    pub(super) segments: VecDeque<Segment>,
    /// Segments that recovery no longer needs.
    pub(super) kept: Kept,
    /// None in a log that is in objects.
    pub(super) file: Option<Arc<dyn File>>,
    /// Write offset in the last segment.
    pub(super) offset: u64,
    /// Number of the record to be written there.
    pub(super) next: u64,
    /// Whether bytes were written since the last sync.
    pub(super) unsynced: bool,
}

/// Segments before those that recovery needs, without gaps between them or to those, and the
/// positions of their readers.
#[derive(Default)]
pub(super) struct Kept {
    /// The oldest first.
    pub(super) segments: VecDeque<Segment>,
    /// Records after each of these numbers are requested. `None` until the first request: all are
    /// kept then.
    pub(super) wanted: Option<Vec<u64>>,
}

impl Kept {
    /// Disk space that they take.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Takes out segments that no reader needs, or that exceed `bytes_max`. Recovery needs the
    /// records from `needed` on.
    pub(super) fn surplus(&mut self, needed: u64, bytes_max: u64) -> Vec<Segment> {
        let mut gone = Vec::new();
        loop {
            let first = self.segments.front().map_or(needed, |segment| segment.first);
            let second = self.segments.get(1).map_or(needed, |segment| segment.first);
            let is_wanted = match &mut self.wanted {
                None => true,
                Some(wanted) => {
                    // If a reader's records are no longer complete, the rest of them is useless.
                    wanted.retain(|after| after + 1 >= first);
                    wanted.iter().any(|after| after + 1 < second)
                }
            };
            if is_wanted && self.bytes() <= bytes_max {
                return gone;
            }
            let Some(oldest) = self.segments.pop_front() else { return gone };
            gone.push(oldest);
        }
    }
}

/// Counters for `stats`.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) written_bytes: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) syncs: AtomicU64,
}

impl Files {
    pub(super) fn new(
        device: Arc<dyn Device>,
        directory: &str,
        volume: [u8; 16],
        key: LogKey,
    ) -> Files {
        Files {
            device,
            directory: directory.to_owned(),
            volume,
            seed: log_record::seed(&key.0),
            next_spare: AtomicU64::new(0),
        }
    }

    /// Path of the segment that begins with a record.
    pub(super) fn segment_path(&self, first: u64) -> String {
        format!("{}/{first:016x}{SEGMENT_SUFFIX}", self.directory)
    }

    /// Path of the same segment when only readers of changes need it.
    pub(super) fn kept_path(&self, first: u64) -> String {
        format!("{}/{first:016x}{KEPT_SUFFIX}", self.directory)
    }

    /// A path for a spare, not used before.
    pub(super) fn spare_path(&self) -> String {
        let number = self.next_spare.fetch_add(1, Ordering::Relaxed);
        format!("{}/{SPARE_PREFIX}{number}", self.directory)
    }

    /// Allocates a segment. When the disk is full, the partial file is removed.
    pub(super) fn make_spare(&self, bytes: u64) -> Result<Spare> {
        let path = self.spare_path();
        let made = self.device.create(&path).and_then(|file| file.allocate(0, bytes));
        match made {
            Ok(()) => Ok(Spare { path, bytes }),
            Err(error) => {
                if self.device.metadata(&path)?.is_some() {
                    self.device.remove(&path)?;
                }
                Err(if error.is_no_space() { Error::NoSpace("the log") } else { error.into() })
            }
        }
    }

    /// Gives a spare its header and its name, durably.
    pub(super) fn name_spare(
        &self,
        first: u64,
        spare: &Spare,
    ) -> device::Result<(Segment, Arc<dyn File>)> {
        let header = SegmentHeader { volume: self.volume, first, bytes: spare.bytes };
        let file = self.device.open(&spare.path)?;
        file.write_at(&header.encode(), 0)?;
        file.sync_data()?;
        let path = self.segment_path(first);
        self.device.rename(&spare.path, &path)?;
        self.device.sync_dir(&self.directory)?;
        let file = self.device.open(&path)?;
        Ok((Segment { first, bytes: spare.bytes, path }, file))
    }
}

impl Writer {
    /// The writer of a log that is in objects: it has no segments, and writes nothing.
    pub(super) fn without_files(next: u64) -> Writer {
        let (segments, kept) = (VecDeque::new(), Kept::default());
        Writer { segments, kept, file: None, offset: RECORDS_START, next, unsynced: false }
    }

    fn file(&self) -> &dyn File {
        self.file.as_deref().expect("invariant: only a log in files writes segments")
    }

    /// Bytes left in the last segment.
    pub(super) fn space(&self) -> u64 {
        self.segments.back().map_or(0, |last| last.bytes.saturating_sub(self.offset))
    }

    /// Writes records to the last segment.
    pub(super) fn put(&mut self, bytes: &[u8], counters: &Counters) -> device::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        assert!(bytes.len() as u64 <= self.space(), "records were given space when appended");
        self.unsynced = true;
        self.file().write_at(bytes, self.offset)?;
        self.offset += bytes.len() as u64;
        counters.writes.fetch_add(1, Ordering::Relaxed);
        counters.written_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Makes the last segment durable.
    pub(super) fn sync(&mut self, counters: &Counters) -> device::Result<()> {
        if self.unsynced {
            self.file().sync_data()?;
            self.unsynced = false;
            counters.syncs.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Writes a mark after the last record, which states that everything before was synced. The
    /// mark is not synced itself, and the next record overwrites it. It helps recovery after a
    /// crash of the process, and later bit rot, not after power loss. Without it, damage to the
    /// last records could go unnoticed.
    pub(super) fn mark(&mut self, seed: u32) -> device::Result<()> {
        let last = self.next - 1;
        let mark = log_record::encode(log_record::sum_payload(seed, &[]), 0, last, last);
        if mark.len() as u64 <= self.space() {
            self.file().write_at(&mark, self.offset)?;
        }
        Ok(())
    }

    /// Ends the last segment and begins another.
    pub(super) fn rotate(
        &mut self,
        files: &Files,
        first: u64,
        spare: &Spare,
        counters: &Counters,
    ) -> device::Result<()> {
        self.sync(counters)?;
        let (segment, file) = files.name_spare(first, spare)?;
        counters.syncs.fetch_add(2, Ordering::Relaxed);
        // A segment without records, too short for the first one, was replaced under its name.
        if self.segments.back().is_some_and(|last| last.first == first) {
            self.segments.pop_back();
        }
        self.segments.push_back(segment);
        self.file = Some(file);
        self.offset = RECORDS_START;
        Ok(())
    }
}
