//! A connection to the control socket of a served volume's daemon, as a local one: verbs need not
//! know that it is carried.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use device::{Clock, Net};
use rpc::Channel;
use wire::FRAME_BYTES_MAX;
use wire::remote::{Asker, FrameKind, Use, put_head, split_head};

use super::connect::{ConnectError, Purpose, Target, connect};

/// How often the server hears that the client lives.
const PING_EVERY: Duration = Duration::from_secs(10);

/// How long the server may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// A carried connection.
pub struct Control {
    /// Its end here.
    pub stream: UnixStream,
}

/// Connects to the daemon of a served volume, for a user.
pub fn control(
    net: &dyn Net,
    clock: &Arc<dyn Clock>,
    target: &Target,
    who: Asker,
) -> Result<Control, ConnectError> {
    let purpose = Purpose { use_for: Use::Control, who, resume: None, awaits: &[] };
    let (channel, _) = connect(net, clock, target, &purpose)?;
    let failed = |error: std::io::Error| ConnectError::Broken(error.into());
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let incoming = theirs.try_clone().map_err(failed)?;
    let sender = Arc::clone(&channel);
    device::spawn("remote-control", move || receive(&channel, &incoming)).map_err(failed)?;
    device::spawn("remote-control", move || send(&sender, &theirs)).map_err(failed)?;
    Ok(Control { stream: ours })
}

/// From the server to the verb.
fn receive(channel: &Channel, mut stream: &UnixStream) {
    use std::io::Write;
    let mut frame = Vec::new();
    // A verb waits for its answer as long as the server answers pings.
    while channel.receive(&mut frame, FRAME_BYTES_MAX, SILENCE_MAX).is_ok() {
        let carried = match split_head(&frame) {
            Some((FrameKind::Pong, ..)) => Ok(()),
            Some((FrameKind::Tunnel, _, bytes)) if !bytes.is_empty() => stream.write_all(bytes),
            _ => break,
        };
        if carried.is_err() {
            break;
        }
    }
    stream.shutdown(std::net::Shutdown::Both).unwrap_or_default();
    channel.close();
}

/// From the verb to the server.
fn send(channel: &Channel, mut stream: &UnixStream) {
    use std::io::Read;
    let mut part = vec![0; 64 << 10];
    stream.set_read_timeout(Some(PING_EVERY)).unwrap_or_default();
    loop {
        let mut frame = Vec::new();
        let count = match stream.read(&mut part) {
            Ok(count) => count,
            Err(error) if is_timeout(&error) => {
                put_head(FrameKind::Ping, 0, &mut frame);
                if channel.send(&frame).is_err() {
                    return;
                }
                continue;
            }
            Err(_) => 0,
        };
        put_head(FrameKind::Tunnel, 0, &mut frame);
        frame.extend_from_slice(&part[..count]);
        if channel.send(&frame).is_err() || count == 0 {
            return;
        }
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}
