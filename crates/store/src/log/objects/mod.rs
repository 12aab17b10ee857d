//! The log as numbered objects `log/EPOCH/NUMBER` of an object store: one create-if-absent object a
//! group commit, several being written at the same time.
//!
//! An opening of a store has an epoch of its own, and writes only below that. Invariants:
//! * Numbers count from 1 without gaps. A number is never used for other bytes: an attempt of
//!   unknown outcome is repeated until its outcome is known (`send`).
//! * An object is acknowledged only when all lower numbers exist and are this opening's. So one
//!   that was created behind a hole counts for nothing.
//! * The bytes name the opening (`format::log_object`). An object under one of its numbers that
//!   has other bytes was made by another opening: then this one was replaced.
//! * Nothing is written before the opening's manifest names this log ([`ObjectLog::announce`]).
//! * Only objects that a listed manifest made superfluous are deleted, and no seal ever (`trim`).
//!
//! `recover` seals and reads the log of an earlier opening, and `read` reads this one. `grant`
//! proves that this opening still owns the store. `end` seals this log when its owner ends in
//! order.

mod end;
mod grant;
mod read;
mod recover;
mod send;
mod trim;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::Blobs;
use device::sync::Mutex;
use format::log_object::{Decoded, Kind, LogObject, VERSION};

pub use self::grant::Grant;
pub use self::recover::ObjectPlace;

use super::stage::Buffers;
use crate::{Error, LogObjects, Lsn, ObjectLogSettings, Result};

/// The directory of logs in an object store.
const DIRECTORY: &str = "log";

/// An opening of a store in an object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// The number of its claim manifest. No other opening has it.
    pub epoch: u64,
    /// Random, so that what two openings make is never equal.
    pub id: [u8; 16],
}

/// Where a log continues after a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPosition {
    /// The epoch whose log it is.
    pub epoch: u64,
    /// The first object that may have records that the state does not contain.
    pub number: u64,
}

impl LogPosition {
    /// The beginning of the log of an opening.
    pub fn start_of(opening: Opening) -> LogPosition {
        LogPosition { epoch: opening.epoch, number: 1 }
    }
}

/// The name of an object.
pub(super) fn object_name(epoch: u64, number: u64) -> String {
    format!("{DIRECTORY}/{epoch:016x}/{number:016x}")
}

/// The prefix of the objects of an epoch.
fn prefix(epoch: u64) -> String {
    format!("{DIRECTORY}/{epoch:016x}/")
}

/// The epoch and number that a name states, if it has this form.
fn parse_name(name: &str) -> Option<(u64, u64)> {
    let (epoch, number) = name.strip_prefix(DIRECTORY)?.strip_prefix('/')?.split_once('/')?;
    let of = |hex: &str| u64::from_str_radix(hex, 16).ok();
    let (epoch, number) = (of(epoch)?, of(number)?);
    (object_name(epoch, number) == name).then_some((epoch, number))
}

/// The records of an object.
#[derive(Debug, Clone, Copy)]
struct Placed {
    number: u64,
    first: u64,
    last: u64,
    bytes: u64,
}

/// What is known of an object that is being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// An attempt failed, and no thread repeats it.
    Idle,
    /// A thread writes it.
    Sending,
    /// It exists. A request that created it was sent at this time, or later.
    Made(Duration),
}

/// An object that is not acknowledged yet.
struct Flight {
    placed: Placed,
    bytes: Arc<Vec<u8>>,
    progress: Progress,
    /// When the first request for it was sent.
    sent: Option<Duration>,
}

/// State of the objects of this opening.
struct Inner {
    /// Number of the next object.
    next: u64,
    /// The last record that is in an object.
    taken: u64,
    /// Acknowledged objects that no manifest made superfluous.
    live: VecDeque<Placed>,
    /// Objects that are not acknowledged; the first of them is next to be.
    flights: VecDeque<Flight>,
    /// A time at which this opening owned the store.
    proof: Option<Duration>,
    /// Whether a listed manifest names this log.
    announced: bool,
    /// It ended in order: there are no grants any more.
    ended: bool,
    /// Objects to delete, by name, and whether older logs were searched for such.
    doomed: VecDeque<String>,
    swept: bool,
    /// When the last group was taken.
    started: Option<Duration>,
}

/// The objects of an opening's log.
pub(super) struct ObjectLog {
    blobs: Arc<dyn Blobs>,
    settings: ObjectLogSettings,
    volume: [u8; 16],
    opening: Opening,
    inner: Mutex<Inner>,
    /// Whether the last attempt to write an object failed. Committers wait meanwhile.
    stalled: AtomicBool,
    /// From when on this opening may acknowledge changes: no grant of an earlier one is left then.
    serve_from: Duration,
}

/// What a thread that waits for a record does next.
enum Step {
    /// Takes the buffered records as the next object, and writes it.
    Take,
    /// Writes this object, because an attempt failed.
    Send(u64),
    /// Waits for other threads.
    Wait,
}

impl ObjectLog {
    /// The log of an opening, which has no objects. `last` is the last record before it.
    fn new(
        objects: &LogObjects,
        volume: [u8; 16],
        opening: Opening,
        last: Lsn,
        serve_from: Duration,
    ) -> ObjectLog {
        let inner = Inner {
            next: 1,
            taken: last.0,
            live: VecDeque::new(),
            flights: VecDeque::new(),
            proof: None,
            announced: false,
            ended: false,
            doomed: VecDeque::new(),
            swept: false,
            started: None,
        };
        ObjectLog {
            blobs: Arc::clone(&objects.blobs),
            settings: objects.settings.clone(),
            volume,
            opening,
            inner: Mutex::new(inner),
            stalled: AtomicBool::new(false),
            serve_from,
        }
    }

    /// A listed manifest names this log: records may be written.
    pub(super) fn announce(&self) {
        self.inner.lock().announced = true;
    }

    /// Whether the last attempt to write an object failed.
    pub(super) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }

    /// Whether an object waits for a thread that writes it.
    pub(super) fn has_idle(&self) -> bool {
        self.inner.lock().flights.iter().any(|flight| flight.progress == Progress::Idle)
    }

    /// Number and bytes of the objects that recovery would read.
    pub(super) fn extent(&self) -> (u64, u64) {
        let inner = self.inner.lock();
        let flights = inner.flights.iter().map(|flight| flight.placed.bytes);
        let bytes = inner.live.iter().map(|placed| placed.bytes).chain(flights);
        bytes.fold((0, 0), |(count, sum), bytes| (count + 1, sum + bytes))
    }

    /// Whether so many objects follow the last checkpoint that one is due.
    pub(super) fn is_long(&self) -> bool {
        let inner = self.inner.lock();
        (inner.live.len() + inner.flights.len()) as u64 >= self.settings.objects_max
    }

    /// Where the log continues after a state with all records up to this one.
    pub(super) fn position(&self, lsn: Lsn) -> LogPosition {
        let inner = self.inner.lock();
        let flights = inner.flights.iter().map(|flight| &flight.placed);
        let next = inner.live.iter().chain(flights).find(|placed| placed.last > lsn.0);
        let number = next.map_or(inner.next, |placed| placed.number);
        LogPosition { epoch: self.opening.epoch, number }
    }

    /// What a thread does next that waits for a record.
    fn step(&self, lsn: u64) -> Step {
        let inner = self.inner.lock();
        let idle = inner.flights.iter().find(|flight| flight.progress == Progress::Idle);
        match idle {
            Some(flight) => Step::Send(flight.placed.number),
            None if inner.taken < lsn && inner.flights.len() < self.settings.in_flight.max(1) => {
                Step::Take
            }
            None => Step::Wait,
        }
    }

    /// Makes the next object of the records in `buffers`, the last of which is `last`. Returns its
    /// number; none if there are no records. The calling thread writes it.
    fn push(&self, buffers: &mut Buffers, last: u64, now: Duration) -> Option<u64> {
        let count = buffers.len() as u64;
        let mut inner = self.inner.lock();
        inner.started = Some(now);
        if count == 0 {
            return None;
        }
        assert!(inner.taken + count == last, "records are written without gaps");
        let mut records = Vec::new();
        loop {
            let some = buffers.before(last + 1);
            if some.is_empty() {
                break;
            }
            records.extend_from_slice(some);
        }
        let (number, first) = (inner.next, inner.taken + 1);
        let Opening { epoch, id } = self.opening;
        let kind = Kind::Records { first, count };
        let object = LogObject { volume: self.volume, opening: id, epoch, number, kind };
        let bytes = Arc::new(object.encode(&records));
        let placed = Placed { number, first, last, bytes: bytes.len() as u64 };
        let flight = Flight { placed, bytes, progress: Progress::Sending, sent: None };
        inner.flights.push_back(flight);
        (inner.next, inner.taken) = (number + 1, last);
        Some(number)
    }

    /// Reads a whole object; `None` if it is absent.
    fn bytes_of(&self, name: &str) -> device::Result<Option<Vec<u8>>> {
        bytes_of(&*self.blobs, name)
    }
}

/// Bytes of the first request for an object: most are shorter, and cost no second one.
const FIRST_BYTES: usize = 256 << 10;

/// Reads a whole object; `None` if it is absent.
fn bytes_of(blobs: &dyn Blobs, name: &str) -> device::Result<Option<Vec<u8>>> {
    let (mut bytes, mut at) = (vec![0; FIRST_BYTES], 0);
    loop {
        match blobs.read_at(name, &mut bytes[at..], at as u64) {
            Ok(read) => at += read,
            // Absent, or deleted meanwhile.
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        }
        if at < bytes.len() {
            bytes.truncate(at);
            return Ok(Some(bytes));
        }
        bytes.resize(bytes.len() * 4, 0);
    }
}

/// Decodes an object, which must have the epoch and number of its name.
fn decode(
    bytes: &[u8],
    volume: [u8; 16],
    (epoch, number): (u64, u64),
) -> Result<(LogObject, &[u8])> {
    let name = object_name(epoch, number);
    match LogObject::decode(bytes) {
        Ok(Decoded::Object(object, records))
            if (object.volume, object.epoch, object.number) == (volume, epoch, number) =>
        {
            Ok((object, records))
        }
        Ok(Decoded::Object(object, _)) => {
            let is_own = object.volume == volume;
            let other = || format!("log {:x}, number {:x}", object.epoch, object.number);
            let found = if is_own { other() } else { "one of another volume".to_owned() };
            Err(format::Corruption {
                file: name,
                offset: 0,
                structure: "log object",
                expected: "the object of its name".to_owned(),
                found,
                unread: false,
            }
            .into())
        }
        Ok(Decoded::Newer(found)) => Err(Error::NewerFormat { file: name, found, known: VERSION }),
        Err(bad) => Err(bad.located(&name, 0).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_as_they_are_made() {
        for place in [(1, 1), (9, u64::MAX), (1 << 40, 3)] {
            assert_eq!(parse_name(&object_name(place.0, place.1)), Some(place));
        }
        for bad in ["log/1/2", "log/0000000000000001", "run/0000000000000001", "log//"] {
            assert_eq!(parse_name(bad), None, "{bad}");
        }
    }
}
