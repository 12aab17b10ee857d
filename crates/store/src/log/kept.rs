//! Segments that recovery no longer needs, kept for readers of the changes since a record. The log
//! is the only list of changes, and is not written twice.
//!
//! They are a convenience, not authoritative, and have names that recovery ignores. A segment that
//! a checkpoint made unnecessary must not seem to lead up to the state before it. They take a
//! bounded part of the disk and are freed before a commit is refused for lack of space. A reader
//! learns whether it saw every record it requested, and otherwise uses another way to find the
//! changes. So reading takes no lock: a segment that is freed or reused meanwhile does not contain
//! the next records, as their numbers and checksums show.

use std::sync::Arc;

use format::log_record::Record;
use format::log_segment::RECORDS_START;

use super::append::Log;
use super::beginning::read_segment;
use super::segment::{Files, Segment, Spare, Writer};
use crate::{Lsn, Result};

impl Log {
    /// Declares that recovery no longer needs the segments whose records are all numbered `up_to`
    /// or less. Call it when a checkpoint that contains them is durable.
    pub fn trim(&self, up_to: Lsn) -> Result<()> {
        if let Some(objects) = &self.objects {
            objects.trim(up_to);
            return Ok(());
        }
        self.give_up(|writer| {
            while writer.segments.get(1).is_some_and(|second| second.first <= up_to.0 + 1) {
                writer.kept.segments.extend(writer.segments.pop_front());
            }
        })?;
        Ok(())
    }

    /// Deletes objects that were trimmed. Requests may take long: the caller holds nothing that
    /// others wait for.
    pub fn delete_trimmed(&self) {
        if let Some(objects) = &self.objects {
            objects.delete_trimmed();
        }
    }

    /// Declares after which records [`Log::read`] will read, within the log's options. Records that
    /// no position precedes, and those of an incomplete sequence, are not kept. Before the first
    /// call, all are.
    pub fn keep(&self, behind: &[Lsn]) -> Result<()> {
        if self.objects.is_some() {
            // Objects are kept for recovery alone.
            return Ok(());
        }
        let wanted = behind.iter().map(|lsn| lsn.0).collect();
        self.give_up(|writer| writer.kept.wanted = Some(wanted))?;
        Ok(())
    }

    /// Frees everything that recovery does not need; returns whether there was any.
    pub(super) fn keep_nothing(&self) -> Result<bool> {
        self.give_up(|writer| writer.kept.wanted = Some(Vec::new()))
    }

    /// Takes over segments that recovery does not need, from before the first that it does.
    pub(super) fn supersede(&self, older: Vec<Segment>) -> Result<()> {
        self.give_up(|writer| writer.kept.segments.extend(older))?;
        Ok(())
    }

    /// Frees what is no longer to be kept after `change`, and renames the rest to their kept name;
    /// returns whether anything was freed. The log continues meanwhile.
    fn give_up(&self, change: impl FnOnce(&mut Writer)) -> Result<bool> {
        let _one = self.trimming.lock();
        let mut writer = self.writer.lock();
        change(&mut writer);
        let needed = writer.segments.front().map_or(writer.next, |segment| segment.first);
        let gone = writer.kept.surplus(needed, self.options.keep_bytes);
        let segments = writer.kept.segments.iter();
        let named = segments.filter(|segment| segment.path != self.files.kept_path(segment.first));
        let named: Vec<u64> = named.map(|segment| segment.first).collect();
        drop(writer);
        let any = !gone.is_empty();
        self.recycle(gone)?;
        for &first in &named {
            let (from, to) = (self.files.segment_path(first), self.files.kept_path(first));
            let renamed = self.files.device.rename(&from, &to);
            let mut writer = self.writer.lock();
            if renamed.as_ref().is_err_and(device::Error::is_not_found) {
                // The file was removed externally; it is not needed any more.
                writer.kept.segments.retain(|kept| kept.first != first);
                continue;
            }
            renamed?;
            for segment in writer.kept.segments.iter_mut().filter(|kept| kept.first == first) {
                segment.path = self.files.kept_path(first);
            }
        }
        if !named.is_empty() {
            self.files.device.sync_dir(&self.files.directory)?;
        }
        Ok(any)
    }

    /// Keeps as many segments as spares as are needed (the reserve, and one to continue with when
    /// that will be soon), and removes the others.
    fn recycle(&self, gone: Vec<Segment>) -> Result<()> {
        if gone.is_empty() {
            return Ok(());
        }
        let mut spares = Vec::new();
        let mut wanted = {
            let state = self.state.lock();
            let mut wanted = Vec::new();
            if state.spares.is_empty() {
                wanted.push(self.options.reserve_bytes());
            }
            if self.wants_spare(&state) {
                wanted.push(self.options.segment_bytes);
            }
            wanted
        };
        for segment in gone {
            // The file was removed or truncated externally; it is not needed any more.
            let Some(there) = self.files.device.metadata(&segment.path)? else { continue };
            let is_whole = there.length == segment.bytes;
            // Longest use first, so that each segment serves a use that it is long enough for.
            let at = wanted.iter().rposition(|&bytes| bytes <= segment.bytes);
            let may = is_whole && segment.bytes <= self.options.segment_bytes;
            if let Some(at) = at.filter(|_| may) {
                let (bytes, path) = (wanted.remove(at), self.files.spare_path());
                self.files.device.rename(&segment.path, &path)?;
                if bytes < segment.bytes {
                    self.files.device.open(&path)?.set_len(bytes)?;
                }
                spares.push(Spare { path, bytes });
            } else {
                self.files.device.remove(&segment.path)?;
            }
        }
        // Before a spare is written to: otherwise a crash could restore its old name, with the
        // header of another segment.
        self.files.device.sync_dir(&self.files.directory)?;
        self.state.lock().spares.append(&mut spares);
        Ok(())
    }

    /// Approximate bytes of the records after a number; `None` when not all of them are present.
    pub fn bytes_behind(&self, after: Lsn) -> Option<u64> {
        if let Some(objects) = &self.objects {
            return objects.bytes_behind(after);
        }
        let writer = self.writer.lock();
        let mut end = (writer.next, writer.offset);
        let mut bytes = 0;
        for segment in writer.kept.segments.iter().chain(&writer.segments).rev() {
            let (next, length) = std::mem::replace(&mut end, (segment.first, 0));
            let length = if length == 0 { segment.bytes } else { length };
            if segment.first > after.0 + 1 {
                bytes += length;
                continue;
            }
            // Assumes that all records have the same length.
            let (all, behind) = (next - segment.first, next.saturating_sub(after.0 + 1));
            return Some(bytes + length * behind / all.max(1));
        }
        None
    }

    /// Passes the payloads of the records after `after` up to `up_to`, in order, to `take`, until
    /// it returns `false`. `true`: `take` saw all of them, or stopped. Otherwise the records are
    /// incomplete, because the log no longer reaches back so far, or cannot be read.
    pub fn read(&self, after: Lsn, up_to: Lsn, take: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        if self.sync(up_to).is_err() {
            return false;
        }
        if let Some(objects) = &self.objects {
            return objects.read(self.files.seed, (after, up_to), take);
        }
        let mut firsts: Vec<u64> = {
            let writer = self.writer.lock();
            let segments = writer.kept.segments.iter().chain(&writer.segments);
            segments.map(|segment| segment.first).collect()
        };
        let begin = firsts.partition_point(|&first| first <= after.0 + 1);
        if begin == 0 {
            return false;
        }
        let firsts = firsts.split_off(begin - 1);
        let mut next = firsts[0];
        for first in firsts {
            if next > up_to.0 {
                break;
            }
            if next != first {
                return false;
            }
            match records(&self.files, (after.0, up_to.0), &mut next, take) {
                Ok(true) => {}
                Ok(false) => return true,
                Err(error) => {
                    tracing::debug!(%error, "cannot read a retained log segment");
                    return false;
                }
            }
        }
        next > up_to.0
    }
}

/// Passes the records of the segment that begins with `next`, and advances `next` to where they
/// end; `false` when the reader stops.
fn records(
    files: &Files,
    (after, up_to): (u64, u64),
    next: &mut u64,
    take: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<bool> {
    // It may be renamed to its kept name meanwhile.
    let mut path = files.segment_path(*next);
    let mut opened = files.device.open(&path);
    if opened.as_ref().is_err_and(|error| error.is_not_found()) {
        path = files.kept_path(*next);
        opened = files.device.open(&path);
    }
    let file = opened?;
    let bytes = read_segment(files, *next, &path, Arc::as_ref(&file))?;
    let mut at = RECORDS_START as usize;
    while *next <= up_to
        && let Ok(record) = Record::decode(files.seed, &bytes[at..])
        && !record.header.is_mark()
        && record.header.lsn == *next
    {
        if *next > after && !take(record.payload) {
            return Ok(false);
        }
        at += record.bytes();
        *next += 1;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use testing::{Fault, FaultOn, Op};

    use super::super::segment::KEPT_SUFFIX;
    use super::super::{LogOptions, LogSpace};
    use super::*;
    use crate::Error;

    const VOLUME: [u8; 16] = [7; 16];

    fn options(keep_bytes: u64) -> LogOptions {
        let segment_bytes = 16 << 10;
        LogOptions { segment_bytes, write_bytes: 4 << 10, keep_bytes, ..LogOptions::default() }
    }

    fn payload(number: u64) -> Vec<u8> {
        let mut bytes = vec![number as u8; 50 + (number % 100) as usize];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    fn append(log: &Log, count: u64) {
        for _ in 0..count {
            log.append(&payload(log.last().0 + 1), LogSpace::Normal).unwrap();
        }
    }

    /// The numbers read, if all of them are.
    fn read(log: &Log, after: u64, up_to: u64) -> Option<Vec<u64>> {
        let mut seen = Vec::new();
        let whole = log.read(Lsn(after), Lsn(up_to), &mut |bytes| {
            let number = u64::from_le_bytes(*bytes.first_chunk().unwrap());
            assert_eq!(bytes, payload(number));
            seen.push(number);
            true
        });
        whole.then_some(seen)
    }

    fn open(sim: &testing::SimEnv, keep_bytes: u64, from: u64) -> Log {
        let mut ignore = |_: Lsn, _: &[u8]| Ok(());
        let options = options(keep_bytes);
        Log::open(&sim.env(), "log", VOLUME, &options, Lsn(from), &mut ignore).unwrap().0
    }

    #[test]
    fn requested_records_are_readable_after_trim_and_reopening() {
        let sim = testing::sim_env(1);
        let log = Log::create(&sim.env(), "log", VOLUME, &options(1 << 20)).unwrap();
        append(&log, 100);
        log.keep(&[Lsn(100)]).unwrap();
        append(&log, 1900);
        log.trim(Lsn(1990)).unwrap();
        assert_eq!(read(&log, 100, 2000), Some((101..=2000).collect()));
        assert_eq!(read(&log, 1995, 1998), Some((1996..=1998).collect()));
        assert_eq!(read(&log, 2000, 2000), Some(Vec::new()));
        log.close().unwrap();
        drop(log);
        let log = open(&sim, 1 << 20, 1990);
        append(&log, 500);
        log.trim(Lsn(2400)).unwrap();
        assert_eq!(read(&log, 100, 2500), Some((101..=2500).collect()), "before any was kept");
        log.keep(&[Lsn(1500), Lsn(2200)]).unwrap();
        assert_eq!(read(&log, 1500, 2500), Some((1501..=2500).collect()));
        assert_eq!(read(&log, 100, 2500), None);
        assert!(log.bytes_behind(Lsn(1500)) > log.bytes_behind(Lsn(2200)));
        assert_eq!(log.bytes_behind(Lsn(100)), None);
        log.keep(&[]).unwrap();
        assert_eq!(read(&log, 1500, 2500), None);
        log.close().unwrap();
        drop(log);
        // Recovery never needed them.
        let log = open(&sim, 0, 2400);
        assert_eq!(log.last(), Lsn(2500));
    }

    #[test]
    fn kept_segments_are_bounded_and_complete() {
        let sim = testing::sim_env(2);
        let log = Log::create(&sim.env(), "log", VOLUME, &options(64 << 10)).unwrap();
        log.keep(&[Lsn(0), Lsn(1000)]).unwrap();
        let without = log.stats().disk_bytes;
        for _ in 0..20 {
            append(&log, 100);
            log.sync(log.last()).unwrap();
            log.trim(log.last()).unwrap();
            assert!(log.writer.lock().kept.bytes() <= 64 << 10);
        }
        assert_eq!((read(&log, 0, 2000), read(&log, 1000, 2000)), (None, None));
        // The remaining segments are useless.
        assert_eq!(log.writer.lock().kept.bytes(), 0);
        assert!(log.stats().disk_bytes <= without + (32 << 10));
    }

    #[test]
    fn kept_segments_are_freed_before_a_commit_is_refused() {
        let sim = testing::sim_env(3);
        let log = Log::create(&sim.env(), "log", VOLUME, &options(1 << 20)).unwrap();
        append(&log, 1000);
        log.sync(log.last()).unwrap();
        log.trim(log.last()).unwrap();
        assert!(read(&log, 0, 1000).is_some());
        let space = sim.env().device.space().unwrap();
        sim.device.set_capacity(Some(space.total_bytes - space.free_bytes + (20 << 10)));
        append(&log, 300);
        assert_eq!(log.last(), Lsn(1300));
        assert_eq!(read(&log, 0, 1300), None);
        assert_eq!(read(&log, 1100, 1300), Some((1101..=1300).collect()));
    }

    #[test]
    fn kept_segments_are_freed_when_the_log_has_its_own_disk() {
        let sim = testing::sim_env(8);
        let log = Log::create(&sim.env(), "log", VOLUME, &options(1 << 20)).unwrap();
        append(&log, 1000);
        log.sync(log.last()).unwrap();
        log.trim(log.last()).unwrap();
        assert!(read(&log, 0, 1000).is_some());
        // The volume's disk has space.
        let full = Fault::no_space(FaultOn::Only(Op::Allocate), 0);
        sim.device.inject(full.below("log/"));
        append(&log, 300);
        assert_eq!(log.last(), Lsn(1300));
        assert_eq!(read(&log, 0, 1300), None);
    }

    #[test]
    fn a_damaged_or_missing_kept_segment_is_reported() {
        let sim = testing::sim_env(4);
        let log = Log::create(&sim.env(), "log", VOLUME, &options(1 << 20)).unwrap();
        append(&log, 1000);
        log.sync(log.last()).unwrap();
        log.trim(log.last()).unwrap();
        assert!(read(&log, 10, 1000).is_some());
        let second = log.writer.lock().kept.segments[1].path.clone();
        sim.device.flip_bit(&second, 8 * (RECORDS_START + 700));
        assert_eq!(read(&log, 10, 1000), None);
        assert_eq!(read(&log, 990, 1000), Some((991..=1000).collect()));
        sim.env().device.remove(&second).unwrap();
        assert_eq!(read(&log, 10, 1000), None);
        log.close().unwrap();
        drop(log);
        assert_eq!(open(&sim, 1 << 20, 1000).last(), Lsn(1000));
    }
    #[test]
    fn kept_segments_do_not_restore_a_dropped_state() {
        let sim = testing::sim_env(5);
        let log = Log::create(&sim.env(), "log", VOLUME, &options(1 << 20)).unwrap();
        append(&log, 1000);
        log.sync(log.last()).unwrap();
        log.trim(Lsn(900)).unwrap();
        assert!(read(&log, 0, 1000).is_some(), "all is kept");
        log.close().unwrap();
        drop(log);
        let mut ignore = |_: Lsn, _: &[u8]| Ok(());
        let options = options(1 << 20);
        let older = Log::open(&sim.env(), "log", VOLUME, &options, Lsn(300), &mut ignore);
        assert!(matches!(older, Err(Error::Missing { .. })));
        let refused = Log::cut_off(&sim.env(), "log", VOLUME, &options, Lsn(300), true);
        assert!(matches!(refused, Err(Error::Corrupt(_))));
        assert_eq!(open(&sim, 1 << 20, 900).last(), Lsn(1000));
    }

    #[test]
    fn a_lost_last_segment_is_not_a_clean_end() {
        let sim = testing::sim_env(6);
        let log = Log::create(&sim.env(), "log", VOLUME, &options(1 << 20)).unwrap();
        append(&log, 1000);
        log.sync(log.last()).unwrap();
        let (last, path) = {
            let writer = log.writer.lock();
            let last = writer.segments.back().unwrap();
            (last.first, last.path.clone())
        };
        log.trim(Lsn(last - 1)).unwrap();
        log.close().unwrap();
        drop(log);
        sim.env().device.remove(&path).unwrap();
        let mut ignore = |_: Lsn, _: &[u8]| Ok(());
        let options = options(1 << 20);
        let found = Log::open(&sim.env(), "log", VOLUME, &options, Lsn(last - 1), &mut ignore);
        assert!(matches!(found, Err(Error::Missing { .. })));
    }

    #[test]
    fn segments_that_kept_their_name_in_a_crash_are_renamed() {
        let sim = testing::sim_env(7);
        let log = Log::create(&sim.env(), "log", VOLUME, &options(1 << 20)).unwrap();
        append(&log, 1000);
        log.close().unwrap();
        drop(log);
        let log = open(&sim, 1 << 20, 900);
        assert!(read(&log, 0, 1000).is_some(), "all is kept");
        let kept = sim.env().device.list("log").unwrap();
        assert!(kept.iter().any(|name| name.contains(KEPT_SUFFIX)), "{kept:?}");
        drop(log);
        let mut ignore = |_: Lsn, _: &[u8]| Ok(());
        let older = Log::open(&sim.env(), "log", VOLUME, &options(0), Lsn(1), &mut ignore);
        assert!(matches!(older, Err(Error::Missing { .. })));
    }
}
