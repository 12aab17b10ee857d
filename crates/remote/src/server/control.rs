//! Carries a connection of the control socket: bytes both ways, as they come.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use device::{Clock, Timestamp};
use rpc::{Channel, ChannelError};
use wire::FRAME_BYTES_MAX;
use wire::remote::{FrameKind, put_head, split_head};

use super::ahead::Ahead;
use super::memory::Usage;
use super::pongs::pong_frame;
use super::volume::Served;

/// How long a client may be silent: it pings.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How long the daemon may take to read what a client sent.
const WRITE_WITHIN: Duration = Duration::from_secs(120);

/// Until when a client has its rights: TLS looks at its certificate at the beginning alone.
#[derive(Clone)]
pub(super) struct Term {
    until: Option<Timestamp>,
    clock: Arc<dyn Clock>,
}

impl Term {
    pub(super) fn of(channel: &Channel, clock: &Arc<dyn Clock>) -> Term {
        Term { until: channel.expires(), clock: Arc::clone(clock) }
    }

    /// Refuses everything after it.
    pub(super) fn check(&self) -> Result<(), ChannelError> {
        if self.until.is_some_and(|until| self.clock.now() > until) {
            let text = "the certificate of this client has expired";
            return Err(ChannelError::Unexpected(text.to_owned()));
        }
        Ok(())
    }
}

/// Carries until both sides are done, the client's rights end, or the volume is served no more.
pub(super) fn carry(
    volume: &Arc<Served>,
    (channel, term): (&Arc<Channel>, Term),
    stream: &UnixStream,
    usage: Arc<Usage>,
) -> Result<(), ChannelError> {
    let Some(_tunnel) = volume.tunnel(channel) else { return Err(ChannelError::Closed) };
    stream.set_write_timeout(Some(WRITE_WITHIN))?;
    let outgoing = stream.try_clone()?;
    let (own, sender, until) = (Arc::clone(volume), Arc::clone(channel), term.clone());
    device::spawn("serve-control", move || send(&own, (&sender, &until), &outgoing, &usage))?;
    let received = receive(volume, (channel, &term), stream);
    stream.shutdown(Shutdown::Both).unwrap_or_default();
    received
}

/// From the daemon to the client. What the daemon read from memory may be out of date by now, or
/// rest on changes that are not durable yet. Then it is no answer.
fn send(volume: &Served, to: (&Channel, &Term), stream: &UnixStream, usage: &Arc<Usage>) {
    let ahead = Ahead::default();
    let is_whole = device::scope(|scope| {
        let reading = device::spawn_in(scope, "serve-control-read", || {
            ahead.read(volume, stream, usage);
        });
        let is_whole = match reading {
            Ok(_) => pass_on(volume, to, &ahead),
            Err(error) => {
                tracing::warn!(%error, "cannot carry a connection");
                false
            }
        };
        ahead.end();
        if !is_whole {
            // Nobody reads: the daemon ends what it does, and threads that wait for it return.
            stream.shutdown(Shutdown::Both).unwrap_or_default();
        }
        is_whole
    });
    if !is_whole {
        to.0.close();
    }
}

/// Passes on what was read, to its end; `false`: it may not, or cannot.
fn pass_on(volume: &Served, (channel, term): (&Channel, &Term), ahead: &Ahead) -> bool {
    let mut frame = Vec::new();
    loop {
        let (parts, position) = ahead.take();
        if position.is_some_and(|position| volume.fs.settle(position).is_err()) {
            return false;
        }
        for part in parts {
            frame.clear();
            put_head(FrameKind::Tunnel, 0, &mut frame);
            frame.extend_from_slice(&part.bytes);
            let may = term.check().is_ok() && volume.may_answer();
            if !may || channel.send(&frame).is_err() {
                return false;
            }
            if part.bytes.is_empty() {
                return true;
            }
        }
    }
}

/// From the client to the daemon.
fn receive(
    volume: &Served,
    (channel, term): (&Channel, &Term),
    mut stream: &UnixStream,
) -> Result<(), ChannelError> {
    let mut frame = Vec::new();
    // After an error of the daemon, which may have answered before, nothing more is passed on.
    let mut takes = true;
    loop {
        match channel.receive(&mut frame, FRAME_BYTES_MAX, SILENCE_MAX) {
            Ok(()) => {}
            Err(ChannelError::Closed) => return Ok(()),
            Err(error) => return Err(error),
        }
        term.check()?;
        match split_head(&frame) {
            Some((FrameKind::Tunnel, ..)) if !takes => {}
            Some((FrameKind::Tunnel, _, b"")) => takes = stream.shutdown(Shutdown::Write).is_ok(),
            Some((FrameKind::Tunnel, _, bytes)) => takes = stream.write_all(bytes).is_ok(),
            Some((FrameKind::Ping, number, _)) => {
                if !volume.may_answer() {
                    return Err(ChannelError::Closed);
                }
                channel.send(&pong_frame(number))?;
            }
            _ => return Ok(()),
        }
    }
}
