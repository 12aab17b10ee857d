//! The speed of the disk and memory, measured beside every run, and the resulting throughput of an
//! ideal structure (section 7).
//!
//! The ideal structure finds a leaf without an index, keeps only leaves in its cache, and takes no
//! processor time. With a part `x` of it in memory, a lookup costs `(1 - x)` reads of a random
//! leaf. An update costs `(1 - x)` times reading and writing one. If everything is in memory, the
//! limit is an ordered map of the standard library, one per thread.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::Duration;

use device::{Clock, SystemClock};

use super::base::Base;
use super::work::{Draws, Op, Work, rate};
use crate::Run;
use program::failure::{self, Result};

/// Bytes of a leaf, rounded up to the alignment of direct access.
const ALIGNMENT: usize = 4096;
/// How long each measurement of the disk takes.
const MEASURE: Duration = Duration::from_millis(700);
/// Bytes per write while the measurement file is created.
const CHUNK: usize = 1 << 20;
const FILE: &str = "raw";

/// Operations per second.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ideal {
    /// Reads of random leaves.
    pub(super) reads: f64,
    /// Reads of random leaves, each followed by writing it.
    pub(super) read_writes: f64,
    /// The mix on ordered maps, when all is in memory.
    pub(super) memory: Option<f64>,
}

impl Ideal {
    pub(super) fn measure(
        run: &Run<'_>,
        base: &Base,
        work: &Work,
        clock: &SystemClock,
    ) -> Result<Ideal> {
        run.bar.set_message("measuring the ideal");
        let mut ideal = Ideal::default();
        if run.args.rodeh.in_memory_percent() == 100 {
            ideal.memory = Some(memory(base, work, clock));
        } else {
            let raw = Raw::open(base)?;
            ideal.reads = raw.measure(work, clock, Access::Read)?;
            ideal.read_writes = raw.measure(work, clock, Access::ReadWrite)?;
        }
        run.bar.set_message("");
        Ok(ideal)
    }

    /// The mean of two measurements.
    pub(super) fn mean(&self, other: &Ideal) -> Ideal {
        let mean = |one: f64, other: f64| f64::midpoint(one, other);
        Ideal {
            reads: mean(self.reads, other.reads),
            read_writes: mean(self.read_writes, other.read_writes),
            memory: self.memory.zip(other.memory).map(|(one, other)| mean(one, other)),
        }
    }

    /// The throughput of the ideal structure for a mix: lookups and updates cost as much as their
    /// misses. Consecutive keys are in few leaves, each of which is missed once.
    pub(super) fn throughput(&self, work: &Work, keys_a_leaf: f64, percent: u64) -> f64 {
        if let Some(memory) = self.memory {
            return memory;
        }
        // Every second key exists, so a run of keys finds half as many entries.
        let run = work.local as f64;
        let leaves = 1.0 + (run - 1.0) / 2.0 / keys_a_leaf.max(1.0);
        let miss = 1.0 - percent as f64 / 100.0;
        let lookups = f64::from(work.mix.percent()[0]) / 100.0;
        let a_lookup = miss / self.reads.max(1e-9);
        let an_update = miss / self.read_writes.max(1e-9);
        run / leaves / (lookups * a_lookup + (1.0 - lookups) * an_update)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    ReadWrite,
}

/// A file of the tree's size, accessed past the page cache.
struct Raw {
    file: File,
    path: std::path::PathBuf,
    leaf: usize,
    leaves: u64,
}

impl Raw {
    fn open(base: &Base) -> Result<Raw> {
        let path = base.path.join(FILE);
        let failed = |error| failure::io("prepare", &path, &error);
        let facts = &base.facts;
        let bytes = facts.disk_bytes / facts.leaves.max(1);
        let leaf = (bytes as usize).next_multiple_of(ALIGNMENT);
        let length = (leaf as u64 * facts.leaves).next_multiple_of(CHUNK as u64);
        let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(direct)
            .open(&path)
            .map_err(failed)?;
        let mut at = file.metadata().map_err(failed)?.len();
        let mut chunk = Aligned::new(CHUNK);
        let mut random = fastrand::Rng::with_seed(at);
        while at < length {
            // Not zeros, so that a lower layer does not store holes.
            random.fill(chunk.bytes(CHUNK));
            file.write_all_at(chunk.bytes(CHUNK), at).map_err(failed)?;
            at += CHUNK as u64;
        }
        file.sync_data().map_err(failed)?;
        Ok(Raw { file, leaf, leaves: length / leaf as u64, path })
    }

    fn measure(&self, work: &Work, clock: &SystemClock, access: Access) -> Result<f64> {
        let start = clock.monotonic();
        let counts = device::scope(|scope| {
            let threads: Vec<_> = (0..work.threads)
                .map(|thread| scope.spawn(move || self.thread(clock, start, thread, access)))
                .collect();
            let joined = threads.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            joined.collect::<std::io::Result<Vec<u64>>>()
        });
        let took = clock.monotonic().saturating_sub(start);
        let counts = counts.map_err(|error| failure::io("measure", &self.path, &error))?;
        Ok(rate(counts.iter().sum(), took))
    }

    fn thread(
        &self,
        clock: &SystemClock,
        start: Duration,
        thread: u64,
        access: Access,
    ) -> std::io::Result<u64> {
        let mut random = fastrand::Rng::with_seed(thread);
        let mut buffer = Aligned::new(self.leaf);
        let mut count = 0;
        while clock.monotonic().saturating_sub(start) < MEASURE {
            let offset = random.u64(..self.leaves) * self.leaf as u64;
            self.file.read_exact_at(buffer.bytes(self.leaf), offset)?;
            if access == Access::ReadWrite {
                self.file.write_all_at(buffer.bytes(self.leaf), offset)?;
            }
            count += 1;
        }
        Ok(count)
    }
}

/// Memory that direct access accepts.
struct Aligned(Vec<u8>);

impl Aligned {
    fn new(length: usize) -> Aligned {
        Aligned(vec![0; length + ALIGNMENT])
    }

    fn bytes(&mut self, length: usize) -> &mut [u8] {
        let start = self.0.as_ptr().align_offset(ALIGNMENT);
        &mut self.0[start..start + length]
    }
}

/// The mix on ordered maps of half of the keys, one map per thread with its part of them.
fn memory(base: &Base, work: &Work, clock: &SystemClock) -> f64 {
    let part = (work.keys / work.threads).max(1);
    let maps: Vec<BTreeMap<[u8; 8], [u8; 8]>> = (0..work.threads)
        .map(|thread| {
            let mut random = fastrand::Rng::with_seed(base.facts.seed + thread);
            let numbers = (0..part).filter(|_| random.bool());
            numbers.map(|number| (number.to_be_bytes(), number.to_le_bytes())).collect()
        })
        .collect();
    let start = clock.monotonic();
    device::scope(|scope| {
        for (thread, map) in (0_u64..).zip(maps) {
            scope.spawn(move || on_map(work, thread, part, map));
        }
    });
    rate(work.operations, clock.monotonic().saturating_sub(start))
}

fn on_map(work: &Work, thread: u64, part: u64, mut map: BTreeMap<[u8; 8], [u8; 8]>) {
    let mut draws = Draws::new(*work, thread);
    for _ in 0..work.share(thread) {
        let (op, key, _) = draws.next();
        let key = if work.append { key } else { key % part };
        match op {
            Op::Lookup => {
                std::hint::black_box(map.get(&key.to_be_bytes()));
            }
            Op::Insert => {
                std::hint::black_box(map.insert(key.to_be_bytes(), key.to_le_bytes()));
            }
            Op::Remove => {
                std::hint::black_box(map.remove(&key.to_be_bytes()));
            }
        }
    }
    // The time to drop it does not count as an operation.
    drop(std::hint::black_box(map));
}
