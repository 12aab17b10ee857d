//! `checkpoint-stall`: how long an update takes while a checkpoint writes a cache full of changed
//! nodes, beside how long it takes otherwise (BabuDB's Table I).
//!
//! Each round updates until every leaf is changed again, which is the normal time. Then it starts
//! a checkpoint in another thread and continues updating until the checkpoint has ended. Keys are
//! random, and each update is one commit. Meanwhile a thread only spins for about as long as an
//! update takes, and records how long it really took. That meter shows the delays of the machine,
//! not of the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::{Clock, SystemClock};
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use store::{Batch, EngineOptions, Stats, Store};

use super::Run;
use super::bare::{Bare, TREE, VALUE_BYTES, key};
use super::engine::{self, broken};
use super::memory;
use super::meter::{self, Meter, Pulse, Side, at, p99_bound, record};
use program::failure::Result;
use program::output::Output;

/// The length of the meter's unit of work, about that of an update.
const SPIN: Duration = Duration::from_micros(2);
/// Bytes of a leaf, for the number of updates that change every one.
const LEAF_BYTES: u64 = 12 << 10;
/// Approximate memory per entry.
const MEMORY_BYTES: usize = 150;
/// Updates per leaf after which nearly all leaves are changed: all but one in e^6.
const UPDATES_A_LEAF: u64 = 6;
/// Longest sleep of the thread that writes the log.
const NAP: Duration = Duration::from_millis(50);

/// Kinds of time.
const NORMAL: usize = 0;
const DURING: usize = 1;

/// The threads beside the updates.
struct Beside {
    ending: AtomicBool,
    /// A checkpoint is requested, or runs.
    checkpoint: AtomicBool,
    meter: Meter,
}

pub(super) fn run(run: &Run<'_>, output: &mut Output) -> Result<()> {
    let args = run.args;
    let options = EngineOptions {
        // When a checkpoint begins, as much as possible is changed: nine sixteenths of the cache.
        cache_bytes: (args.files as usize * MEMORY_BYTES / 9 * 16).max(64 << 20),
        ..engine::options(args)
    };
    let bare = Bare::make(run, &options)?;
    bare.load(run, args.files)?;
    let beside = Arc::new(Beside {
        ending: AtomicBool::new(false),
        checkpoint: AtomicBool::new(false),
        meter: Meter::new(Pulse::Spin(SPIN), 2),
    });
    let (sides, meters, checkpoints) = device::scope(|scope| {
        let meter = scope.spawn(|| beside.meter.run());
        let log = scope.spawn(|| write_log(&**bare.store(), &beside));
        let writer = scope.spawn(|| checkpoint(&**bare.store(), bare.clock(), &beside));
        let sides = rounds(run, &bare, &beside);
        beside.ending.store(true, Ordering::Release);
        beside.meter.end();
        let join = "invariant: threads of a benchmark do not panic";
        let (meters, log, took) = (meter.join(), log.join(), writer.join());
        log.expect(join)?;
        Ok::<_, wire::Failure>((sides?, meters.expect(join), took.expect(join)?))
    })?;
    run.bar.finish_and_clear();
    let stats = bare.store().stats();
    let object = report(args.files, &sides, &meters, &checkpoints, &stats);
    output.object(&object)?;
    text(&object).iter().try_for_each(|line| output.line(line))
}

/// Runs the updates. Returns the normal time and that during checkpoints.
fn rounds(run: &Run<'_>, bare: &Bare, beside: &Beside) -> Result<[Side; 2]> {
    let entries = run.args.files;
    let leaves = entries * (VALUE_BYTES as u64 + 25) / LEAF_BYTES + 1;
    let updates = (leaves * UPDATES_A_LEAF).max(50_000);
    let mut random = fastrand::Rng::with_seed(7);
    let mut sides = [Side::new(), Side::new()];
    run.bar.set_length(run.args.rounds() * updates);
    for round in 0..=run.args.rounds() {
        // The first round only warms up.
        let counts = round > 0;
        for during in [NORMAL, DURING] {
            beside.meter.turn(counts.then_some(during));
            beside.checkpoint.store(during == DURING, Ordering::Release);
            let side = &mut sides[during];
            let start = bare.clock().monotonic();
            let mut before = start;
            let mut done = 0;
            while if during == DURING {
                beside.checkpoint.load(Ordering::Acquire)
            } else {
                done < updates
            } {
                let entry = random.u64(..entries);
                let mut batch = Batch::new();
                batch.put(TREE, &key(entry), &[done as u8; VALUE_BYTES]);
                bare.store().commit(&batch).map_err(broken)?;
                let after = bare.clock().monotonic();
                if counts {
                    record(&mut side.latencies, after.saturating_sub(before));
                }
                before = after;
                done += 1;
                if done % 4096 == 0 {
                    run.check()?;
                }
            }
            if counts {
                side.busy += before.saturating_sub(start);
            }
        }
        run.bar.inc(updates);
    }
    beside.meter.turn(None);
    Ok(sides)
}

/// The work of one of a daemon's workers.
fn write_log(store: &dyn Store, beside: &Beside) -> Result<()> {
    let clock = SystemClock::new();
    while !beside.ending.load(Ordering::Acquire) {
        let due = store.flush_if_due().map_err(broken)?;
        clock.sleep(due.min(NAP));
    }
    Ok(())
}

/// The work of the other worker, when requested; returns how long each checkpoint took.
fn checkpoint(store: &dyn Store, clock: &dyn Clock, beside: &Beside) -> Result<Vec<Duration>> {
    let mut took = Vec::new();
    while !beside.ending.load(Ordering::Acquire) {
        if beside.checkpoint.load(Ordering::Acquire) {
            let start = clock.monotonic();
            let done = store.checkpoint().map_err(broken);
            took.push(clock.monotonic().saturating_sub(start));
            beside.checkpoint.store(false, Ordering::Release);
            done?;
        }
        clock.sleep(Duration::from_micros(200));
    }
    Ok(took)
}

fn report(
    entries: u64,
    sides: &[Side; 2],
    meters: &[Histogram<u64>],
    checkpoints: &[Duration],
    stats: &Stats,
) -> Value {
    let [normal, during] = sides;
    let p99 = at(&normal.latencies, 0.99);
    let bound = p99_bound(p99);
    let seconds: f64 = checkpoints.iter().map(Duration::as_secs_f64).sum();
    json!({
        "workload": "checkpoint-stall",
        "engine": stats.engine,
        "entries": entries,
        "durability": stats.durability.name(),
        "normal": normal.json("updates", &meters[0]),
        "during": during.json("updates", &meters[1]),
        "p99_bound_us": bound,
        "p99_within_bound": at(&during.latencies, 0.99) <= bound,
        "checkpoints": checkpoints.len(),
        "checkpoint_seconds": seconds / checkpoints.len().max(1) as f64,
        "checkpoint_bytes": stats.checkpoint_bytes / stats.checkpoints.max(1),
        "checkpoint_mean_write_bytes": stats.checkpoint_bytes / stats.checkpoint_writes.max(1),
        "bytes_written_per_update": stats.written_bytes / stats.commits.max(1),
        "mean_write_bytes": stats.written_bytes / stats.writes.max(1),
        "cache_bytes": stats.cache_bytes,
        "bytes_on_disk": stats.disk_bytes,
        "rss_bytes": memory::resident_bytes(),
    })
}

fn text(object: &Value) -> Vec<String> {
    vec![
        meter::text("normal", &object["normal"]),
        meter::text("during", &object["during"]),
        format!(
            "{} checkpoints of {:.3} s, {} bytes each, {} a write",
            object["checkpoints"],
            object["checkpoint_seconds"].as_f64().unwrap_or(0.0),
            object["checkpoint_bytes"],
            object["checkpoint_mean_write_bytes"],
        ),
    ]
}
