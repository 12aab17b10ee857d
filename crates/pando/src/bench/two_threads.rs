//! Two threads (or more) on one tree beside threads on a store each: what latches, gate and log
//! cost when the data is not shared.
//!
//! Each thread has keys of its own, of the shape of directory entries: in one layout the threads
//! have a range each, in the other their keys alternate, so that they meet in leaves; in a third
//! they have a tree each in the one store, which leaves out the tree's latch. All is in memory,
//! which was touched before, so that no round pays for the kernel's handing-out of pages. Each
//! round does the same on one store and on one a thread, in turns, and the ratio of a round is the
//! rate on one over the rate on many; the medians are reported.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use device::{Clock, Env, SystemClock};
use serde_json::{Map, Value, json};
use store::{Batch, EngineOptions, KeyRange, Store, TreeId};

use super::engine::{self, broken, chosen};
use super::{Run, memory};
use crate::cli::BenchArgs;
use crate::failure::{self, Result};

const TREE: TreeId = TreeId(64);
const VALUE: [u8; 100] = [0x5a; 100];
/// Entries that a scan of a round reads at most.
const SCAN: usize = 1000;

/// What threads do in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Insert keys that are not there.
    Insert,
    /// Overwrite keys in random order.
    Update,
    /// Look keys up in random order.
    Get,
    /// Four look-ups for each update.
    Mixed,
    /// Read runs of entries.
    Scan,
}

/// Insertions last: the others find as many entries as were asked for.
const WORKS: [(Work, &str); 5] = [
    (Work::Update, "update"),
    (Work::Get, "get"),
    (Work::Mixed, "mixed"),
    (Work::Scan, "scan"),
    (Work::Insert, "insert"),
];

/// How the keys of the threads lie to each other.
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

/// An insertion round has one operation where others have so many: the trees grow by it.
const INSERT_SHARE: u64 = 2;

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

/// One store for all threads, and one each.
struct Stores {
    together: Arc<dyn Store>,
    apart: Vec<Arc<dyn Store>>,
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
    // All is in memory, unless something else is asked for.
    let cache_bytes = args.cache_size.map_or(64 << 30, |bytes| bytes as usize);
    let threads = args.threads.max(2);
    let path = directory.join(name);
    std::fs::create_dir_all(&path).map_err(|error| failure::io("create", &path, &error))?;
    let env = Env::system(&path).map_err(|error| failure::device(&path, &error))?;
    // Neither eviction nor a checkpoint comes between.
    let options = EngineOptions { cache_bytes, checkpoint_bytes: 1 << 40, ..engine::options(args) };
    let store = engine::create(chosen(args), &env, &options)?;
    let mut batch = Batch::new();
    (0..threads).for_each(|thread| batch.create_tree(TreeId(TREE.0 + thread)));
    store.commit(&batch).map_err(broken)?;
    Ok(store)
}

/// One thread's share of a round.
struct Share<'a> {
    store: &'a dyn Store,
    layout: Layout,
    thread: u64,
    /// Entries that are there before the round.
    there: u64,
    operations: u64,
    round: u64,
}

impl Share<'_> {
    fn run(&self, work: Work) -> store::Result<()> {
        let mut random = fastrand::Rng::with_seed(self.round << 8 | self.thread);
        let mut batch = Batch::new();
        let any = |random: &mut fastrand::Rng| self.key(random.u64(0..self.there));
        if work == Work::Scan {
            return self.scan(&mut random);
        }
        let tree = self.layout.tree(self.thread);
        for n in 0..self.operations {
            let (key, reads) = match work {
                Work::Insert => (self.key(self.there + n), false),
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
        let mut left = self.operations as usize;
        while left > 0 {
            let from = self.key(random.u64(0..self.there)).to_vec();
            let mut cursor =
                self.store.scan(self.layout.tree(self.thread), KeyRange { from, to: None })?;
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
        key(self.layout, self.thread, n)
    }
}

/// Runs the threads' shares at once; tells how long it took until the last ended.
fn side_by_side(shares: &[Share<'_>], work: Work) -> Result<Duration> {
    let clock = SystemClock::new();
    let together = Barrier::new(shares.len());
    let times = std::thread::scope(|scope| {
        let handles: Vec<_> = shares
            .iter()
            .map(|share| {
                let (clock, together) = (&clock, &together);
                scope.spawn(move || {
                    together.wait();
                    let start = clock.monotonic();
                    share.run(work).map(|()| (start, clock.monotonic()))
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

impl Stores {
    fn make(directory: &Path, args: &BenchArgs) -> Result<Stores> {
        let apart = (0..args.threads.max(2))
            .map(|thread| make_store(directory, &format!("apart-{thread}"), args));
        Ok(Stores {
            apart: apart.collect::<Result<_>>()?,
            together: make_store(directory, "together", args)?,
        })
    }

    /// One round of one work; returns how long it took on one store and on two.
    fn round(
        &self,
        layout: Layout,
        work: Work,
        there: u64,
        operations: u64,
        round: u64,
    ) -> Result<(Duration, Duration)> {
        let shares = |apart: bool| -> Vec<Share<'_>> {
            (0_u64..)
                .zip(&self.apart)
                .map(|(thread, own)| {
                    let store = if apart { &**own } else { &*self.together };
                    Share { store, layout, thread, there, operations, round }
                })
                .collect()
        };
        // Whoever comes first in one round comes second in the next.
        if round.is_multiple_of(2) {
            let apart = side_by_side(&shares(true), work)?;
            return Ok((side_by_side(&shares(false), work)?, apart));
        }
        let together = side_by_side(&shares(false), work)?;
        Ok((together, side_by_side(&shares(true), work)?))
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn rounded(value: f64) -> Value {
    json!((value * 1000.0).round() / 1000.0)
}

/// Runs the workload; returns what is printed.
pub(super) fn run(run: &Run<'_>) -> Result<Value> {
    let args = run.args;
    let parent = args.volume.clone().unwrap_or_else(std::env::temp_dir);
    let directory = Directory(parent.join(format!("pando-two-threads-{}", std::process::id())));
    let mut object = Map::new();
    object.insert("workload".into(), json!("two-threads"));
    object.insert("engine".into(), json!(chosen(args).name()));
    object.insert("entries_per_thread".into(), json!(args.files));
    object.insert("threads".into(), json!(args.threads.max(2)));
    object.insert("rounds".into(), json!(args.rounds));
    memory::touch(2 * args.threads.max(2) * args.files * (1 + args.rounds / INSERT_SHARE));
    run.bar.set_length(LAYOUTS.len() as u64 * WORKS.len() as u64 * args.rounds);
    for (layout, name) in LAYOUTS {
        let stores = Stores::make(&directory.0, args)?;
        stores.round(layout, Work::Insert, 0, args.files, 0)?;
        let mut there = args.files;
        for (work, what) in WORKS {
            let operations =
                if work == Work::Insert { args.files / INSERT_SHARE } else { args.files };
            let (mut ratios, mut rates) = (Vec::new(), Vec::new());
            for round in 1..=args.rounds {
                let (together, apart) = stores.round(layout, work, there, operations, round)?;
                ratios.push(apart.as_secs_f64() / together.as_secs_f64().max(1e-12));
                rates.push(
                    (stores.apart.len() as u64 * operations) as f64
                        / together.as_secs_f64().max(1e-12),
                );
                if work == Work::Insert {
                    there += operations;
                }
                run.bar.inc(1);
                run.check()?;
            }
            object.insert(format!("{name}_{what}_ratio"), rounded(median(ratios)));
            object.insert(format!("{name}_{what}_per_second"), json!(median(rates).round()));
        }
        drop(stores);
        std::fs::remove_dir_all(&directory.0)
            .map_err(|error| failure::io("remove", &directory.0, &error))?;
        std::fs::create_dir_all(&directory.0)
            .map_err(|error| failure::io("create", &directory.0, &error))?;
    }
    Ok(Value::Object(object))
}

/// Lines for people.
pub(super) fn text(object: &Value) -> Vec<String> {
    let fields = object.as_object().into_iter().flatten();
    fields.map(|(name, value)| format!("{name}: {value}")).collect()
}
