//! `create-latency`: how long a create takes in normal operation, while a checkpoint is written,
//! and while a snapshot is taken and written (BabuDB, Table I). Through the file system in
//! process, as a mount calls it, with files in directories of 1,000.
//!
//! A round, on a volume of its own:
//! 1. `--files` creates while only the log is written beside them: normal.
//! 2. A checkpoint of everything begins in another thread; creates until it has ended.
//! 3. Another checkpoint, not counted. The space of the engine's files is now the size of the
//!    index.
//! 4. `--files` more, not counted; a snapshot of the directory is taken, and a checkpoint begins
//!    that writes it; creates until that has ended.
//!
//! Nothing else takes checkpoints. A meter that mostly sleeps shows the load of the machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use device::sync::Mutex;
use device::{Clock, SystemClock};
use fs::{FileSystem, Fs, NewNode};
use hdrhistogram::Histogram;
use inode::{Caller, Kind, NodeId};
use serde_json::{Value, json};
use store::Store;

use super::Run;
use super::engine::{broken, checkpoint};
use super::files::{FILES_A_DIRECTORY, Name};
use super::memory;
use super::meter::{self, Meter, Pulse, Side, at, p99_bound, record};
use super::volume::{self, Volume, caller};
use program::failure::Result;
use program::output::Output;

/// Names of the kinds of time.
const NAMES: [&str; 3] = ["normal", "checkpoint", "snapshot"];
const NORMAL: usize = 0;
const CHECKPOINT: usize = 1;
const SNAPSHOT: usize = 2;
/// How long the meter sleeps.
const PULSE: Duration = Duration::from_micros(200);
/// Longest sleep of the thread that writes the log.
const NAP: Duration = Duration::from_millis(50);
/// Creates between two checks for Ctrl-C.
const STRIDE: u64 = 1024;
/// No task for the other thread.
const NOTHING: u8 = 0;

/// The tasks of the other threads.
struct Beside {
    ending: AtomicBool,
    /// [`NOTHING`], or the kind of time of a task that is requested or runs.
    task: AtomicU8,
    /// How long checkpoints and snapshots took.
    took: Mutex<[Vec<Duration>; 3]>,
}

/// Creates files, one after the other.
struct Creator {
    fs: Arc<Fs>,
    caller: Caller,
    root: NodeId,
    directory: NodeId,
    made: u64,
}

impl Creator {
    /// Creates the next file; returns how long that took, without the directory that it may need.
    fn create(&mut self, clock: &SystemClock) -> Result<Duration> {
        if self.made.is_multiple_of(FILES_A_DIRECTORY) {
            let name = Name::new(b'd', self.made / FILES_A_DIRECTORY);
            let made = self.fs.mkdir(&self.caller, self.root, name.as_bytes(), 0o755);
            self.directory = made.map_err(volume::broken)?.node;
        }
        let name = Name::new(b'f', self.made);
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let start = clock.monotonic();
        let made = self.fs.mknod(&self.caller, self.directory, name.as_bytes(), &new);
        self.fs.forget(made.map_err(volume::broken)?.node, 1);
        let took = clock.monotonic().saturating_sub(start);
        self.made += 1;
        Ok(took)
    }
}

/// The results of all rounds.
struct Results {
    sides: [Side; 3],
    meters: Vec<Histogram<u64>>,
    took: [Vec<Duration>; 3],
    index_bytes: u64,
    files: u64,
    engine: &'static str,
}

pub(super) fn run(run: &Run<'_>, output: &mut Output) -> Result<()> {
    let args = run.args;
    let mut found = Results {
        sides: [Side::new(), Side::new(), Side::new()],
        meters: vec![meter::histogram(); 3],
        took: [const { Vec::new() }; 3],
        index_bytes: 0,
        files: 0,
        engine: "",
    };
    run.bar.set_length(args.rounds() * args.files * 2);
    for _ in 0..args.rounds() {
        let mut volume = Volume::make(args)?;
        volume.close()?;
        volume.crash();
        let store = volume.open_watched()?;
        // So that the creating thread takes no checkpoint itself.
        store.set_waker(Arc::new(|| {}));
        found.engine = volume.engine();
        round(run, &volume, &*store, &mut found)?;
    }
    run.bar.finish_and_clear();
    let object = report(args.files, args.rounds(), super::engine::durability(args), &found);
    output.object(&object)?;
    text(&object).iter().try_for_each(|line| output.line(line))
}

fn round(run: &Run<'_>, volume: &Volume, store: &dyn Store, found: &mut Results) -> Result<()> {
    let beside = Beside {
        ending: AtomicBool::new(false),
        task: AtomicU8::new(NOTHING),
        took: Mutex::default(),
    };
    let meter = Meter::new(Pulse::Sleep(PULSE), NAMES.len());
    let clock = SystemClock::new();
    let made = volume.fs().lookup(&caller(), NodeId::ROOT, volume.name().as_bytes());
    let root = made.map_err(volume::broken)?.node;
    let fs = Arc::clone(volume.fs());
    let empty = store.stats().disk_bytes;
    let mut creator = Creator { fs, caller: caller(), root, directory: root, made: 0 };
    device::scope(|scope| {
        let metering = scope.spawn(|| meter.run());
        let log = scope.spawn(|| write_log(store, &beside));
        let writer = scope.spawn(|| work(store, volume.fs(), root, &beside));
        let done = creates(run, &mut creator, &clock, &beside, &meter, found).and_then(|()| {
            checkpoint(store, &clock)?;
            found.index_bytes += store.stats().disk_bytes.saturating_sub(empty);
            found.files += creator.made;
            for _ in 0..run.args.files {
                creator.create(&clock)?;
            }
            run.bar.inc(run.args.files);
            until_done(run, SNAPSHOT, &mut creator, &clock, &beside, &meter, found)
        });
        beside.ending.store(true, Ordering::Release);
        meter.end();
        let join = "invariant: threads of a benchmark do not panic";
        let (meters, log, written) =
            (metering.join().expect(join), log.join().expect(join), writer.join().expect(join));
        done?;
        log?;
        written?;
        for (all, one) in found.meters.iter_mut().zip(&meters) {
            all.add(one).expect("invariant: both have the same shape");
        }
        Ok::<_, wire::Failure>(())
    })?;
    let took = beside.took.into_inner();
    for (all, mut one) in found.took.iter_mut().zip(took) {
        all.append(&mut one);
    }
    Ok(())
}

/// Normal creates, and those beside a checkpoint.
fn creates(
    run: &Run<'_>,
    creator: &mut Creator,
    clock: &SystemClock,
    beside: &Beside,
    meter: &Meter,
    found: &mut Results,
) -> Result<()> {
    let side = &mut found.sides[NORMAL];
    meter.turn(Some(NORMAL));
    let start = clock.monotonic();
    for done in 0..run.args.files {
        record(&mut side.latencies, creator.create(clock)?);
        if done % STRIDE == 0 {
            run.check()?;
        }
    }
    side.busy += clock.monotonic().saturating_sub(start);
    meter.end_of_pulse(clock);
    run.bar.inc(run.args.files);
    until_done(run, CHECKPOINT, creator, clock, beside, meter, found)
}

/// Creates files while another thread runs a task.
fn until_done(
    run: &Run<'_>,
    what: usize,
    creator: &mut Creator,
    clock: &SystemClock,
    beside: &Beside,
    meter: &Meter,
    found: &mut Results,
) -> Result<()> {
    let side = &mut found.sides[what];
    meter.turn(Some(what));
    let start = clock.monotonic();
    beside.task.store(what as u8, Ordering::Release);
    let mut done = 0;
    loop {
        record(&mut side.latencies, creator.create(clock)?);
        done += 1;
        if done % STRIDE == 0 {
            run.check()?;
        }
        if beside.task.load(Ordering::Acquire) == NOTHING {
            break;
        }
    }
    side.busy += clock.monotonic().saturating_sub(start);
    meter.end_of_pulse(clock);
    meter.turn(None);
    Ok(())
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

/// The work of the other worker, when requested.
fn work(store: &dyn Store, fs: &Fs, root: NodeId, beside: &Beside) -> Result<()> {
    let clock = SystemClock::new();
    while !beside.ending.load(Ordering::Acquire) {
        let task = beside.task.load(Ordering::Acquire);
        if task != NOTHING {
            let start = clock.monotonic();
            let taken = if usize::from(task) == SNAPSHOT {
                fs.snapshot_create(&caller(), root, b"during").map(drop).map_err(volume::broken)
            } else {
                Ok(())
            };
            let done = taken.and_then(|()| checkpoint(store, &clock));
            let took = clock.monotonic().saturating_sub(start);
            beside.took.lock()[usize::from(task)].push(took);
            beside.task.store(NOTHING, Ordering::Release);
            done?;
        }
        clock.sleep(Duration::from_micros(200));
    }
    Ok(())
}

fn report(files: u64, rounds: u64, durability: store::Durability, found: &Results) -> Value {
    let p99 = |side: usize| at(&found.sides[side].latencies, 0.99);
    let bound = p99_bound(p99(NORMAL));
    let mean = |side: usize| {
        let times = &found.took[side];
        times.iter().map(Duration::as_secs_f64).sum::<f64>() / times.len().max(1) as f64
    };
    let mut object = json!({
        "workload": "create-latency",
        "engine": found.engine,
        "files": files,
        "rounds": rounds,
        "durability": durability.name(),
        "p99_bound_us": bound,
        "p99_within_bound": p99(CHECKPOINT) <= bound && p99(SNAPSHOT) <= bound,
        "checkpoint_seconds": mean(CHECKPOINT),
        "snapshot_seconds": mean(SNAPSHOT),
        "index_bytes": found.index_bytes / rounds,
        "index_bytes_per_file": found.index_bytes as f64 / found.files.max(1) as f64,
        "rss_bytes": memory::resident_bytes(),
    });
    for (at, name) in NAMES.into_iter().enumerate() {
        object[name] = found.sides[at].json("creates", &found.meters[at]);
    }
    object
}

fn text(object: &Value) -> Vec<String> {
    let mut lines: Vec<String> =
        NAMES.into_iter().map(|name| meter::text(name, &object[name])).collect();
    let number = |field: &str| object[field].as_f64().unwrap_or_default();
    lines.push(format!(
        "checkpoint {:.2} s, snapshot {:.2} s; index of {:.1} bytes a file",
        number("checkpoint_seconds"),
        number("snapshot_seconds"),
        number("index_bytes_per_file"),
    ));
    lines
}
