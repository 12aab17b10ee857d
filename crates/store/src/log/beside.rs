//! Reads a log that is in use as the next opening would, concurrently with writers and checkpoints.
//!
//! It reads only what was durable when it began: writers work behind that. A checkpoint that frees
//! a segment meanwhile takes it out of the writer's list before the file is renamed or reused. So
//! data read from a segment that is no longer in the list is discarded. A segment still in the list
//! existed the whole time.

use format::batch::Ops;
use format::log_record::Record;
use format::log_segment::RECORDS_START;

use super::append::Log;
use super::beginning::read_segment;
use super::recover::{located, missing_record};
use crate::{Error, Lsn, Result};

/// A segment as listed by the writer.
struct Named {
    first: u64,
    path: String,
}

impl Log {
    /// Reads the records that recovery needs after a checkpoint's, `from`, up to the last durable
    /// one. `found` receives damage, at most once a segment. If the damaged segment is the last
    /// one, the next record begins another, so that recovery needs none of these after the next
    /// checkpoint.
    pub fn verify_beside(&self, from: Lsn, found: &mut dyn FnMut(Error)) {
        if let Some(objects) = &self.objects {
            return objects.verify(self.files.seed, from, found);
        }
        let last = self.durable().0;
        self.verify_segments(&self.needed(from), last, found);
    }

    /// The segments that hold the records after `from`.
    fn needed(&self, from: Lsn) -> Vec<Named> {
        let writer = self.writer.lock();
        let begin = writer.segments.partition_point(|segment| segment.first <= from.0 + 1);
        let needed = writer.segments.iter().skip(begin.saturating_sub(1));
        needed.map(|segment| Named { first: segment.first, path: segment.path.clone() }).collect()
    }

    fn verify_segments(&self, needed: &[Named], last: u64, found: &mut dyn FnMut(Error)) {
        for (at, segment) in needed.iter().enumerate() {
            let end = needed.get(at + 1).map_or(last, |next| next.first - 1);
            if let Err(error) = self.verify_segment(segment, end.min(last))
                && self.is_needed(segment.first)
            {
                if self.is_last(segment.first) {
                    self.renew();
                }
                found(error);
            }
        }
    }

    fn is_last(&self, first: u64) -> bool {
        self.writer.lock().segments.back().is_some_and(|segment| segment.first == first)
    }

    fn is_needed(&self, first: u64) -> bool {
        self.writer.lock().segments.iter().any(|segment| segment.first == first)
    }

    /// Reads the records of a segment up to the one numbered `last`.
    fn verify_segment(&self, segment: &Named, last: u64) -> Result<()> {
        let Named { first, path } = segment;
        let file = match self.files.device.open(path) {
            Err(error) if error.is_not_found() => {
                return Err(Error::Missing { file: path.clone(), record: None });
            }
            file => file?,
        };
        let bytes = read_segment(&self.files, *first, path, file.as_ref())?;
        let (mut at, mut next) = (RECORDS_START as usize, *first);
        while next <= last {
            let record = Record::decode(self.files.seed, bytes.get(at..).unwrap_or_default()).ok();
            let is_next =
                |record: &Record<'_>| !record.header.is_mark() && record.header.lsn == next;
            let Some(record) = record.filter(is_next) else {
                return Err(missing_record(path, at, next, last).into());
            };
            if let Some(malformed) = Ops::new(record.payload).find_map(|op| op.err()) {
                return Err(located(malformed.located("", 0).into(), path, at));
            }
            at += record.bytes();
            next += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LogOptions, LogSpace};
    use super::*;
    use crate::{Batch, TreeId};

    fn log(sim: &testing::SimEnv) -> Log {
        let options =
            LogOptions { segment_bytes: 16 << 10, write_bytes: 4 << 10, ..LogOptions::default() };
        Log::create(&sim.env(), "log", [7; 16], &options).unwrap()
    }

    fn append(log: &Log, count: u64) {
        for _ in 0..count {
            let mut batch = Batch::new();
            batch.put(TreeId(5), &log.last().0.to_be_bytes(), &[1; 90]);
            log.append(batch.as_bytes(), LogSpace::Normal).unwrap();
        }
    }

    fn found(log: &Log, from: u64) -> Vec<String> {
        let mut found = Vec::new();
        log.verify_beside(Lsn(from), &mut |error| found.push(error.to_string()));
        found
    }

    #[test]
    fn durable_records_are_read_and_damage_is_located() {
        let sim = testing::sim_env(1);
        let log = log(&sim);
        append(&log, 1000);
        log.sync(log.last()).unwrap();
        append(&log, 3);
        assert_eq!(found(&log, 0), Vec::<String>::new());
        let paths: Vec<String> =
            log.writer.lock().segments.iter().map(|segment| segment.path.clone()).collect();
        sim.device.flip_bit(&paths[1], 8 * (RECORDS_START + 5000));
        sim.device.overwrite(&paths[2], 0, &[0; 64]);
        let reported = found(&log, 0);
        assert_eq!(reported.len(), 2, "{reported:#?}");
        assert!(reported[0].contains(&paths[1]) && reported[0].contains("byte "), "{reported:#?}");
        assert!(reported[1].contains(&paths[2]) && reported[1].contains("byte 0"), "{reported:#?}");
        // Records that a checkpoint contains are not needed.
        let third = log.writer.lock().segments[3].first;
        assert_eq!(found(&log, third), Vec::<String>::new());
        log.trim(Lsn(third)).unwrap();
        sim.env().device.remove(&paths[4]).unwrap();
        assert!(found(&log, third)[0].contains(&paths[4]));
    }

    /// No later event made the segment that was in use unnecessary: after the next close, nothing
    /// opened.
    #[test]
    fn a_damaged_segment_is_not_needed_after_the_next_checkpoint() {
        let strikes: [fn(&testing::SimEnv, &str); 5] = [
            |sim, path| sim.device.overwrite(path, RECORDS_START + 2000, &[0; 1024]),
            |sim, path| sim.device.overwrite(path, 0, &[0; 8192]),
            |sim, path| sim.device.overwrite(path, 0, &[0; 12 << 10]),
            |sim, path| sim.device.truncate(path, 5000),
            |sim, path| sim.device.delete(path),
        ];
        for (seed, strike) in (3..).zip(strikes) {
            let sim = testing::sim_env(seed);
            let log = log(&sim);
            append(&log, 40);
            log.sync(log.last()).unwrap();
            let path = log.writer.lock().segments.back().unwrap().path.clone();
            strike(&sim, &path);
            assert_eq!(found(&log, 0).len(), 1, "{seed}");
            append(&log, 1);
            log.sync(log.last()).unwrap();
            let last = log.last();
            log.trim(last).unwrap();
            assert_eq!(found(&log, last.0), Vec::<String>::new(), "{seed}");
            append(&log, 1);
            log.close().unwrap();
            drop(log);
            let mut replayed = 0;
            let mut replay = |lsn: Lsn, _: &[u8]| {
                replayed = lsn.0;
                Ok(())
            };
            let options = LogOptions { segment_bytes: 16 << 10, ..LogOptions::default() };
            Log::open(&sim.env(), "log", [7; 16], &options, last, &mut replay).unwrap();
            assert_eq!(replayed, last.0 + 1, "{seed}");
        }
    }

    #[test]
    fn a_segment_freed_meanwhile_is_no_damage() {
        let sim = testing::sim_env(2);
        let log = log(&sim);
        log.keep(&[]).unwrap();
        append(&log, 1000);
        log.sync(log.last()).unwrap();
        let (needed, last) = (log.needed(Lsn(0)), log.durable().0);
        assert!(needed.len() > 5);
        log.trim(Lsn(needed[4].first)).unwrap();
        append(&log, 1000);
        log.sync(log.last()).unwrap();
        let mut read = Vec::new();
        for segment in &needed {
            read.push(log.verify_segment(segment, segment.first).is_ok());
        }
        assert!(!read[0] && read[4], "{read:?}");
        log.verify_segments(&needed, last, &mut |error| panic!("{error}"));
    }
}
