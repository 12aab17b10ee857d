//! Carries a connection of the control socket: bytes both ways, as they come.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rpc::{Channel, ChannelError};
use wire::FRAME_BYTES_MAX;
use wire::remote::{FrameKind, put_head, split_head};

/// How long a client may be silent: it pings.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How long the daemon may take to read what a client sent.
const WRITE_WITHIN: Duration = Duration::from_secs(120);
/// Bytes that are carried at once.
const PART_BYTES: usize = 64 << 10;

/// Carries until both sides are done.
pub(crate) fn carry(channel: &Arc<Channel>, stream: &UnixStream) -> Result<(), ChannelError> {
    stream.set_write_timeout(Some(WRITE_WITHIN))?;
    let outgoing = stream.try_clone()?;
    let sender = Arc::clone(channel);
    device::spawn("serve-control", move || send(&sender, outgoing))?;
    let received = receive(channel, stream);
    stream.shutdown(Shutdown::Both).unwrap_or_default();
    received
}

/// From the daemon to the client.
fn send(channel: &Channel, mut stream: UnixStream) {
    let mut part = vec![0; PART_BYTES];
    loop {
        let count = stream.read(&mut part).unwrap_or(0);
        let mut frame = Vec::with_capacity(count + 9);
        put_head(FrameKind::Tunnel, 0, &mut frame);
        frame.extend_from_slice(&part[..count]);
        if channel.send(&frame).is_err() {
            // Nobody reads: the daemon ends what it does, and the thread that writes to it returns.
            stream.shutdown(Shutdown::Both).unwrap_or_default();
            return;
        }
        if count == 0 {
            return;
        }
    }
}

/// From the client to the daemon.
fn receive(channel: &Channel, mut stream: &UnixStream) -> Result<(), ChannelError> {
    let mut frame = Vec::new();
    loop {
        match channel.receive(&mut frame, FRAME_BYTES_MAX, SILENCE_MAX) {
            Ok(()) => {}
            Err(ChannelError::Closed) => return Ok(()),
            Err(error) => return Err(error),
        }
        match split_head(&frame) {
            Some((FrameKind::Tunnel, _, b"")) => stream.shutdown(Shutdown::Write)?,
            Some((FrameKind::Tunnel, _, bytes)) => stream.write_all(bytes)?,
            Some((FrameKind::Ping, number, _)) => {
                let mut pong = Vec::new();
                put_head(FrameKind::Pong, number, &mut pong);
                channel.send(&pong)?;
            }
            _ => return Ok(()),
        }
    }
}
