//! Stages: the bytes of numbered records that wait to be written, in one stage per thread (threads
//! beyond their number share).
//!
//! So appending writes no bytes to cache lines that another thread has just written. The only
//! shared line that moves between processors is the one with the next number. A thread locks its
//! stage, takes a number, and releases the stage when its bytes are there. The writer notes the
//! last number first and then reads the stages. So it finds all records up to that one, and merges
//! them by number. A thread that has made space for its record gets the number while it still holds
//! the log's lock. It uses a stage separate from the threads'.
//!
//! Invariant: the records of a stage ascend, and each ends where the next one begins.

use device::sync::{Mutex, MutexGuard};
use device::thread_slot;
use format::log_record::HEADER_BYTES;
use smallvec::SmallVec;

/// Stages of threads. Further threads share them.
const OWN_STAGES: usize = 8;
/// The last one is for threads that get their number after making space.
const STAGES: usize = OWN_STAGES + 1;

/// Bytes of several threads that are merged before they are written. They are few enough to be
/// still in the processor's cache, and not to evict its earlier working set.
const MERGED_BYTES: usize = 64 << 10;

/// A stage with cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Stage(Mutex<Staged>);

/// The stages of a log.
#[derive(Default)]
pub(super) struct Stages([Stage; STAGES]);

/// Records of one stage.
#[derive(Default)]
pub(super) struct Staged {
    bytes: Vec<u8>,
    records: Vec<Placed>,
}

/// A record's number, and its end offset.
struct Placed {
    lsn: u64,
    end: usize,
}

impl Stages {
    /// The stage of the calling thread.
    #[inline]
    pub(super) fn of_thread(&self) -> MutexGuard<'_, Staged> {
        self.0[thread_slot() % OWN_STAGES].0.lock()
    }

    /// The stage of threads that have made space and must keep the log's lock until they have their
    /// number. It is locked after the log's lock, the others before: no holder of it waits for the
    /// log's lock.
    pub(super) fn made_space(&self) -> MutexGuard<'_, Staged> {
        self.0[OWN_STAGES].0.lock()
    }

    /// Takes all records up to `last`, which have their numbers, into empty buffers.
    pub(super) fn take(&self, last: u64, into: &mut Buffers) {
        into.parts.resize_with(STAGES, TakenRecords::default);
        for (stage, part) in self.0.iter().zip(&mut into.parts) {
            let mut stage = stage.0.lock();
            // Most threads have written nothing since the last time.
            if stage.records.is_empty() {
                continue;
            }
            std::mem::swap(&mut *stage, &mut part.staged);
            part.staged.leave(last, &mut stage);
        }
    }
}

impl Staged {
    #[inline]
    pub(super) fn push(&mut self, lsn: u64, header: &[u8; HEADER_BYTES], payload: &[u8]) {
        self.bytes.extend_from_slice(header);
        self.bytes.extend_from_slice(payload);
        self.records.push(Placed { lsn, end: self.bytes.len() });
    }

    /// The offset of a record.
    fn start(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.records[before].end)
    }

    /// Moves the records after `last` to another stage, which is empty.
    fn leave(&mut self, last: u64, to: &mut Staged) {
        if self.records.last().is_none_or(|record| record.lsn <= last) {
            return;
        }
        let kept = self.records.partition_point(|record| record.lsn <= last);
        let start = self.start(kept);
        to.bytes.extend_from_slice(&self.bytes[start..]);
        let moved = self.records.drain(kept..);
        to.records.extend(moved.map(|record| Placed { end: record.end - start, ..record }));
        self.bytes.truncate(start);
    }
}

/// A stage's records that a writer has taken, and how many of them it has written.
#[derive(Default)]
struct TakenRecords {
    staged: Staged,
    written: usize,
}

impl TakenRecords {
    /// The number of the next record.
    fn next(&self) -> Option<u64> {
        self.staged.records.get(self.written).map(|record| record.lsn)
    }

    /// The bytes of the next records below `first`.
    fn before(&mut self, first: u64) -> &[u8] {
        let start = self.staged.start(self.written);
        let rest = &self.staged.records[self.written..];
        // All of them, or a few until another thread's: a binary search costs more.
        let all = rest.last().is_none_or(|last| last.lsn < first);
        let next = if all { None } else { rest.iter().position(|record| record.lsn >= first) };
        self.written += next.unwrap_or(rest.len());
        &self.staged.bytes[start..self.staged.start(self.written)]
    }
}

/// The records that a writer has taken, and memory for them.
#[derive(Default)]
pub(super) struct Buffers {
    parts: Vec<TakenRecords>,
    merged: Vec<u8>,
}

impl Buffers {
    /// Number of records that were taken.
    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.staged.records.len()).sum()
    }

    /// The bytes of the next records below `first` that were not returned before, in order: some of
    /// them, none when there are no more.
    pub(super) fn before(&mut self, first: u64) -> &[u8] {
        let Buffers { parts, merged } = self;
        merged.clear();
        let mut left: SmallVec<[(u64, &mut TakenRecords); STAGES]> = parts
            .iter_mut()
            .filter_map(|part| Some((part.next()?, part)))
            .filter(|(next, _)| *next < first)
            .collect();
        if left.len() <= 1 {
            // All are of one thread, as with a single committer.
            return left.pop().map_or(&[], |(_, part)| part.before(first));
        }
        while merged.len() < MERGED_BYTES
            && let Some(at) = (0..left.len()).min_by_key(|&at| left[at].0)
        {
            // From the stage that comes first, all records up to the next one of another stage.
            let others = left.iter().enumerate().filter(|(other, _)| *other != at);
            let other = others.map(|(_, (next, _))| *next).min().unwrap_or(first);
            let (next, part) = &mut left[at];
            merged.extend_from_slice(part.before(other));
            match part.next().filter(|&next| next < first) {
                Some(lsn) => *next = lsn,
                None => drop(left.swap_remove(at)),
            }
        }
        merged
    }

    /// Empties them. Buffers of more than `most` bytes in total free the excess.
    pub(super) fn clear(&mut self, most: usize) {
        let mut left = most;
        for part in &mut self.parts {
            part.written = 0;
            let Staged { bytes, records } = &mut part.staged;
            bytes.clear();
            bytes.shrink_to(left);
            left = left.saturating_sub(bytes.capacity());
            records.clear();
            records.shrink_to(left / size_of::<Placed>());
            left = left.saturating_sub(records.capacity() * size_of::<Placed>());
        }
        self.merged.clear();
        self.merged.shrink_to(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_before(buffers: &mut Buffers, first: u64) -> Vec<u8> {
        let (mut all, mut parts) = (Vec::new(), 0);
        loop {
            let some = buffers.before(first);
            if some.is_empty() {
                return all;
            }
            all.extend_from_slice(some);
            parts += 1;
            assert!(parts * MERGED_BYTES / 2 <= all.len() + MERGED_BYTES, "in large parts");
        }
    }

    /// Records of random threads, taken and written in random portions, come out in order and
    /// once each.
    #[test]
    fn records_of_all_stages_are_merged_by_number() {
        for seed in 0..50 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (stages, mut buffers) = (Stages::default(), Buffers::default());
            let (mut next, mut taken) = (1_u64, 0);
            let (mut expected, mut found) = (Vec::new(), Vec::new());
            for _ in 0..60 {
                for _ in 0..random.usize(..40) {
                    // Some are so long that they are not merged at once.
                    let most = if seed % 7 == 3 { 6000 } else { 30 };
                    let payload = vec![next as u8; random.usize(1..most)];
                    let header = [seed as u8; HEADER_BYTES];
                    let at = if seed % 5 == 0 { 0 } else { random.usize(..STAGES) };
                    stages.0[at].0.lock().push(next, &header, &payload);
                    expected.extend(header);
                    expected.extend(payload);
                    next += 1;
                }
                // Some got their numbers after the writer took its snapshot.
                let last = random.u64(taken..next);
                stages.take(last, &mut buffers);
                assert_eq!(buffers.len() as u64, last - taken, "seed {seed}");
                let cut = random.u64(taken + 1..last + 2);
                for first in [cut, last + 1] {
                    found.extend(all_before(&mut buffers, first));
                }
                buffers.clear(100);
                taken = last;
            }
            stages.take(next - 1, &mut buffers);
            found.extend(all_before(&mut buffers, next));
            assert!(found == expected, "seed {seed}");
        }
    }

    #[test]
    fn buffers_grown_by_bursts_are_released() {
        let (stages, mut buffers) = (Stages::default(), Buffers::default());
        for lsn in 1..=STAGES as u64 * 1000 {
            let at = lsn as usize % STAGES;
            stages.0[at].0.lock().push(lsn, &[1; HEADER_BYTES], &[1; 100]);
        }
        stages.take(u64::MAX, &mut buffers);
        let kept = |buffers: &Buffers| -> usize {
            let parts = buffers.parts.iter().map(|part| &part.staged);
            parts.map(|part| part.bytes.capacity() + 16 * part.records.capacity()).sum()
        };
        assert!(kept(&buffers) > 800_000);
        buffers.clear(300_000);
        assert!(kept(&buffers) <= 300_000, "{} bytes", kept(&buffers));
        assert!(kept(&buffers) > 100_000, "some is kept for the next time");
    }
}
