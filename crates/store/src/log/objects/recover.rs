//! Opening a log in an object store: the log of the opening before is sealed, and then replayed.
//!
//! The log ends before the first number that is absent. A seal is created there, so that its owner
//! acknowledges nothing more, whenever it continues. Objects are never changed, so what is before
//! the seal can be read at leisure.
//!
//! An object behind the end was never acknowledged, except where the store lost one. Records state
//! how far the log was durable when they were numbered. A seal that the log's owner made itself
//! states that everything before it was durable. If that contradicts the end, the log is damaged.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use device::Env;
use format::batch::Ops;
use format::log_object::{HEAD_BYTES, Kind, LogObject};
use format::log_record::{self, HEADER_BYTES, Record};

use super::super::append::Log;
use super::super::recover::{located, missing_record};
use super::super::verify::Verified;
use super::super::{LogOptions, Recovery, Replay};
use super::{LogPosition, ObjectLog, Opening, bytes_of, decode, object_name};
use crate::{Error, LogObjects, Lsn, Result};

/// How far ahead of an owner that is at work a seal is put. These are more objects than the owner
/// makes while the seal is on its way, so that one is enough.
const FAR: u64 = 64;
/// Objects that are read at a time. Each waits for a request, and has at most some MiB.
const READ_AHEAD: u64 = 8;

/// How often a seal is sent before an opening gives up.
const SEAL_ATTEMPTS: usize = 3;

/// What is opened, and by whom.
#[derive(Debug, Clone)]
pub struct ObjectPlace {
    /// The store.
    pub objects: LogObjects,
    /// The volume's id.
    pub volume: [u8; 16],
    /// This opening.
    pub opening: Opening,
}

impl Log {
    /// Creates the log of a new store. No record can be written before [`Log::announce`].
    pub fn create_in_objects(env: &Env, options: &LogOptions, place: &ObjectPlace) -> Log {
        let ObjectPlace { objects, volume, opening } = place;
        let log = ObjectLog::new(objects, *volume, *opening, Lsn(0), Duration::ZERO);
        Log::over_objects(env, options, log, 0)
    }

    /// Seals the log at `from`, which the newest manifest names, and replays its records after
    /// `lsn`. The log that is returned is this opening's own, and empty; no record can be written
    /// there before [`Log::announce`]. The caller has claimed the store.
    pub fn open_in_objects(
        env: &Env,
        options: &LogOptions,
        place: &ObjectPlace,
        (from, lsn): (LogPosition, Lsn),
        replay: &mut dyn Replay,
    ) -> Result<(Log, Recovery)> {
        let older = Older::new(place, options, from);
        let sealed = older.seal(place.opening, lsn)?;
        let owned_until = env.clock.monotonic();
        let mut next = lsn.0 + 1;
        let mut recovery = Recovery::default();
        let seal = older.replay(sealed.number, lsn, &mut next, replay, &mut recovery)?;
        let settings = &place.objects.settings;
        // An owner that ended its log itself has no grant since: only answers are on their way.
        let ended_in_order = sealed.by_owner && seal == sealed.number;
        let grant = if ended_in_order { Duration::ZERO } else { settings.grant };
        let serve_from = owned_until + grant + settings.drain;
        let last = Lsn(next - 1);
        let log = ObjectLog::new(&place.objects, place.volume, place.opening, last, serve_from);
        log.doom(from.epoch, &sealed.listed, &[seal, sealed.number]);
        Ok((Log::over_objects(env, options, log, next - 1), recovery))
    }

    /// Reads what [`Log::open_in_objects`] would replay, without changing anything. Intact records
    /// are passed to `visit`.
    pub fn verify_in_objects(
        options: &LogOptions,
        place: &ObjectPlace,
        (from, lsn): (LogPosition, Lsn),
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Verified {
        let mut whole = |_: Lsn, payload: &[u8]| match Ops::new(payload).find_map(|op| op.err()) {
            Some(malformed) => Err(malformed.located("", 0).into()),
            None => visit(payload),
        };
        let older = Older::new(place, options, from);
        let mut read = || {
            let listed = ObjectLog::numbers_of(&*place.objects.blobs, from.epoch)?;
            let (end, _) = older.end(&listed)?;
            older.refuse_lost(&listed, end, lsn)?;
            let (mut next, mut recovery) = (lsn.0 + 1, Recovery::default());
            older.replay(end, lsn, &mut next, &mut whole, &mut recovery)?;
            Ok(recovery)
        };
        Verified { findings: Vec::new(), end: read() }
    }
}

/// An object that was read, and its bytes; `None`: it is absent.
type Read = Result<Option<(LogObject, Vec<u8>)>>;

/// The log of the opening before.
struct Older<'a> {
    place: &'a ObjectPlace,
    seed: u32,
    from: LogPosition,
}

/// The end of a log.
struct Sealed {
    /// The number of the seal.
    number: u64,
    /// All numbers that were listed before.
    listed: Vec<u64>,
    /// The log's owner made it, when it ended in order.
    by_owner: bool,
}

impl<'a> Older<'a> {
    fn new(place: &'a ObjectPlace, options: &LogOptions, from: LogPosition) -> Older<'a> {
        Older { place, seed: log_record::seed(&options.key.0), from }
    }

    /// The object of a number.
    fn object(&self, number: u64) -> Result<Option<(LogObject, Vec<u8>)>> {
        let name = object_name(self.from.epoch, number);
        let Some(bytes) = bytes_of(&*self.place.objects.blobs, &name)? else { return Ok(None) };
        let (object, _) = decode(&bytes, self.place.volume, (self.from.epoch, number))?;
        Ok(Some((object, bytes)))
    }

    /// The objects of some numbers, read at the same time.
    fn objects(&self, numbers: Range<u64>) -> VecDeque<Read> {
        device::scope(|scope| {
            let read = |number| move || self.object(number);
            let rest = numbers.start + 1..numbers.end;
            let started: Vec<_> = rest
                .map(|number| (number, device::spawn_in(scope, "replay", read(number))))
                .collect();
            let mut objects = VecDeque::from([self.object(numbers.start)]);
            for (number, thread) in started {
                objects.push_back(match thread {
                    Ok(thread) => {
                        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                    }
                    // There are no more threads.
                    Err(_) => self.object(number),
                });
            }
            objects
        })
    }

    /// The first number that a listing lacks, or the last one before it if that is a seal; the
    /// epoch of who sealed.
    fn end(&self, listed: &[u64]) -> Result<(u64, Option<u64>)> {
        let end = first_absent(listed, self.from.number);
        let before = end.checked_sub(1).filter(|&last| last >= self.from.number);
        match before.map(|last| self.object(last)).transpose()?.flatten() {
            Some((LogObject { kind: Kind::Seal { successor }, .. }, _)) => {
                Ok((end - 1, Some(successor)))
            }
            _ => Ok((end, None)),
        }
    }

    /// The end of a log at a seal.
    fn sealed(&self, number: u64, listed: Vec<u64>, successor: u64) -> Sealed {
        Sealed { number, listed, by_owner: successor == self.from.epoch }
    }

    /// Ends the log, unless it is already ended.
    fn seal(&self, opening: Opening, lsn: Lsn) -> Result<Sealed> {
        let blobs = &*self.place.objects.blobs;
        let listed = ObjectLog::numbers_of(blobs, self.from.epoch)?;
        let (mut number, by) = self.end(&listed)?;
        if let Some(successor) = by {
            return Ok(self.sealed(number, listed, successor));
        }
        self.refuse_lost(&listed, number, lsn)?;
        if device::mutated("a log is not sealed") {
            return Ok(self.sealed(number, listed, opening.epoch));
        }
        let (mut attempts, mut fenced) = (0, false);
        loop {
            let kind = Kind::Seal { successor: opening.epoch };
            let seal = LogObject {
                volume: self.place.volume,
                opening: opening.id,
                epoch: self.from.epoch,
                number,
                kind,
            };
            let made = blobs.create(&object_name(self.from.epoch, number), &seal.encode(&[]));
            if matches!(made, Ok(true)) {
                return Ok(self.sealed(number, listed, opening.epoch));
            }
            match self.object(number)? {
                Some((LogObject { kind: Kind::Seal { successor }, .. }, _)) => {
                    return Ok(self.sealed(number, listed, successor));
                }
                // The owner was faster. It makes several at a time, and could stay ahead for ever.
                Some(_) => {
                    if !fenced {
                        fenced = self.fence(opening, number + FAR)?;
                    }
                    let listed = ObjectLog::numbers_of(blobs, self.from.epoch)?;
                    number = first_absent(&listed, number + 1);
                }
                None => {
                    attempts += 1;
                    if attempts >= SEAL_ATTEMPTS {
                        let gone = "the store reports that it exists, but it does not";
                        let error = || std::io::Error::other(gone);
                        let name = object_name(self.from.epoch, number);
                        let error = || device::Error::new("create", &name, error());
                        return Err(made.err().unwrap_or_else(error).into());
                    }
                }
            }
        }
    }

    /// Creates a seal well ahead of an owner that is at work, which stops there at the latest. What
    /// it acknowledges before is replayed. The end of the log is still the first absent number,
    /// which gets a seal of its own. Whether there is one now: the owner may be beyond already.
    fn fence(&self, opening: Opening, number: u64) -> Result<bool> {
        let kind = Kind::Seal { successor: opening.epoch };
        let (volume, epoch) = (self.place.volume, self.from.epoch);
        let seal = LogObject { volume, opening: opening.id, epoch, number, kind };
        let made = self.place.objects.blobs.create(&object_name(epoch, number), &seal.encode(&[]));
        match made {
            Ok(made) => Ok(made),
            // Perhaps it was made.
            Err(error) => match self.object(number)? {
                Some((object, _)) => Ok(matches!(object.kind, Kind::Seal { .. })),
                None => Err(error.into()),
            },
        }
    }

    /// Fails if an object behind the end proves that a record that is missing there was durable.
    fn refuse_lost(&self, listed: &[u64], end: u64, lsn: Lsn) -> Result<()> {
        if !listed.iter().any(|&number| number > end) {
            return Ok(());
        }
        let before = end.checked_sub(1).filter(|&last| last >= self.from.number);
        let missing = match before.map(|last| self.object(last)).transpose()?.flatten() {
            Some((LogObject { kind: Kind::Records { first, count }, .. }, _)) => first + count,
            _ => lsn.0 + 1,
        };
        for &number in listed.iter().filter(|&&number| number > end) {
            let (object, bytes) = match self.object(number) {
                Ok(Some(found)) => found,
                // What is damaged proves nothing. A read that failed may, when it is repeated.
                Ok(None) | Err(Error::Corrupt(_)) => continue,
                Err(error) => return Err(error),
            };
            let durable = match object.kind {
                // An owner ends in order at the first number after all that it acknowledged.
                Kind::Seal { successor } if successor == self.from.epoch => Some(missing),
                _ => records(self.seed, &bytes).filter_map(|record| record.header.durable()).max(),
            };
            if let Some(durable) = durable.filter(|&durable| durable >= missing) {
                let name = object_name(self.from.epoch, end);
                return Err(missing_record(&name, 0, missing, durable).into());
            }
        }
        Ok(())
    }

    /// Replays the objects before `end`, or before a seal that is found earlier; returns which.
    fn replay(
        &self,
        mut end: u64,
        lsn: Lsn,
        next: &mut u64,
        replay: &mut dyn Replay,
        recovery: &mut Recovery,
    ) -> Result<u64> {
        let mut opening = None;
        let mut read = VecDeque::new();
        for number in self.from.number..end {
            if read.is_empty() {
                read = self.objects(number..end.min(number + READ_AHEAD));
            }
            let name = object_name(self.from.epoch, number);
            let found = read.pop_front().expect("invariant: it was read just now")?;
            let Some((object, bytes)) = found else {
                return Err(Error::Missing { file: name, record: None });
            };
            let Kind::Records { first, count } = object.kind else {
                // Objects behind it were on their way when it was made.
                end = number;
                break;
            };
            if *opening.get_or_insert(object.opening) != object.opening {
                return Err(bad(&name, "the opening of the object before", "another"));
            }
            if number == self.from.number && first <= lsn.0 {
                *next = first;
            }
            if first != *next {
                let durable = first.saturating_sub(1);
                return Err(missing_record(&name, HEAD_BYTES, *next, durable).into());
            }
            let group = in_order(self.seed, &bytes, (first, count), &name)?;
            let new = group.iter().filter(|(_, record)| record.header.lsn > lsn.0);
            let payloads: Vec<&[u8]> = new.clone().map(|(_, record)| record.payload).collect();
            if !payloads.is_empty() {
                replay.prepare(&payloads);
            }
            for (at, record) in new {
                replay
                    .apply(Lsn(record.header.lsn), record.payload)
                    .map_err(|error| located(error, &name, *at))?;
                recovery.replayed += 1;
            }
            *next = first + count;
        }
        if *next <= lsn.0 {
            let name = object_name(self.from.epoch, end);
            return Err(missing_record(&name, 0, *next, lsn.0).into());
        }
        Ok(end)
    }
}

/// The first number from `from` on that a listing lacks.
fn first_absent(listed: &[u64], from: u64) -> u64 {
    let listed: BTreeSet<u64> = listed.iter().copied().collect();
    let mut end = from;
    while listed.contains(&end) {
        end += 1;
    }
    end
}

fn bad(name: &str, expected: &str, found: &str) -> Error {
    format::Corruption {
        file: name.to_owned(),
        offset: 0,
        structure: "log object",
        expected: expected.to_owned(),
        found: found.to_owned(),
        unread: false,
    }
    .into()
}

/// The intact records of an object's bytes, up to the first that is not.
fn records(seed: u32, bytes: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let mut at = HEAD_BYTES;
    std::iter::from_fn(move || {
        let record = Record::decode(seed, bytes.get(at..)?).ok()?;
        at += record.bytes();
        Some(record)
    })
}

/// The records of an object, each with its offset: exactly as many as the head states, in order.
pub(super) fn in_order<'b>(
    seed: u32,
    bytes: &'b [u8],
    (first, count): (u64, u64),
    name: &str,
) -> Result<Vec<(usize, Record<'b>)>> {
    let (mut at, mut found) = (HEAD_BYTES, Vec::new());
    for record in records(seed, bytes) {
        if record.header.is_mark() || record.header.lsn != first + found.len() as u64 {
            break;
        }
        let start = at;
        at += record.bytes();
        found.push((start, record));
    }
    if found.len() as u64 != count || at != bytes.len() {
        let missing = first + found.len() as u64;
        let error = format::Corruption {
            file: name.to_owned(),
            offset: at as u64,
            structure: "log record",
            expected: format!("record {missing} of {first} to {}", first + count - 1),
            found: "damage, or records of another volume's secret".to_owned(),
            unread: false,
        };
        return Err(error.into());
    }
    debug_assert!(found.iter().all(|(_, record)| record.bytes() >= HEADER_BYTES));
    Ok(found)
}

impl Log {
    fn over_objects(env: &Env, options: &LogOptions, objects: ObjectLog, last: u64) -> Log {
        Log::assemble_objects(env, options, Arc::new(objects), last)
    }
}
