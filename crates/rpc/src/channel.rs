//! `Channel`: frames over a link, encrypted or not.
//!
//! The receiving thread reads the link without a lock, and decrypts under `tls`. A sender encrypts
//! and writes under `out`, so that records leave in the order in which they were encrypted. The
//! receiver never writes: two sides that both wait until the other reads cannot come about by it.
//!
//! A channel that receives nothing for a moment is idle. It frees its buffers. Its thread returns
//! what the allocator keeps for it, and waits with a few bytes on its stack.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use device::sync::Mutex;
use device::{Clock, Link, REST_AFTER};
use rustls::Connection;
use wire::FRAME_BYTES_MAX;

/// Bytes that must leave within [`WRITE_PATIENCE`].
const WRITE_BYTES: usize = 64 << 10;
/// Bytes that are read from a link at once, while as much arrives.
const READ_BYTES: usize = 64 << 10;
/// And otherwise: a connection in use that waits for its next message holds so much.
const READ_BYTES_FIRST: usize = 4 << 10;
/// And when it was idle: a ping.
const READ_BYTES_IDLE: usize = 128;
/// How long the other side may take to read what is sent to it.
const WRITE_PATIENCE: Duration = Duration::from_secs(20);

/// Why a channel ended.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The other side closed it between two frames.
    #[error("the connection was closed")]
    Closed,
    /// No whole frame came in time.
    #[error("no data arrived for {} s", .0.as_secs())]
    Silent(Duration),
    /// A frame is longer than it may be.
    #[error("a frame has {0} bytes; at most {1} are accepted")]
    TooLong(usize, usize),
    /// A frame that has no place there.
    #[error("{0}")]
    Unexpected(String),
    /// TLS refused it.
    #[error("{0}")]
    Tls(rustls::Error),
    /// The link failed.
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
}

/// A connection that carries frames.
pub struct Channel {
    link: Arc<dyn Link>,
    clock: Arc<dyn Clock>,
    tls: Option<Mutex<Connection>>,
    /// What is being sent, encrypted.
    out: Mutex<Vec<u8>>,
    inbox: Mutex<Inbox>,
}

/// What was received and is in no frame yet.
struct Inbox {
    bytes: Vec<u8>,
    from: usize,
    /// Where the link writes: kept between messages, as to clear a new one costs more than most
    /// messages.
    raw: Vec<u8>,
    /// Whether the last read filled it.
    was_filled: bool,
    /// How long the link waits for bytes, as it was set last.
    patience: Option<Duration>,
}

impl Channel {
    /// A channel without encryption.
    pub fn plain(link: Arc<dyn Link>, clock: Arc<dyn Clock>) -> io::Result<Channel> {
        Channel::over(link, clock, None)
    }

    /// A channel with encryption; both sides have proven who they are when this returns.
    pub fn encrypted(
        link: Arc<dyn Link>,
        clock: Arc<dyn Clock>,
        mut tls: Connection,
        within: Duration,
    ) -> Result<Channel, ChannelError> {
        tls.set_buffer_limit(None);
        let channel = Channel::over(link, clock, Some(tls))?;
        channel.shake_hands(within)?;
        Ok(channel)
    }

    fn over(
        link: Arc<dyn Link>,
        clock: Arc<dyn Clock>,
        tls: Option<Connection>,
    ) -> io::Result<Channel> {
        link.set_patience(None, Some(WRITE_PATIENCE))?;
        let inbox = Inbox {
            bytes: Vec::new(),
            from: 0,
            raw: Vec::new(),
            was_filled: false,
            patience: None,
        };
        let tls = tls.map(Mutex::new);
        Ok(Channel { link, clock, tls, out: Mutex::default(), inbox: Mutex::new(inbox) })
    }

    /// The certificate of the other side, and those that it sent with it.
    pub fn certificates(&self) -> Option<Vec<Vec<u8>>> {
        let tls = self.tls.as_ref()?.lock();
        let sent = tls.peer_certificates()?;
        Some(sent.iter().map(|certificate| certificate.to_vec()).collect())
    }

    /// Closes it: threads that wait on it return.
    pub fn close(&self) {
        self.link.close();
    }

    /// Sends a frame.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.send_all(&[frame])
    }

    /// Sends frames, in one write if they are short.
    pub fn send_all<T: AsRef<[u8]>>(&self, frames: &[T]) -> io::Result<()> {
        let frames = move || frames.iter().map(AsRef::as_ref);
        if let Some(long) = frames().find(|frame| frame.len() > FRAME_BYTES_MAX) {
            let text = format!("a message of {} bytes", long.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let mut out = self.out.lock();
        out.clear();
        let lengths = frames().map(|frame| (frame.len() as u32).to_le_bytes());
        match &self.tls {
            None => {
                for (frame, length) in frames().zip(lengths) {
                    out.extend_from_slice(&length);
                    out.extend_from_slice(frame);
                }
            }
            Some(tls) => {
                let mut tls = tls.lock();
                for (frame, length) in frames().zip(lengths) {
                    tls.writer().write_all(&length)?;
                    tls.writer().write_all(frame)?;
                }
                while tls.wants_write() {
                    tls.write_tls(&mut *out)?;
                }
            }
        }
        let sent = self.write(&out);
        if out.capacity() > READ_BYTES {
            *out = Vec::new();
        }
        if sent.is_err() {
            // A part may have left: nothing that follows would be understood.
            self.link.close();
        }
        sent
    }

    /// Writes to a link; a side that reads a little now and then is not waited for.
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        for part in bytes.chunks(WRITE_BYTES) {
            let since = self.clock.monotonic();
            self.link.write_all(part)?;
            if self.clock.monotonic().saturating_sub(since) > WRITE_PATIENCE {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Receives a frame of at most `longest` bytes, which must be there `within` this time. One
    /// thread receives.
    pub fn receive(
        &self,
        frame: &mut Vec<u8>,
        longest: usize,
        within: Duration,
    ) -> Result<(), ChannelError> {
        self.receive_admitted(frame, longest, within, &mut |_| Ok(()))
    }

    /// The same; a frame that is longer than what is read at once is admitted, with its bytes,
    /// before the rest of it is read. That may wait: the time begins again then.
    pub fn receive_admitted(
        &self,
        frame: &mut Vec<u8>,
        longest: usize,
        within: Duration,
        admit: &mut dyn FnMut(usize) -> Result<(), ChannelError>,
    ) -> Result<(), ChannelError> {
        let mut deadline = self.clock.monotonic() + within;
        let mut inbox = self.inbox.lock();
        let mut is_admitted = false;
        frame.clear();
        // Of a frame that has not begun: no time has passed.
        let mut left = Some(within);
        loop {
            let waiting = inbox.bytes.get(inbox.from..).unwrap_or_default();
            if let Some((head, rest)) = waiting.split_first_chunk::<4>() {
                let length = u32::from_le_bytes(*head) as usize;
                if length > longest {
                    return Err(ChannelError::TooLong(length, longest));
                }
                if length > READ_BYTES && !is_admitted {
                    admit(length)?;
                    is_admitted = true;
                    deadline = self.clock.monotonic() + within;
                }
                if let Some(found) = rest.get(..length) {
                    frame.extend_from_slice(found);
                    inbox.from += 4 + length;
                    if inbox.from == inbox.bytes.len() {
                        inbox.bytes.clear();
                        inbox.from = 0;
                        if inbox.bytes.capacity() > READ_BYTES {
                            inbox.bytes = Vec::new();
                        }
                    }
                    return Ok(());
                }
            }
            let rest =
                left.take().unwrap_or_else(|| deadline.saturating_sub(self.clock.monotonic()));
            if rest.is_zero() {
                return Err(ChannelError::Silent(within));
            }
            let filled = match self.fill(&mut inbox, rest.min(REST_AFTER), within) {
                Err(ChannelError::Silent(_)) if rest > REST_AFTER => {
                    *frame = Vec::new();
                    self.fill_idle(&mut inbox, deadline, within)
                }
                filled => filled,
            };
            if !filled? {
                let is_between = inbox.bytes.len() == inbox.from;
                return Err(if is_between {
                    ChannelError::Closed
                } else {
                    ChannelError::Broken(io::ErrorKind::UnexpectedEof.into())
                });
            }
        }
    }

    /// Reads once; `false` at the end.
    fn fill(
        &self,
        inbox: &mut Inbox,
        rest: Duration,
        within: Duration,
    ) -> Result<bool, ChannelError> {
        self.set_patience(inbox, rest)?;
        let space = if inbox.was_filled { READ_BYTES } else { READ_BYTES_FIRST };
        let mut raw = std::mem::take(&mut inbox.raw);
        if raw.len() != space {
            raw = vec![0; space];
        }
        let read = self.read(&mut raw, within);
        let taken = read.and_then(|count| {
            inbox.was_filled = count == space;
            self.take(inbox, &raw[..count])?;
            Ok(count > 0)
        });
        inbox.raw = raw;
        taken
    }

    /// Reads once, with little memory while it waits; `false` at the end.
    fn fill_idle(
        &self,
        inbox: &mut Inbox,
        deadline: Duration,
        within: Duration,
    ) -> Result<bool, ChannelError> {
        self.release(inbox);
        device::rest();
        let left = deadline.saturating_sub(self.clock.monotonic());
        if left.is_zero() {
            return Err(ChannelError::Silent(within));
        }
        self.set_patience(inbox, left)?;
        let mut raw = [0; READ_BYTES_IDLE];
        let count = self.read(&mut raw, within)?;
        self.take(inbox, &raw[..count])?;
        Ok(count > 0)
    }

    fn set_patience(&self, inbox: &mut Inbox, rest: Duration) -> io::Result<()> {
        if inbox.patience != Some(rest) {
            self.link.set_patience(Some(rest), Some(WRITE_PATIENCE))?;
            inbox.patience = Some(rest);
        }
        Ok(())
    }

    fn read(&self, raw: &mut [u8], within: Duration) -> Result<usize, ChannelError> {
        self.link.read(raw).map_err(|error| {
            if is_timeout(&error) { ChannelError::Silent(within) } else { error.into() }
        })
    }

    /// Takes what was read.
    fn take(&self, inbox: &mut Inbox, raw: &[u8]) -> Result<(), ChannelError> {
        let Inbox { bytes, from, .. } = inbox;
        bytes.drain(..*from);
        *from = 0;
        match &self.tls {
            None => bytes.extend_from_slice(raw),
            Some(tls) => decrypt(&mut tls.lock(), raw, bytes)?,
        }
        Ok(())
    }

    /// Frees the buffers of both directions, but for what is in no frame yet.
    fn release(&self, inbox: &mut Inbox) {
        inbox.raw = Vec::new();
        inbox.was_filled = false;
        inbox.bytes.drain(..inbox.from);
        inbox.from = 0;
        inbox.bytes.shrink_to_fit();
        if let Some(mut out) = self.out.try_lock() {
            *out = Vec::new();
        }
        if let Some(tls) = &self.tls {
            // TLS makes its own buffer small before it reads. It reads nothing here.
            tls.lock().read_tls(&mut Nothing).unwrap_or_default();
        }
    }

    fn shake_hands(&self, within: Duration) -> Result<(), ChannelError> {
        let deadline = self.clock.monotonic() + within;
        loop {
            let done = self.flush()?;
            let rest = deadline.saturating_sub(self.clock.monotonic());
            if done {
                return Ok(());
            }
            if rest.is_zero() {
                return Err(ChannelError::Silent(within));
            }
            let mut inbox = self.inbox.lock();
            let filled = self.fill(&mut inbox, rest, within);
            drop(inbox);
            match filled {
                Ok(true) => {}
                Ok(false) => return Err(ChannelError::Closed),
                Err(error) => {
                    // TLS reports the reason to the other side, if it still listens.
                    self.flush().ok();
                    return Err(error);
                }
            }
        }
    }

    /// Sends the pending records of TLS itself; returns whether both sides know each other.
    fn flush(&self) -> Result<bool, ChannelError> {
        let Some(tls) = &self.tls else { return Ok(true) };
        let mut out = self.out.lock();
        out.clear();
        let mut tls = tls.lock();
        while tls.wants_write() {
            tls.write_tls(&mut *out)?;
        }
        let done = !tls.is_handshaking();
        drop(tls);
        if !out.is_empty() {
            self.link.write_all(&out)?;
        }
        Ok(done)
    }
}

fn decrypt(tls: &mut Connection, mut raw: &[u8], to: &mut Vec<u8>) -> Result<(), ChannelError> {
    while !raw.is_empty() {
        // The other side has closed: what it sends after that does not count, and is not taken.
        if tls.read_tls(&mut raw)? == 0 {
            return Ok(());
        }
        let state = tls.process_new_packets().map_err(ChannelError::Tls)?;
        let mut left = state.plaintext_bytes_to_read();
        while left > 0 {
            let at = to.len();
            to.resize(at + left, 0);
            let read = tls.reader().read(&mut to[at..])?;
            to.truncate(at + read);
            if read == 0 {
                break;
            }
            left -= read;
        }
    }
    Ok(())
}

/// Has nothing to read now.
struct Nothing;

impl Read for Nothing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use device::SystemClock;

    use super::*;
    use crate::certificates::{Authority, For};
    use crate::{ClientTls, Files, Grant, ServerTls};

    const WITHIN: Duration = Duration::from_secs(25);

    /// Delivers what it has in pieces of a length, and counts how often its patience is set.
    struct Pieces {
        bytes: Mutex<Vec<u8>>,
        piece: usize,
        settings: AtomicUsize,
    }

    impl Link for Pieces {
        fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
            let mut bytes = self.bytes.lock();
            let count = self.piece.min(buffer.len()).min(bytes.len());
            buffer[..count].copy_from_slice(&bytes[..count]);
            bytes.drain(..count);
            Ok(count)
        }

        fn write_all(&self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn set_patience(&self, _: Option<Duration>, _: Option<Duration>) -> io::Result<()> {
            self.settings.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn close(&self) {}
    }

    fn channel(frames: &[usize], piece: usize) -> (Channel, Arc<Pieces>) {
        let mut bytes = Vec::new();
        for length in frames {
            bytes.extend_from_slice(&(*length as u32).to_le_bytes());
            bytes.resize(bytes.len() + length, 7);
        }
        let settings = AtomicUsize::new(0);
        let link = Arc::new(Pieces { bytes: Mutex::new(bytes), piece, settings });
        let own = Arc::clone(&link);
        (Channel::plain(own, Arc::new(SystemClock::new())).unwrap(), link)
    }

    #[test]
    fn short_frames_need_one_buffer_and_one_setting_of_the_link() {
        let (channel, link) = channel(&[100; 50], 104);
        let mut frame = Vec::new();
        channel.receive(&mut frame, 1000, WITHIN).unwrap();
        let first = channel.inbox.lock().raw.as_ptr();
        for _ in 1..50 {
            channel.receive(&mut frame, 1000, WITHIN).unwrap();
            assert_eq!(frame, [7; 100]);
            assert_eq!(channel.inbox.lock().raw.as_ptr(), first);
        }
        // Once when it was made, and once for the time.
        assert_eq!(link.settings.load(Ordering::Relaxed), 2);
        let ended = channel.receive(&mut frame, 1000, WITHIN);
        assert!(matches!(ended, Err(ChannelError::Closed)));
    }

    #[test]
    fn the_buffer_grows_while_much_arrives_and_a_connection_that_waits_holds_little() {
        let (channel, link) = channel(&[200 << 10, 10], usize::MAX);
        let mut frame = Vec::new();
        channel.receive(&mut frame, 1 << 20, WITHIN).unwrap();
        assert_eq!(frame, vec![7; 200 << 10]);
        channel.receive(&mut frame, 1 << 20, WITHIN).unwrap();
        assert_eq!(frame, [7; 10]);
        link.bytes.lock().extend_from_slice(&[1, 0, 0, 0, 7]);
        channel.receive(&mut frame, 1 << 20, WITHIN).unwrap();
        assert_eq!(channel.inbox.lock().raw.len(), READ_BYTES_FIRST);
    }

    /// Delivers a byte more after each pause, and notes the space of each read, and its patience.
    #[derive(Default)]
    struct Pauses {
        bytes: Mutex<Vec<u8>>,
        patience: Mutex<Duration>,
        reads: Mutex<Vec<(usize, Duration)>>,
    }

    impl Link for Pauses {
        fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
            let patience = *self.patience.lock();
            self.reads.lock().push((buffer.len(), patience));
            if patience == REST_AFTER {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let mut bytes = self.bytes.lock();
            buffer[0] = bytes.remove(0);
            Ok(1)
        }

        fn write_all(&self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn set_patience(&self, read: Option<Duration>, _: Option<Duration>) -> io::Result<()> {
            *self.patience.lock() = read.unwrap_or_default();
            Ok(())
        }

        fn close(&self) {}
    }

    #[test]
    fn a_channel_rests_when_nothing_arrives_and_loses_no_byte() {
        static RESTED: AtomicUsize = AtomicUsize::new(0);
        device::set_rest(|| {
            RESTED.fetch_add(1, Ordering::Relaxed);
        });
        let link = Arc::new(Pauses::default());
        link.bytes.lock().extend_from_slice(&[3, 0, 0, 0, 7, 8, 9]);
        let own = Arc::clone(&link);
        let channel = Channel::plain(own, Arc::new(SystemClock::new())).unwrap();
        channel.send(&[1; 100]).unwrap();
        let mut frame = Vec::with_capacity(100);
        channel.receive(&mut frame, 1000, WITHIN).unwrap();
        assert_eq!(frame, [7, 8, 9]);
        assert_eq!(RESTED.load(Ordering::Relaxed), 7);
        let reads = link.reads.lock();
        for (first, second) in reads.iter().step_by(2).zip(reads.iter().skip(1).step_by(2)) {
            assert_eq!(*first, (READ_BYTES_FIRST, REST_AFTER));
            assert_eq!(second.0, READ_BYTES_IDLE);
            // The time of the whole message is no longer.
            assert!(second.1 > REST_AFTER && second.1 < WITHIN, "{second:?}");
        }
        assert_eq!(reads.len(), 14);
        let inbox = channel.inbox.lock();
        let kept = (inbox.raw.capacity(), channel.out.lock().capacity());
        assert_eq!(kept, (0, 0));
    }

    fn send_to(to: &mut Connection, from: &mut Connection) {
        let mut raw = Vec::new();
        while from.wants_write() {
            from.write_tls(&mut raw).unwrap();
        }
        decrypt(to, &raw, &mut Vec::new()).unwrap();
    }

    /// Regression: a byte behind the end was waited for by a loop that nothing ended.
    #[test]
    fn what_follows_the_end_of_tls_does_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let authority =
            Authority::in_directory(directory.path(), SystemClock::new().now()).unwrap();
        authority.make("server", &For::Server(&["127.0.0.1".into()]), 30).unwrap();
        authority.make("client", &For::Client(&Grant::all()), 30).unwrap();
        let files = |name| {
            let [certificate, key, authority] =
                [format!("{name}.pem"), format!("{name}.key"), "ca.pem".into()]
                    .map(|file| directory.path().join(file));
            Files { certificate, key, authority }
        };
        let mut server = ServerTls::read(&files("server")).unwrap().accept().unwrap();
        let client = ClientTls::read(&files("client")).unwrap();
        let mut client = client.connect("127.0.0.1").unwrap();
        for _ in 0..3 {
            send_to(&mut server, &mut client);
            send_to(&mut client, &mut server);
        }
        client.writer().write_all(b"last").unwrap();
        client.send_close_notify();
        let (mut raw, mut received) = (Vec::new(), Vec::new());
        while client.wants_write() {
            client.write_tls(&mut raw).unwrap();
        }
        decrypt(&mut server, &raw, &mut received).unwrap();
        decrypt(&mut server, &[0], &mut received).unwrap();
        assert_eq!(received, b"last");
    }
}
