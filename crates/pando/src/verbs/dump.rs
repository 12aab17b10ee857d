//! `pando dump` and `pando load`: metadata as JSON lines or in columns. The daemon knows lines
//! only: the command makes columns of them.

use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use client::Connection;
use transfer::{COLUMNS_MAGIC, ColumnWriter, Loader};
use wire::{Answer, Body, Call, Failure, FailureKind, Received, STREAM_MEMORY};

use super::stream::report_received;
use crate::cli::{DumpArgs, DumpFormat, LoadArgs};
use crate::failure::Result;
use crate::interrupt::{self, Input};
use crate::output::Output;
use crate::place::{Last, VolumePath};
use crate::session;

/// Name of the snapshot that a load takes.
const LOADED: &[u8] = b"loaded";
/// Longest line: a path in two forms, and 256 KiB of extended attributes in hexadecimal.
const LINE_BYTES_MAX: u64 = 4 << 20;
/// Bytes of the stream in one message.
const PART_BYTES: usize = 256 << 10;

/// `pando dump`.
pub(crate) fn dump(args: &DumpArgs, output: &mut Output) -> Result<()> {
    let place = VolumePath::reading(&args.dir, Last::Target)?;
    let call = Call::Dump { path: &place.inner, memory: args.memory };
    let mut columns = match args.format {
        DumpFormat::Lines => None,
        DumpFormat::Parquet => Some(Columns::new(args)?),
    };
    let answer = session::call(&place, &call, &mut |body| match (body, &mut columns) {
        (Body::Data(bytes), None) => output.contents(&bytes.0),
        (Body::Data(bytes), Some(columns)) => columns.add(&bytes.0, output),
        _ => Ok(()),
    })?;
    match answer {
        Answer::Nothing => columns.map_or(Ok(()), Columns::finish),
        other => Err(session::unexpected(&other)),
    }
}

/// Makes columns of the bytes of lines, and prints them.
struct Columns {
    writer: ColumnWriter,
    /// The beginning of a line.
    begun: Vec<u8>,
}

impl Columns {
    fn new(args: &DumpArgs) -> Result<Columns> {
        if io::stdout().is_terminal() {
            let message = "a Parquet file is written to standard output, which is a terminal";
            return Err(Failure::new(FailureKind::Invalid, message)
                .hint("`pando dump --format parquet DIR > FILE`"));
        }
        let memory = usize::try_from(args.memory.unwrap_or(STREAM_MEMORY)).unwrap_or(usize::MAX);
        let writer = ColumnWriter::new(memory).map_err(|error| dump_failed(&error))?;
        Ok(Columns { writer, begun: Vec::new() })
    }

    fn add(&mut self, bytes: &[u8], output: &mut Output) -> Result<()> {
        let mut rest = bytes;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, more) = (&rest[..end], &rest[end + 1..]);
            let taken = if self.begun.is_empty() {
                self.writer.line(line)
            } else {
                self.begun.extend_from_slice(line);
                self.writer.line(&std::mem::take(&mut self.begun))
            };
            taken.map_err(|error| dump_failed(&error))?;
            rest = more;
        }
        self.begun.extend_from_slice(rest);
        let made = self.writer.take();
        if made.is_empty() { Ok(()) } else { output.contents(&made) }
    }

    /// Checks that the last line came, with which all was printed.
    fn finish(self) -> Result<()> {
        if self.writer.is_complete() && self.begun.is_empty() {
            return Ok(());
        }
        let message = "the daemon's dump ends before its last line: the file is not complete";
        Err(Failure::new(FailureKind::Protocol, message).hint("dump it again"))
    }
}

fn dump_failed(error: &transfer::Error) -> Failure {
    Failure::new(FailureKind::Other, error.to_string()).hint("dump it again")
}

/// `pando load`.
pub(crate) fn load(args: &LoadArgs, output: &mut Output) -> Result<()> {
    let place = VolumePath::to_change(&args.dst, Last::New)?;
    if io::stdin().is_terminal() {
        let message = "a dump is read from standard input, which is a terminal";
        return Err(Failure::new(FailureKind::Invalid, message)
            .hint("`pando load DST < LINES`, with the lines of `pando dump`"));
    }
    let interrupted = interrupt::flag()?;
    let open =
        Call::ReceiveOpen { path: &place.inner, name: Some(LOADED), force: false, hold: false };
    let received = session::with(&place.volume, |mut connection| {
        connection.ask(open.clone())?;
        feed(&mut connection, args.memory, &interrupted)
    });
    let received = received.map_err(|failure| {
        if interrupted.load(Ordering::Relaxed) {
            let message = "interrupted; nothing of the dump is visible";
            return Failure::new(FailureKind::Interrupted, message).hint("load it again");
        }
        session::Target::with_typed_path(&place, failure)
    })?;
    report_received(&place, &received, output)
}

fn unreadable(error: &io::Error) -> Failure {
    Failure::new(FailureKind::Other, format!("cannot read the dump: {error}"))
        .hint("check the file or the program that standard input is from")
}

/// Refuses a dump in columns.
fn refuse_columns(input: &mut BufReader<Input>) -> Result<()> {
    let start = input.fill_buf().map_err(|error| unreadable(&error))?;
    if !start.starts_with(COLUMNS_MAGIC) {
        return Ok(());
    }
    let message = "this is a Parquet file, and a dump is loaded from lines";
    let hint = "load the lines that `pando dump` prints without --format";
    Err(Failure::new(FailureKind::NotSupported, message).hint(hint))
}

/// Hands the lines to the daemon, as a stream.
fn feed(
    connection: &mut Connection,
    memory: u64,
    interrupted: &Arc<AtomicBool>,
) -> Result<Received> {
    let mut loader = Loader::new(usize::try_from(memory).unwrap_or(usize::MAX));
    let input = Input::standard(interrupted).map_err(|error| unreadable(&error))?;
    let mut input = BufReader::new(input);
    refuse_columns(&mut input)?;
    let (mut line, mut stream) = (Vec::new(), Vec::new());
    while !interrupted.load(Ordering::Relaxed) {
        line.clear();
        let read = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        match read {
            Ok(0) => break,
            Ok(_) => {}
            Err(_) if interrupted.load(Ordering::Relaxed) => break,
            Err(error) => return Err(unreadable(&error)),
        }
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        loader.line(line, LOADED, &mut stream).map_err(|error| {
            let failure = Failure::new(FailureKind::Invalid, error.to_string());
            failure.hint("correct this line, or dump the snapshot again")
        })?;
        if stream.len() >= PART_BYTES {
            for part in stream.chunks(PART_BYTES) {
                connection.ask(Call::Receive { bytes: part })?;
            }
            stream.clear();
        }
    }
    if !loader.is_complete() {
        let message = "the dump ends before its last line; nothing of it is visible";
        return Err(Failure::new(FailureKind::Invalid, message).hint("load all of it"));
    }
    // What waited for the last line may be more than a message holds.
    for part in stream.chunks(PART_BYTES) {
        connection.ask(Call::Receive { bytes: part })?;
    }
    match connection.ask(Call::ReceiveClose)? {
        Answer::Received(received) => Ok(received),
        other => Err(session::unexpected(&other)),
    }
}
