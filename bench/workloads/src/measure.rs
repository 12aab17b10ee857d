//! Workloads that work file by file: in rounds, over threads, each round followed by the yardstick
//! if requested.

use std::ops::Range;
use std::time::Duration;

use device::{Clock, SystemClock};

use super::files::Files;
use super::meter::histogram;
use super::report::{Comparison, Report};
use super::tap::{self, Notes, Turn};
use super::volume::Volume;
use super::yardstick::Yardstick;
use super::{Run, memory, rodeh};
use crate::cli::Workload;
use hdrhistogram::Histogram;
use program::failure::Result;

/// Files created between two replays while a volume is filled.
const FILL_AT_ONCE: u64 = 50_000;

/// Operations between two checks for Ctrl-C and updates of the progress bar.
const STRIDE: u64 = 1024;

/// Beside a yardstick, one operation out of this many is timed by itself: reading the clock twice
/// costs as much as a lookup.
const SAMPLE: u64 = 8;

/// Bytes of notes per operation, more than any needs on average.
const NOTE_BYTES: usize = 512;

/// Notes per operation, likewise.
const NOTES: usize = 6;

/// Whether a workload's record operations can be done on an ordered map.
pub(super) fn has_yardstick(workload: Workload) -> bool {
    !matches!(
        workload,
        Workload::Clone
            | Workload::ClonesScale
            | Workload::CloneLookups
            | Workload::Counts
            | Workload::CreateLatency
            | Workload::CreateScattered
            | Workload::Recover
            | Workload::Reopen
            | Workload::TwoThreads
            | Workload::RecoverScattered
            | Workload::CheckpointStall
            | Workload::ClusterSearch
            | Workload::GroupCommit
            | Workload::Search
            | Workload::SearchClones
            | Workload::Postmark
    ) && !rodeh::is_rodeh(workload)
}

/// What one thread measured in a round.
struct Share {
    latencies: Histogram<u64>,
    operations: u64,
    notes: Notes,
}

pub(super) fn run(run: &Run<'_>, mut volume: Volume) -> Result<Report> {
    let args = run.args;
    let clock = SystemClock::new();
    let files = Files::new(&volume, args.files, args.workload)?;
    let creates = matches!(args.workload, Workload::CreateFlat | Workload::CreateDeep);
    let mut yardstick = args.yardstick.then(Yardstick::default);
    if yardstick.is_some() {
        memory::touch(args.files);
    }
    if !creates {
        fill(run, &volume, &files, yardstick.as_mut(), &clock)?;
    }
    let mut order = order(args.workload, args.files, &files);
    order.truncate(args.rodeh.operations.map_or(usize::MAX, |count| count as usize));
    let rounds = if args.yardstick { args.rounds() } else { 1 };
    run.bar.set_length(order.len() as u64);
    let mut latencies = histogram();
    let mut comparison = Comparison::default();
    let (mut operations, mut busy) = (0, Duration::ZERO);
    for round in 0..rounds {
        let part = slice(&order, round, rounds);
        if let Some(tap) = volume.tap() {
            tap::prepare(part.len() * NOTES, part.len() * NOTE_BYTES);
            tap.turn(Turn::On);
        }
        let start = clock.monotonic();
        let shares = on_threads(run, &files, part, &clock)?;
        let ours = clock.monotonic().saturating_sub(start);
        if let Some(tap) = volume.tap() {
            tap.turn(Turn::Off);
        }
        let done: u64 = shares.iter().map(|share| share.operations).sum();
        for share in &shares {
            latencies.add(&share.latencies).expect("invariant: both have the same shape");
        }
        if let Some(yardstick) = &mut yardstick {
            let notes: Vec<Notes> = shares.into_iter().map(|share| share.notes).collect();
            comparison.add(done, ours, yardstick.replay(&notes, &clock));
        }
        operations += done;
        busy += ours;
        run.check()?;
    }
    let rss_bytes = memory::resident_bytes();
    let (bytes_written, bytes_on_disk) = volume.close()?;
    Ok(Report {
        operations,
        seconds: busy,
        latencies,
        bytes_on_disk,
        bytes_written,
        rss_bytes,
        comparison: args.yardstick.then_some(comparison),
        ..Report::new(args, &volume)
    })
}

/// Creates the files that other workloads need, in the ordered map, too.
pub(super) fn fill(
    run: &Run<'_>,
    volume: &Volume,
    files: &Files,
    mut yardstick: Option<&mut Yardstick>,
    clock: &dyn Clock,
) -> Result<()> {
    run.bar.set_message("filling");
    let mut next = 0;
    while next < run.args.files {
        if let Some(tap) = volume.tap() {
            tap.turn(Turn::On);
        }
        let end = run.args.files.min(next + FILL_AT_ONCE);
        for file in next..end {
            files.create(file)?;
        }
        if let Some(tap) = volume.tap() {
            tap.turn(Turn::Off);
        }
        if let Some(yardstick) = yardstick.as_deref_mut() {
            yardstick.replay(&[tap::take()], clock);
        }
        run.check()?;
        next = end;
    }
    run.bar.set_message("");
    Ok(())
}

/// The numbers of the files (of the directories, for `list`) in the order of the work.
fn order(workload: Workload, count: u64, files: &Files) -> Vec<u64> {
    let count = if workload == Workload::List { files.directories() } else { count };
    let mut order: Vec<u64> = (0..count).collect();
    if !matches!(workload, Workload::CreateFlat | Workload::CreateDeep | Workload::List) {
        fastrand::Rng::with_seed(7).shuffle(&mut order);
    }
    order
}

fn slice(order: &[u64], round: u64, rounds: u64) -> &[u64] {
    let at = |round: u64| (order.len() as u64 * round / rounds) as usize;
    &order[at(round)..at(round + 1)]
}

fn part(length: usize, thread: u64, threads: u64) -> Range<usize> {
    let at = |thread: u64| (length as u64 * thread / threads) as usize;
    at(thread)..at(thread + 1)
}

fn on_threads(
    run: &Run<'_>,
    files: &Files,
    numbers: &[u64],
    clock: &SystemClock,
) -> Result<Vec<Share>> {
    let threads = run.args.threads();
    if threads == 1 {
        return Ok(vec![work(run, files, numbers, clock)?]);
    }
    device::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|thread| {
                let numbers = &numbers[part(numbers.len(), thread, threads)];
                scope.spawn(move || work(run, files, numbers, clock))
            })
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

fn work(run: &Run<'_>, files: &Files, numbers: &[u64], clock: &SystemClock) -> Result<Share> {
    let (workload, compared) = (run.args.workload, run.args.yardstick);
    let every = if compared { SAMPLE } else { 1 };
    let mut latencies = histogram();
    let mut operations = 0;
    let mut before = clock.monotonic();
    for (index, &number) in (0_u64..).zip(numbers) {
        let timed = index.is_multiple_of(every);
        if timed && compared {
            before = clock.monotonic();
        }
        operations += files.work(workload, number)?;
        if timed {
            let after = clock.monotonic();
            let nanos = after.saturating_sub(before).as_nanos() as u64;
            latencies.record(nanos).expect("invariant: the histogram grows");
            before = after;
        }
        if index % STRIDE == STRIDE - 1 {
            run.bar.inc(STRIDE);
            run.check()?;
        }
    }
    Ok(Share { latencies, operations, notes: tap::take() })
}
