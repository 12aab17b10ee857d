//! Operations on clones, by any number of threads: their kinds, keys and times.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::{Clock, SystemClock};
use hdrhistogram::Histogram;
use store::{Batch, Store, TreeId};

use crate::Run;
use crate::cli::Mix;
use crate::engine::{broken, checkpoint};
use crate::meter::histogram;
use program::failure::Result;

/// Operations between two checks for Ctrl-C and of the progress of all threads.
const STRIDE: u64 = 64;

/// The operation on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Lookup,
    Insert,
    Remove,
}

impl Op {
    pub(super) const ALL: [Op; 3] = [Op::Lookup, Op::Insert, Op::Remove];

    /// The next operation of a mix (Table V).
    fn draw(mix: Mix, random: &mut fastrand::Rng) -> Op {
        let [lookup, insert, _] = mix.percent();
        match random.u8(..100) {
            number if number < lookup => Op::Lookup,
            number if number < lookup + insert => Op::Insert,
            _ => Op::Remove,
        }
    }
}

/// The work of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) threads: u64,
    pub(super) operations: u64,
    pub(super) seed: u64,
    /// Keys are below this; half of them exist.
    pub(super) keys: u64,
    /// Operations of one kind on this many keys in a row.
    pub(super) local: u64,
    /// Insert after all keys, ascending.
    pub(super) append: bool,
    pub(super) mix: Mix,
}

/// The measurements of a run.
pub(super) struct Measured {
    pub(super) operations: u64,
    pub(super) took: Duration,
    pub(super) latencies: Histogram<u64>,
    /// Number and sum, for each of [`Op::ALL`].
    pub(super) each: [(u64, Duration); 3],
    /// Disk reads.
    pub(super) reads: u64,
    /// The time of a checkpoint after the last operation, for the workloads that change anything.
    pub(super) settled: Duration,
    pub(super) written_bytes: u64,
}

/// One thread's keys and operations: the same for PandoFS's trees and for ordered maps.
pub(super) struct Draws {
    work: Work,
    thread: u64,
    random: fastrand::Rng,
    run: Range<u64>,
    op: Op,
    appended: u64,
}

impl Draws {
    pub(super) fn new(work: Work, thread: u64) -> Draws {
        let seed = work.seed.wrapping_mul(1009).wrapping_add(thread);
        let random = fastrand::Rng::with_seed(seed);
        Draws { work, thread, random, run: 0..0, op: Op::Lookup, appended: 0 }
    }

    /// The next operation and key, and whether it begins another run of keys.
    pub(super) fn next(&mut self) -> (Op, u64, bool) {
        if self.work.append {
            self.appended += 1;
            // Threads take turns at the end of the tree.
            return (
                Op::Insert,
                self.work.keys + self.appended * self.work.threads + self.thread,
                false,
            );
        }
        let begins = self.run.is_empty();
        if begins {
            let first = self.random.u64(..self.work.keys);
            self.run = first..first + self.work.local;
            self.op = Op::draw(self.work.mix, &mut self.random);
        }
        let key = self.run.next().unwrap_or_default();
        (self.op, key, begins)
    }
}

impl Work {
    /// Operations of a thread.
    pub(super) fn share(&self, thread: u64) -> u64 {
        self.operations * (thread + 1) / self.threads - self.operations * thread / self.threads
    }

    /// Runs the work on the clones. Each thread has one of them; a single thread does an equal part
    /// on each, one after the other. With locality the threads draw a clone for each run of keys. A
    /// checkpoint begins after the given number of operations.
    pub(super) fn run(
        &self,
        run: &Run<'_>,
        store: &dyn Store,
        clones: &[TreeId],
        clock: &SystemClock,
        checkpoint_after: Option<u64>,
    ) -> Result<Measured> {
        let done = AtomicU64::new(0);
        let start = clock.monotonic();
        let shares = device::scope(|scope| -> Result<Vec<Measured>> {
            let handles: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let done = &done;
                    scope.spawn(move || self.thread(run, store, clones, clock, thread, done))
                })
                .collect();
            let checkpointer = checkpoint_after.map(|after| {
                let done = &done;
                scope.spawn(move || -> Result<()> {
                    while done.load(Ordering::Relaxed) < after {
                        clock.sleep(Duration::from_micros(100));
                        run.check()?;
                    }
                    checkpoint(store, clock)
                })
            });
            let mut shares = Vec::new();
            for handle in handles {
                shares.push(handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            // Lets the checkpoint begin in any case.
            done.store(u64::MAX, Ordering::Relaxed);
            if let Some(handle) = checkpointer {
                handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            shares.into_iter().collect()
        })?;
        let took = shares.iter().map(|share| share.took).max().unwrap_or_default();
        let mut all = Measured::new(took.saturating_sub(start));
        for share in &shares {
            all.operations += share.operations;
            all.latencies.add(&share.latencies).expect("invariant: both have the same shape");
            for (sum, each) in all.each.iter_mut().zip(share.each) {
                *sum = (sum.0 + each.0, sum.1 + each.1);
            }
        }
        Ok(all)
    }

    /// One thread's part; `took` is the moment of its end.
    fn thread(
        &self,
        run: &Run<'_>,
        store: &dyn Store,
        clones: &[TreeId],
        clock: &SystemClock,
        thread: u64,
        done: &AtomicU64,
    ) -> Result<Measured> {
        let mut draws = Draws::new(*self, thread);
        let mut choice = fastrand::Rng::with_seed(self.seed ^ thread);
        let mut clone = clones[thread as usize % clones.len()];
        let mut batch = Batch::new();
        let mut share = Measured::new(Duration::ZERO);
        let mut before = clock.monotonic();
        let all = self.share(thread);
        for number in 0..all {
            let (op, key, begins) = draws.next();
            if self.local > 1 && begins {
                clone = clones[choice.usize(..clones.len())];
            } else if self.local == 1 && self.threads == 1 {
                clone = clones[(number * clones.len() as u64 / all) as usize];
            }
            apply(store, clone, op, key, &mut batch).map_err(broken)?;
            let after = clock.monotonic();
            share.add(op, after.saturating_sub(before));
            before = after;
            if number % STRIDE == STRIDE - 1 {
                done.fetch_add(STRIDE, Ordering::Relaxed);
                run.check()?;
            }
        }
        share.took = clock.monotonic();
        Ok(share)
    }
}

fn apply(
    store: &dyn Store,
    tree: TreeId,
    op: Op,
    key: u64,
    batch: &mut Batch,
) -> store::Result<()> {
    let name = key.to_be_bytes();
    batch.clear();
    match op {
        Op::Lookup => {
            let mut value = 0;
            store.get_with(tree, &name, &mut |bytes| value = bytes.len())?;
            std::hint::black_box(value);
            return Ok(());
        }
        Op::Insert => batch.put(tree, &name, &key.to_le_bytes()),
        Op::Remove => batch.delete(tree, &name),
    }
    store.commit(batch).map(|_| ())
}

impl Measured {
    fn new(took: Duration) -> Measured {
        Measured {
            operations: 0,
            took,
            latencies: histogram(),
            each: [(0, Duration::ZERO); 3],
            reads: 0,
            settled: Duration::ZERO,
            written_bytes: 0,
        }
    }

    fn add(&mut self, op: Op, took: Duration) {
        self.operations += 1;
        self.latencies.record(took.as_nanos() as u64).expect("invariant: the histogram grows");
        let each = &mut self.each[op as usize];
        *each = (each.0 + 1, each.1 + took);
    }
}

/// Operations per second.
pub(super) fn rate(operations: u64, took: Duration) -> f64 {
    operations as f64 / took.as_secs_f64().max(1e-12)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(mix: Mix, local: u64) -> Work {
        Work { threads: 2, operations: 10, seed: 7, keys: 1000, local, append: false, mix }
    }

    #[test]
    fn a_mix_is_as_in_the_paper() {
        for mix in [Mix::Search100, Mix::Search80, Mix::Modify, Mix::Insert, Mix::Age] {
            let mut draws = Draws::new(work(mix, 1), 0);
            let mut counts = [0_u32; 3];
            for _ in 0..10_000 {
                counts[draws.next().0 as usize] += 1;
            }
            for (count, percent) in counts.into_iter().zip(mix.percent()) {
                assert!(count.abs_diff(u32::from(percent) * 100) < 300, "{mix:?}: {counts:?}");
            }
        }
    }

    #[test]
    fn runs_have_one_operation_and_adjacent_keys() {
        let mut draws = Draws::new(work(Mix::Search80, 100), 1);
        for _ in 0..10 {
            let (op, first, begins) = draws.next();
            assert!(begins);
            for offset in 1..100 {
                assert_eq!(draws.next(), (op, first + offset, false));
            }
        }
    }

    #[test]
    fn threads_append_different_keys() {
        let appending = Work { append: true, ..work(Mix::Insert, 1) };
        let mut draws = [0, 1].map(|thread| Draws::new(appending, thread));
        let keys: Vec<u64> = (0..10).map(|turn| draws[turn % 2].next().1).collect();
        assert!(keys.is_sorted_by(|one, other| one < other), "{keys:?}");
        assert!(keys[0] >= appending.keys);
    }

    #[test]
    fn shares_add_up() {
        let uneven = Work { threads: 3, ..work(Mix::Insert, 1) };
        assert_eq!((0..3).map(|thread| uneven.share(thread)).sum::<u64>(), 10);
    }
}
