//! Two threads (or more) on one tree beside threads on a store each. The difference is the cost of
//! latches, gate and log when the data is not shared.
//!
//! Each thread has keys of its own, shaped like directory entries. In one layout each thread has a
//! range. In another their keys alternate, so that the threads share leaves. In a third each
//! thread has a tree in the one store, which leaves out the tree's latch. All data is in memory
//! that was touched before, so that no round pays for the kernel's allocation of pages. Each round
//! does the same on one store and on one store per thread, alternately. The ratio of a round is the
//! rate on one store over the rate on many; the medians are reported.
//!
//! Insertions begin with empty stores, new ones for each round, so that a round may be as long as
//! others are. The other workloads begin with the requested number of entries. Rounds of less than
//! a second mean little. Their length depends on which thread runs first, and on a log segment that
//! one thread ends while the other continues. `shortest_ms` reports how long the shortest was. If
//! the log must be in memory too, `--volume` names a directory there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use device::sync::Barrier;
use device::{Clock, Env, SystemClock};
use serde_json::{Map, Value, json};
use store::{Batch, EngineOptions, KeyRange, Store, TreeId};

use super::engine::{self, broken, chosen};
use super::median::median;
use super::{Run, memory};
use crate::cli::{BenchArgs, ThreadsWork as Work};
use program::failure::{self, Result};

const TREE: TreeId = TreeId(64);
const VALUE: [u8; 100] = [0x5a; 100];
/// Most entries that a scan of a round reads.
const SCAN: usize = 1000;

const WORKS: [(Work, &str); 5] = [
    (Work::Update, "update"),
    (Work::Get, "get"),
    (Work::Mixed, "mixed"),
    (Work::Scan, "scan"),
    (Work::Insert, "insert"),
];

/// How the keys of the threads relate to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Ranges,
    Alternating,
    Trees,
}

const LAYOUTS: [(Layout, &str); 3] =
    [(Layout::Ranges, "ranges"), (Layout::Alternating, "alternating"), (Layout::Trees, "trees")];

impl Layout {
    /// Where a thread's entries are.
    fn tree(self, thread: u64) -> TreeId {
        if self == Layout::Trees { TreeId(TREE.0 + thread) } else { TREE }
    }
}

/// The key of a thread's `n`th entry: a type, a directory, a hash of the name.
fn key(layout: Layout, thread: u64, n: u64) -> [u8; 17] {
    let hash = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (n >> 7);
    let mut key = [b'D'; 17];
    let (directory, hash) = match layout {
        Layout::Ranges | Layout::Trees => (thread << 32 | n >> 13, hash),
        Layout::Alternating => (n >> 13, hash & !0xff | thread),
    };
    key[1..9].copy_from_slice(&directory.to_be_bytes());
    key[9..].copy_from_slice(&hash.to_be_bytes());
    key
}

struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            let path = self.0.display();
            tracing::warn!(%error, %path, "the directory of the benchmark stays");
        }
    }
}

fn make_store(directory: &Path, name: &str, args: &BenchArgs) -> Result<Arc<dyn Store>> {
    // All data is in memory, unless requested otherwise.
    let cache_bytes = args.cache_size.map_or(64 << 30, |bytes| bytes as usize);
    let threads = args.threads().max(2);
    let path = directory.join(name);
    std::fs::create_dir_all(&path).map_err(|error| failure::io("create", &path, &error))?;
    let env = Env::system(&path).map_err(|error| failure::device(&path, &error))?;
    // Neither eviction nor a checkpoint interferes.
    let options = EngineOptions { cache_bytes, checkpoint_bytes: 1 << 40, ..engine::options(args) };
    let store = engine::create(chosen(args), &env, &options)?;
    let mut batch = Batch::new();
    (0..threads).for_each(|thread| batch.create_tree(TreeId(TREE.0 + thread)));
    store.commit(&batch).map_err(broken)?;
    Ok(store)
}

/// Whether the threads have one store or one each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Together,
    Apart,
}

impl Side {
    /// Both, alternately: the side that runs first in one round runs second in the next.
    fn both(round: u64) -> [Side; 2] {
        if round.is_multiple_of(2) {
            [Side::Apart, Side::Together]
        } else {
            [Side::Together, Side::Apart]
        }
    }
}

/// The store of each thread. Dropped before their directory is removed.
struct Stores {
    each: Vec<Arc<dyn Store>>,
    _directory: Directory,
}

impl Stores {
    fn make(parent: &Path, side: Side, args: &BenchArgs) -> Result<Stores> {
        let threads = args.threads().max(2);
        let (name, stores) = match side {
            Side::Together => ("together", 1),
            Side::Apart => ("apart", threads),
        };
        let directory = Directory(parent.join(name));
        let made = (0..stores).map(|n| make_store(&directory.0, &n.to_string(), args));
        let made = made.collect::<Result<Vec<_>>>()?;
        let each = made.iter().cycle().take(threads as usize).cloned().collect();
        Ok(Stores { each, _directory: directory })
    }

    /// Runs one round; returns how long it took until the last thread ended.
    fn run(&self, task: Task) -> Result<Duration> {
        let shares: Vec<Share<'_>> = (0_u64..)
            .zip(&self.each)
            .map(|(thread, store)| Share { store: store.as_ref(), thread, task })
            .collect();
        side_by_side(&shares)
    }
}

/// The work of all threads of a round.
#[derive(Debug, Clone, Copy)]
struct Task {
    layout: Layout,
    work: Work,
    /// Entries of each thread that exist before the round.
    there: u64,
    operations: u64,
    round: u64,
}

/// One thread's share of a round.
struct Share<'a> {
    store: &'a dyn Store,
    thread: u64,
    task: Task,
}

impl Share<'_> {
    fn run(&self) -> store::Result<()> {
        let Task { layout, work, there, operations, round } = self.task;
        let mut random = fastrand::Rng::with_seed(round << 8 | self.thread);
        let mut batch = Batch::new();
        let any = |random: &mut fastrand::Rng| self.key(random.u64(0..there));
        if work == Work::Scan {
            return self.scan(&mut random);
        }
        let tree = layout.tree(self.thread);
        for n in 0..operations {
            let (key, reads) = match work {
                Work::Insert => (self.key(there + n), false),
                Work::Update => (any(&mut random), false),
                Work::Get => (any(&mut random), true),
                Work::Mixed | Work::Scan => (any(&mut random), !n.is_multiple_of(5)),
            };
            if reads {
                let mut length = 0;
                self.store.get_with(tree, &key, &mut |value| length = value.len())?;
                assert_eq!(length, VALUE.len(), "a key of the benchmark is there");
            } else {
                batch.clear();
                batch.put(tree, &key, &VALUE);
                self.store.commit(&batch)?;
            }
        }
        Ok(())
    }

    fn scan(&self, random: &mut fastrand::Rng) -> store::Result<()> {
        let mut left = self.task.operations as usize;
        while left > 0 {
            let from = self.key(random.u64(0..self.task.there)).to_vec();
            let tree = self.task.layout.tree(self.thread);
            let mut cursor = self.store.scan(tree, KeyRange { from, to: None })?;
            for _ in 0..left.min(SCAN) {
                left -= 1;
                if cursor.next()?.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn key(&self, n: u64) -> [u8; 17] {
        key(self.task.layout, self.thread, n)
    }
}

/// Runs the threads' shares at once; returns how long it took until the last ended.
fn side_by_side(shares: &[Share<'_>]) -> Result<Duration> {
    let clock = SystemClock::new();
    let together = Barrier::new(shares.len());
    let times = device::scope(|scope| {
        let handles: Vec<_> = shares
            .iter()
            .map(|share| {
                let (clock, together) = (&clock, &together);
                scope.spawn(move || {
                    together.wait();
                    let start = clock.monotonic();
                    share.run().map(|()| (start, clock.monotonic()))
                })
            })
            .collect();
        let ended = handles.into_iter();
        ended
            .map(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<store::Result<Vec<_>>>()
    });
    let times = times.map_err(broken)?;
    let start = times.iter().map(|(start, _)| *start).min().unwrap_or_default();
    let end = times.iter().map(|(_, end)| *end).max().unwrap_or_default();
    Ok(end.saturating_sub(start))
}

fn extremes(ratios: &[f64]) -> (f64, f64) {
    let all = ratios.iter().copied();
    (all.clone().fold(f64::INFINITY, f64::min), all.fold(0.0, f64::max))
}

fn rounded(value: f64) -> Value {
    json!((value * 1000.0).round() / 1000.0)
}

/// How long the rounds of one workload took, on one store and on one each.
#[derive(Default)]
struct Times {
    ratios: Vec<f64>,
    rates: Vec<f64>,
    shortest: Option<Duration>,
}

impl Times {
    /// Runs a round on both sides; `run` does so on one.
    fn round(
        &mut self,
        round: u64,
        operations: u64,
        mut run: impl FnMut(Side) -> Result<Duration>,
    ) -> Result<()> {
        let (mut together, mut apart) = (Duration::ZERO, Duration::ZERO);
        for side in Side::both(round) {
            let time = run(side)?;
            match side {
                Side::Together => together = time,
                Side::Apart => apart = time,
            }
            self.shortest = Some(self.shortest.map_or(time, |shortest| shortest.min(time)));
        }
        let together = together.as_secs_f64().max(1e-12);
        self.ratios.push(apart.as_secs_f64() / together);
        self.rates.push(operations as f64 / together);
        Ok(())
    }
}

/// Runs the workload; returns what is printed.
pub(super) fn run(run: &Run<'_>) -> Result<Value> {
    let args = run.args;
    let parent = args.volume.clone().unwrap_or_else(std::env::temp_dir);
    let directory = Directory(parent.join(format!("pando-two-threads-{}", std::process::id())));
    let (threads, entries) = (args.threads().max(2), args.files);
    let operations = args.rodeh.operations.unwrap_or(entries);
    let mut object = Map::new();
    object.insert("workload".into(), json!("two-threads"));
    object.insert("engine".into(), json!(chosen(args).name()));
    object.insert("entries_per_thread".into(), json!(entries));
    object.insert("operations_per_thread".into(), json!(operations));
    object.insert("threads".into(), json!(threads));
    object.insert("rounds".into(), json!(args.rounds()));
    memory::touch(2 * threads * entries.max(operations));
    let asked = args.two_threads.work.as_ref();
    let wanted = |work: &Work| asked.is_none_or(|works| works.contains(work));
    let works: Vec<_> = WORKS.into_iter().filter(|(work, _)| wanted(work)).collect();
    run.bar.set_length((LAYOUTS.len() * works.len()) as u64 * args.rounds());
    let mut shortest: Option<Duration> = None;
    for (layout, name) in LAYOUTS {
        let fill = Task { layout, work: Work::Insert, there: 0, operations: entries, round: 0 };
        let together = Stores::make(&directory.0, Side::Together, args)?;
        let apart = Stores::make(&directory.0, Side::Apart, args)?;
        together.run(fill)?;
        apart.run(fill)?;
        let mut filled = Some((together, apart));
        for &(work, what) in &works {
            if work == Work::Insert {
                filled = None;
            }
            let mut times = Times::default();
            for round in 1..=args.rounds() {
                let task = Task { layout, work, there: entries, operations, round };
                times.round(round, threads * operations, |side| match (&filled, side) {
                    (Some((together, _)), Side::Together) => together.run(task),
                    (Some((_, apart)), Side::Apart) => apart.run(task),
                    (None, side) => {
                        let stores = Stores::make(&directory.0, side, args)?;
                        stores.run(Task { there: 0, ..task })
                    }
                })?;
                run.bar.inc(1);
                run.check()?;
            }
            shortest = shortest.into_iter().chain(times.shortest).min();
            let (least, most) = extremes(&times.ratios);
            object.insert(format!("{name}_{what}_ratio_min"), rounded(least));
            object.insert(format!("{name}_{what}_ratio_max"), rounded(most));
            object.insert(format!("{name}_{what}_ratio"), rounded(median(times.ratios)));
            object.insert(format!("{name}_{what}_per_second"), json!(median(times.rates).round()));
        }
    }
    let shortest = shortest.unwrap_or_default().as_secs_f64() * 1000.0;
    object.insert("shortest_ms".into(), json!(shortest.round()));
    Ok(Value::Object(object))
}

/// Lines for people.
pub(super) fn text(object: &Value) -> Vec<String> {
    let fields = object.as_object().into_iter().flatten();
    fields.map(|(name, value)| format!("{name}: {value}")).collect()
}
