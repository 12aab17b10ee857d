//! `pando send` and `pando receive`: snapshots as streams, from one volume to another.

use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use client::Connection;
use serde_json::json;
use wire::{Answer, Body, Call, Failure, FailureKind, Received, Receiving, Sent};

use crate::cli::{ReceiveArgs, SendArgs};
use crate::failure::Result;
use crate::interrupt::{self, Input};
use crate::output::{self, Output, printable, size};
use crate::place::{Last, VolumePath};
use crate::session;

/// Bytes of the stream in one message.
const PART_BYTES: usize = 512 << 10;

/// `pando send`.
pub(crate) fn send(args: &SendArgs, output: &mut Output) -> Result<()> {
    let place = VolumePath::reading(&args.snapshot, Last::Target)?;
    let base =
        args.from.as_deref().map(|path| VolumePath::reading(path, Last::Target)).transpose()?;
    if base.as_ref().is_some_and(|base| base.volume != place.volume) {
        let message = "the base is in another volume";
        let failure = Failure::new(FailureKind::Invalid, message).at(place.typed());
        return Err(failure.hint("name the snapshot of this volume that the receiver has"));
    }
    let is_terminal = io::stdout().is_terminal();
    if is_terminal && !args.dry_run {
        let message = "a stream is not for a terminal";
        return Err(Failure::new(FailureKind::Invalid, message)
            .hint("send it to a file, or through a pipe to `pando receive`"));
    }
    let call = Call::Send {
        base: base.as_ref().map(|base| &base.inner[..]),
        snapshot: &place.inner,
        token: args.resume.as_deref(),
        memory: args.memory,
        dry_run: args.dry_run,
        hold: (!args.no_hold).then_some(args.hold.as_bytes()),
    };
    let bar = output.progress("bytes");
    let mut out = io::stdout().lock();
    let mut part = |body| {
        if let Body::Data(bytes) = body {
            out.write_all(&bytes.0).map_err(|error| cannot_write(&error, args))?;
            bar.inc(bytes.0.len() as u64);
        }
        Ok(())
    };
    let answer = match &base {
        Some(base) => session::call(&[&place, base], &call, &mut part),
        None => session::call(&place, &call, &mut part),
    };
    bar.finish_and_clear();
    let sent = match answer? {
        Answer::Sent(sent) => sent,
        other => return Err(session::unexpected(&other)),
    };
    out.flush().map_err(|error| cannot_write(&error, args))?;
    drop(out);
    report_sent(args, &sent, output)
}

fn cannot_write(error: &io::Error, args: &SendArgs) -> Failure {
    let message = format!("cannot write the stream to standard output: {error}");
    let held = if args.from.is_some() { "snapshot and its base stay" } else { "snapshot stays" };
    Failure::new(FailureKind::Interrupted, message).hint(format!(
        "`pando receive --token DST` prints the token with which it continues; until then the \
         {held} held"
    ))
}

/// Standard output has the stream: what was sent is reported on standard error, except of a dry
/// run.
fn report_sent(args: &SendArgs, sent: &Sent, output: &mut Output) -> Result<()> {
    let Sent { records, bytes, stream_bytes, held, released } = *sent;
    let text = format!(
        "{}, {} of contents, {}{}",
        output::count(records, "step", "steps"),
        size(bytes),
        if args.dry_run { "about " } else { "" },
        size(stream_bytes),
    );
    if args.dry_run {
        output
            .object(&json!({ "records": records, "bytes": bytes, "stream_bytes": stream_bytes }))?;
        return output.line(&text);
    }
    let released = match released {
        0 => String::new(),
        some => format!(
            "; released the hold {} on {}",
            printable(args.hold.as_bytes()),
            output::count(some, "older snapshot", "older snapshots"),
        ),
    };
    output.remark(&format!("sent {text}{released}"));
    if !held && !args.no_hold {
        output.remark(
            "the snapshot is not held: the next increment needs it, so do not delete it \
             (only its owner, without limits, holds it)",
        );
    }
    Ok(())
}

/// `pando receive`.
pub(crate) fn receive(args: &ReceiveArgs, output: &mut Output) -> Result<()> {
    let place = VolumePath::to_change(&args.dst, Last::Link)?;
    if args.token {
        return token(&place, output);
    }
    if io::stdin().is_terminal() {
        let message = "a stream is read from standard input, which is a terminal";
        return Err(Failure::new(FailureKind::Invalid, message)
            .hint("`pando send DIR@SNAPSHOT | pando receive DST`"));
    }
    let interrupted = interrupt::flag()?;
    let name = args.name.as_deref().map(OsStrExt::as_bytes);
    let (force, hold) = (args.force, !args.no_hold);
    let open = Call::ReceiveOpen { path: &place.inner, name, force, hold };
    let bar = output.progress("bytes");
    let received = session::with(&place.volume, |mut connection| {
        connection.ask(open.clone())?;
        stream(&mut connection, &bar, &interrupted)
    });
    bar.finish_and_clear();
    let received = received.map_err(|failure| session::Target::with_typed_path(&place, failure))?;
    report_received(&place, &received, output)
}

/// Hands the stream to the daemon.
fn stream(
    connection: &mut Connection,
    bar: &indicatif::ProgressBar,
    interrupted: &Arc<AtomicBool>,
) -> Result<Received> {
    let unreadable = |error: &io::Error| {
        let hint = "what arrived is kept: `pando receive --token DST` prints how to resume";
        Failure::new(FailureKind::Other, format!("cannot read the stream: {error}")).hint(hint)
    };
    let mut input = Input::standard(interrupted).map_err(|error| unreadable(&error))?;
    let mut buffer = vec![0; PART_BYTES];
    while !interrupted.load(Ordering::Relaxed) {
        let length = match input.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) if interrupted.load(Ordering::Relaxed) => break,
            Err(error) => return Err(unreadable(&error)),
        };
        match connection.ask(Call::Receive { bytes: &buffer[..length] })? {
            Answer::Receiving(Receiving { bytes, expected_bytes, .. }) => {
                if expected_bytes > 0 && bar.length().is_none() {
                    Output::progress_total(bar, "bytes", expected_bytes);
                }
                bar.set_position(bytes);
            }
            other => return Err(session::unexpected(&other)),
        }
    }
    match connection.ask(Call::ReceiveClose)? {
        Answer::Received(received) => Ok(received),
        other => Err(session::unexpected(&other)),
    }
}

pub(super) fn report_received(
    place: &VolumePath,
    received: &Received,
    output: &mut Output,
) -> Result<()> {
    let mut object = json!({ "records": received.records, "bytes": received.bytes });
    output::put_bytes(&mut object, "path", place.typed());
    output::put_bytes(&mut object, "snapshot", &received.snapshot.0);
    if let Some(base) = &received.base {
        output::put_bytes(&mut object, "base", &base.0);
    }
    output.object(&object)?;
    output.line(&format!(
        "{} is {}: received {}, {} of contents",
        printable(place.typed()),
        printable(&received.snapshot.0),
        output::count(received.records, "step", "steps"),
        size(received.bytes),
    ))
}

fn token(place: &VolumePath, output: &mut Output) -> Result<()> {
    match session::ask(place, &Call::ReceiveToken { path: &place.inner })? {
        Answer::Token(Some(token)) => {
            output.object(&json!({ "token": token }))?;
            output.line(&token)
        }
        Answer::Token(None) => {
            let message = "no stream to this directory was interrupted";
            let failure = Failure::new(FailureKind::NotFound, message).at(place.typed());
            Err(failure.hint("send the snapshot from its beginning, without --resume"))
        }
        other => Err(session::unexpected(&other)),
    }
}
