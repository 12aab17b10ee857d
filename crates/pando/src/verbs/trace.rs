//! `pando trace`: what a trace has, and conversions. A new file is visible once it is complete.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use device::{Random, SystemRandom};
use format::trace::Header;
use serde_json::{Value, json};
use trace::generate::{Mix, Plan, generate};
use trace::{Anonymiser, Distinct, Keep, OfCall, Summary, TraceError, TraceReader, TraceWriter};
use wire::{Failure, FailureKind};

use crate::cli::{MixArg, TraceVerb};
use crate::export::{Made, refuse_existing};
use crate::failure::{self, Result};
use crate::output::{self, Output, number};
use crate::replay::{open, wrong};
use crate::verbs::replay::histogram;

pub(crate) fn run(verb: &TraceVerb, output: &mut Output) -> Result<()> {
    match verb {
        TraceVerb::Info { file, memory } => {
            info(file, usize::try_from(*memory).unwrap_or(usize::MAX), output)
        }
        TraceVerb::Convert { input, output: to } => convert(input, to),
        TraceVerb::Anonymise { input, output: to, keep_lengths, keep_extensions, key, memory } => {
            let keep = Keep { lengths: *keep_lengths, extensions: *keep_extensions };
            anonymise((input, to), keep, *key, usize::try_from(*memory).unwrap_or(usize::MAX))
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

fn info(path: &Path, memory: usize, output: &mut Output) -> Result<()> {
    let mut reader = open(path)?;
    let mut summary = Summary::within(memory);
    let end = reader.read_all(|event| {
        summary.add(event);
        Ok::<(), TraceError>(())
    });
    // It shows the part that was read even if the rest is damaged.
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
        "users": summary.users.count(),
        "processes": summary.processes.count(),
        "inodes": summary.nodes.count(),
        "users_are_more": summary.users.is_more,
        "processes_are_more": summary.processes.is_more,
        "inodes_are_more": summary.nodes.is_more,
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
        distinct(&summary.users, "user", "users"),
        distinct(&summary.processes, "process", "processes"),
        distinct(&summary.nodes, "inode", "inodes"),
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

/// How many there are, or the least, where the memory was too small to count all.
fn distinct(found: &Distinct, one: &str, many: &str) -> String {
    let counted = output::count(found.count(), one, many);
    if found.is_more { format!("at least {counted}") } else { counted }
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
        "histogram": histogram(&of.took),
    })
}

fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The input: a file, or standard input.
fn input(path: &Path) -> Result<Box<dyn BufRead>> {
    if is_standard(path) {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = OpenOptions::new().read(true).open(path);
    let file = file.map_err(|error| failure::io("read", path, &error))?;
    Ok(Box::new(BufReader::with_capacity(1 << 20, file)))
}

/// The new file, or standard output. It is for its owner alone, because names are in it, and has no
/// name until it is complete.
struct NewFile {
    out: BufWriter<Box<dyn Write>>,
    made: Option<Made>,
}

impl NewFile {
    fn at(path: &Path) -> Result<NewFile> {
        let (mut out, mut made): (Box<dyn Write>, _) = (Box::new(io::stdout()), None);
        if !is_standard(path) {
            refuse_existing(path)?;
            let file = Made::create(path)?;
            out = Box::new(file.file()?);
            made = Some(file);
        }
        Ok(NewFile { out: BufWriter::with_capacity(1 << 20, out), made })
    }

    /// Everything was written: gives it its name.
    fn publish(mut self) -> Result<()> {
        self.out.flush().map_err(|error| unwritten(&error, self.made.as_ref().map(Made::path)))?;
        self.made.as_ref().map_or(Ok(()), Made::publish)
    }

    /// An error of writing, as one that is known from errors of reading.
    fn failed(&self, error: io::Error) -> io::Error {
        let path = self.made.as_ref().map(|made| made.path().to_owned());
        io::Error::new(error.kind(), Unwritten { error, path })
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes).map_err(|error| self.failed(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush().map_err(|error| self.failed(error))
    }
}

/// An error of the output, and its file.
#[derive(Debug)]
struct Unwritten {
    error: io::Error,
    path: Option<PathBuf>,
}

impl std::fmt::Display for Unwritten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Unwritten {}

fn unwritten(error: &io::Error, path: Option<&Path>) -> Failure {
    if let Some(path) = path {
        return failure::io("write", path, error);
    }
    Failure::new(failure::io_kind(error), format!("cannot write to standard output: {error}"))
        .hint("check the file or the program that reads standard output")
}

/// What a conversion ends with: of an output that its reader closed, without a failure.
fn ended(from: &Path, done: std::result::Result<(), Wrong>) -> Result<()> {
    match done {
        Ok(()) => Ok(()),
        Err(Wrong::Failure(failure)) => Err(failure),
        Err(Wrong::Trace(TraceError::Io(error))) => {
            let output = error.get_ref().and_then(|inner| inner.downcast_ref::<Unwritten>());
            match output {
                Some(_) if is_broken_pipe(&error) => Ok(()),
                Some(Unwritten { error, path }) => Err(unwritten(error, path.as_deref())),
                None => Err(wrong(from, &TraceError::Io(error))),
            }
        }
        Err(Wrong::Trace(error)) => Err(wrong(from, &error)),
    }
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
    ended(from, done)
}

fn is_broken_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
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

impl From<io::Error> for Wrong {
    fn from(error: io::Error) -> Wrong {
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
    let mut out = NewFile::at(to)?;
    writeln!(out, "{}", trace::json::of_header(reader.header()))?;
    reader.read_all(|event| {
        writeln!(out, "{}", trace::json::of_event(event)).map_err(TraceError::from)
    })?;
    let dropped = json!({ "dropped": reader.dropped() });
    writeln!(out, "{dropped}")?;
    // A reader that has closed its pipe is no failure: the error is that of a write.
    out.flush()?;
    Ok(out.publish()?)
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
            None => writer = Some(TraceWriter::new(NewFile::at(to)?, &line.header()?)?),
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
    Ok(writer.ok_or_else(empty)?.end()?.publish()?)
}

fn anonymise(
    (from, to): (&Path, &Path),
    keep: Keep,
    key: Option<[u8; 16]>,
    memory: usize,
) -> Result<()> {
    let mut reader = open(from)?;
    let random = || {
        let mut bytes = [0; 16];
        SystemRandom.fill(&mut bytes);
        bytes
    };
    let mut anonymiser = Anonymiser::new(key.unwrap_or_else(random), keep);
    let header = anonymiser.header(reader.header(), random());
    let mut copy = || -> std::result::Result<(), Wrong> {
        let mut writer = TraceWriter::new(NewFile::at(to)?, &header)?;
        reader.read_all(|event| {
            anonymiser.event(event, |event| writer.push(event))?;
            if anonymiser.memory_bytes() <= memory { Ok(()) } else { Err(exceeded(from, memory)) }
        })?;
        writer.set_dropped(reader.dropped());
        Ok(writer.end()?.publish()?)
    };
    ended(from, copy())
}

/// The failure of a trace with more names than the memory takes.
fn exceeded(from: &Path, memory: usize) -> Wrong {
    let message = format!("names of the trace take more than {memory} bytes of memory");
    Failure::new(FailureKind::Other, message)
        .at(from.as_os_str().as_encoded_bytes())
        .hint("give more by --memory")
        .into()
}

fn make(plan: &Plan, to: &Path) -> Result<()> {
    let make = || -> std::result::Result<(), Wrong> {
        let mut writer = TraceWriter::new(NewFile::at(to)?, &trace::generate::header(plan))?;
        generate(plan, &mut |event| writer.push(event))?;
        Ok(writer.end()?.publish()?)
    };
    ended(to, make())
}
