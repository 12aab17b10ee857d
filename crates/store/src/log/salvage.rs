//! Truncates a damaged log: the intact, consecutive records before the damage stay, everything
//! after it is discarded, and the report contains how much. Only for a user who was informed that
//! acknowledged changes will be lost.
//!
//! The whole log is read before anything is changed, so a failed read leaves it unchanged.
//!
//! A segment whose length differs from its header keeps what is left of it. Its length is restored,
//! and the log continues in the next one if no record is missing. A damaged header is rewritten if
//! the segment's first record is intact (`beginning`).
//!
//! First, everything after the last intact record is overwritten with zeros. Then later segments
//! are removed, the last one first. A crash in between leaves a damaged log that is truncated
//! again.
//!
//! Where the damage is in records that the state contains, those after it become a separate
//! segment.
//!
//! The spares are removed before anything else, and so are the segments kept for other readers than
//! recovery. The discarded numbers are used again, and these files may hold records with the same
//! numbers.
//!
//! If a file is not the segment of its name (`stray`), the log is not truncated before that file is
//! renamed correctly or moved away. A file with records after the cut is removed, whatever its
//! name.
//!
//! Files that seem unnecessary by their name are read, too: if one has records that would be left
//! nowhere else, the log is not truncated.
//!
//! A log that begins after the state is not damaged: it belongs to a later state, whose root was
//! lost. Truncating it would destroy intact data, so it is refused, with nothing changed.

use std::sync::Arc;

use device::{Env, Overlay};
use format::log_record::{HEADER_BYTES, RecordHeader};
use format::log_segment::{
    self, Decoded, RECORDS_START, SEGMENT_BYTES_MAX, SegmentHeader, VERSION,
};
use format::{COUNTED_MAX, Corruption};

use super::beginning::{Head, begins_with, has_its_length, read_beginning};
use super::recover::{Listed, Scan, list};
use super::search::{find, search};
use super::segment::Files;
use super::stray::{Stray, take_strays};
use super::{Log, LogOptions};
use crate::{Error, Lsn, Result};

/// Where a log was truncated, and what was discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The last record that is left, or the last one in the state.
    pub last: Lsn,
    /// The last record known to have been discarded; `last` where none is.
    pub known: Lsn,
    /// Upper bound of the discarded bytes of records. It is everything after the last one that is
    /// left, up to the end of the last intact one, of all segments. A partial record at the end of
    /// a file is added. Bytes between intact records may never have been records.
    pub bytes: u64,
    /// Bytes missing from segments that became shorter, from the one with the last record on, and
    /// from a missing one. Their contents are unknown.
    pub missing: u64,
    /// Whether a whole file with records is missing. It may not be the only one.
    pub is_file_gone: bool,
}

impl Log {
    /// The result that [`Log::cut_off`] would have, with nothing changed. Refuses what that would
    /// refuse, and fails where that could not read.
    pub fn cost_of_cut(
        env: &Env,
        directory: &str,
        volume: [u8; 16],
        options: &LogOptions,
        from: Lsn,
        certain: bool,
    ) -> Result<Cut> {
        // The truncation runs on an overlay, so nothing of it reaches the disk.
        let device = Arc::new(Overlay::new(Arc::clone(&env.device)));
        let files = Files::new(device, directory, volume, options.key);
        cut_off(&files, options, from, certain)
    }

    /// Truncates the log at its first damage after `from`, which is that of the newest durable
    /// checkpoint. `certain`: no later checkpoint can exist, because everything that could describe
    /// one was read. Fails, with nothing changed, when the log is likely that of a later
    /// checkpoint, and when it cannot be read.
    pub fn cut_off(
        env: &Env,
        directory: &str,
        volume: [u8; 16],
        options: &LogOptions,
        from: Lsn,
        certain: bool,
    ) -> Result<Cut> {
        let files = Files::new(Arc::clone(&env.device), directory, volume, options.key);
        let cut = cut_off(&files, options, from, certain)?;
        let Cut { last, known, bytes, missing, .. } = cut;
        tracing::warn!(last = last.0, known = known.0, bytes, missing, "truncated the log");
        Ok(cut)
    }
}

fn cut_off(files: &Files, options: &LogOptions, from: Lsn, certain: bool) -> Result<Cut> {
    let (device, directory) = (&*files.device, &files.directory);
    if device.metadata(directory)?.is_none() {
        device.create_dir(directory)?;
    }
    let plan = Plan::of(files, options.segment_bytes, from, certain)?;
    for path in &plan.superseded {
        device.remove(path)?;
    }
    device.sync_dir(directory)?;
    if let Some(rescued) = plan.rescued {
        rescued.begin_log(files, from.0 + 1)?;
        return cut_off(files, options, from, certain);
    }
    let last = plan.whole.len().saturating_sub(1);
    for (at, part) in plan.whole.iter().enumerate() {
        if at == last || part.differs || part.header.is_some() {
            part.end_here(files)?;
        }
    }
    for (at, path) in plan.gone.iter().enumerate().rev() {
        if at == 0 && plan.whole.is_empty() {
            // Removals become durable in any order: without this sync the remaining files could
            // look like the log of a later state.
            device.sync_dir(directory)?;
        }
        device.remove(path)?;
    }
    device.sync_dir(directory)?;
    if plan.whole.is_empty() {
        let spare = files.make_spare(options.segment_bytes)?;
        files.name_spare(from.0 + 1, &spare)?;
    }
    Ok(plan.cut)
}

/// The planned changes.
struct Plan {
    /// Files that the log does not need: spares, and segments kept for other readers.
    superseded: Vec<String>,
    /// Data that must become a separate segment first.
    rescued: Option<Rescued>,
    /// The segments that stay, in order. None where no part of the log follows the checkpoint: it
    /// begins again there.
    whole: Vec<IntactSegment>,
    /// The segments that are removed, in order.
    gone: Vec<String>,
    cut: Cut,
}

impl Plan {
    /// `usual`: the length of segments whose header no longer states it.
    fn of(files: &Files, usual: u64, from: Lsn, certain: bool) -> Result<Plan> {
        let Listed { mut firsts, kept, spares } = list(files)?;
        let strays = take_strays(files, &mut firsts, from, Err)?;
        refuse_strays(&strays)?;
        let begin = begin_of(files, &firsts, from)?;
        let needed = firsts.split_off(begin.saturating_sub(1));
        let (mut whole, next) = whole(files, usual, &needed, from)?;
        if !certain && (whole.is_empty() || next <= from.0 + 1) {
            let found = "no such record, and a root that may be of a later state is damaged";
            let path = files.segment_path(needed.first().copied().unwrap_or(from.0 + 1));
            return Err(of_later_state(path, from, found.to_owned()).into());
        }
        let is_file_gone = is_file_gone(files, &whole, &needed, (next, from))?;
        // Where a segment begins with the next record, the one before it lost only zeros.
        let continues = needed.get(whole.len()) == Some(&next);
        let mut rescued = None;
        if next <= from.0 {
            whole.clear();
            if let Some(&first) = needed.first() {
                rescued = Rescued::find(files, usual, first, from)?;
            }
        }
        let mut missing = whole.last().filter(|_| !continues).map_or(0, |part| part.lacks);
        if is_file_gone {
            missing += usual;
        }
        let last = if whole.is_empty() { from } else { Lsn(next - 1) };
        let gone = needed[whole.len()..].iter().map(|&first| (first, files.segment_path(first)));
        let gone: Vec<(u64, String)> = gone.collect();
        for (first, path) in &gone {
            missing += lacks(files, usual, *first, path)?;
        }
        let cut = Cut { missing, is_file_gone, ..given_up(files, &whole, &gone, last)? };
        let kept = kept.iter().map(|&first| (first, files.kept_path(first)));
        // A file without records may be anything, and is left.
        let mut below = firsts;
        for Stray { path, name, .. } in &strays {
            if look(files, path, RECORDS_START, (*name).clamp(1, COUNTED_MAX))?.last > 0 {
                below.push(*name);
            }
        }
        let below = below.into_iter();
        let below = below.map(|first| (first, files.segment_path(first)));
        let older = superfluous(files, kept.chain(below), needed.first(), (from, last))?;
        let spares = spares.iter().map(|name| format!("{}/{name}", files.directory));
        let superseded = spares.chain(older).collect();
        let gone = gone.into_iter().map(|(_, path)| path).collect();
        Ok(Plan { superseded, rescued, whole, gone, cut })
    }
}

/// How many segments begin before the state ends, or with the record that follows it. Refused where
/// there are later ones but none of these.
fn begin_of(files: &Files, firsts: &[u64], from: Lsn) -> Result<usize> {
    let begin = firsts.partition_point(|&first| first <= from.0 + 1);
    if begin == 0
        && let Some(&first) = firsts.first()
    {
        let found = format!("a log that begins with record {first}, as of a later state");
        return Err(of_later_state(files.segment_path(first), from, found).into());
    }
    Ok(begin)
}

/// Refuses to truncate while a file differs from its name. It may be intact where the file of its
/// own name is not, or contain what is missing. Discarded records must not be in it when their
/// numbers are used again. And the proof that it is no segment may be in a removed file.
fn refuse_strays(strays: &[Stray]) -> Result<()> {
    match strays.iter().find(|stray| !stray.is_harmless()) {
        Some(stray) => Err(stray.damage(true).into()),
        None => Ok(()),
    }
}

/// The files that are unnecessary by their names and have only records that the state contains, or
/// that are left. Refused where one has other records: it differs from its name, or the first file
/// of the log does. If an earlier truncation of damage within the state was interrupted, the file
/// that it created first exists, too, with the same records.
fn superfluous(
    files: &Files,
    older: impl Iterator<Item = (u64, String)>,
    begin: Option<&u64>,
    (from, last): (Lsn, Lsn),
) -> Result<Vec<String>> {
    let behind = |path: &str, first: u64| -> Result<u64> {
        let next = first.max(from.0 + 1).min(COUNTED_MAX);
        Ok(look(files, path, RECORDS_START, next)?.last)
    };
    let held = match begin {
        Some(&first) => behind(&files.segment_path(first), first)?,
        None => 0,
    };
    let mut gone = Vec::new();
    for (first, path) in older {
        let has = behind(&path, first)?;
        if has > last.0.max(held) {
            let expected =
                format!("none behind record {last}, which another file has", last = last.0);
            let found =
                format!("records up to {has}: move it away, or what is not right beside it");
            return Err(Corruption {
                file: path,
                offset: 0,
                structure: "log",
                expected,
                found,
                unread: false,
            }
            .into());
        }
        gone.push(path);
    }
    Ok(gone)
}

/// Whether the next record, which existed, is in no file: nothing follows the last intact record,
/// and no truncation happened there.
fn is_file_gone(
    files: &Files,
    whole: &[IntactSegment],
    needed: &[u64],
    (next, from): (u64, Lsn),
) -> Result<bool> {
    let Some(last) = whole.last() else { return Ok(needed.is_empty()) };
    let is_missing = match needed.get(whole.len()) {
        Some(&after) => after != next,
        None => next <= from.0,
    };
    Ok(is_missing && last.lacks == 0 && look(files, &last.path, last.end, next)?.bytes == 0)
}

/// The needed part of a segment that is damaged earlier, in records that the state contains.
struct Rescued {
    path: String,
    /// From the first record after the state on.
    bytes: Vec<u8>,
    /// The length of the segment.
    length: u64,
}

impl Rescued {
    fn find(files: &Files, usual: u64, first: u64, from: Lsn) -> Result<Option<Rescued>> {
        let path = files.segment_path(first);
        let file = files.device.open(&path)?;
        let (mut bytes, length) = match read_beginning(files, first, &path, file.as_ref()) {
            Ok((bytes, Head::Whole(length))) => (bytes, length),
            Ok((bytes, Head::Malformed(_))) => {
                let length = usual.max(bytes.len() as u64);
                (bytes, length)
            }
            Err(Error::Corrupt(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        bytes.truncate(length as usize);
        let Some(at) = find(files.seed, &bytes, from.0 + 1) else { return Ok(None) };
        bytes.drain(..at);
        Ok(Some(Rescued { path, bytes, length }))
    }

    /// Makes the log begin with it. A crash leaves the original segment, alone or beside it.
    fn begin_log(&self, files: &Files, first: u64) -> Result<()> {
        let spare = files.make_spare(self.length)?;
        files.device.open(&spare.path)?.write_at(&self.bytes, RECORDS_START)?;
        files.name_spare(first, &spare)?;
        files.device.remove(&self.path)?;
        Ok(files.device.sync_dir(&files.directory)?)
    }
}

/// A segment whose needed part is intact.
struct IntactSegment {
    path: String,
    /// Where its records end.
    end: u64,
    /// Its target length.
    length: u64,
    /// Whether its length differs, and by how much it is shorter.
    differs: bool,
    lacks: u64,
    /// The header to write, if it has none.
    header: Option<SegmentHeader>,
}

impl IntactSegment {
    /// Sets the segment's length, with zeros after its records.
    fn end_here(&self, files: &Files) -> Result<()> {
        let file = files.device.open(&self.path)?;
        if let Some(header) = &self.header {
            file.write_at(&header.encode(), 0)?;
        }
        if self.differs {
            file.set_len(self.length)?;
        }
        file.write_at(&vec![0; self.length.saturating_sub(self.end) as usize], self.end)?;
        Ok(file.sync_data()?)
    }
}

/// The segments that are intact up to the end of their records, and the record that would come
/// next.
fn whole(
    files: &Files,
    usual: u64,
    needed: &[u64],
    from: Lsn,
) -> Result<(Vec<IntactSegment>, u64)> {
    let mut pass = |_: Lsn, _: &[u8]| Ok(());
    let mut scan = Scan::new(files, from, &mut pass, usual);
    let mut parts = Vec::new();
    let mut next = needed.first().copied().unwrap_or(0);
    for (at, &first) in needed.iter().enumerate() {
        if first != next {
            break;
        }
        let path = files.segment_path(first);
        let file = files.device.open(&path)?;
        let (mut bytes, head) = match read_beginning(files, first, &path, file.as_ref()) {
            Ok(read) => read,
            Err(Error::Corrupt(damage)) => {
                warn(&damage);
                break;
            }
            Err(error) => return Err(error),
        };
        let there = bytes.len() as u64;
        let part = match head {
            Head::Whole(length) => {
                bytes.resize(length as usize, 0);
                let end = scan.records(&path, &bytes, &mut next)? as u64;
                let (differs, lacks) = (there != length, length.saturating_sub(there));
                IntactSegment { path, end, length, differs, lacks, header: None }
            }
            Head::Malformed(_) if begins_with(files.seed, &bytes, first) => {
                let end = scan.records(&path, &bytes, &mut next)?;
                let is_known = needed.get(at + 1) == Some(&next)
                    || has_its_length(files.seed, &bytes, (end, next), usual);
                let length = if is_known { there } else { there.max(usual) };
                let header = SegmentHeader { volume: files.volume, first, bytes: length };
                let (end, differs, lacks) = (end as u64, there != length, length - there);
                IntactSegment { path, end, length, differs, lacks, header: Some(header) }
            }
            Head::Malformed(damage) => {
                warn(&damage);
                break;
            }
        };
        parts.push(part);
    }
    Ok((parts, next))
}

/// By how much a segment is shorter than it was, as far as that is known.
fn lacks(files: &Files, usual: u64, first: u64, path: &str) -> Result<u64> {
    let file = files.device.open(path)?;
    let there = file.len()?;
    let mut head = [0; log_segment::HEADER_BYTES];
    let read = file.read_at(&mut head, 0)?;
    Ok(match SegmentHeader::decode(&head[..read]) {
        Ok(Decoded::Header(header)) if header.first == first => header.bytes,
        Ok(Decoded::Newer(found)) => {
            return Err(Error::NewerFormat { file: path.to_owned(), found, known: VERSION });
        }
        _ if there < RECORDS_START => usual,
        _ => there,
    }
    .saturating_sub(there))
}

/// Measures what is discarded: after the last intact record, and in the removed segments.
fn given_up(
    files: &Files,
    whole: &[IntactSegment],
    gone: &[(u64, String)],
    last: Lsn,
) -> Result<Cut> {
    let mut cut = Cut { last, known: last, bytes: 0, missing: 0, is_file_gone: false };
    let mut add = |there: There| {
        cut.bytes += there.bytes;
        cut.known = cut.known.max(Lsn(there.last));
    };
    if let Some(part) = whole.last() {
        add(look(files, &part.path, part.end, last.0 + 1)?);
    }
    // A number that no record can reach is the name of another kind of file.
    for &(first, ref path) in gone.iter().filter(|(first, _)| *first <= COUNTED_MAX) {
        let there = look(files, path, RECORDS_START, first.max(last.0 + 1))?;
        // A segment has all records from the one in its name to the next one's. But its name alone
        // does not prove a file without evidence in itself to be a segment.
        let is_one = there.last > 0 || has_its_name(files, path, first)?;
        let before = if is_one { first - 1 } else { 0 };
        add(There { last: there.last.max(before), ..there });
    }
    Ok(cut)
}

/// What a file contains after an offset.
struct There {
    /// Up to the end of the last intact record, or of the partial one that begins there.
    bytes: u64,
    /// The last intact record; 0: none.
    last: u64,
}

/// Searches for the next record, and those after it.
fn look(files: &Files, path: &str, start: u64, next: u64) -> Result<There> {
    let file = files.device.open(path)?;
    let length = file.len()?.clamp(start, SEGMENT_BYTES_MAX.max(start)) - start;
    let mut rest = vec![0; length as usize];
    let read = file.read_at(&mut rest, start)?;
    rest.truncate(read);
    let found = search(files.seed, &rest, next);
    let head = rest.first_chunk().and_then(|head| RecordHeader::decode(head).ok());
    let begun = head.filter(|head| head.lsn == next).map_or(0, |head| {
        let length = HEADER_BYTES + head.length as usize;
        length.min(rest.len())
    });
    Ok(There { bytes: found.end.max(begun) as u64, last: found.last })
}

/// Whether a file's own header agrees with its name.
fn has_its_name(files: &Files, path: &str, first: u64) -> Result<bool> {
    let mut head = [0; log_segment::HEADER_BYTES];
    let read = files.device.open(path)?.read_at(&mut head, 0)?;
    Ok(matches!(
        SegmentHeader::decode(&head[..read]),
        Ok(Decoded::Header(header)) if header.first == first && header.volume == files.volume
    ))
}

/// The reason for refusing to truncate a log.
fn of_later_state(file: String, from: Lsn, found: String) -> Corruption {
    let expected = format!("record {}, the first behind the state that was found", from.0 + 1);
    Corruption { file, offset: 0, structure: "log", expected, found, unread: false }
}

fn warn(damage: &Corruption) {
    tracing::warn!(%damage, "truncating the log before this segment");
}

#[cfg(test)]
pub(super) mod tests;
