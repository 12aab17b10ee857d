//! Two writers beside a thread that ingests, clones, removes ranges and drops trees, and a
//! background thread. Power is cut during the run, or space runs out. Threads run freely: the
//! assertions hold for every interleaving.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use format::batch::Op;
use store::{Batch, Durability, Read, Result, SliceRun, Store, TreeId};

use super::engine::{EngineUnderTest, fresh};
use super::reopen::open;
use crate::kit::{SetAtEnd, commit, entries};
use crate::run::{Context, print_line};
use crate::{CrashPolicy, SimEnv};

const TREE: TreeId = TreeId(20);
/// Tree in which each thread counts its commits.
const COUNTS: TreeId = TreeId(21);
const WRITERS: u64 = 2;
/// Number of the cloning thread, after the writers.
const CLONER: usize = WRITERS as usize;
const THREADS: usize = CLONER + 1;
/// Steps after which a clone and a run's tree are dropped.
const KEPT: u64 = 3;
/// Steps after which a run is removed from the tree.
const RUN_KEPT: u64 = 2;

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// The `step`th clone.
fn clone_of(step: u64) -> TreeId {
    TreeId(1000 + 2 * step)
}

/// The separate tree that also holds the `step`th run.
fn tree_of(step: u64) -> TreeId {
    TreeId(1001 + 2 * step)
}

/// A key of a writer; the counters are at 0 and the greatest.
fn key(writer: u64, n: u64) -> Vec<u8> {
    [b"w".as_slice(), &writer.to_be_bytes(), &n.to_be_bytes()].concat()
}

fn scattered(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1 | 1
}

/// The `n`th batch of a writer: it counts in three places, adds an entry, and removes older ones.
fn batch_of(writer: u64, n: u64) -> Batch {
    let mut batch = Batch::new();
    batch.put(TREE, &key(writer, 0), &n.to_le_bytes());
    if n.is_multiple_of(11) {
        let from = scattered(n + 3);
        batch.delete_range(TREE, &key(writer, from), &key(writer, from + (1 << 59)));
    }
    let length = if n.is_multiple_of(40) { 2500 } else { n as usize % 300 };
    batch.put(TREE, &key(writer, scattered(n)), &vec![n as u8; length]);
    batch.put(COUNTS, &[writer as u8], &n.to_le_bytes());
    if n.is_multiple_of(3) {
        batch.delete(TREE, &key(writer, scattered(n / 2)));
    }
    batch.put(TREE, &key(writer, u64::MAX), &n.to_le_bytes());
    batch
}

/// Entries of a writer in the first tree after so many batches.
fn written(writer: u64, count: u64) -> Entries {
    let mut all = Entries::new();
    for n in 1..=count {
        for op in batch_of(writer, n).ops() {
            match op.expect("invariant: a batch is whole") {
                Op::Put { tree, key, value } if tree == TREE.0 => {
                    all.insert(key.to_vec(), value.to_vec());
                }
                Op::Delete { key, .. } => drop(all.remove(key)),
                Op::DeleteRange { from, to, .. } => {
                    all.retain(|key, _| !(from..to).contains(&key.as_slice()));
                }
                _ => {}
            }
        }
    }
    all
}

fn run_key(step: u64, n: u64) -> Vec<u8> {
    [b"r".as_slice(), &step.to_be_bytes(), &n.to_be_bytes()].concat()
}

/// Entries of the `step`th run: more than one leaf.
fn run_of(step: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let value = |n: u64| vec![(step + n) as u8; if n == 77 { 3000 } else { 120 }];
    (0..200).map(|n| (run_key(step, n), value(n))).collect()
}

/// The commit of a step after its run is ingested: a clone with an entry of its own; older ones are
/// removed.
fn step_of(step: u64) -> Batch {
    let mut batch = Batch::new();
    batch.clone_tree(TREE, clone_of(step));
    batch.put(clone_of(step), b"own", &step.to_le_bytes());
    batch.put(COUNTS, &[CLONER as u8], &step.to_le_bytes());
    if let Some(old) = step.checked_sub(RUN_KEPT).filter(|&old| old > 0) {
        batch.delete_range(TREE, &run_key(old, 0), &run_key(old + 1, 0));
    }
    if let Some(old) = step.checked_sub(KEPT).filter(|&old| old > 0) {
        batch.drop_tree(clone_of(old));
        batch.drop_tree(tree_of(old));
    }
    batch
}

fn number(bytes: Option<&Vec<u8>>) -> u64 {
    bytes.map_or(0, |bytes| u64::from_le_bytes(bytes[..].try_into().expect("eight bytes")))
}

/// Asserts that a tree holds whole batches of each writer, the first ones, and the given runs. The
/// next run must be there whole or not at all. Returns the number of batches.
fn whole_tree(
    read: &dyn Read,
    tree: TreeId,
    runs: std::ops::RangeInclusive<u64>,
    place: &str,
) -> Vec<u64> {
    let mut found = entries(read, tree);
    if let Some(own) = found.remove(b"own".as_slice()) {
        assert_eq!(clone_of(number(Some(&own))), tree, "{place}");
    }
    let counts: Vec<u64> = (0..WRITERS).map(|writer| number(found.get(&key(writer, 0)))).collect();
    let mut all = Entries::new();
    for (writer, &count) in (0..).zip(&counts) {
        all.extend(written(writer, count));
    }
    let next = runs.end() + 1;
    let is_there = found.contains_key(&run_key(next, 0));
    runs.chain(is_there.then_some(next)).for_each(|step| all.extend(run_of(step)));
    assert!(found == all, "{place}: {tree:?} does not hold whole batches, or not the first");
    counts
}

/// Asserts that a store is consistent, and holds everything acknowledged as durable; returns the
/// progress of each thread.
fn whole(store: &dyn Store, durable: &[u64], place: &str) -> Vec<u64> {
    let counted = entries(store, COUNTS);
    let counts: Vec<u64> =
        (0..THREADS).map(|thread| number(counted.get([thread as u8].as_slice()))).collect();
    for (thread, (count, durable)) in counts.iter().zip(durable).enumerate() {
        assert!(count >= durable, "{place}: thread {thread}: {count} of {durable}");
    }
    let last = counts[CLONER];
    let runs = |step: u64, kept: u64| step.saturating_sub(kept - 1).max(1)..=step;
    let live = whole_tree(store, TREE, runs(last, RUN_KEPT), place);
    assert_eq!(live, counts[..CLONER], "{place}: half a batch is there");
    let mut before = vec![0; CLONER];
    for step in 1..=last + 2 {
        let exists = |tree: TreeId| store.tree_exists(tree).expect("read");
        let kept = runs(last, KEPT).contains(&step);
        assert_eq!(exists(clone_of(step)), kept, "{place}: clone {step}, {last} steps");
        // The next run's tree is made before the step is committed.
        let made = exists(tree_of(step));
        assert!(made == kept || made && step == last + 1, "{place}: run {step} of {last}");
        if made {
            let run = run_of(step).into_iter().collect();
            assert!(entries(store, tree_of(step)) == run, "{place}: run {step}");
        }
        if kept {
            // Cloned before the run of two steps ago was removed.
            let of_clone = whole_tree(store, clone_of(step), runs(step, RUN_KEPT + 1), place);
            let grows = |(counts, least): (&u64, &u64)| counts >= least;
            assert!(of_clone.iter().zip(&before).all(grows), "{place}: clone {step}");
            assert!(live.iter().zip(&of_clone).all(grows), "{place}: clone {step}");
            before = of_clone;
        }
    }
    let report = store.check(&mut |_, _| ControlFlow::Continue(())).expect("a check");
    assert!(report.is_clean(), "{place}: {:#?}", report.findings);
    counts
}

/// What the threads share.
struct Shared<'a> {
    store: &'a dyn Store,
    stop: AtomicBool,
    /// Maximum number of batches of each writer; the cloning thread gets a step for each twenty.
    allowed: AtomicU64,
    counts: [AtomicU64; THREADS],
    durable: [AtomicU64; THREADS],
    refused: AtomicU64,
}

fn loaded(counts: &[AtomicU64; THREADS]) -> Vec<u64> {
    counts.iter().map(|count| count.load(Ordering::SeqCst)).collect()
}

impl Shared<'_> {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Retries until there is space; `None` if the run ends first.
    fn patiently<T>(&self, mut act: impl FnMut() -> Result<T>) -> Option<T> {
        loop {
            match act() {
                Ok(done) => return Some(done),
                Err(error) => assert!(error.is_no_space(), "{error:?}"),
            }
            self.refused.fetch_add(1, Ordering::SeqCst);
            if self.stopped() {
                return None;
            }
            device::yield_now();
        }
    }

    /// Commits one batch after another, as far as allowed; calls `first` before each.
    fn work(
        &self,
        thread: usize,
        share: u64,
        batch: impl Fn(u64) -> Batch,
        first: impl Fn(u64) -> Option<()>,
    ) {
        let _stop = SetAtEnd(&self.stop);
        let _context = Context::new(format!("thread {thread}"));
        for count in 1.. {
            while count > self.allowed.load(Ordering::SeqCst) / share {
                if self.stopped() {
                    return;
                }
                device::yield_now();
            }
            if first(count).is_none() {
                return;
            }
            let batch = batch(count);
            let Some(token) = self.patiently(|| self.store.commit(&batch)) else { return };
            self.counts[thread].store(count, Ordering::SeqCst);
            if count.is_multiple_of(7) || share > 1 && count.is_multiple_of(2) {
                match self.store.sync(token) {
                    Ok(()) => self.durable[thread].store(count, Ordering::SeqCst),
                    Err(error) => assert!(error.is_no_space(), "{error:?}"),
                }
            }
        }
    }

    fn ingest(&self, step: u64) -> Option<()> {
        let run = run_of(step);
        self.patiently(|| self.store.ingest(TREE, &mut SliceRun::new(&run)))?;
        self.patiently(|| self.store.ingest_new(tree_of(step), &mut SliceRun::new(&run)))?;
        Some(())
    }

    fn background(&self) {
        let _stop = SetAtEnd(&self.stop);
        while !self.stopped() {
            // Sometimes only flushes, so that there is something to replay.
            let writes = !(self.allowed.load(Ordering::SeqCst) / 20).is_multiple_of(3);
            let steps: [&dyn Fn() -> Result<()>; 3] = [
                &|| self.store.flush_if_due().map(drop),
                &|| self.store.checkpoint().map(drop),
                &|| self.store.reclaim_step(5).map(drop),
            ];
            for done in steps.iter().take(if writes { 3 } else { 1 }).map(|step| step()) {
                if let Err(error) = done {
                    assert!(error.is_no_space(), "{error:?}");
                }
            }
            device::yield_now();
        }
    }

    /// Allows so many more batches, and waits until the writers have committed `batches` more, or
    /// the store has rejected so many.
    fn proceed(&self, allowed: u64, batches: u64, refusals: u64) {
        let sum = || loaded(&self.counts)[..CLONER].iter().sum::<u64>();
        let (begun, refused) = (sum(), self.refused.load(Ordering::SeqCst));
        self.allowed.fetch_add(allowed, Ordering::SeqCst);
        while sum() < begun + batches
            && self.refused.load(Ordering::SeqCst) - refused < refusals
            && !self.stopped()
        {
            device::yield_now();
        }
    }
}

/// A run: calls `act` with the shared state while the threads work.
fn beside<E: EngineUnderTest>(seed: u64, act: impl FnOnce(&SimEnv, &Shared<'_>)) {
    let (sim, store) = fresh::<E>(seed);
    commit(&*store, |batch| {
        batch.create_tree(TREE);
        batch.create_tree(COUNTS);
    });
    store.sync(store.last_commit()).expect("sync");
    let shared = Shared {
        store: &*store,
        stop: AtomicBool::new(false),
        allowed: AtomicU64::new(0),
        counts: Default::default(),
        durable: Default::default(),
        refused: AtomicU64::new(0),
    };
    device::scope(|scope| {
        let shared = &shared;
        for writer in 0..WRITERS {
            let nothing = |_| Some(());
            scope.spawn(move || {
                shared.work(writer as usize, 1, |n| batch_of(writer, n), nothing);
            });
        }
        scope.spawn(|| shared.work(CLONER, 20, step_of, |step| shared.ingest(step)));
        scope.spawn(|| shared.background());
        let _stop = SetAtEnd(&shared.stop);
        act(&sim, shared);
    });
    let counts = loaded(&shared.counts);
    assert_eq!(whole(&*store, &counts, "in the end"), counts);
    // The second time, everything that can be freed is freed.
    while store.reclaim_step(500).expect("reclaim") {}
    while store.reclaim_step(500).expect("reclaim") {}
    assert!(store.checkpoint().expect("checkpoint"));
    assert_eq!(store.stats().dropping, 0, "{:?}", store.stats());
    assert_eq!(whole(&*store, &counts, "reclaimed"), counts);
    store.close().expect("close");
    drop(store);
    let store = open::<E>(&sim, Durability::Async);
    assert_eq!(whole(&*store, &counts, "opened again"), counts);
}

/// Opens the disk as a power cut now leaves it, while writes continue.
fn cut<E: EngineUnderTest>(sim: &SimEnv, shared: &Shared<'_>, seed: u64) {
    let durable = loaded(&shared.durable);
    let policy = CrashPolicy::ALL[seed as usize % 3];
    let place = format!("cut {seed}, {policy:?}");
    let _context = Context::new(&place);
    let disk = SimEnv::on(sim.device.after_crash(policy, seed), seed);
    let store = open::<E>(&disk, Durability::Async);
    let found = whole(&*store, &durable, &place);
    // Replayed data must be complete on disk too.
    if seed.is_multiple_of(4) {
        match store.checkpoint() {
            Ok(made) => assert!(made, "{place}"),
            Err(error) => assert!(error.is_no_space(), "{place}: {error:?}"),
        }
        assert_eq!(whole(&*store, &found, &place), found);
    }
}

/// Everything acknowledged as durable exists after a power cut, and no batch, run or clone exists
/// in part.
pub fn power_may_be_cut_beside_writers_clones_and_runs<E: EngineUnderTest>() {
    beside::<E>(1, |sim, shared| {
        let mut random = fastrand::Rng::with_seed(1);
        for seed in 0..E::places(45, 600).max(6) {
            // Mostly the threads are in the middle of an operation at the cut.
            shared.proceed(20, random.u64(1..39), u64::MAX);
            cut::<E>(sim, shared, seed);
        }
    });
}

/// The same when space runs out, and returns.
pub fn space_runs_out_beside_writers_clones_and_runs<E: EngineUnderTest>() {
    let mut refused = 0;
    for seed in 0..E::rounds(3, 30) {
        let _context = Context::new(format!("seed {seed}"));
        beside::<E>(seed, |sim, shared| {
            let mut random = fastrand::Rng::with_seed(seed);
            shared.proceed(40, 60, u64::MAX);
            let space = random.u64(128 << 10..1 << 20);
            sim.device.set_capacity(Some(sim.device.used_bytes() + space));
            shared.proceed(1500, 2900, 20);
            cut::<E>(sim, shared, seed);
            let counts = loaded(&shared.counts);
            print_line(&format!("{counts:?}, {} refused", shared.refused.load(Ordering::SeqCst)));
            refused += shared.refused.load(Ordering::SeqCst);
            sim.device.set_capacity(None);
            shared.proceed(200, 200, u64::MAX);
            cut::<E>(sim, shared, seed + 1);
        });
    }
    assert!(refused > 20, "space never ran out");
}
