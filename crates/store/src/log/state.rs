//! The state that appenders share, under the log's lock.
//!
//! Invariants: the records `next - n .. next`, which are `buffered` bytes, are staged, or will be
//! when their threads release their stages. Each entry of `cuts` names the record with which a new
//! segment begins. `space` is the space left in the segment that contains the last of them.

use std::sync::Arc;
use std::time::Duration;

use format::log_segment::RECORDS_START;

use super::segment::Spare;
use super::stage::Buffers;
use crate::{Error, Result};

/// Spare segments that only [`LogSpace::Reserve`] may use.
pub(super) const SPARES_RESERVED: usize = 1;

/// Which space an append may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogSpace {
    /// Free disk space.
    Normal,
    /// Also the segment reserved so that data can be deleted when the disk is full.
    Reserve,
}

/// Maximum lag of `Log::appended_about` in bytes, and so the maximum reservation.
pub(super) const ABOUT_BYTES: u64 = 64 << 10;

/// State shared by appenders.
pub(super) struct State {
    /// Bytes reserved from `next` on, while no thread holds the lock.
    pub(super) reserved: Option<u64>,
    /// Buffered bytes at which a thread starts a write, and at which appenders wait.
    pub(super) bounds: [usize; 2],
    /// Time, and bytes appended since opening, when `flush_if_due` was last called; `None` where no
    /// thread calls it.
    pub(super) driven: Option<(Duration, u64)>,
    /// Number of the next record.
    pub(super) next: u64,
    /// Bytes left in the segment at the buffer's end.
    pub(super) space: u64,
    /// Bytes of all records that were appended since opening.
    pub(super) appended: u64,
    /// Bytes of records that no writer has taken yet.
    pub(super) buffered: usize,
    /// The last record known to be durable.
    pub(super) durable: u64,
    /// When the oldest record that no sync covers was appended.
    pub(super) dirty_since: Option<Duration>,
    /// Whether the segment at the buffer's end is the reserved one: the rest of it too is only for
    /// records that delete.
    pub(super) in_reserve: bool,
    /// Whether the next record begins a segment, because the present one was found damaged.
    pub(super) renew: bool,
    /// Why no more writes are possible: `ReadOnly` or `Replaced`.
    pub(super) failed: Option<Error>,
    /// Why no more records are accepted; accepted ones are still written.
    pub(super) refused: Option<Arc<str>>,
    /// Empty buffers into which a writer takes records, while no writer has them.
    pub(super) idle: Buffers,
    /// Where segments begin in the buffered records.
    pub(super) cuts: Vec<Cut>,
    /// Allocated segments that are not used yet.
    pub(super) spares: Vec<Spare>,
    /// Whether a thread is writing, or about to.
    pub(super) writing: bool,
    /// Threads that wait for a sync now, and those that the last sync served.
    pub(super) waiters: usize,
    pub(super) group: usize,
}

/// A new segment begins with record `first`.
pub(super) struct Cut {
    pub(super) first: u64,
    pub(super) spare: Spare,
}

impl State {
    /// Fails when no more records are accepted: an earlier write or sync failed, or the engine
    /// refuses.
    pub(super) fn check(&self) -> Result<()> {
        self.check_written()?;
        match &self.refused {
            Some(why) => Err(Error::ReadOnly(Arc::clone(why))),
            None => Ok(()),
        }
    }

    /// Fails when an earlier write or sync failed, so that no write is possible.
    pub(super) fn check_written(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// How many bytes other threads may take without the lock: as long as a record only needs to be
    /// counted.
    pub(super) fn reservable(&self) -> u64 {
        if self.in_reserve || self.renew || self.dirty_since.is_none() || self.check().is_err() {
            return 0;
        }
        let [due, most] = self.bounds.map(|bound| bound.saturating_sub(self.buffered) as u64);
        // The thread that reaches a bound acts on it, so the reservation ends before it.
        let due = if due > 0 { due - 1 } else { most };
        let counted = ABOUT_BYTES - self.appended % ABOUT_BYTES - 1;
        self.space.min(due).min(most).min(counted)
    }

    /// Counts records that have numbers.
    #[inline]
    pub(super) fn taken(&mut self, records: u64, bytes: u64) {
        assert!(bytes <= self.space, "no more is taken than there is space for");
        self.next += records;
        self.space -= bytes;
        self.buffered += bytes as usize;
        self.appended += bytes;
    }

    /// Begins a new segment after the buffered records.
    pub(super) fn cut(&mut self, spare: Spare) {
        self.space = spare.bytes.saturating_sub(RECORDS_START);
        self.cuts.push(Cut { first: self.next, spare });
        self.renew = false;
    }

    /// Takes a spare segment of at least `need` bytes, if one may be used.
    pub(super) fn take_spare(&mut self, need: u64, space: LogSpace) -> Option<Spare> {
        let kept = if space == LogSpace::Reserve { 0 } else { SPARES_RESERVED };
        let fits = |spare: &Spare| spare.bytes.saturating_sub(RECORDS_START) >= need;
        // The longest: the reserve may be short.
        let fitting = self.spares.iter().enumerate().filter(|(_, spare)| fits(spare));
        let (at, _) = fitting.max_by_key(|(_, spare)| spare.bytes)?;
        (self.spares.len() > kept).then(|| self.spares.remove(at))
    }
}
