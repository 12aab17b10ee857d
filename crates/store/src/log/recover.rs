//! Opening: replays the log after a crash, and distinguishes a torn tail from damage.
//!
//! Records follow each other without gaps in number. At the first place without the next intact
//! record the log ends, or is damaged:
//!
//! * A later segment exists: damage, because a segment is synced before the next one gets its name.
//! * After that place there is an intact record, or mark, which states that the missing record was
//!   durable when it was written: damage.
//! * Otherwise the missing record was never synced, so it was never acknowledged as durable: a torn
//!   tail. It is overwritten with zeros, so that no later crash can bring parts of it back.
//!
//! Spares hold old records, numbered lower than any that recovery looks for, so they match nothing.
//!
//! The data read may be only in the page cache. The previous process was killed, or a sync in it
//! failed, after which a second sync has nothing to write. So before anything relies on the log,
//! recovery syncs its names and rewrites the records that are not proved durable. Segments before
//! the last one need neither: each was synced, without an error, before the next got its name.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{Env, File};
use format::log_record::{HEADER_BYTES, Record, RecordHeader};
use format::log_segment::{RECORDS_START, SegmentHeader};
use format::{Corruption, Malformed};

use super::beginning::{BadHeader, Head, begins_with, has_its_length, of_length, read_beginning};
use super::search::search;
use super::segment::{
    Files, KEPT_SUFFIX, Kept, SEGMENT_SUFFIX, SPARE_PREFIX, Segment, Spare, Writer,
};
use super::stray::{Stray, take_strays};
use super::{Log, LogOptions, Recovery};
use crate::{Error, Lsn, Result};

/// Records of this many bytes are announced together before they are replayed.
const GROUP_BYTES: usize = 1 << 20;

/// Receives the records of a log that is being opened, in order.
pub trait Replay {
    /// These payloads come next: the data they need may be fetched together.
    fn prepare(&mut self, _upcoming: &[&[u8]]) {}

    /// Applies a record.
    fn apply(&mut self, lsn: Lsn, payload: &[u8]) -> Result<()>;
}

impl<F: FnMut(Lsn, &[u8]) -> Result<()>> Replay for F {
    fn apply(&mut self, lsn: Lsn, payload: &[u8]) -> Result<()> {
        self(lsn, payload)
    }
}

impl Log {
    /// Creates the log of a new volume in `directory`, which must not hold one.
    pub fn create(
        env: &Env,
        directory: &str,
        volume: [u8; 16],
        options: &LogOptions,
    ) -> Result<Log> {
        let files = Files::new(Arc::clone(&env.device), directory, volume, options.key);
        files.device.create_dir(directory)?;
        files.device.sync_dir(directory.rsplit_once('/').map_or("", |(parent, _)| parent))?;
        let spare = files.make_spare(options.segment_bytes)?;
        let (segment, file) = files.name_spare(1, &spare)?;
        let writer = Writer {
            segments: VecDeque::from([segment]),
            kept: Kept::default(),
            file: Some(file),
            offset: RECORDS_START,
            next: 1,
            unsynced: false,
        };
        let reserve = files.make_spare(options.reserve_bytes())?;
        let log = Log::assemble(env, files, options, writer);
        log.state.lock().spares.push(reserve);
        Ok(log)
    }

    /// Opens a log and replays the records after `from`, which is that of the newest durable
    /// checkpoint. The caller synced the log up to there before it wrote the checkpoint. The
    /// checkpoint must be durable on disk, because segments before it are freed here.
    pub fn open(
        env: &Env,
        directory: &str,
        volume: [u8; 16],
        options: &LogOptions,
        from: Lsn,
        replay: &mut dyn Replay,
    ) -> Result<(Log, Recovery)> {
        let files = Files::new(Arc::clone(&env.device), directory, volume, options.key);
        let Listed { mut firsts, kept, spares } = list(&files)?;
        let strays = leave_strays(&files, &mut firsts, from)?;
        let needed = split_needed(&files, &mut firsts, from)?;
        // The last name may never have become durable; records appended there would be lost with
        // it.
        files.device.sync_dir(directory)?;
        let mut scan = Scan::new(&files, from, replay, options.segment_bytes);
        (scan.repair, scan.strays) = (true, &strays);
        let writer = scan.segments(&needed)?;
        let recovery = scan.recovery;
        let log = Log::assemble(env, files, options, writer);
        log.adopt_spares(&spares)?;
        log.forget(&firsts, &kept, needed[0])?;
        Ok((log, recovery))
    }

    /// Makes durable what [`Log::open`] is about to replay, or is replaying, and passes it to
    /// `visit`. An engine that writes a checkpoint of a part of it calls this, because the log must
    /// be durable at least as far before that. `from` is the one passed to `open`.
    pub fn settle(
        env: &Env,
        directory: &str,
        volume: [u8; 16],
        options: &LogOptions,
        from: Lsn,
        visit: &mut dyn FnMut(Lsn, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let files = Files::new(Arc::clone(&env.device), directory, volume, options.key);
        let Listed { mut firsts, .. } = list(&files)?;
        let strays = leave_strays(&files, &mut firsts, from)?;
        let needed = split_needed(&files, &mut firsts, from)?;
        files.device.sync_dir(directory)?;
        let mut visit = visit;
        let mut scan = Scan::new(&files, from, &mut visit, options.segment_bytes);
        (scan.repair, scan.strays) = (true, &strays);
        scan.segments(&needed)?;
        Ok(())
    }

    /// Takes over the spares of an earlier run. A missing reserve is created, if the disk has space
    /// for it: a full volume must open. Where none can be created, the rest of the last segment is
    /// the reserve, which it may have been before.
    fn adopt_spares(&self, names: &[String]) -> Result<()> {
        let mut wanted = vec![self.options.reserve_bytes(), self.options.segment_bytes];
        for name in names {
            let path = format!("{}/{name}", self.files.directory);
            // The length of a spare is not synced; a spare that a crash left short is extended.
            let file = self.files.device.open(&path)?;
            let length = file.len()?;
            let kept = wanted
                .iter()
                .position(|&bytes| length <= bytes)
                .filter(|&at| file.allocate(0, wanted[at]).is_ok());
            if let Some(at) = kept {
                let bytes = wanted.remove(at);
                self.state.lock().spares.push(Spare { path, bytes });
            } else {
                self.files.device.remove(&path)?;
            }
        }
        if self.state.lock().spares.is_empty() {
            match self.files.make_spare(self.options.reserve_bytes()) {
                Ok(spare) => self.state.lock().spares.push(spare),
                Err(Error::NoSpace(_)) => {
                    tracing::warn!("no space for the reserve of the log");
                    self.state.lock().in_reserve = true;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Keeps or frees segments that a checkpoint made unnecessary before the log was opened: those
    /// that still have their name, and those that were kept. Their contents were not read.
    fn forget(&self, firsts: &[u64], kept: &[u64], needed: u64) -> Result<()> {
        let mut older = Vec::new();
        let paths = kept.iter().map(|&first| (first, self.files.kept_path(first)));
        for (first, path) in paths.chain(firsts.iter().map(|&at| (at, self.files.segment_path(at))))
        {
            let bytes = self.files.device.metadata(&path)?.map_or(0, |found| found.length);
            if first < needed {
                older.push(Segment { first, bytes, path });
            } else {
                self.files.device.remove(&path)?;
            }
        }
        older.sort_by_key(|segment| segment.first);
        self.supersede(older)
    }
}

/// Takes out files that are not segments of their name. An unreadable file stays in the list, for
/// it may be one that is not needed.
fn leave_strays(files: &Files, firsts: &mut Vec<u64>, from: Lsn) -> Result<Vec<Stray>> {
    let strays = take_strays(files, firsts, from, |_| Ok(()))?;
    for Stray { path, is, .. } in &strays {
        tracing::warn!(path, ?is, "a log file does not match its name");
    }
    Ok(strays)
}

/// The contents of a log's directory.
pub(super) struct Listed {
    /// The first LSNs of the segments, ascending.
    pub(super) firsts: Vec<u64>,
    /// Those of segments that recovery does not need, ascending.
    pub(super) kept: Vec<u64>,
    /// The names of the spares.
    pub(super) spares: Vec<String>,
}

pub(super) fn list(files: &Files) -> Result<Listed> {
    let mut found = Listed { firsts: Vec::new(), kept: Vec::new(), spares: Vec::new() };
    if files.device.metadata(&files.directory)?.is_none() {
        return Err(Error::Missing { file: files.directory.clone(), record: None });
    }
    for name in files.device.list(&files.directory)? {
        let first = |suffix| {
            let hex = name.strip_suffix(suffix).filter(|hex| hex.len() == 16)?;
            u64::from_str_radix(hex, 16).ok()
        };
        if let Some(first) = first(SEGMENT_SUFFIX) {
            found.firsts.push(first);
        } else if let Some(first) = first(KEPT_SUFFIX) {
            found.kept.push(first);
        } else if let Some(number) = name.strip_prefix(SPARE_PREFIX)
            && let Ok(number) = number.parse::<u64>()
        {
            files.next_spare.fetch_max(number + 1, Ordering::Relaxed);
            found.spares.push(name);
        }
    }
    found.firsts.sort_unstable();
    found.kept.sort_unstable();
    Ok(found)
}

/// Takes the segments from `firsts` that hold the records after `from`.
pub(super) fn split_needed(files: &Files, firsts: &mut Vec<u64>, from: Lsn) -> Result<Vec<u64>> {
    let begin = firsts.partition_point(|&first| first <= from.0 + 1);
    if begin == 0 {
        return Err(missing_file(files, from.0 + 1));
    }
    Ok(firsts.split_off(begin - 1))
}

/// A missing log file's name is unknown; only a record that it held is known.
fn missing_file(files: &Files, record: u64) -> Error {
    Error::Missing { file: format!("{}/", files.directory), record: Some(record) }
}

/// Reads segments in order.
pub(super) struct Scan<'a> {
    pub(super) files: &'a Files,
    pub(super) from: Lsn,
    pub(super) replay: &'a mut dyn Replay,
    pub(super) recovery: Recovery,
    /// Whether a torn tail is overwritten.
    pub(super) repair: bool,
    /// Collects damaged headers where nothing else is damaged, for a caller that continues without
    /// them.
    pub(super) headers: Option<&'a mut Vec<BadHeader>>,
    /// Usual length of segments.
    pub(super) usual: u64,
    /// Ignored files.
    pub(super) strays: &'a [Stray],
}

impl<'a> Scan<'a> {
    pub(super) fn new(
        files: &'a Files,
        from: Lsn,
        replay: &'a mut dyn Replay,
        usual: u64,
    ) -> Scan<'a> {
        let recovery = Recovery::default();
        Scan { files, from, replay, recovery, repair: false, headers: None, usual, strays: &[] }
    }

    /// Replays the segments; the log continues in the last one.
    pub(super) fn segments(&mut self, firsts: &[u64]) -> Result<Writer> {
        let mut segments = VecDeque::new();
        let mut next = firsts[0];
        for (at, &first) in firsts.iter().enumerate() {
            let path = self.files.segment_path(first);
            let file = self.files.device.open(&path)?;
            let (bytes, damage) = match read_beginning(self.files, first, &path, file.as_ref())? {
                (bytes, Head::Whole(length)) => (of_length(&path, bytes, length)?, None),
                (bytes, Head::Malformed(damage)) => (bytes, Some(damage)),
            };
            let seed = self.files.seed;
            if let Some(damage) = &damage
                && (self.headers.is_none() || !begins_with(seed, &bytes, first))
            {
                return Err(damage.clone().into());
            }
            let end = self.records(&path, &bytes, &mut next)?;
            if let Some(damage) = damage {
                let continues = firsts.get(at + 1) == Some(&next);
                if !continues && !has_its_length(seed, &bytes, (end, next), self.usual) {
                    return Err(damage.into());
                }
                self.bad_header(damage, &path, (first, bytes.len() as u64));
            }
            segments.push_back(Segment { first, bytes: bytes.len() as u64, path: path.clone() });
            if let Some(&after) = firsts.get(at + 1) {
                if next != after {
                    return Err(missing_record(&path, end, next, after - 1).into());
                }
                continue;
            }
            // The continuation may have another name.
            if let Some(stray) = self.strays.iter().find(|stray| stray.continues_from(next)) {
                return Err(stray.missed(next).into());
            }
            let torn = self.tail(&path, &bytes, end, next)?;
            if self.repair {
                let proved = proved(self.files.seed, &bytes, end).max(self.from.0);
                make_durable(file.as_ref(), &bytes, (behind(&bytes, end, proved), end, torn))?;
            }
            let offset = end as u64;
            let kept = Kept::default();
            let file = Some(file);
            return Ok(Writer { segments, kept, file, offset, next, unsynced: false });
        }
        unreachable!("the caller names at least one segment");
    }

    /// Records a header that is to be rewritten.
    fn bad_header(&mut self, damage: Corruption, path: &str, (first, bytes): (u64, u64)) {
        let header = SegmentHeader { volume: self.files.volume, first, bytes };
        if let Some(headers) = &mut self.headers {
            headers.push(BadHeader { damage, path: path.to_owned(), header });
        }
    }

    /// Replays one segment's records, group by group; returns where they end.
    pub(super) fn records(&mut self, path: &str, bytes: &[u8], next: &mut u64) -> Result<usize> {
        let mut at = RECORDS_START as usize;
        loop {
            // Each with its offset.
            let mut group: Vec<(usize, Record<'_>)> = Vec::new();
            let (start, mut announced) = (at, 0);
            while announced < GROUP_BYTES
                && let Ok(record) = Record::decode(self.files.seed, &bytes[at..])
                && !record.header.is_mark()
                && record.header.lsn == *next
            {
                let length = record.bytes();
                if record.header.lsn > self.from.0 {
                    announced += length;
                    group.push((at, record));
                }
                at += length;
                *next += 1;
            }
            let payloads: Vec<&[u8]> = group.iter().map(|(_, record)| record.payload).collect();
            if !payloads.is_empty() {
                self.replay.prepare(&payloads);
            }
            for (at, record) in group {
                self.replay
                    .apply(Lsn(record.header.lsn), record.payload)
                    .map_err(|error| located(error, path, at))?;
                self.recovery.replayed += 1;
            }
            if at == start {
                return Ok(at);
            }
        }
    }

    /// Classifies what follows the last intact record of the last segment. Returns the end of the
    /// torn tail, if there is one; else `end`.
    fn tail(&mut self, path: &str, bytes: &[u8], end: usize, next: u64) -> Result<usize> {
        let rest = &bytes[end..];
        let found = search(self.files.seed, rest, next);
        let durable = found.durable.max(self.from.0);
        if durable >= next {
            return Err(missing_record(path, end, next, durable).into());
        }
        if found.stale > 0 {
            self.recovery.torn_bytes = found.stale as u64;
            tracing::info!(path, end, torn = found.stale, "truncated a torn tail of the log");
        }
        Ok(end + found.stale)
    }
}

/// The last record that a segment proves durable. A record states which one was durable when it was
/// written, and a mark after the last record states that all were.
fn proved(seed: u32, bytes: &[u8], end: usize) -> u64 {
    let mark = Record::decode(seed, &bytes[end..]).ok().filter(|mark| mark.header.is_mark());
    let mark = mark.and_then(|mark| mark.header.durable()).unwrap_or(0);
    headers(bytes, end).filter_map(|(_, header)| header.durable()).fold(mark, u64::max)
}

/// The offset of the records after a number, in a segment whose records end at `end`.
fn behind(bytes: &[u8], end: usize, number: u64) -> usize {
    headers(bytes, end).find(|(_, header)| header.lsn > number).map_or(end, |(at, _)| at)
}

/// The headers of intact records, each with its offset.
fn headers(bytes: &[u8], end: usize) -> impl Iterator<Item = (usize, RecordHeader)> {
    let mut at = RECORDS_START as usize;
    std::iter::from_fn(move || {
        let head = bytes[at..end].first_chunk::<HEADER_BYTES>()?;
        let header = RecordHeader::decode(head).ok()?;
        let start = at;
        at += HEADER_BYTES + header.length as usize;
        Some((start, header))
    })
}

/// Rewrites the records from `from` to `end`, and zeros from there up to `torn`, and syncs. Records
/// that were written and not synced are replayed, so the next crash must not lose them. Where a
/// sync of them failed, only rewritten bytes can become durable.
fn make_durable(
    file: &dyn File,
    bytes: &[u8],
    (from, end, torn): (usize, usize, usize),
) -> device::Result<()> {
    if from < end {
        file.write_at(&bytes[from..end], from as u64)?;
    }
    if end < torn {
        file.write_at(&vec![0; torn - end], end as u64)?;
    }
    file.sync_data().inspect_err(|_| {
        if end < torn {
            // The disk may still have the torn tail, so the next opening must find it, although
            // reads now return the zeros. If this fails too, the disk has failed permanently.
            file.write_at(&bytes[end..torn], end as u64).ok();
        }
    })
}

/// A record that was durable is missing.
pub(super) fn missing_record(path: &str, offset: usize, lsn: u64, durable: u64) -> Corruption {
    Corruption {
        file: path.to_owned(),
        offset: offset as u64,
        structure: "log record",
        expected: format!("record {lsn}, for records up to {durable} were durable"),
        found: "damage, or the segment that begins with it is missing".to_owned(),
        unread: false,
    }
}

/// Adds to an error the offset of the record whose payload the replay refused.
pub(super) fn located(error: Error, path: &str, at: usize) -> Error {
    match error {
        Error::Corrupt(inner) if inner.file.is_empty() => {
            let inner = Malformed {
                structure: inner.structure,
                at: inner.offset,
                expected: "what the log's records hold",
                found: format!("{} instead of {}", inner.found, inner.expected),
            };
            inner.located(path, (at + HEADER_BYTES) as u64).into()
        }
        other => other,
    }
}
