//! `clone-lookups`: the time of lookups in a tree with very many clones, and in the clones. Beside
//! them is a tree of as many records that was never cloned. On a bare store.
//!
//! Clones are created one by one. With each, a record is written into the clone and another into
//! the tree, so that all states differ. Due background work is done meanwhile. Lookups are
//! measured when all clones exist, after a checkpoint, and when nothing is left to merge or
//! reclaim. They take turns, so that the machine's other load affects all three alike.

use std::time::Duration;

use device::{Clock, SystemClock};
use serde_json::{Value, json};
use store::{Batch, EngineOptions, Store, TreeId};

use super::Run;
use super::bare::{Bare, TREE, VALUE_BYTES, key};
use super::engine::{self, broken};
use super::median::median;
use program::failure::Result;
use program::output::Output;

/// The tree that is never cloned.
const ALONE: TreeId = TreeId(33);
/// The first clone.
const FIRST: u64 = 64;
/// Clones between two checks for due work.
const STRIDE: u64 = 16;
/// A checkpoint is taken after this many clones, even if none is due: as over a long time.
const CHECKPOINT_EVERY: u64 = 100;
/// Lookups per part of a round.
const LOOKUPS: u64 = 20_000;
/// Nodes per reclaim step.
const STEP: usize = 1000;
/// Most memory per entry of two trees.
const MEMORY_BYTES: usize = 600;

pub(super) fn run(run: &Run<'_>, output: &mut Output) -> Result<()> {
    let args = run.args;
    let usual = engine::options(args);
    let cache_bytes = usual.cache_bytes.max(args.files as usize * MEMORY_BYTES);
    let bare = Bare::make(run, &EngineOptions { cache_bytes, ..usual })?;
    let clock = SystemClock::new();
    bare.load(run, args.files)?;
    let mut batch = Batch::new();
    batch.create_tree(ALONE);
    for entry in 0..args.files {
        batch.put(ALONE, &key(entry), &[entry as u8; VALUE_BYTES]);
        if batch.len() >= 100 {
            bare.store().commit(&batch).map_err(broken)?;
            batch.clear();
        }
    }
    bare.store().commit(&batch).map_err(broken)?;
    settle(&bare)?;
    let store = &**bare.store();
    let before = measure(run, store, &clock, 0)?;
    let start = clock.monotonic();
    clone_all(run, &bare)?;
    let cloning = clock.monotonic().saturating_sub(start);
    let fresh = measure(run, store, &clock, args.clones)?;
    store.checkpoint().map_err(broken)?;
    let written = measure(run, store, &clock, args.clones)?;
    settle(&bare)?;
    let merged = measure(run, store, &clock, args.clones)?;
    run.bar.finish_and_clear();
    let stats = store.stats();
    let worst =
        [&fresh, &written, &merged].map(|found| found.worst()).into_iter().fold(0.0, f64::max);
    let object = json!({
        "workload": "clone-lookups",
        "engine": stats.engine,
        "entries": args.files,
        "clones": args.clones,
        "rounds": args.rounds(),
        "clone_us": cloning.as_secs_f64() * 1e6 / args.clones as f64,
        "before": before.json(),
        "cloned": fresh.json(),
        "written": written.json(),
        "merged": merged.json(),
        "worst_ratio": worst,
        "bytes_on_disk": stats.disk_bytes,
        "cache_bytes": stats.cache_bytes,
    });
    output.object(&object)?;
    for state in ["before", "cloned", "written", "merged"] {
        output.line(&format!(
            "{state}: {} us in a tree alone, {} us in the tree, {} us in clones; {} and {} times",
            object[state]["alone_us"],
            object[state]["tree_us"],
            object[state]["clones_us"],
            object[state]["tree_ratio"],
            object[state]["clones_ratio"],
        ))?;
    }
    output.line(&format!("a clone takes {} us, with what falls due", object["clone_us"]))
}

/// Microseconds per lookup: in the tree alone, in the tree, in clones of it; and the medians of
/// the rounds' ratios.
struct Results {
    micros: [f64; 3],
    ratios: [f64; 2],
}

impl Results {
    fn worst(&self) -> f64 {
        self.ratios[0].max(self.ratios[1])
    }

    fn json(&self) -> Value {
        let short = |value: f64| (value * 1000.0).round() / 1000.0;
        json!({
            "alone_us": short(self.micros[0]),
            "tree_us": short(self.micros[1]),
            "clones_us": short(self.micros[2]),
            "tree_ratio": short(self.ratios[0]),
            "clones_ratio": short(self.ratios[1]),
        })
    }
}

fn measure(run: &Run<'_>, store: &dyn Store, clock: &SystemClock, clones: u64) -> Result<Results> {
    let mut random = fastrand::Rng::with_seed(7);
    let (mut sums, mut ratios) = ([Duration::ZERO; 3], [const { Vec::new() }; 2]);
    // The first round warms up.
    for round in 0..=run.args.rounds() {
        let alone = lookups(run, store, clock, &mut random, |_| ALONE)?;
        let tree = lookups(run, store, clock, &mut random, |_| TREE)?;
        let in_clones = lookups(run, store, clock, &mut random, |random| match clones {
            0 => TREE,
            _ => TreeId(FIRST + random.u64(..clones)),
        })?;
        if round > 0 {
            for (sum, took) in sums.iter_mut().zip([alone, tree, in_clones]) {
                *sum += took;
            }
            for (ratios, took) in ratios.iter_mut().zip([tree, in_clones]) {
                ratios.push(took.as_secs_f64() / alone.as_secs_f64().max(1e-9));
            }
        }
    }
    let each = |sum: Duration| sum.as_secs_f64() * 1e6 / (LOOKUPS * run.args.rounds()) as f64;
    Ok(Results { micros: sums.map(each), ratios: ratios.map(median) })
}

fn lookups(
    run: &Run<'_>,
    store: &dyn Store,
    clock: &SystemClock,
    random: &mut fastrand::Rng,
    tree: impl Fn(&mut fastrand::Rng) -> TreeId,
) -> Result<Duration> {
    run.check()?;
    let start = clock.monotonic();
    for _ in 0..LOOKUPS {
        let (tree, entry) = (tree(random), random.u64(..run.args.files));
        let mut length = 0;
        let found = store.get_with(tree, &key(entry), &mut |value| length = value.len());
        assert!(found.map_err(broken)? && length == VALUE_BYTES, "a key of the benchmark is there");
    }
    Ok(clock.monotonic().saturating_sub(start))
}

fn clone_all(run: &Run<'_>, bare: &Bare) -> Result<()> {
    let store = &**bare.store();
    let mut random = fastrand::Rng::with_seed(11);
    run.bar.set_message("cloning");
    run.bar.set_length(run.args.clones);
    for number in 0..run.args.clones {
        let clone = TreeId(FIRST + number);
        let mut batch = Batch::new();
        batch.clone_tree(TREE, clone);
        let mut write = |tree| {
            let value = [number as u8; VALUE_BYTES];
            batch.put(tree, &key(random.u64(..run.args.files)), &value);
        };
        write(clone);
        write(TREE);
        store.commit(&batch).map_err(broken)?;
        if number % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1 || store.checkpoint_due() {
            store.checkpoint().map_err(broken)?;
        }
        if number % STRIDE == STRIDE - 1 {
            store.reclaim_step(STEP).map_err(broken)?;
            run.bar.inc(STRIDE);
            run.check()?;
        }
    }
    run.bar.set_message("");
    Ok(())
}

/// Takes a checkpoint, and does all work left after it.
fn settle(bare: &Bare) -> Result<()> {
    let store = bare.store();
    store.checkpoint().map_err(broken)?;
    while store.reclaim_step(STEP).map_err(broken)? {}
    Ok(())
}
