//! One connection to a daemon: hello, requests, answers.

use std::io::{self, BufReader, ErrorKind, IoSlice, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wire::{
    Answer, Body, Call, Failure, FailureKind, FrameError, HELLO_MAGIC, Hello, Reply, Request,
    VERSION, Welcome, decode, encode, read_frame, write_frame,
};

use crate::{Peer, Result, Timed, peer, peer_process, socket};

/// How long a daemon of another user may take to accept a connection, and then to send its whole
/// welcome. A daemon of root or of the caller has no limit. It may be recovering a long log, and it
/// can do the caller no harm that its user cannot.
const WELCOME_WITHIN: Duration = Duration::from_secs(60);

/// A connection over which the daemon has sent its welcome.
#[derive(Debug)]
pub struct Connection {
    reader: BufReader<Timed>,
    writer: UnixStream,
    welcome: Welcome,
    sent: Vec<u8>,
    received: Vec<u8>,
    last_id: u32,
    /// How long a daemon of a user that is not trusted has for an answer.
    patience: Option<Duration>,
}

/// Result of an attempt to connect.
#[derive(Debug)]
pub enum Opened {
    /// A daemon has answered.
    Connected(Connection),
    /// No process listens.
    NoDaemon,
    /// A daemon closed the connection before its welcome: it is exiting, or died.
    Leaving,
    /// The daemon accepts no more connections, of this user or of all; the failure names the limit.
    Refused(Failure),
}

impl Connection {
    /// Connects to the daemon of a volume directory.
    pub fn open(volume: &Path) -> Result<Opened> {
        let own = rustix::process::geteuid().as_raw();
        Connection::open_within(volume, WELCOME_WITHIN, &|uid| uid == 0 || uid == own)
    }

    /// Connects to the daemon of a volume directory. A daemon of a user that is not `trusted` has
    /// to answer within `patience`.
    fn open_within(
        volume: &Path,
        patience: Duration,
        trusted: &dyn Fn(u32) -> bool,
    ) -> Result<Opened> {
        let stream = match socket::connect(volume, patience) {
            Ok(Some(stream)) => stream,
            Ok(None) => return Ok(Opened::NoDaemon),
            Err(error) if is_timeout(&error) => return Err(silent(volume, None, patience)),
            Err(error) => return Err(unreachable_volume(volume, &error)),
        };
        let peer = peer(stream.as_fd()).map_err(|error| unreachable_volume(volume, &error))?;
        let limit = (!trusted(peer.uid)).then_some(patience);
        Connection::greet(stream, volume, (Some(&peer), limit, patience))
    }

    /// A connection that another machine's daemon is at the end of.
    pub fn over(stream: UnixStream, volume: &Path) -> Result<Connection> {
        match Connection::greet(stream, volume, (None, Some(WELCOME_WITHIN), WELCOME_WITHIN))? {
            Opened::Connected(connection) => Ok(connection),
            Opened::Refused(failure) => Err(failure),
            Opened::NoDaemon | Opened::Leaving => {
                let message = format!("the server of {} is ending", volume.display());
                Err(Failure::new(FailureKind::Other, message).hint("try again later"))
            }
        }
    }

    fn greet(
        stream: UnixStream,
        volume: &Path,
        (peer, limit, patience): (Option<&Peer>, Option<Duration>, Duration),
    ) -> Result<Opened> {
        let reader = stream.try_clone().and_then(|clone| {
            let mut reader = Timed::new(clone);
            reader.limit(limit)?;
            Ok(BufReader::with_capacity(64 << 10, reader))
        });
        let reader = reader.map_err(|error| unreachable_volume(volume, &error))?;
        let mut connection = Connection {
            reader,
            writer: stream,
            welcome: Welcome { magic: HELLO_MAGIC, version: VERSION, pid: 0, mount_point: None },
            sent: Vec::new(),
            received: Vec::new(),
            last_id: 0,
            patience: limit,
        };
        encode(&Hello { magic: HELLO_MAGIC, version: VERSION }, &mut connection.sent);
        // A daemon that refuses a connection closes it without reading: its reply can be read
        // nevertheless.
        let sent = write_frame(&mut connection.writer, &connection.sent);
        match read_frame(&mut connection.reader, &mut connection.received) {
            Ok(()) => {}
            Err(FrameError::Broken(error)) if is_timeout(&error) => {
                return Err(silent(volume, peer, patience));
            }
            Err(_) if sent.is_err() => return Ok(Opened::Leaving),
            Err(error) if error.is_gone() => return Ok(Opened::Leaving),
            Err(error) => return Err(Failure::new(FailureKind::Protocol, error.to_string())),
        }
        connection.welcome = decode(&connection.received).map_err(|error| not_ours(&error))?;
        let Welcome { magic, version, pid, .. } = connection.welcome;
        if magic != HELLO_MAGIC {
            return Err(not_ours(&"its first bytes are of a different protocol"));
        }
        if version != VERSION {
            let message = format!(
                "the daemon of {} (pid {pid}) speaks protocol version {version}, this program \
                 {VERSION}",
                volume.display()
            );
            return Err(Failure::new(FailureKind::Protocol, message)
                .hint("unmount the volume and mount it with one version of pando"));
        }
        if pid == 0 {
            return Ok(connection.receive().map_or_else(Opened::Refused, |_| Opened::Leaving));
        }
        let unlimited = connection.reader.get_mut().limit(None);
        unlimited.map_err(|error| unreachable_volume(volume, &error))?;
        Ok(Opened::Connected(connection))
    }

    /// The daemon's welcome.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// The listening process, as the kernel reports it.
    pub fn peer(&self) -> io::Result<Peer> {
        peer(self.writer.as_fd())
    }

    /// The listening process, as a descriptor that no other process gets.
    pub fn process(&self) -> io::Result<OwnedFd> {
        peer_process(self.writer.as_fd())
    }

    /// Whether the daemon has closed the connection.
    pub fn is_closed(&self) -> bool {
        let mut polled = [PollFd::new(&self.writer, PollFlags::RDHUP)];
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// A second handle of the socket, with which another thread can end a wait.
    pub fn stream(&self) -> io::Result<UnixStream> {
        self.writer.try_clone()
    }

    /// Sends a request without waiting; returns the number that its answer will carry. A request
    /// longer than a message can be is an error, and nothing of it is sent.
    pub fn send(&mut self, call: Call<'_>) -> Result<u32> {
        let id = self.begin();
        encode(&Request { id, call }, &mut self.sent);
        self.transmit(&[])
    }

    /// As [`Connection::send`], items of an import from where they are: the pieces of
    /// [`wire::Items::pieces`].
    pub fn send_items(&mut self, pieces: &[&[u8]]) -> Result<u32> {
        let (id, length) = (self.begin(), pieces.iter().map(|piece| piece.len()).sum());
        Request::begin_import(id, length, &mut self.sent);
        self.transmit(pieces)
    }

    /// Begins a message in memory; returns its number.
    fn begin(&mut self) -> u32 {
        self.last_id = self.last_id.wrapping_add(1);
        self.sent.clear();
        // The length precedes the message, so that a small one is sent in one write.
        self.sent.extend([0; 4]);
        self.last_id
    }

    /// Sends the message, and what follows it.
    fn transmit(&mut self, behind: &[&[u8]]) -> Result<u32> {
        let length = self.sent.len() - 4 + behind.iter().map(|piece| piece.len()).sum::<usize>();
        if length > wire::FRAME_BYTES_MAX {
            let message = format!("a request of {length} bytes is too long");
            let failure = Failure::new(FailureKind::Invalid, message);
            return Err(failure.hint("give fewer or shorter arguments"));
        }
        self.sent[..4].copy_from_slice(&(length as u32).to_le_bytes());
        let mut slices = Vec::with_capacity(behind.len() + 1);
        slices.push(IoSlice::new(&self.sent));
        slices.extend(behind.iter().map(|piece| IoSlice::new(piece)));
        if let Err(error) = write_all(&mut self.writer, &mut slices) {
            return Err(self.last_words(&error.into()));
        }
        Ok(self.last_id)
    }

    /// Reads the next part of any answer.
    pub fn receive(&mut self) -> Result<Reply> {
        read_frame(&mut self.reader, &mut self.received).map_err(|error| self.gone(&error))?;
        let reply: Reply = decode(&self.received).map_err(|error| not_ours(&error))?;
        match reply.body {
            Body::Leaving => {
                let pid = self.welcome.pid;
                let message = format!("the daemon of the volume (pid {pid}) is ending");
                Err(Failure::new(FailureKind::Leaving, message))
            }
            Body::Failed(failure) if reply.id == 0 => Err(failure),
            body => Ok(Reply { id: reply.id, body }),
        }
    }

    /// Why the daemon closed the connection: it may have sent the reason before.
    fn last_words(&mut self, error: &FrameError) -> Failure {
        loop {
            match read_frame(&mut self.reader, &mut self.received) {
                Err(_) => return self.gone(error),
                Ok(()) => match decode::<Reply>(&self.received) {
                    Ok(Reply { id: 0, body: Body::Failed(failure) }) => return failure,
                    Ok(Reply { body: Body::Leaving, .. }) => {
                        let message = "the daemon of the volume is ending";
                        return Failure::new(FailureKind::Leaving, message);
                    }
                    Ok(_) => {}
                    Err(error) => return not_ours(&error),
                },
            }
        }
    }

    /// Sends a request and waits for the end of its answer; `part` gets the parts before.
    pub fn call(
        &mut self,
        call: Call<'_>,
        part: &mut dyn FnMut(Body) -> Result<()>,
    ) -> Result<Answer> {
        let id = self.send(call)?;
        loop {
            let reply = self.receive()?;
            if reply.id != id {
                return Err(not_ours(&"an answer to a request that is not open"));
            }
            match reply.body {
                Body::Done(answer) => return Ok(answer),
                Body::Failed(failure) => return Err(failure),
                body => part(body)?,
            }
        }
    }

    /// A request whose answer has no parts.
    pub fn ask(&mut self, call: Call<'_>) -> Result<Answer> {
        self.call(call, &mut |_| Ok(()))
    }

    /// A request that a daemon answers at once. One of a user that is not trusted has as long as
    /// for its welcome.
    pub fn ask_briefly(&mut self, call: Call<'_>) -> Result<Answer> {
        let failed = |error: io::Error| {
            let message = format!("cannot limit how long a request may take: {error}");
            Failure::new(FailureKind::Other, message).hint("repeat the command")
        };
        self.reader.get_mut().limit(self.patience).map_err(failed)?;
        let answer = self.ask(call);
        self.reader.get_mut().limit(None).map_err(failed)?;
        answer
    }

    fn gone(&self, error: &FrameError) -> Failure {
        let pid = self.welcome.pid;
        if let FrameError::Broken(error) = error
            && is_timeout(error)
        {
            let message = format!("the daemon of the volume (pid {pid}) does not answer");
            return Failure::new(FailureKind::Busy, message).hint("if it hangs, end it");
        }
        let message = format!("the daemon of the volume (pid {pid}) ended: {error}");
        Failure::new(FailureKind::Other, message)
            .hint("run the command again: the volume recovers when it is next used")
    }
}

/// Writes all of several pieces.
fn write_all(to: &mut impl Write, pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
    let mut rest = pieces;
    // Removes empty ones at the front.
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match to.write_vectored(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut rest, written),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// The error for a daemon that does not answer at all.
fn silent(volume: &Path, peer: Option<&Peer>, patience: Duration) -> Failure {
    let who = match peer {
        Some(Peer { pid, uid, .. }) => format!("process {pid} of user {uid}"),
        None => "a process".to_owned(),
    };
    let message = format!(
        "{who} listens for the volume {} and has not answered for {} s",
        volume.display(),
        patience.as_secs()
    );
    Failure::new(FailureKind::Busy, message)
        .hint("it may be recovering the volume: try again later; if it hangs, end it")
}

fn not_ours(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Protocol, format!("cannot parse the daemon's answer: {error}"))
}

fn unreachable_volume(volume: &Path, error: &io::Error) -> Failure {
    let kind = match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => FailureKind::NotFound,
        ErrorKind::PermissionDenied => FailureKind::Permission,
        _ => FailureKind::Other,
    };
    let message = format!("cannot reach the volume {}: {error}", volume.display());
    let failure = Failure::new(kind, message);
    match kind {
        FailureKind::Permission => {
            failure.hint("search permission is needed on each directory of the path")
        }
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use device::sync::RecvTimeoutError;

    use super::*;

    const SHORT: Duration = Duration::from_millis(50);

    fn refused(volume: &Path, patience: Duration) -> String {
        let opened = Connection::open_within(volume, patience, &|_| false);
        let failure = opened.expect_err("it does not answer");
        assert_eq!(failure.kind, FailureKind::Busy);
        failure.message
    }

    /// Another user's process that listens and sends nothing must not keep a command for ever.
    #[test]
    fn a_foreign_daemon_that_does_not_answer_is_given_up() {
        let volume = tempfile::tempdir().expect("a directory");
        let volume = std::fs::canonicalize(volume.path()).expect("it exists");
        let _listener = UnixListener::bind(volume.join(socket::SOCKET)).expect("a socket");
        let message = refused(&volume, SHORT);
        let pid = std::process::id();
        assert!(message.contains(&format!("process {pid} of user")), "{message}");
        // Its queue fills up: then the kernel accepts no more.
        let mut queued = Vec::new();
        while let Ok(Some(stream)) = socket::connect(&volume, SHORT) {
            queued.push(stream);
        }
        let message = refused(&volume, SHORT);
        assert!(message.starts_with("a process listens for the volume"), "{message}");
    }

    /// One that sends a byte before each time-out has no more time than one that sends nothing.
    #[test]
    fn a_foreign_daemon_that_sends_its_welcome_byte_by_byte_is_given_up() {
        let volume = tempfile::tempdir().expect("a directory");
        let volume = std::fs::canonicalize(volume.path()).expect("it exists");
        let listener = UnixListener::bind(volume.join(socket::SOCKET)).expect("a socket");
        let (commands, gave_up) = device::sync::channel::<()>();
        let sent = device::scope(|scope| {
            let daemon = scope.spawn(move || {
                let (mut stream, _) = listener.accept().expect("a connection");
                // A frame of 4,000 bytes.
                let frame = [&4000_u32.to_le_bytes()[..], &[0; 4000]].concat();
                for (sent, byte) in frame.iter().enumerate() {
                    let waits = gave_up.recv_timeout(SHORT / 5) == Err(RecvTimeoutError::Timeout);
                    if !waits || stream.write_all(&[*byte]).is_err() {
                        return sent;
                    }
                }
                frame.len()
            });
            let message = refused(&volume, SHORT);
            assert!(message.contains("has not answered"), "{message}");
            drop(commands);
            daemon.join().expect("it ends")
        });
        assert!(sent < 4004, "it was given as long as it sent");
    }

    #[test]
    fn a_connection_reaches_the_process_that_listens() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let process = peer_process(ours.as_fd()).expect("this process");
        rustix::process::pidfd_send_signal(&process, rustix::process::Signal::CHILD)
            .expect("it exists, and ignores that");
        drop(theirs);
    }
}
