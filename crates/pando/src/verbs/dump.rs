//! `pando dump` and `pando load`: metadata as JSON lines.

use std::io::{self, BufRead, IsTerminal, Read};
use std::sync::atomic::{AtomicBool, Ordering};

use client::Connection;
use transfer::Loader;
use wire::{Answer, Body, Call, Failure, FailureKind, Received};

use super::stream::report_received;
use crate::cli::{DumpArgs, LoadArgs};
use crate::failure::Result;
use crate::output::Output;
use crate::place::Place;
use crate::{interrupt, session};

/// Name of the snapshot that a load takes.
const LOADED: &[u8] = b"loaded";
/// Longest line: a path in two forms, and 256 KiB of extended attributes in hexadecimal.
const LINE_BYTES_MAX: u64 = 4 << 20;
/// Bytes of the stream in one message.
const PART_BYTES: usize = 256 << 10;

/// `pando dump`.
pub(crate) fn dump(args: &DumpArgs, output: &mut Output) -> Result<()> {
    let place = Place::reading(&args.dir)?;
    let call = Call::Dump { path: &place.inner, memory: args.memory };
    let answer = session::call(&place, &call, &mut |body| match body {
        Body::Data(bytes) => output.contents(&bytes.0),
        _ => Ok(()),
    })?;
    match answer {
        Answer::Nothing => Ok(()),
        other => Err(session::unexpected(&other)),
    }
}

/// `pando load`.
pub(crate) fn load(args: &LoadArgs, output: &mut Output) -> Result<()> {
    let place = Place::to_change(&args.dst)?;
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
        feed(&mut connection, &interrupted)
    });
    let received = received.map_err(|failure| session::Target::with_typed_path(&place, failure))?;
    report_received(&place, &received, output)
}

/// Hands the lines to the daemon, as a stream.
fn feed(connection: &mut Connection, interrupted: &AtomicBool) -> Result<Received> {
    let (mut loader, mut input) = (Loader::default(), io::stdin().lock());
    let (mut line, mut stream) = (Vec::new(), Vec::new());
    while !interrupted.load(Ordering::Relaxed) {
        line.clear();
        let read = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        let length = read.map_err(|error| {
            Failure::new(FailureKind::Other, format!("cannot read the dump: {error}"))
                .hint("check the file or the program that standard input is from")
        })?;
        if length == 0 {
            break;
        }
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        loader.line(line, LOADED, &mut stream).map_err(|error| {
            let failure = Failure::new(FailureKind::Invalid, error.to_string());
            failure.hint("correct this line, or dump the snapshot again")
        })?;
        if stream.len() >= PART_BYTES {
            connection.ask(Call::Receive { bytes: &stream })?;
            stream.clear();
        }
    }
    if !loader.is_complete() {
        let message = "the dump ends before its last line; nothing of it is visible";
        return Err(Failure::new(FailureKind::Invalid, message).hint("load all of it"));
    }
    connection.ask(Call::Receive { bytes: &stream })?;
    match connection.ask(Call::ReceiveClose)? {
        Answer::Received(received) => Ok(received),
        other => Err(session::unexpected(&other)),
    }
}
