//! The first nine bytes of a frame.

/// Bytes before the body.
pub const HEAD_BYTES: usize = 9;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Client: who it is and what it wants; the number is 0.
    Hello = 1,
    /// Client: a call.
    Request = 2,
    /// Client: it lives. The body: requests whose answers have arrived, as in a request.
    Ping = 3,
    /// Both: bytes of a control connection, in order; the number is 0. Without a body: its end.
    Tunnel = 4,
    /// Client: nobody waits for the request any more.
    Cancel = 5,
    /// Client: the session ends; everything that it holds is released.
    Bye = 6,
    /// Client: what it holds, to a server that took over; before its requests.
    Reclaim = 7,
    /// Server: the answer to a hello.
    Welcome = 129,
    /// Server: the answer to the request of the number.
    Reply = 130,
    /// Server: the answer to a ping; no body.
    Pong = 131,
    /// Server: why it ends the connection, as a failure.
    Refused = 132,
    /// Server: which server has the volume, instead of a welcome. The body: HOST:PORT.
    Moved = 133,
}

impl FrameKind {
    fn of(byte: u8) -> Option<FrameKind> {
        use FrameKind::{
            Bye, Cancel, Hello, Moved, Ping, Pong, Reclaim, Refused, Reply, Request, Tunnel,
            Welcome,
        };
        Some(match byte {
            1 => Hello,
            2 => Request,
            3 => Ping,
            4 => Tunnel,
            5 => Cancel,
            6 => Bye,
            7 => Reclaim,
            129 => Welcome,
            130 => Reply,
            131 => Pong,
            132 => Refused,
            133 => Moved,
            _ => return None,
        })
    }
}

/// Begins a frame.
pub fn put_head(kind: FrameKind, number: u64, out: &mut Vec<u8>) {
    out.push(kind as u8);
    out.extend_from_slice(&number.to_le_bytes());
}

/// The kind, the number and the body of a frame; `None`: it is too short, or of no known kind.
pub fn split_head(frame: &[u8]) -> Option<(FrameKind, u64, &[u8])> {
    let (kind, rest) = frame.split_first()?;
    let (number, body) = rest.split_first_chunk()?;
    Some((FrameKind::of(*kind)?, u64::from_le_bytes(*number), body))
}
