//! Stages: the bytes of records that have their numbers and wait to be written, a stage for each
//! of some threads.
//!
//! So appending writes no bytes where another thread has written just before: of what threads
//! share, only the line with the next number goes from one processor to the other. A thread locks
//! its stage, then takes a number, and lets go of the stage when its bytes are there. Whoever
//! writes notes the last number first and then looks through the stages, so that it finds all
//! records up to that one, and merges them by number.
//!
//! Invariant: the records of a stage ascend, and end where the next one begins.

use std::sync::atomic::{AtomicUsize, Ordering};

use format::log_record::HEADER_BYTES;
use parking_lot::{Mutex, MutexGuard};

/// Stages. Threads beyond as many share them.
const STAGES: usize = 8;

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

/// A record's number, and where it ends.
struct Placed {
    lsn: u64,
    end: usize,
}

/// The next thread's stage.
static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STAGES;
}

impl Stages {
    /// The stage of this thread.
    #[inline]
    pub(super) fn own(&self) -> MutexGuard<'_, Staged> {
        self.0[OWN.with(|own| *own)].0.lock()
    }

    /// Takes all records up to `last`, which have their numbers, into empty buffers.
    pub(super) fn take(&self, last: u64, into: &mut Buffers) {
        into.parts.resize_with(STAGES, Part::default);
        for (stage, part) in self.0.iter().zip(&mut into.parts) {
            let mut stage = stage.0.lock();
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

    /// Where a record begins.
    fn start(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.records[before].end)
    }

    /// Moves the records behind `last` to another stage, which is empty.
    fn leave(&mut self, last: u64, to: &mut Staged) {
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
struct Part {
    staged: Staged,
    written: usize,
}

impl Part {
    /// The number of the next record.
    fn next(&self) -> Option<u64> {
        self.staged.records.get(self.written).map(|record| record.lsn)
    }

    /// The bytes of the next records below `first`.
    fn before(&mut self, first: u64) -> &[u8] {
        let start = self.staged.start(self.written);
        let rest = &self.staged.records[self.written..];
        self.written += rest.partition_point(|record| record.lsn < first);
        &self.staged.bytes[start..self.staged.start(self.written)]
    }
}

/// What a writer has taken, and memory for it.
#[derive(Default)]
pub(super) struct Buffers {
    parts: Vec<Part>,
    merged: Vec<u8>,
}

impl Buffers {
    /// Records that were taken.
    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.staged.records.len()).sum()
    }

    /// The bytes of the records below `first` that were not asked for before, in their order.
    pub(super) fn before(&mut self, first: u64) -> &[u8] {
        let Buffers { parts, merged } = self;
        merged.clear();
        loop {
            // The two that come first: of one, all up to the other's next record go together.
            let (mut one, mut other) = (None, first);
            for (at, part) in parts.iter().enumerate() {
                let Some(next) = part.next().filter(|&next| next < first) else { continue };
                match one {
                    Some((_, lsn)) if lsn < next => other = other.min(next),
                    Some((_, lsn)) => (one, other) = (Some((at, next)), lsn),
                    None => one = Some((at, next)),
                }
            }
            let Some((at, _)) = one else { return merged };
            if other == first && merged.is_empty() {
                // All are of one thread, as where one writes.
                return parts[at].before(first);
            }
            merged.extend_from_slice(parts[at].before(other));
        }
    }

    /// Empties them. What holds more than `most` bytes gives the rest up.
    pub(super) fn clear(&mut self, most: usize) {
        for part in &mut self.parts {
            part.written = 0;
            part.staged.records.clear();
            part.staged.bytes.clear();
            part.staged.bytes.shrink_to(most);
            part.staged.records.shrink_to(most / size_of::<Placed>());
        }
        self.merged.clear();
        self.merged.shrink_to(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of random threads, taken and written in random portions, come out in order and
    /// once each.
    #[test]
    fn records_of_all_stages_come_out_in_the_order_of_their_numbers() {
        for seed in 0..50 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (stages, mut buffers) = (Stages::default(), Buffers::default());
            let (mut next, mut taken) = (1_u64, 0);
            let (mut expected, mut found) = (Vec::new(), Vec::new());
            for _ in 0..60 {
                for _ in 0..random.usize(..40) {
                    let payload: Vec<u8> = (0..random.usize(1..30)).map(|_| next as u8).collect();
                    let header = [seed as u8; HEADER_BYTES];
                    let at = if seed % 5 == 0 { 0 } else { random.usize(..STAGES) };
                    stages.0[at].0.lock().push(next, &header, &payload);
                    expected.extend(header);
                    expected.extend(payload);
                    next += 1;
                }
                // Some got their numbers since the writer looked.
                let last = random.u64(taken..next);
                stages.take(last, &mut buffers);
                assert_eq!(buffers.len() as u64, last - taken, "seed {seed}");
                let cut = random.u64(taken + 1..last + 2);
                for first in [cut, last + 1] {
                    found.extend_from_slice(buffers.before(first));
                }
                buffers.clear(100);
                taken = last;
            }
            stages.take(next - 1, &mut buffers);
            found.extend_from_slice(buffers.before(next));
            assert!(found == expected, "seed {seed}");
        }
    }
}
