//! `pando replay`: makes the calls of a trace in a directory, and reports latencies and
//! differences.

use std::time::Duration;

use device::SystemClock;
use serde_json::{Value, json};
use trace::{End, Percentiles};
use wire::{Failure, FailureKind};

use crate::cli::{ReplayArgs, Timing};
use crate::failure::Result;
use crate::interrupt;
use crate::output::{self, Output, number};
use crate::replay::{Learned, Outcome, Prepared, Replay};

const UNIT: &str = "calls";

pub(crate) fn run(args: &ReplayArgs, output: &mut Output) -> Result<()> {
    device::raise_descriptor_limit();
    let clock = SystemClock::new();
    let interrupted = interrupt::flag()?;
    let replay = Replay {
        file: &args.file,
        dir: &args.dir,
        threads: args.threads,
        as_recorded: args.timing == Timing::AsRecorded,
        is_privileged: args.privileged,
        memory: usize::try_from(args.memory).unwrap_or(usize::MAX),
        clock: &clock,
        interrupted: &interrupted,
    };
    let learned = replay.learn()?;
    remark(&learned, output);
    if args.prepare {
        let bar = output.progress("names");
        let prepared = replay.prepare(&learned, &bar);
        bar.finish_and_clear();
        show_prepared(&prepared?, output)?;
        if args.prepare_only {
            return Ok(());
        }
    }
    let bar = output.progress(UNIT);
    Output::progress_total(&bar, UNIT, learned.events);
    let ran = replay.run(&learned, &bar);
    bar.finish_and_clear();
    let (outcome, took, was_interrupted) = ran?;
    show(args, &learned, (&outcome, took), output)?;
    if was_interrupted {
        return Err(Failure::new(
            FailureKind::Interrupted,
            "interrupted; the rest is not replayed",
        )
        .hint("what was replayed stays in the directory"));
    }
    match outcome.differences() {
        differing @ 1.. if args.strict => {
            let results = output::count(differing, "result differs", "results differ");
            Err(Failure::new(FailureKind::Other, format!("{results} from the recorded ones"))
                .hint("without --strict differences are reported only"))
        }
        _ => Ok(()),
    }
}

fn remark(learned: &Learned, output: &mut Output) {
    match learned.end {
        End::Whole => {}
        End::DiskFull => output
            .remark("the trace ends early: the disk of its file was full, or it had its limit"),
        End::Cut => output
            .remark("the trace has no end: its mount or its machine died, or the file was cut"),
    }
    if learned.dropped > 0 {
        let events = output::count(learned.dropped, "call", "calls");
        output.remark(&format!("{events} were not recorded: some names may be unknown"));
    }
}

fn show_prepared(prepared: &Prepared, output: &mut Output) -> Result<()> {
    output.object(&json!({
        "prepared": prepared.names,
        "bytes": prepared.bytes,
        "unreached": prepared.unreached,
        "left_out": prepared.left_out,
    }))?;
    output.line(&format!(
        "prepared {}, {}{}",
        output::count(prepared.names, "name", "names"),
        output::size(prepared.bytes),
        if prepared.unreached + prepared.left_out > 0 {
            format!("; {} could not be placed", prepared.unreached + prepared.left_out)
        } else {
            String::new()
        }
    ))
}

/// Percentiles in microseconds, and the histogram that they are of.
fn of_percentiles(took: &Percentiles) -> Value {
    let micros = |nanos: u64| nanos as f64 / 1e3;
    json!({
        "count": took.count(),
        "mean_us": took.mean() / 1e3,
        "p50_us": micros(took.at(50.0)),
        "p90_us": micros(took.at(90.0)),
        "p99_us": micros(took.at(99.0)),
        "p999_us": micros(took.at(99.9)),
        "max_us": micros(took.most()),
        "histogram": histogram(took),
    })
}

/// How many took less than each power of two of nanoseconds, in microseconds, and not less than the
/// one before.
pub(super) fn histogram(took: &Percentiles) -> Value {
    let bucket =
        |(below, count): &(u64, u64)| json!({ "below_us": *below as f64 / 1e3, "count": count });
    took.histogram().iter().map(bucket).collect()
}

fn show(
    args: &ReplayArgs,
    learned: &Learned,
    (outcome, took): (&Outcome, Duration),
    output: &mut Output,
) -> Result<()> {
    let (made, seconds) = (outcome.made(), took.as_secs_f64());
    let rate = made as f64 / seconds.max(1e-9);
    if output.is_json() {
        let calls: serde_json::Map<String, Value> = outcome
            .took
            .iter()
            .map(|(call, took)| (call.name().to_owned(), of_percentiles(took)))
            .collect();
        let left_out: serde_json::Map<String, Value> =
            outcome.left_out.iter().map(|(call, n)| (call.name().to_owned(), json!(n))).collect();
        return output.object(&json!({
            "trace": args.file.to_string_lossy(),
            "directory": args.dir.to_string_lossy(),
            "threads": args.threads,
            "timing": if args.timing == Timing::Fast { "fast" } else { "as-recorded" },
            "events": learned.events,
            "calls": made,
            "seconds": seconds,
            "per_second": rate,
            "by_call": calls,
            "implied_open": of_percentiles(&outcome.opens),
            "late": of_percentiles(&outcome.late),
            "left_out": left_out,
            "unknown": outcome.unknown,
            "differences": {
                "failed": outcome.failed,
                "succeeded": outcome.succeeded,
                "other_error": outcome.other,
                "first": first(outcome),
            },
        }));
    }
    let calls = output::count(made, "call", "calls");
    output.line(&format!("{calls} in {seconds:.2} s ({}/s)", number(rate as u64)))?;
    for (call, took) in &outcome.took {
        line(call.name(), took, output)?;
    }
    line("open (not in trace)", &outcome.opens, output)?;
    line("late", &outcome.late, output)?;
    for (call, count) in &outcome.left_out {
        output.line(&format!("{:<20}{:>10} left out", call.name(), number(*count)))?;
    }
    if outcome.unknown > 0 {
        let calls = output::count(outcome.unknown, "call", "calls");
        output.line(&format!("{calls} on names that the trace does not show"))?;
    }
    differences(outcome, output)
}

fn line(name: &str, took: &Percentiles, output: &mut Output) -> Result<()> {
    if took.count() == 0 {
        return Ok(());
    }
    let [p50, p99, most] = [took.at(50.0), took.at(99.0), took.most()].map(|n| n as f64 / 1e3);
    output.line(&format!(
        "{name:<20}{:>10}   p50 {p50:>9.1} us   p99 {p99:>9.1} us   max {most:>9.1} us",
        number(took.count()),
    ))
}

fn first(outcome: &Outcome) -> Vec<Value> {
    let object = |difference: &crate::replay::Difference| {
        let mut object = json!({
            "event": difference.number,
            "call": difference.call.name(),
            "recorded": difference.recorded.name(),
            "here": difference.here.name(),
        });
        output::put_bytes(&mut object, "name", &difference.name);
        object
    };
    outcome.first.iter().map(object).collect()
}

fn differences(outcome: &Outcome, output: &mut Output) -> Result<()> {
    if outcome.differences() == 0 {
        return output.line("all results are the recorded ones");
    }
    output.line(&format!(
        "results that differ: {} failed, {} succeeded, {} failed otherwise",
        number(outcome.failed),
        number(outcome.succeeded),
        number(outcome.other),
    ))?;
    for difference in &outcome.first {
        output.line(&format!(
            "  event {}: {} {:?}: recorded {}, here {}",
            difference.number,
            difference.call.name(),
            String::from_utf8_lossy(&difference.name),
            difference.recorded.name(),
            difference.here.name(),
        ))?;
    }
    Ok(())
}
