//! `clones-scale`: very many clones of one tree, including chains of clones of clones; the cost of
//! each as their number grows. On a store of its own, below the namespace: one clone there is one
//! batch here, with one record written into it.
//!
//! Four phases, each reported in tenths: create the clones, write into them in any order, write
//! into their common source, drop them in any order. Due background work runs in the same thread
//! and is timed separately, so that the later cost of a clone is visible as well.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use device::{Clock, Env, SystemClock};
use serde_json::{Value, json};
use store::{Batch, Store, TreeId};

use super::engine::{self, broken, chosen};
use super::{Run, memory};
use program::failure::{self, Result};
use program::output::{Output, size};

/// The tree that is cloned.
const SOURCE: TreeId = TreeId(16);
/// The first clone.
const FIRST: u64 = 32;
/// Each clone is made from the one before it, up to this many times; then from the source again.
const CHAIN: u64 = 1000;
/// Parts of a phase that are reported.
const TENTHS: u64 = 10;
/// Nodes that a step of reclaiming frees.
const STEP: usize = 2048;

/// A directory that is removed when the run ends.
struct ScratchDir(PathBuf);

impl Drop for ScratchDir {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, "the directory of the benchmark stays");
        }
    }
}

/// A store under test, and the time spent on it.
struct Test<'a, 'r> {
    run: &'a Run<'r>,
    output: &'a mut Output,
    store: Arc<dyn Store>,
    clock: SystemClock,
    random: fastrand::Rng,
    keys: u64,
    background: Duration,
    /// Trees and memory at the first report.
    first: Option<(u64, u64)>,
}

/// Eight bytes, spread over the tree.
fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

pub(super) fn run(run: &Run<'_>, output: &mut Output) -> Result<()> {
    let parent = run.args.volume.clone().unwrap_or_else(std::env::temp_dir);
    let path = parent.join(format!("pando-clones-{}", std::process::id()));
    std::fs::create_dir(&path).map_err(|error| failure::io("create", &path, &error))?;
    let place = ScratchDir(path);
    let store = create(&place.0, run)?;
    let mut test = Test {
        run,
        output,
        store,
        clock: SystemClock::new(),
        random: fastrand::Rng::with_seed(7),
        keys: run.args.files,
        background: Duration::ZERO,
        first: None,
    };
    let measured = test.all(run.args.clones);
    run.bar.finish_and_clear();
    measured
}

fn create(path: &Path, run: &Run<'_>) -> Result<Arc<dyn Store>> {
    let env = Env::system(path).map_err(|error| failure::device(path, &error))?;
    engine::create(chosen(run.args), &env, &engine::options(run.args))
}

impl Test<'_, '_> {
    fn all(&mut self, clones: u64) -> Result<()> {
        self.fill()?;
        self.run.bar.set_length(4 * clones);
        self.phase("create", clones, |test, n| {
            let source = if n % CHAIN == 0 { SOURCE } else { TreeId(FIRST + n - 1) };
            let key = key(test.random.u64(..test.keys));
            let mut batch = Batch::new();
            batch.clone_tree(source, TreeId(FIRST + n));
            batch.put(TreeId(FIRST + n), &key, &n.to_le_bytes());
            test.commit(&batch)
        })?;
        self.phase("write", clones, |test, _| {
            let clone = TreeId(FIRST + test.random.u64(..clones));
            let key = key(test.random.u64(..test.keys));
            let mut batch = Batch::new();
            batch.put(clone, &key, &[3; 100]);
            test.commit(&batch)
        })?;
        self.phase("write-source", clones, |test, _| {
            let key = key(test.random.u64(..test.keys));
            let mut batch = Batch::new();
            batch.put(SOURCE, &key, &[4; 100]);
            test.commit(&batch)
        })?;
        let mut order: Vec<u64> = (0..clones).collect();
        self.random.shuffle(&mut order);
        self.phase("drop", clones, |test, n| {
            let mut batch = Batch::new();
            batch.drop_tree(TreeId(FIRST + order[n as usize]));
            test.commit(&batch)
        })?;
        self.reclaim_all()?;
        let probe = self.store.get(SOURCE, &key(self.keys / 2)).map_err(broken)?;
        assert!(probe.is_some(), "a key of the source is there when its clones are gone");
        self.store.close().map_err(broken)
    }

    fn fill(&mut self) -> Result<()> {
        let mut batch = Batch::new();
        batch.create_tree(SOURCE);
        for number in 0..self.keys {
            batch.put(SOURCE, &key(number), &[1; 100]);
            if batch.len() >= 1000 {
                self.commit(&batch)?;
                batch.clear();
                self.background()?;
            }
        }
        self.commit(&batch)?;
        self.store.checkpoint().map_err(broken)?;
        Ok(())
    }

    fn commit(&self, batch: &Batch) -> Result<()> {
        self.store.commit(batch).map(drop).map_err(broken)
    }

    /// What a daemon's workers do when it is due.
    fn background(&mut self) -> Result<()> {
        let start = self.clock.monotonic();
        if self.store.checkpoint_due() {
            self.store.checkpoint().map_err(broken)?;
        }
        if self.store.stats().dropping >= STEP as u64 {
            self.store.reclaim_step(STEP).map_err(broken)?;
        }
        self.background += self.clock.monotonic().saturating_sub(start);
        Ok(())
    }

    fn phase(
        &mut self,
        name: &str,
        clones: u64,
        mut step: impl FnMut(&mut Self, u64) -> Result<()>,
    ) -> Result<()> {
        for tenth in 0..TENTHS {
            let (from, to) = (clones * tenth / TENTHS, clones * (tenth + 1) / TENTHS);
            let mut busy = Duration::ZERO;
            let mut longest = Duration::ZERO;
            self.background = Duration::ZERO;
            for n in from..to {
                let start = self.clock.monotonic();
                step(self, n)?;
                let took = self.clock.monotonic().saturating_sub(start);
                busy += took;
                longest = longest.max(took);
                if n % 64 == 0 {
                    self.background()?;
                    self.run.bar.inc(64);
                    self.run.check()?;
                }
            }
            self.report(name, tenth + 1, to - from, busy, longest)?;
        }
        Ok(())
    }

    /// Frees what only the dropped clones held, step by step.
    fn reclaim_all(&mut self) -> Result<()> {
        let start = self.clock.monotonic();
        let mut steps = 0;
        let mut longest = Duration::ZERO;
        loop {
            let begun = self.clock.monotonic();
            let more = self.store.reclaim_step(STEP).map_err(broken)?;
            longest = longest.max(self.clock.monotonic().saturating_sub(begun));
            if !more {
                break;
            }
            steps += 1;
            self.run.check()?;
        }
        self.background = Duration::ZERO;
        let busy = self.clock.monotonic().saturating_sub(start);
        self.store.checkpoint().map_err(broken)?;
        self.report("reclaim", TENTHS, steps, busy, longest)
    }

    fn report(
        &mut self,
        phase: &str,
        tenth: u64,
        operations: u64,
        busy: Duration,
        longest: Duration,
    ) -> Result<()> {
        let stats = self.store.stats();
        let each = |time: Duration| {
            (time.as_nanos() as f64 / operations.max(1) as f64 / 100.0).round() / 10.0
        };
        let rss = memory::resident_bytes();
        // How long a reader of this state would block all other threads.
        let begun = self.clock.monotonic();
        drop(self.store.pin().map_err(broken)?);
        let pin = self.clock.monotonic().saturating_sub(begun);
        // Memory that grows with the number of clones is visible from the first report on.
        let (trees, bytes) = *self.first.get_or_insert((stats.trees, rss));
        let more = stats.trees.saturating_sub(trees);
        let each_clone = (more > 0).then(|| (rss as f64 - bytes as f64) / more as f64);
        let object: Value = json!({
            "workload": "clones-scale",
            "engine": stats.engine,
            "phase": phase,
            "tenth": tenth,
            "keys": self.keys,
            "trees": stats.trees,
            "dropping": stats.dropping,
            "ops": operations,
            "us_per_op": each(busy),
            "background_us_per_op": each(self.background),
            "longest_us": longest.as_micros() as u64,
            "pin_us": pin.as_micros() as u64,
            "rss_bytes": rss,
            "rss_bytes_per_clone": each_clone.map(f64::round),
            "cache_bytes": stats.cache_bytes,
            "disk_bytes": stats.disk_bytes,
            "log_bytes": stats.log_bytes,
            "checkpoints": stats.checkpoints,
        });
        self.output.object(&object)?;
        self.output.line(&format!(
            "{phase:12} {tenth:2}/10: {:8.1} us each, {:8.1} us in the background; {} trees, \
             {} of memory, {} on disk",
            each(busy),
            each(self.background),
            stats.trees,
            size(rss),
            size(stats.disk_bytes),
        ))?;
        self.output.flush()
    }
}
