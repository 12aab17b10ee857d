//! The daemon's side of `send` and `receive`: streams leave and arrive in messages of bounded
//! size.

use std::cell::Cell;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::SystemClock;
use fs::{FileSystem, Follow, FsResult, Volume};
use inode::{Caller, Enforce, FsError, NodeId};
use transfer::{ReceiveOptions, Receiver, SendOptions, Suspended, Token};
use wire::{Answer, Body, Bytes, Call, Failure, FailureKind, Received, Receiving, Sent};

use super::about::{Answered, about};
use super::dump::dump;
use super::held::{Held, split};
use super::load::Granted;
use super::sent::Holds;
use super::server::Server;
use super::staged::{Claim, Staged};
use super::stream_terms::{bounded, failed, failed_within};
use super::watch;

const RESUME: &str = "`pando send --resume TOKEN` sends the rest";

/// Sends a snapshot.
pub(super) fn send(
    server: &Server,
    caller: &Caller,
    (call, given): (&Call<'_>, Granted),
    (peer, send): (&UnixStream, &mut dyn FnMut(Body) -> Answered<()>),
    found: impl FnOnce(),
) -> Answered<Answer> {
    if let Call::Dump { path, .. } = *call {
        return dump(server, caller, (path, given), (peer, send), found);
    }
    let fs: &Volume = server.fs();
    let Call::Send { base, snapshot, token, dry_run, hold, .. } = *call else {
        return Err(Failure::new(FailureKind::Protocol, "an unexpected request"));
    };
    // Below a directory that is closed to the user, an increment would leave out changes.
    if base.is_some() && !caller.is_root() {
        let error = FsError::RootOnly("only root sends increments; a whole snapshot can be sent");
        return Err(about(error, snapshot));
    }
    let resolve = |path| Held::resolve(fs, caller, path, Follow::Yes);
    let (base, snapshot_path) = (base.map(resolve).transpose()?, snapshot);
    let snapshot = resolve(snapshot_path)?;
    found();
    let token = token.map(parse).transpose()?;
    let memory = bounded(caller, given.bytes);
    let expected = expected(fs, caller, snapshot.entry.node);
    let expected = expected.map_err(|error| about(error, snapshot_path))?.unwrap_or_default();
    let options = SendOptions { memory, token, dry_run, expected };
    let nodes = (base.as_ref().map(|base| base.entry.node), snapshot.entry.node);
    let holds = match hold.filter(|_| !dry_run) {
        Some(name) => {
            let staged: &Staged = server.staged();
            Holds::set((fs, staged), caller, nodes, (name, snapshot_path))?
        }
        None => None,
    };
    let (cancel, broken, begun) = (AtomicBool::new(false), Cell::new(None), Cell::new(false));
    let mut emit = |part: &[u8]| {
        begun.set(true);
        let failed = send(Body::Data(part.into())).err();
        let continues = failed.is_none();
        broken.set(failed);
        continues
    };
    let sent = watch::while_heard(
        peer,
        &cancel,
        || {},
        || transfer::send(fs, caller, nodes, &options, (&cancel, &mut emit)),
    )?;
    let cut = match broken.take() {
        None if cancel.load(Ordering::Relaxed) => Some(watch::cut_off("the stream")),
        cut => cut,
    };
    if let Some(failure) = cut {
        // It continues with a token.
        if begun.get() {
            holds.into_iter().for_each(Holds::keep);
        }
        return Err(failure);
    }
    let sent = sent.map_err(|error| failed_within(error, snapshot_path, given))?;
    let (held, released) = holds.map_or((false, 0), Holds::finish);
    let transfer::Sent { records, bytes, stream_bytes } = sent;
    Ok(Answer::Sent(Sent { records, bytes, stream_bytes, held, released }))
}

/// About how many bytes and inodes a directory has, if that is known without a walk.
fn expected(fs: &Volume, caller: &Caller, directory: NodeId) -> FsResult<Option<(u64, u64)>> {
    let number = |name: &[u8]| match fs.inner().getxattr(caller, directory, name) {
        Ok(value) => Ok(std::str::from_utf8(&value).ok().and_then(|text| text.trim().parse().ok())),
        Err(error @ FsError::Io(_)) => Err(error),
        Err(_) => Ok(None),
    };
    Ok(number(b"user.pando.rbytes")?.zip(number(b"user.pando.rentries")?))
}

fn parse(text: &str) -> Answered<Token> {
    Token::parse(text).ok_or_else(|| {
        Failure::new(FailureKind::Invalid, "that is not a token of `pando receive`")
            .hint("`pando receive --token DST` prints the token of a stream that was cut")
    })
}

/// A stream that arrives on one connection.
pub(super) struct Receive<'a> {
    receiver: Option<Receiver<'a>>,
    path: Vec<u8>,
    fs: &'a Volume,
    /// The directory of the destination.
    _parent: Held<'a>,
    /// No other stream arrives there. The receiver ends before it.
    _claim: Claim,
}

impl<'a> Receive<'a> {
    /// Begins to receive.
    pub(super) fn open(
        (fs, staged): (&'a Volume, &Arc<Staged>),
        caller: &Caller,
        call: &Call<'_>,
    ) -> Answered<Receive<'a>> {
        let Call::ReceiveOpen { path, name, force, hold } = *call else {
            return Err(Failure::new(FailureKind::Protocol, "an unexpected request"));
        };
        // A stream could claim to be of any snapshot, also as the base of a later increment.
        if !caller.is_root() {
            return Err(about(FsError::RootOnly("only root receives streams"), path));
        }
        let (above, last) = split(path)?;
        let parent = Held::resolve(fs, caller, above, Follow::Yes)?;
        let options = ReceiveOptions { name: name.map(<[u8]>::to_vec), force, no_hold: !hold };
        let destination = (parent.entry.node, last);
        let claim = staged.claim_for(("stream", path), destination, &SystemClock::new())?;
        let caller = Caller { enforce: Enforce::Here, ..caller.clone() };
        let receiver = Receiver::new(fs, &caller, destination, options);
        let path = path.to_vec();
        Ok(Receive { receiver: Some(receiver), path, fs, _parent: parent, _claim: claim })
    }

    /// Applies the next bytes.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Answered<Answer> {
        let Some(receiver) = &mut self.receiver else {
            return Err(Failure::new(FailureKind::Protocol, "the stream has failed"));
        };
        match receiver.feed(bytes) {
            Ok(()) => {
                let ((records, bytes), expected) = (receiver.done(), receiver.expected());
                Ok(Answer::Receiving(Receiving {
                    records,
                    bytes,
                    expected_bytes: expected.0,
                    expected_changes: expected.1,
                }))
            }
            Err(error) => {
                let suspended = self.receiver.take().and_then(|one| one.give_up(Some(&error)));
                // A token that is printed is of what is durable.
                let suspended = suspended.filter(|_| {
                    let synced = self.fs.sync();
                    if let Err(error) = &synced {
                        tracing::warn!(%error, "what was received of a stream may not be durable");
                    }
                    synced.is_ok()
                });
                Err(how_to_continue(failed(error, &self.path), suspended))
            }
        }
    }

    /// Ends the stream.
    pub(super) fn close(mut self) -> Answered<Answer> {
        let Some(receiver) = self.receiver.take() else {
            return Err(Failure::new(FailureKind::Protocol, "the stream has failed"));
        };
        if !receiver.is_complete() {
            let suspended = receiver.give_up(None);
            self.fs.sync().map_err(Failure::from)?;
            let message = "the stream ends before its last record; nothing of it is visible";
            let failure = Failure::new(FailureKind::Interrupted, message).at(&self.path);
            return Err(how_to_continue(failure, suspended));
        }
        let received = receiver.finish().map_err(|error| failed(error, &self.path))?;
        self.fs.sync().map_err(Failure::from)?;
        Ok(Answer::Received(Received {
            snapshot: Bytes(received.snapshot.name),
            base: received.base.map(|base| Bytes(base.name)),
            records: received.records,
            bytes: received.bytes,
        }))
    }
}

/// The token of a stream to a destination that was cut.
pub(super) fn token(fs: &Volume, caller: &Caller, path: &[u8]) -> Answered<Answer> {
    let (above, last) = split(path)?;
    let parent = Held::resolve(fs, caller, above, Follow::Yes)?;
    let token = Receiver::token(fs, caller, (parent.entry.node, last));
    let token = token.map_err(|error| failed(error, path))?;
    Ok(Answer::Token(token.map(|token| token.to_string())))
}

/// Adds how a stream that failed continues.
fn how_to_continue(failure: Failure, suspended: Option<Suspended>) -> Failure {
    match suspended {
        None => failure,
        Some(Suspended { token }) => {
            let hint = if failure.hint.is_empty() {
                RESUME.to_owned()
            } else {
                format!("{}; {RESUME}", failure.hint)
            };
            failure.hint(format!("{hint}; the token is {token}"))
        }
    }
}
