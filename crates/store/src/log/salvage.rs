//! Cutting a damaged log off: what is whole and in order before the damage stays, all behind it is
//! given up, and it is said how much. Only for somebody who was told that acknowledged changes are
//! lost by it.
//!
//! All of the log is read before anything is changed, so a read that fails leaves it as it is.
//!
//! A segment whose length is not what its header says has what is left of it. It gets its length
//! back, and the log goes on in the next one if no record is missing.
//!
//! What is behind the last whole record is overwritten with zeros first, then later segments go,
//! the last one first. A crash in between leaves a damaged log that is cut off again.
//!
//! Where the damage is in records that the state has, those behind it become a segment of their own.
//!
//! The spares go first of all, and the segments that were kept for others than recovery: the
//! numbers that are given up are used again, and these may hold records that were numbered like
//! those to come.
//!
//! A log that begins behind the state is not damaged: it belongs to a later state, whose root was
//! lost. To cut it off would destroy what is whole, so it is refused, with nothing changed.

use std::sync::Arc;

use device::Env;
use format::log_record::{HEADER_BYTES, RecordHeader};
use format::log_segment::{self, Decoded, RECORDS_START, SEGMENT_BYTES_MAX, SegmentHeader};
use format::{COUNTED_MAX, Corruption};

use super::recover::{Listed, Scan, find, list, read_beginning, search};
use super::segment::Files;
use super::{Log, LogOptions, Recovery};
use crate::{Error, Lsn, Result};

/// Where a log was cut off, and what was given up of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The last record that is left, or the one with which the state ends.
    pub last: Lsn,
    /// The last one that is known to have been given up; `last` where none is.
    pub known: Lsn,
    /// Bytes behind the last record that is left, up to the end of the last whole one, of all
    /// segments; with what a file has of a record that it ends in.
    pub bytes: u64,
    /// Bytes that segments lack that became shorter, from that with the last record on. What they
    /// were, nobody knows.
    pub missing: u64,
}

impl Log {
    /// Refuses what [`Log::cut_off`] would refuse, and fails where it could not read: for an
    /// engine that has to change something before it cuts the log off.
    pub fn may_be_cut_off(
        env: &Env,
        directory: &str,
        volume: [u8; 16],
        options: &LogOptions,
        from: Lsn,
        certain: bool,
    ) -> Result<()> {
        let files = Files::new(Arc::clone(&env.device), directory, volume, options.key);
        if files.device.metadata(directory)?.is_none() {
            return Ok(());
        }
        Plan::of(&files, options.segment_bytes, from, certain).map(drop)
    }

    /// Cuts the log off at its first damage behind `from`, which is that of the newest durable
    /// checkpoint. `certain`: there can be no later checkpoint, for whatever could describe one was
    /// read. Fails, with nothing changed, when the log is likely that of a later checkpoint, and
    /// when it cannot be read.
    pub fn cut_off(
        env: &Env,
        directory: &str,
        volume: [u8; 16],
        options: &LogOptions,
        from: Lsn,
        certain: bool,
    ) -> Result<Cut> {
        let files = Files::new(Arc::clone(&env.device), directory, volume, options.key);
        if files.device.metadata(directory)?.is_none() {
            files.device.create_dir(directory)?;
        }
        let plan = Plan::of(&files, options.segment_bytes, from, certain)?;
        for path in &plan.superseded {
            files.device.remove(path)?;
        }
        files.device.sync_dir(directory)?;
        if let Some(rescued) = plan.rescued {
            rescued.begin_log(&files, from.0 + 1)?;
            return Log::cut_off(env, directory, volume, options, from, certain);
        }
        let last = plan.whole.len().saturating_sub(1);
        for (at, part) in plan.whole.iter().enumerate() {
            if at == last || part.differs {
                part.end_here(&files)?;
            }
        }
        for (at, path) in plan.gone.iter().enumerate().rev() {
            if at == 0 && plan.whole.is_empty() {
                // Names go for good in any order: without this one the others would be taken for
                // the log of a later state.
                files.device.sync_dir(directory)?;
            }
            files.device.remove(path)?;
        }
        files.device.sync_dir(directory)?;
        if plan.whole.is_empty() {
            let spare = files.make_spare(options.segment_bytes)?;
            files.name_spare(from.0 + 1, &spare)?;
        }
        let Cut { last, known, bytes, missing } = plan.cut;
        tracing::warn!(last = last.0, known = known.0, bytes, missing, "the log was cut off");
        Ok(plan.cut)
    }
}

/// What is to be done.
struct Plan {
    /// Files that the log does without: spares, and what was kept for others.
    superseded: Vec<String>,
    /// What is to be a segment of its own first.
    rescued: Option<Rescued>,
    /// The segments that stay, in order. None where nothing of the log follows the checkpoint: it
    /// begins anew there.
    whole: Vec<Part>,
    /// The segments that go, in order.
    gone: Vec<String>,
    cut: Cut,
}

impl Plan {
    /// `usual`: how long segments are, for those that do not say so any more.
    fn of(files: &Files, usual: u64, from: Lsn, certain: bool) -> Result<Plan> {
        let Listed { mut firsts, kept, spares } = list(files)?;
        let begin = begin_of(files, &firsts, from)?;
        let needed = firsts.split_off(begin.saturating_sub(1));
        let (mut whole, next) = whole(files, &needed, from)?;
        if !certain && (whole.is_empty() || next <= from.0 + 1) {
            let found = "no such record, and a root that may be of a later state is damaged";
            let path = files.segment_path(needed.first().copied().unwrap_or(from.0 + 1));
            return Err(of_later_state(path, from, found.to_owned()).into());
        }
        // Where a segment goes on with the next record, the one before it lost only zeros.
        let goes_on = needed.get(whole.len()) == Some(&next);
        let mut rescued = None;
        if next <= from.0 {
            whole.clear();
            if let Some(&first) = needed.first() {
                rescued = Rescued::find(files, first, from)?;
            }
        }
        let mut missing = whole.last().filter(|_| !goes_on).map_or(0, |part| part.lacks);
        let last = if whole.is_empty() { from } else { Lsn(next - 1) };
        let gone = &needed[whole.len()..];
        for &first in gone {
            missing += lacks(files, usual, first)?;
        }
        let cut = Cut { missing, ..given_up(files, &whole, gone, last)? };
        let spares = spares.iter().map(|name| format!("{}/{name}", files.directory));
        let kept = kept.iter().map(|&first| files.kept_path(first));
        let older = firsts.iter().map(|&first| files.segment_path(first));
        let superseded = spares.chain(kept).chain(older).collect();
        let gone = gone.iter().map(|&first| files.segment_path(first)).collect();
        Ok(Plan { superseded, rescued, whole, gone, cut })
    }
}

/// How many segments begin before the state ends, or with what follows it. Refused where there are
/// later ones and none of these.
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

/// What is needed of a segment that is damaged before that, in what the state has.
struct Rescued {
    path: String,
    /// From the first record behind the state on.
    bytes: Vec<u8>,
    /// How long the segment is.
    length: u64,
}

impl Rescued {
    fn find(files: &Files, first: u64, from: Lsn) -> Result<Option<Rescued>> {
        let path = files.segment_path(first);
        let file = files.device.open(&path)?;
        let (mut bytes, length) = match read_beginning(files, first, &path, file.as_ref()) {
            Ok(read) => read,
            Err(Error::Corrupt(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        bytes.truncate(length as usize);
        let Some(at) = find(files.seed, &bytes, from.0 + 1) else { return Ok(None) };
        bytes.drain(..at);
        Ok(Some(Rescued { path, bytes, length }))
    }

    /// Has the log begin with it. A crash leaves the segment that it was in, before or beside it.
    fn begin_log(&self, files: &Files, first: u64) -> Result<()> {
        let spare = files.make_spare(self.length)?;
        files.device.open(&spare.path)?.write_at(&self.bytes, RECORDS_START)?;
        files.name_spare(first, &spare)?;
        files.device.remove(&self.path)?;
        Ok(files.device.sync_dir(&files.directory)?)
    }
}

/// A segment of which what is needed is whole.
struct Part {
    path: String,
    /// Where its records end.
    end: u64,
    /// How long it is to be.
    length: u64,
    /// Whether it is not so long, and by how much it is shorter.
    differs: bool,
    lacks: u64,
}

impl Part {
    /// Has the segment its length, with zeros behind its records.
    fn end_here(&self, files: &Files) -> Result<()> {
        let file = files.device.open(&self.path)?;
        if self.differs {
            file.set_len(self.length)?;
        }
        file.write_at(&vec![0; self.length.saturating_sub(self.end) as usize], self.end)?;
        Ok(file.sync_data()?)
    }
}

/// The segments that are whole up to where records of them end, and the record that would come
/// next.
fn whole(files: &Files, needed: &[u64], from: Lsn) -> Result<(Vec<Part>, u64)> {
    let mut pass = |_: Lsn, _: &[u8]| Ok(());
    let recovery = Recovery::default();
    let mut scan = Scan { files, from, replay: &mut pass, recovery, mend: false };
    let mut parts = Vec::new();
    let mut next = needed.first().copied().unwrap_or(0);
    for &first in needed {
        if first != next {
            break;
        }
        let path = files.segment_path(first);
        let file = files.device.open(&path)?;
        let (mut bytes, length) = match read_beginning(files, first, &path, file.as_ref()) {
            Ok(read) => read,
            Err(Error::Corrupt(damage)) => {
                tell(&damage);
                break;
            }
            Err(error) => return Err(error),
        };
        let there = bytes.len() as u64;
        let (differs, lacks) = (there != length, length.saturating_sub(there));
        bytes.resize(length as usize, 0);
        let end = scan.records(&path, &bytes, &mut next)? as u64;
        parts.push(Part { path, end, length, differs, lacks });
    }
    Ok((parts, next))
}

/// By how much a segment is shorter than it was, as far as that is known.
fn lacks(files: &Files, usual: u64, first: u64) -> Result<u64> {
    let file = files.device.open(&files.segment_path(first))?;
    let there = file.len()?;
    let mut head = [0; log_segment::HEADER_BYTES];
    let read = file.read_at(&mut head, 0)?;
    Ok(match SegmentHeader::decode(&head[..read]) {
        Ok(Decoded::Header(header)) if header.first == first => header.bytes,
        _ if there < RECORDS_START => usual,
        _ => there,
    }
    .saturating_sub(there))
}

/// Looks at what is given up: behind the last of what is whole, and in the segments that go.
fn given_up(files: &Files, whole: &[Part], gone: &[u64], last: Lsn) -> Result<Cut> {
    let mut cut = Cut { last, known: last, bytes: 0, missing: 0 };
    let mut look = |path: &str, start: u64, next: u64| -> Result<()> {
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
        cut.bytes += found.end.max(begun) as u64;
        // A segment has all records between the one that it is named for and the next one's.
        cut.known = cut.known.max(Lsn(found.last)).max(Lsn(next - 1));
        Ok(())
    };
    if let Some(part) = whole.last() {
        look(&part.path, part.end, last.0 + 1)?;
    }
    // A number that no record comes to is the name of something else.
    for &first in gone.iter().filter(|&&first| first <= COUNTED_MAX) {
        look(&files.segment_path(first), RECORDS_START, first.max(last.0 + 1))?;
    }
    Ok(cut)
}

/// Why a log is not cut off.
fn of_later_state(file: String, from: Lsn, found: String) -> Corruption {
    let expected = format!("record {}, the first behind the state that was found", from.0 + 1);
    Corruption { file, offset: 0, structure: "log", expected, found }
}

fn tell(damage: &Corruption) {
    tracing::warn!(%damage, "the log is cut off before this segment");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use testing::{CrashPolicy, Fault, FaultOn, Op, SimDevice, SimEnv};

    use super::*;
    use crate::Room;

    const VOLUME: [u8; 16] = [5; 16];
    const COUNT: u64 = 1000;

    fn options() -> LogOptions {
        LogOptions { segment_bytes: 64 << 10, write_bytes: 4 << 10, ..LogOptions::default() }
    }

    fn payload(lsn: u64) -> Vec<u8> {
        (0..20 + lsn % 300).map(|at| (at * 7 + lsn) as u8).collect()
    }

    /// A medium with a log that was closed, and its segments.
    fn made(seed: u64) -> (SimDevice, Vec<(u64, String)>) {
        let sim = testing::sim_env(seed);
        let log = Log::create(&sim.env(), "log", VOLUME, &options()).unwrap();
        for lsn in 1..=COUNT {
            assert_eq!(log.append(&payload(lsn), Room::Normal).unwrap(), Lsn(lsn));
        }
        log.close().unwrap();
        let writer = log.writer.lock();
        let segments: Vec<_> =
            writer.segments.iter().map(|of| (of.first, of.path.clone())).collect();
        assert!(segments.len() >= 3);
        (sim.device.clone(), segments)
    }

    fn env(device: &SimDevice) -> Env {
        SimEnv::on(device.clone(), 1).env()
    }

    fn cut(device: &SimDevice, from: u64) -> Result<Cut> {
        Log::cut_off(&env(device), "log", VOLUME, &options(), Lsn(from), true)
    }

    /// The record that is replayed last, when all from the first one are, as they were.
    fn replayed(device: &SimDevice) -> Result<u64> {
        let mut last = 0;
        let mut replay = |lsn: Lsn, bytes: &[u8]| {
            last += 1;
            assert!(lsn == Lsn(last) && bytes == payload(last));
            Ok(())
        };
        Log::open(&env(device), "log", VOLUME, &options(), Lsn(0), &mut replay)?;
        Ok(last)
    }

    /// Where records end in the segment that begins with one, with their numbers.
    fn ends(first: u64, next: u64) -> Vec<(u64, u64)> {
        let mut at = RECORDS_START;
        let end = |lsn: u64| {
            at += HEADER_BYTES as u64 + payload(lsn).len() as u64;
            (at, lsn)
        };
        (first..next).map(end).collect()
    }

    fn next_of(segments: &[(u64, String)], at: usize) -> u64 {
        segments.get(at + 1).map_or(COUNT + 1, |&(first, _)| first)
    }

    fn files(device: &SimDevice) -> BTreeMap<String, Vec<u8>> {
        let read = |(path, _): (String, u64)| (path.clone(), device.read_file(&path));
        device.files().into_iter().map(read).collect()
    }

    /// It was given up as a whole, with all that followed.
    #[test]
    fn a_shortened_segment_keeps_what_it_still_has() {
        let (whole, segments) = made(1);
        let mut random = fastrand::Rng::with_seed(1);
        for (at, (first, path)) in segments.iter().enumerate() {
            let next = next_of(&segments, at);
            let ends = ends(*first, next);
            let used = ends.last().unwrap().0;
            let mut lengths: Vec<u64> = (0..12).map(|_| random.u64(RECORDS_START..used)).collect();
            lengths.extend([RECORDS_START, RECORDS_START + 1, ends[2].0, ends[2].0 - 1, used - 1]);
            for length in lengths {
                let device = whole.copy();
                device.truncate(path, length);
                assert!(replayed(&device).is_err(), "{path} of {length} bytes");
                let left = ends.iter().rfind(|end| end.0 <= length);
                let last = left.map_or(first - 1, |end| end.1);
                let start = left.map_or(RECORDS_START, |end| end.0);
                let found = cut(&device, 0).unwrap();
                let what = format!("{path} of {length} bytes: {found:?}");
                assert_eq!(found.last, Lsn(last), "{what}");
                // What nothing is left of in the last segment, nobody knows of.
                let known = if at + 1 < segments.len() { COUNT } else { last };
                assert_eq!(found.known, Lsn(known), "{what}");
                assert_eq!(found.missing, (64 << 10) - length, "{what}");
                let begun = length - start;
                assert!(begun < HEADER_BYTES as u64 || found.bytes >= begun, "{what}");
                assert_eq!(replayed(&device).unwrap(), last, "{what}");
                assert_eq!(device.read_file(path).len(), 64 << 10);
            }
        }
    }

    /// A file that lost nothing but zeros, or got longer, costs no record.
    #[test]
    fn a_segment_of_another_length_with_all_its_records_costs_nothing() {
        let (whole, segments) = made(2);
        for (at, (first, path)) in segments.iter().enumerate() {
            let used = ends(*first, next_of(&segments, at)).last().unwrap().0;
            for length in [used, used + 1, (64 << 10) + 1, 80 << 10] {
                if length == 64 << 10 {
                    continue;
                }
                let device = whole.copy();
                device.truncate(path, length);
                assert!(replayed(&device).is_err(), "{path} of {length} bytes");
                let found = cut(&device, 0).unwrap();
                assert_eq!((found.last, found.known), (Lsn(COUNT), Lsn(COUNT)), "{path}, {length}");
                assert_eq!(replayed(&device).unwrap(), COUNT);
            }
        }
    }

    #[test]
    fn what_is_given_up_behind_a_damaged_record_is_told() {
        let (whole, segments) = made(3);
        let (first, path) = &segments[1];
        let ends = ends(*first, next_of(&segments, 1));
        for (before, after) in [(3, 4), (40, 41)] {
            let device = whole.copy();
            device.flip_bit(path, 8 * (ends[before].0 + 20));
            let found = cut(&device, 0).unwrap();
            let Cut { last, known, bytes, missing } = found;
            assert_eq!(missing, 0, "{found:?}");
            assert_eq!((last, known), (Lsn(ends[after].1 - 1), Lsn(COUNT)), "{found:?}");
            let behind: usize =
                (last.0 + 1..=COUNT).map(|lsn| HEADER_BYTES + payload(lsn).len()).sum();
            // And the mark behind the last one.
            let behind = (behind + HEADER_BYTES) as u64;
            assert_eq!(bytes, behind, "{found:?}");
            assert_eq!(replayed(&device).unwrap(), last.0);
        }
    }

    /// Whichever read fails, of what stays or of what would go: nothing is changed.
    #[test]
    fn nothing_of_a_log_is_changed_where_it_cannot_be_read() {
        let (whole, segments) = made(4);
        whole.truncate(&segments[1].1, 30 << 10);
        for on in [Op::Read, Op::Look, Op::Open] {
            for after in 0.. {
                let device = whole.copy();
                let before = files(&device);
                device.inject(Fault::io(FaultOn::Only(on), after));
                let found = cut(&device, 0);
                if device.faults_left() {
                    assert!(found.is_ok() && after > 2, "{on:?}, call {after}");
                    break;
                }
                // What is to be written is opened once more, after the spares went.
                device.clear_faults();
                let changed = files(&device) != before;
                assert!(matches!(found, Err(Error::Device(_))), "{on:?}, call {after}");
                assert!(!changed || on == Op::Open, "{on:?}, call {after}");
                assert!(segments.iter().all(|(_, path)| device.read_file(path) == before[path]));
            }
        }
    }

    #[test]
    fn a_cut_that_the_power_ends_is_made_again_and_comes_to_the_same() {
        let (whole, segments) = made(5);
        for (at, length) in [(1, 30 << 10), (0, 20 << 10), (2, 3000)] {
            let hurt = whole.copy();
            hurt.truncate(&segments[at].1, length);
            let right = hurt.copy();
            let last = cut(&right, 0).unwrap().last;
            let ops = right.ops();
            assert!(ops > hurt.ops() + 4);
            for op in hurt.ops()..ops {
                for policy in CrashPolicy::ALL {
                    let device = hurt.copy();
                    device.crash_at(op);
                    cut(&device, 0).ok();
                    let device = device.after_crash(policy, op);
                    let again = cut(&device, 0).unwrap().last;
                    assert_eq!(again, last, "{at}, cut off at {op}, {policy:?}");
                    assert_eq!(replayed(&device).unwrap(), last.0);
                }
            }
        }
    }

    /// Names that go become so in any order, so that later segments alone were left, as if of a
    /// later state.
    #[test]
    fn a_cut_of_all_segments_that_the_power_ends_is_made_again() {
        let (whole, segments) = made(6);
        // The numbers of what it does begin anew.
        let hurt = whole.copy();
        hurt.flip_bit(&segments[0].1, 8 * 20);
        let right = hurt.copy();
        assert_eq!(cut(&right, 0).unwrap().last, Lsn(0));
        for op in hurt.ops()..right.ops() {
            for seed in 0..20 {
                let device = hurt.copy();
                device.crash_at(op);
                cut(&device, 0).ok();
                let device = device.after_crash(CrashPolicy::Random, 100 * op + seed);
                let again = cut(&device, 0).map(|cut| cut.last);
                assert!(matches!(again, Ok(Lsn(0))), "cut off at {op}, seed {seed}: {again:?}");
                assert_eq!(replayed(&device).unwrap(), 0);
            }
        }
    }

    /// Nothing was said to be missing of a segment of which not even the header is left, nor of one
    /// that is given up.
    #[test]
    fn what_a_segment_lacks_that_goes_is_told() {
        let (whole, segments) = made(7);
        let (first, path) = segments.last().unwrap();
        let before = &segments[segments.len() - 2];
        for (hurts_before, length) in [(false, 0), (false, 40), (true, 0), (true, 5000)] {
            let device = whole.copy();
            if hurts_before {
                device.flip_bit(&before.1, 8 * (RECORDS_START + 20));
            }
            device.truncate(path, length);
            let found = cut(&device, 0).unwrap();
            let last = if hurts_before { before.0 } else { *first } - 1;
            assert_eq!(found.last, Lsn(last), "{found:?}");
            assert_eq!(found.missing, (64 << 10) - length, "{found:?}");
        }
    }

    /// What a segment lacked counted though the next one shows that it had lost no record.
    #[test]
    fn what_lost_only_zeros_lacks_nothing() {
        let (device, segments) = made(8);
        let (next, path) = (segments[2].0, &segments[1].1);
        let used = ends(segments[1].0, next).last().unwrap().0;
        device.truncate(path, used);
        device.flip_bit(&segments[2].1, 8 * 20);
        let found = cut(&device, 0).unwrap();
        assert_eq!((found.last, found.known), (Lsn(next - 1), Lsn(COUNT)), "{found:?}");
        assert_eq!(found.missing, 0, "{found:?}");
    }

    /// A file that is named for a number that no record comes to ended the process.
    #[test]
    fn a_name_that_no_segment_has_says_nothing_of_records() {
        for number in [u64::MAX, u64::MAX - 1, COUNTED_MAX + 1] {
            let (device, _) = made(9);
            let file = env(&device).device.create(&format!("log/{number:016x}.log")).unwrap();
            file.write_at(&[7; 8000], 0).unwrap();
            let found = cut(&device, 0).unwrap();
            assert_eq!((found.last, found.known), (Lsn(COUNT), Lsn(COUNT)), "{found:?}");
            assert_eq!(replayed(&device).unwrap(), COUNT);
        }
    }

    /// All that followed the state went with a record that it has, which nobody needs.
    #[test]
    fn damage_that_the_state_has_costs_nothing() {
        for also in [false, true] {
            let (whole, segments) = made(10);
            let hurt = whole.copy();
            let ends = ends(1, segments[1].0);
            hurt.flip_bit(&segments[0].1, 8 * (ends[3].0 + 20));
            if also {
                hurt.flip_bit(&segments[0].1, 8 * (ends[100].0 + 20));
            }
            let left = if also { 101 } else { COUNT };
            let check = |device: &SimDevice, what: &str| {
                let found = cut(device, 20).unwrap();
                assert_eq!((found.last, found.known), (Lsn(left), Lsn(COUNT)), "{what}");
                let mut next = 21;
                let mut replay = |lsn: Lsn, bytes: &[u8]| {
                    assert!(lsn == Lsn(next) && bytes == payload(next), "{what}");
                    next += 1;
                    Ok(())
                };
                Log::open(&env(device), "log", VOLUME, &options(), Lsn(20), &mut replay).unwrap();
                assert_eq!(next, left + 1, "{what}");
            };
            let right = hurt.copy();
            check(&right, "without a crash");
            for op in hurt.ops()..right.ops() {
                for seed in 0..6 {
                    let device = hurt.copy();
                    device.crash_at(op);
                    cut(&device, 20).ok();
                    let device = device.after_crash(CrashPolicy::Random, 100 * op + seed);
                    let again = cut(&device, 20).unwrap();
                    // What was given up may be gone, so that less is known of it.
                    assert_eq!(again.last, Lsn(left), "{also}, {op}, {seed}");
                    let mut next = 21;
                    let mut replay = |lsn: Lsn, bytes: &[u8]| {
                        assert!(lsn == Lsn(next) && bytes == payload(next));
                        next += 1;
                        Ok(())
                    };
                    Log::open(&env(&device), "log", VOLUME, &options(), Lsn(20), &mut replay)
                        .unwrap();
                    assert_eq!(next, left + 1, "{also}, {op}, {seed}");
                }
            }
        }
    }
}
