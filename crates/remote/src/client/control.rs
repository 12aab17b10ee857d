//! A connection to the control socket of a served volume's daemon, as a local one: verbs need not
//! know that it is carried.

use std::collections::VecDeque;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use device::{Clock, Net};
use rpc::Channel;
use wire::FRAME_BYTES_MAX;
use wire::remote::{Asker, FEATURE_TAKEN_OVER, FrameKind, Use, put_head, split_head};

use super::connect::{ConnectError, Purpose, Target, connect};
use super::silent::Silent;

/// How often the server hears that the client lives.
const PING_EVERY: Duration = Duration::from_secs(10);

/// Most bytes that wait for a pong: more than a server sends meanwhile.
const HELD_BYTES_MAX: usize = 256 << 20;

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
    let (channel, welcome) = connect(net, clock, (target, &Silent::default()), &purpose)?;
    let is_of_several = target.places.len() > 1 || welcome.features & FEATURE_TAKEN_OVER != 0;
    let failed = |error: std::io::Error| ConnectError::Broken(error.into());
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let incoming = theirs.try_clone().map_err(failed)?;
    let sender = Arc::clone(&channel);
    device::spawn("remote-control", move || receive(&channel, &incoming, is_of_several))
        .map_err(failed)?;
    device::spawn("remote-control", move || send(&sender, &theirs)).map_err(failed)?;
    Ok(Control { stream: ours })
}

/// From the server to the verb. If another server may take over, nothing counts before a pong to a
/// ping that was sent after it arrived. The server owned the volume then.
fn receive(channel: &Channel, mut stream: &UnixStream, is_of_several: bool) {
    use std::io::Write;
    let mut frame = Vec::new();
    let (mut held, mut held_bytes) = (VecDeque::new(), 0);
    // The last ping, and the last that has its pong.
    let (mut pinged, mut answered) = (0_u64, 0);
    // A verb waits for its answer as long as the server answers pings.
    'carry: while channel.receive(&mut frame, FRAME_BYTES_MAX, SILENCE_MAX).is_ok() {
        match split_head(&frame) {
            // (The number of pings that only show life is 0.)
            Some((FrameKind::Pong, number, _)) if number <= pinged => {
                answered = answered.max(number);
            }
            Some((FrameKind::Tunnel, _, bytes)) => {
                held_bytes += bytes.len();
                if held_bytes > HELD_BYTES_MAX {
                    break;
                }
                // One ping is under way at a time: the next one is for all that arrives until then.
                let counts_after = if is_of_several { pinged + 1 } else { 0 };
                held.push_back((counts_after, bytes.to_vec()));
            }
            _ => break,
        }
        while held.front().is_some_and(|(after, _)| *after <= answered)
            && let Some((_, bytes)) = held.pop_front()
        {
            held_bytes -= bytes.len();
            if bytes.is_empty() || stream.write_all(&bytes).is_err() {
                break 'carry;
            }
        }
        if !held.is_empty() && pinged == answered {
            pinged += 1;
            let mut ping = Vec::new();
            put_head(FrameKind::Ping, pinged, &mut ping);
            if channel.send(&ping).is_err() {
                break;
            }
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
