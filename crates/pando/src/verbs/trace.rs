//! `pando trace`: what a trace has, and conversions.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use device::{Random, SystemRandom};
use format::trace::Header;
use serde_json::{Value, json};
use trace::generate::{Mix, Plan, generate};
use trace::{Anonymiser, Keep, OfCall, Summary, TraceError, TraceReader, TraceWriter};
use wire::{Failure, FailureKind};

use crate::cli::{MixArg, TraceVerb};
use crate::failure::{self, Result};
use crate::output::{self, Output, number};
use crate::replay::{open, wrong};

pub(crate) fn run(verb: &TraceVerb, output: &mut Output) -> Result<()> {
    match verb {
        TraceVerb::Info { file } => info(file, output),
        TraceVerb::Convert { input, output: to } => convert(input, to),
        TraceVerb::Anonymise { input, output: to, keep_lengths, keep_extensions, key } => {
            let keep = Keep { lengths: *keep_lengths, extensions: *keep_extensions };
            anonymise(input, to, keep, *key)
        }
        TraceVerb::Generate { mix, operations, files, seed, file } => {
            let mix = match mix {
                MixArg::Hp => Mix::Hp,
                MixArg::Linkedin => Mix::Linkedin,
            };
            let files = files.unwrap_or(operations / 10);
            make(&Plan { mix, operations: *operations, files, seed: *seed }, file)
        }
    }
}

fn info(path: &Path, output: &mut Output) -> Result<()> {
    let mut reader = open(path)?;
    let mut summary = Summary::default();
    let end = reader.read_all(|event| {
        summary.add(event);
        Ok::<(), TraceError>(())
    });
    // What was read is shown also if the rest is damaged.
    let header = *reader.header();
    let name = end.as_ref().map_or("damaged", |end| end.name());
    let (first, last) = summary.span.unwrap_or_default();
    let seconds = last.saturating_sub(first) as f64 / 1e9;
    let calls: serde_json::Map<String, Value> = summary
        .calls
        .iter()
        .map(|(call, of)| (call.name().to_owned(), of_call(of, summary.events())))
        .collect();
    output.object(&json!({
        "trace": path.to_string_lossy(),
        "started": output::time_rfc3339(header.started),
        "anonymised": header.anonymised,
        "generated": header.generated,
        "opens": header.opens,
        "events": summary.events(),
        "dropped": reader.dropped(),
        "end": name,
        "seconds": seconds,
        "users": summary.users.len(),
        "processes": summary.processes.len(),
        "inodes": summary.nodes.len(),
        "bytes": reader.position(),
        "calls": calls,
    }))?;
    show(&header, &summary, (reader.dropped(), name, seconds), output)?;
    end.map(drop).map_err(|error| wrong(path, &error))
}

fn show(
    header: &Header,
    summary: &Summary,
    (dropped, end, seconds): (u64, &str, f64),
    output: &mut Output,
) -> Result<()> {
    let mut kinds = vec![if header.generated { "generated" } else { "recorded" }];
    kinds.extend(header.anonymised.then_some("names replaced"));
    kinds.extend(header.opens.then_some("with opens"));
    output.line(&format!("trace     {}", kinds.join(", ")))?;
    output.line(&format!("began     {}", output::time_local(header.started)))?;
    output.line(&format!("lasted    {seconds:.3} s, end: {end}"))?;
    output.line(&format!("events    {}, {} dropped", number(summary.events()), number(dropped)))?;
    output.line(&format!(
        "by        {}, {}; {}",
        output::count(summary.users.len() as u64, "user", "users"),
        output::count(summary.processes.len() as u64, "process", "processes"),
        output::count(summary.nodes.len() as u64, "inode", "inodes"),
    ))?;
    for (call, of) in &summary.calls {
        let share = of.count() as f64 * 100.0 / (summary.events() as f64).max(1.0);
        let refused: u64 = of.ended.iter().skip(1).map(|(_, count)| count).sum();
        let [p50, p99] = [50.0, 99.0].map(|percent| of.took.at(percent) as f64 / 1e3);
        let bytes = if of.bytes > 0 { output::size(of.bytes) } else { String::new() };
        output.line(&format!(
            "{:<12}{:>12} {share:>5.1}%  {:>8} refused   p50 {p50:>8.1} us   p99 {p99:>8.1} us  \
             {bytes}",
            call.name(),
            number(of.count()),
            number(refused),
        ))?;
    }
    Ok(())
}

fn of_call(of: &OfCall, all: u64) -> Value {
    let micros = |nanos: u64| nanos as f64 / 1e3;
    let ended: serde_json::Map<String, Value> =
        of.ended.iter().map(|(ended, n)| (ended.name().to_owned(), json!(n))).collect();
    json!({
        "count": of.count(),
        "share": of.count() as f64 / (all as f64).max(1.0),
        "ended": ended,
        "bytes": of.bytes,
        "mean_us": of.took.mean() / 1e3,
        "p50_us": micros(of.took.at(50.0)),
        "p90_us": micros(of.took.at(90.0)),
        "p99_us": micros(of.took.at(99.0)),
        "p999_us": micros(of.took.at(99.9)),
        "max_us": micros(of.took.most()),
    })
}

fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The input: a file, or standard input.
fn input(path: &Path) -> Result<Box<dyn BufRead>> {
    if is_standard(path) {
        return Ok(Box::new(BufReader::new(std::io::stdin())));
    }
    let file = OpenOptions::new().read(true).open(path);
    let file = file.map_err(|error| failure::io("read", path, &error))?;
    Ok(Box::new(BufReader::with_capacity(1 << 20, file)))
}

/// The new file, or standard output. It is for its owner alone: names are in it.
fn new_file(path: &Path) -> Result<BufWriter<Box<dyn Write>>> {
    let out: Box<dyn Write> = if is_standard(path) {
        Box::new(std::io::stdout())
    } else {
        let mut options = OpenOptions::new();
        let file: std::io::Result<File> =
            options.write(true).create_new(true).mode(0o600).open(path);
        Box::new(file.map_err(|error| failure::io("create", path, &error))?)
    };
    Ok(BufWriter::with_capacity(1 << 20, out))
}

fn convert(from: &Path, to: &Path) -> Result<()> {
    let extension = from.extension().and_then(|end| end.to_str());
    let mut reading = input(from)?;
    let is_json = if let Some("json" | "jsonl") = extension {
        true
    } else {
        let begins = reading.fill_buf().map_err(|error| failure::io("read", from, &error))?;
        begins.first() == Some(&b'{')
    };
    let done = if is_json { from_json(reading, to) } else { to_json(reading, to) };
    match done {
        Err(Wrong::Trace(TraceError::Io(error))) if is_broken_pipe(&error) => Ok(()),
        Err(Wrong::Trace(error)) => Err(wrong(from, &error)),
        Err(Wrong::Failure(failure)) => Err(failure),
        Ok(()) => Ok(()),
    }
}

fn is_broken_pipe(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::BrokenPipe
}

/// What ends a conversion.
enum Wrong {
    Trace(TraceError),
    Failure(Failure),
}

impl From<TraceError> for Wrong {
    fn from(error: TraceError) -> Wrong {
        Wrong::Trace(error)
    }
}

impl From<std::io::Error> for Wrong {
    fn from(error: std::io::Error) -> Wrong {
        Wrong::Trace(error.into())
    }
}

impl From<Failure> for Wrong {
    fn from(failure: Failure) -> Wrong {
        Wrong::Failure(failure)
    }
}

fn to_json(input: impl Read, to: &Path) -> std::result::Result<(), Wrong> {
    let mut reader = TraceReader::new(input)?;
    let mut out = new_file(to)?;
    writeln!(out, "{}", trace::json::of_header(reader.header()))?;
    reader.read_all(|event| {
        writeln!(out, "{}", trace::json::of_event(event)).map_err(TraceError::from)
    })?;
    let dropped = json!({ "dropped": reader.dropped() });
    writeln!(out, "{dropped}")?;
    out.flush()?;
    Ok(())
}

fn from_json(input: Box<dyn BufRead>, to: &Path) -> std::result::Result<(), Wrong> {
    let mut writer = None;
    for (at, line) in input.lines().enumerate() {
        let (text, number) = (line?, at as u64 + 1);
        if text.trim().is_empty() {
            continue;
        }
        let line = trace::json::Line::parse(number, &text)?;
        match &mut writer {
            None => writer = Some(TraceWriter::new(new_file(to)?, &line.header()?)?),
            Some(writer) => match line.dropped()? {
                Some(dropped) => writer.set_dropped(dropped),
                None => writer.push(&line.event()?)?,
            },
        }
    }
    let empty = || {
        Failure::new(FailureKind::Invalid, "there is no line in the input")
            .hint("give it what `pando trace convert` prints")
    };
    writer.ok_or_else(empty)?.end()?;
    Ok(())
}

fn anonymise(from: &Path, to: &Path, keep: Keep, key: Option<[u8; 16]>) -> Result<()> {
    let mut reader = open(from)?;
    let random = || {
        let mut bytes = [0; 16];
        SystemRandom.fill(&mut bytes);
        bytes
    };
    let mut anonymiser = Anonymiser::new(key.unwrap_or_else(random), keep);
    let header = anonymiser.header(reader.header(), random());
    let done = TraceWriter::new(new_file(to)?, &header).and_then(|mut writer| {
        reader.read_all(|event| anonymiser.event(event, |event| writer.push(event)))?;
        writer.set_dropped(reader.dropped());
        writer.end()
    });
    done.map(drop).map_err(|error| wrong(from, &error))
}

fn make(plan: &Plan, to: &Path) -> Result<()> {
    let made = TraceWriter::new(new_file(to)?, &trace::generate::header(plan)).and_then(|writer| {
        let mut writer = writer;
        generate(plan, &mut |event| writer.push(event))?;
        writer.end()
    });
    made.map(drop).map_err(|error| wrong(to, &error))
}
