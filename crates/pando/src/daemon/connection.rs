//! One connection: hello, then requests one after the other, each with the rights that the kernel
//! reports for the other side.

use std::io::{self, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use client::{Peer, Timed};
use inode::{Caller, Ends, Enforce};
use vfs::FileSystem;
use wire::{
    Answer, Body, Bytes, Call, Failure, FailureKind, FrameError, HELLO_MAGIC, Hello, Reply,
    Request, VERSION, Welcome, decode, encode, read_frame, write_frame,
};

use super::import::Import;
use super::load::{self, Granted, Load};
use super::replies::{Replies, too_long};
use super::scan::{self, ScanSession};
use super::server::Server;
use super::sessions::Task;
use super::shares::Taken;
use super::streams::{self, Receive};
use super::{admission, again, calls, export, far_calls, mounted, stream_terms};

/// How soon a connection has to identify itself.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// How soon a connection has to send its next request, as a whole. Commands ask one thing after the
/// other.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// After so long without a message, what an import made becomes visible: its source is slow.
const SHOWN_AFTER_NANOS: u32 = 50_000_000;

/// How soon an import has to send its next message, as a whole: its source may be slow, but not
/// without end.
const SILENT_IMPORT_MAX: Duration = Duration::from_secs(300);

/// The same of a stream: its sender may compare large trees before it sends anything.
const SILENT_STREAM_MAX: Duration = Duration::from_secs(3600);

/// How soon the other side has to read what it requested. A pager that is left open must not keep
/// the volume from being mounted for ever.
const READ_WITHIN: Duration = Duration::from_secs(300);

/// Bytes that are read ahead of a message. The rest of a long one is read to where it is decoded
/// from: what is read ahead is copied there once more.
const READ_AHEAD_BYTES: usize = 16 << 10;

/// Work of more than one request that is under way on a connection.
#[derive(Default)]
struct Work<'a> {
    import: Option<Import<'a>>,
    scan: Option<ScanSession<'a>>,
    receive: Option<Receive<'a>>,
    /// It is for another machine, whose users are those of this one by their numbers alone.
    is_far: bool,
    /// The memory of the present request.
    given: Granted,
}

impl Work<'_> {
    fn is_none(&self) -> bool {
        self.import.is_none() && self.scan.is_none() && self.receive.is_none()
    }

    /// Why the daemon ends the connection, and what to do about what was under way on it.
    fn ended(&self, message: String) -> Failure {
        let failure = Failure::new(FailureKind::Other, message);
        match self.import {
            Some(_) => failure.hint("run the same import again to continue"),
            None => failure,
        }
    }

    /// How long nothing may come. Scans are of root and whose the daemon is, and wait for sources
    /// of any kind.
    fn silence_max(&self) -> Option<Duration> {
        match self {
            Work { scan: Some(_), .. } => None,
            Work { receive: Some(_), .. } => Some(SILENT_STREAM_MAX),
            Work { import: Some(_), .. } => Some(SILENT_IMPORT_MAX),
            _ => Some(SILENCE_MAX),
        }
    }
}

/// Refuses a connection, and reports why as far as the other side reads it; nothing waits for that.
pub(super) fn refuse(stream: &UnixStream, failure: Failure) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    let welcome = Welcome { magic: HELLO_MAGIC, version: VERSION, pid: 0, mount_point: None };
    let mut message = Vec::new();
    encode(&welcome, &mut message);
    let mut out = Vec::new();
    write_frame(&mut out, &message)?;
    message.clear();
    encode(&Reply { id: 0, body: Body::Failed(failure) }, &mut message);
    write_frame(&mut out, &message)?;
    (&mut &*stream).write_all(&out)
}

/// Serves a connection to its end.
pub(super) fn serve(server: &Server, id: u64, stream: UnixStream, far: Option<Caller>) {
    if let Err(error) = try_serve(server, id, stream, far) {
        tracing::debug!(%error, "a connection ended");
    }
}

fn try_serve(
    server: &Server,
    id: u64,
    stream: UnixStream,
    asserted: Option<Caller>,
) -> Result<(), FrameError> {
    let is_far = asserted.is_some();
    let caller = match asserted {
        Some(caller) => caller,
        None => caller(client::peer(stream.as_fd())?),
    };
    // A client that connects and sends nothing must not keep a place from others.
    stream.set_write_timeout(Some(READ_WITHIN))?;
    let handle = device::with_a_descriptor(|| stream.try_clone())?;
    let mut reader = BufReader::with_capacity(READ_AHEAD_BYTES, Timed::new(handle));
    reader.get_mut().limit(Some(HELLO_WITHIN))?;
    let Some(peer) = server.outgoing(id, stream) else { return Ok(()) };
    let mut replies = Replies::new(peer);
    let mut frame = Vec::new();
    read_frame(&mut reader, &mut frame)?;
    if !welcome(server, &frame, &mut replies)? {
        return Ok(());
    }
    let mut work = Work { is_far, ..Work::default() };
    loop {
        if reader.buffer().is_empty() {
            replies.push()?;
            if let Some(import) = &mut work.import
                && import.has_hidden()
                && !reader.get_ref().arrives(SHOWN_AFTER_NANOS)
            {
                import.show();
            }
        }
        reader.get_mut().limit(work.silence_max())?;
        let read = read_frame(&mut reader, &mut frame);
        if read.is_err() || server.session_ended_by(id).is_some() {
            return end(server, id, read, &work, &mut replies);
        }
        let mut request: Request<'_> = match decode(&frame) {
            Ok(request) => request,
            Err(error) => {
                let failure = Failure::new(FailureKind::Protocol, error.to_string());
                replies.send(Body::Failed(failure))?;
                return Ok(replies.push()?);
            }
        };
        let stream = server.far_stream_bytes();
        if is_far && let Err(failure) = far_calls::check(&mut request.call, &caller, stream) {
            replies.answer(request.id);
            replies.send(Body::Failed(failure))?;
            continue;
        }
        let continues = matches!(
            request.call,
            Call::ImportOpen { .. } | Call::ScanOpen { .. } | Call::ReceiveOpen { .. }
        );
        let load =
            (load::load(&request.call), load::memory(&request.call, is_far.then_some(stream)));
        let task = name(&request.call).map(|what| Task { what, continues });
        let was_idle = work.is_none();
        if was_idle && task.is_some() && !server.set_busy(id, task) {
            return Ok(replies.send_leaving()?);
        }
        if !was_idle && has_something_to_do(&request.call) {
            server.heard(id);
        }
        replies.answer(request.id);
        match request.call {
            Call::Sessions => replies.send(Body::Done(Answer::Sessions(server.sessions(id))))?,
            Call::SessionEnd { id: other } => {
                let ended = server.end_session(other, id).map(|()| Answer::Nothing);
                let ended = settled(server, ended);
                replies.send(ended.map_or_else(Body::Failed, Body::Done))?;
            }
            call => match load::bounded(&call).and_then(|()| server.begin(id, load)) {
                Ok(memory) => {
                    work.given = load.1.given(memory);
                    answer_counted(load.0, (server, id), &caller, call, &mut work, &mut replies)?;
                }
                Err(failure) => replies.send(Body::Failed(failure))?,
            },
        }
        if work.is_none() && !server.set_busy(id, None) {
            return Ok(replies.send_leaving()?);
        }
    }
}

/// Ends a connection, and reports why if the daemon ends it.
fn end(
    server: &Server,
    id: u64,
    read: Result<(), FrameError>,
    work: &Work<'_>,
    replies: &mut Replies,
) -> Result<(), FrameError> {
    let pid = std::process::id();
    if let Some(uid) = server.session_ended_by(id) {
        let message = format!("user {uid} ended this session with the daemon (pid {pid})");
        return Ok(replies.send_end(work.ended(message))?);
    }
    match read {
        // Our own end of reading, when the daemon ends: report it to the client.
        Err(_) if work.is_none() && server.is_leaving() => Ok(replies.send_leaving()?),
        Err(FrameError::Broken(error)) if is_timeout(&error) => {
            let seconds = work.silence_max().unwrap_or_default().as_secs();
            let message = format!("the daemon (pid {pid}) got no whole request for {seconds} s");
            tracing::info!(%message, session = id, "a session ends");
            Ok(replies.send_end(work.ended(message))?)
        }
        read => read,
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Whether a message of an import or a scan gives the daemon something to do: to ask whether all
/// is done is not progress.
fn has_something_to_do(call: &Call<'_>) -> bool {
    match call {
        Call::Import { items } => Import::begins_with_an_item(items),
        Call::Scan { items } => !items.is_empty(),
        Call::ImportFlush | Call::ScanFlush => false,
        _ => true,
    }
}

/// What is requested, for people; `None` of what is not waited for when the daemon is to leave.
fn name(call: &Call<'_>) -> Option<&'static str> {
    Some(match call {
        Call::HandOver | Call::ServesMount { .. } | Call::Sessions | Call::SessionEnd { .. } => {
            return None;
        }
        Call::ImportOpen { .. } => "an import",
        Call::ReceiveOpen { .. } => "receiving a stream",
        Call::Send { .. } | Call::Dump { .. } => "sending a snapshot",
        Call::ScanOpen { .. } => "an update of its index",
        Call::Find(_) | Call::List { .. } | Call::History { .. } => "a search",
        Call::Diff { .. } => "a comparison",
        Call::Totals { .. } => "a count",
        Call::Read { .. } => "reading a file",
        Call::Export { .. } => "an export",
        Call::Check => "a check",
        Call::Collect { .. } => "a collection",
        Call::QuotaSet { .. } | Call::OwnerQuotaSet { .. } | Call::QuotaCheck => {
            "a count for a quota"
        }
        Call::Status
        | Call::Info { .. }
        | Call::Stat { .. }
        | Call::SnapshotCreate { .. }
        | Call::SnapshotList { .. }
        | Call::SnapshotsOfVolume { .. }
        | Call::SnapshotDeleteNumber { .. }
        | Call::SnapshotDelete { .. }
        | Call::SnapshotRename { .. }
        | Call::ScheduleSet { .. }
        | Call::ScheduleGet { .. }
        | Call::Schedules
        | Call::SnapshotHold { .. }
        | Call::Clone { .. }
        | Call::Rollback { .. }
        | Call::Remove { .. }
        | Call::Reclaiming { .. }
        | Call::SubvolumeCreate { .. }
        | Call::Receive { .. }
        | Call::ReceiveClose
        | Call::ReceiveToken { .. }
        | Call::Searchable
        | Call::Declare { .. }
        | Call::ClusterLimits { .. }
        | Call::IndexFlush { .. }
        | Call::Sync
        | Call::ImportPublish { .. }
        | Call::Import { .. }
        | Call::ImportEnter { .. }
        | Call::ImportFlush
        | Call::ImportClose
        | Call::ScanInfo
        | Call::ScanFollow { .. }
        | Call::ScanDirectories
        | Call::Scan { .. }
        | Call::ScanFlush
        | Call::ScanClose { .. }
        | Call::QuotaGet { .. }
        | Call::OwnerQuotaGet { .. }
        | Call::QuotaList
        | Call::TrashSet { .. }
        | Call::TrashList { .. }
        | Call::TrashEmpty { .. }
        | Call::Restore { .. }
        | Call::RestoreFrom { .. }
        | Call::MountAgain { .. } => "a request",
    })
}

/// Answers hello. `false`: the two do not speak one version, and the answer is complete.
fn welcome(server: &Server, frame: &[u8], replies: &mut Replies) -> io::Result<bool> {
    let known = matches!(decode::<Hello>(frame), Ok(Hello { magic: HELLO_MAGIC, .. }));
    if !known {
        return Ok(false);
    }
    let mount_point = server.mount_point().map(|path| Bytes::from(path.as_os_str().as_bytes()));
    let welcome =
        Welcome { magic: HELLO_MAGIC, version: VERSION, pid: std::process::id(), mount_point };
    replies.message(&welcome)?;
    replies.push()?;
    Ok(matches!(decode::<Hello>(frame), Ok(Hello { version: VERSION, .. })))
}

fn caller(peer: Peer) -> Caller {
    let Peer { uid, gid, groups, .. } = peer;
    Caller { uid, gid, groups, umask: 0, pid: 0, enforce: Enforce::Here, ends: Ends::NONE }
}

fn open_import<'a>(
    (server, id): (&'a Server, u64),
    caller: &Caller,
    (path, directory, staged): (&[u8], bool, bool),
    work: &mut Work<'a>,
    replies: &mut Replies,
) -> Result<Answer, Failure> {
    let staged = staged.then(|| server.staged());
    // (Memory for many files is this machine's: one of other machines has as much as users.)
    let trusted = server.trusts(caller.uid) && !work.is_far;
    let (mut opened, entered) =
        Import::open(server.fs(), caller, path, (directory, staged), trusted, replies)?;
    if let Some(taker) = server.taker(id) {
        opened.count_in(server.staged().held().of(taker));
    }
    work.import = Some(opened);
    Ok(entered)
}

fn answer_export(
    server: &Server,
    caller: &Caller,
    (path, memory, share): (&[u8], u64, Option<Taken<'_>>),
    (send, found): (export::Send<'_>, &mut dyn FnMut()),
) -> Result<Answer, Failure> {
    server.catch_up();
    let memory = stream_terms::bounded(caller, memory);
    export::export(server.fs(), (caller, path), (memory, share), send, found)?;
    Ok(Answer::Nothing)
}

/// What the user of a session may have recorded of links; of clients that is reserved elsewhere.
fn share_of_links((server, id): (&Server, u64), is_far: bool) -> Option<Taken<'_>> {
    let taker = server.taker(id).filter(|_| !is_far)?;
    Some(server.staged().links().of(taker))
}

/// Answers a request, and compares what it counted as with what it did. A stream is root's: its
/// parts, some of which end in a copy, are not counted.
fn answer_counted<'a>(
    load: Load,
    to: (&'a Server, u64),
    caller: &Caller,
    call: Call<'_>,
    work: &mut Work<'a>,
    replies: &mut Replies,
) -> io::Result<()> {
    let is_light = load == Load::Light && work.receive.is_none();
    let copies = is_light.then(fs::copies_of_this_thread);
    answer(to, caller, call, work, replies)?;
    debug_assert!(
        copies.is_none_or(|copies| copies == fs::copies_of_this_thread()),
        "invariant: a request that copies counts as more than light (`load.rs`)"
    );
    Ok(())
}

fn answer<'a>(
    (server, id): (&'a Server, u64),
    caller: &Caller,
    call: Call<'_>,
    work: &mut Work<'a>,
    replies: &mut Replies,
) -> io::Result<()> {
    if let Err(failure) = admission::check(server, caller, &call) {
        return replies.send(Body::Failed(failure));
    }
    if let Call::ImportOpen { path, directory, staged } = call {
        let opened = open_import((server, id), caller, (path, directory, staged), work, replies);
        return replies.send(settled(server, opened).map_or_else(Body::Failed, Body::Done));
    }
    let (given, import) = (work.given, &mut work.import);
    let answered = match (call, import.as_mut()) {
        (Call::ImportPublish { name }, Some(it)) => it.publish(name).map(|()| Answer::Nothing),
        (Call::Import { items }, Some(import)) => {
            let Err(error) = import.items(items) else { return Ok(()) };
            // No client of this version sends that: it must not hold the volume by it.
            let text = format!("the daemon ends an import with an unknown item: {error}");
            replies.send_end(work.ended(text))?;
            return Err(io::ErrorKind::InvalidData.into());
        }
        (Call::ImportEnter { name }, Some(import)) => import.enter_existing(name, replies),
        (Call::ImportFlush, Some(import)) => import.take_errors(),
        (Call::ImportClose, Some(finished)) => {
            let closed = finished.close();
            *import = None;
            server.settle();
            closed
        }
        (
            Call::Import { .. }
            | Call::ImportEnter { .. }
            | Call::ImportPublish { .. }
            | Call::ImportFlush
            | Call::ImportClose,
            None,
        ) => Err(Failure::new(FailureKind::Protocol, "no import is open")),
        (Call::Scan { items }, _) => {
            if let Some(scan) = &mut work.scan {
                scan.items(items);
            }
            return Ok(());
        }
        (
            call @ (Call::ScanInfo
            | Call::ScanOpen { .. }
            | Call::ScanDirectories
            | Call::ScanFlush
            | Call::ScanClose { .. }),
            _,
        ) => answer_scan(server, caller, &call, &mut work.scan, replies),
        (Call::ScanFollow { by, unwatched }, _) => {
            scan::follow((server, id), caller, by, unwatched)
        }
        (call @ (Call::ReceiveOpen { .. } | Call::Receive { .. } | Call::ReceiveClose), _) => {
            answer_receive(server, caller, &call, &mut work.receive)
        }
        (call @ (Call::Send { .. } | Call::Dump { .. }), _) => {
            let peer = replies.stream()?;
            let end_turn = || server.end_turn(id);
            let mut send = |body| replies.part(body);
            streams::send(server, caller, (&call, given), (&peer, &mut send), end_turn)
        }
        // How long the rest takes is up to the other side: it keeps no search from others.
        (Call::Read { path }, _) => {
            calls::read(server.fs(), caller, path, replies, || server.end_turn(id))
        }
        (Call::Export { path, memory }, _) => {
            let send = &mut |body| replies.part(body);
            // The memory that a client may take is reserved (`sessions/reserved.rs`).
            let of = (path, memory, share_of_links((server, id), work.is_far));
            answer_export(server, caller, of, (send, &mut || server.end_turn(id)))
        }
        (Call::Diff { old, new, .. }, _) => calls::diff(server, caller, (old, new, given), replies),
        (call @ Call::MountAgain { .. }, _) => again::mount((server, id), &call),
        (call, _) => calls::answer(server, caller, &call, replies),
    };
    let mut answered = settled(server, answered);
    if work.is_far {
        answered = answered.map(|answer| far_calls::shown(answer, caller));
    }
    match replies.send(answered.map_or_else(Body::Failed, Body::Done)) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            replies.send(Body::Failed(too_long(&error)))
        }
        sent => sent,
    }
}

/// An answer, when what it rests on is durable: of a volume that is served none is sent before.
fn settled(server: &Server, answered: Result<Answer, Failure>) -> Result<Answer, Failure> {
    let settled = server.fs().unsettled().map_or(Ok(()), |position| server.fs().settle(position));
    answered.and_then(|answer| settled.map(|()| answer).map_err(Failure::from))
}

fn answer_receive<'a>(
    server: &'a Server,
    caller: &Caller,
    call: &Call<'_>,
    open: &mut Option<Receive<'a>>,
) -> Result<Answer, Failure> {
    let none = || Failure::new(FailureKind::Protocol, "no stream is open");
    match *call {
        Call::ReceiveOpen { .. } => {
            // One that was open is given up first.
            *open = None;
            mounted::refuse(server, caller, call)?;
            *open = Some(Receive::open((server.fs(), server.staged()), caller, call)?);
            Ok(Answer::Nothing)
        }
        Call::Receive { bytes } => {
            let fed = open.as_mut().ok_or_else(none)?.feed(bytes);
            if fed.is_err() {
                *open = None;
                server.settle();
            }
            fed
        }
        _ => {
            let closed = open.take().ok_or_else(none)?.close();
            server.settle();
            server.background().wake();
            closed
        }
    }
}

fn answer_scan<'a>(
    server: &'a Server,
    caller: &Caller,
    call: &Call<'_>,
    open: &mut Option<ScanSession<'a>>,
    replies: &mut Replies,
) -> Result<Answer, Failure> {
    let none = || Failure::new(FailureKind::Protocol, "no scan is open");
    match *call {
        Call::ScanOpen { source, started, crosses_mounts, keeps_xattrs, hidden } => {
            // One that was open is given up first.
            *open = None;
            let source = source.to_vec();
            let options = fs::ScanOptions { source, started, crosses_mounts, keeps_xattrs, hidden };
            let (scan, answer) = ScanSession::open(server, caller, &options)?;
            *open = Some(scan);
            Ok(answer)
        }
        Call::ScanDirectories => open.as_ref().ok_or_else(none)?.known(replies),
        Call::ScanFlush => open.as_mut().ok_or_else(none)?.flush(),
        Call::ScanClose { ended, unread } => {
            let closed = open.take().ok_or_else(none)?.close(ended, unread);
            server.settle();
            closed
        }
        _ => scan::info(server),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::fresh;
    use crate::daemon::peer_wait::Outgoing;

    /// That a silent connection ends is tested with a daemon; here, after how long.
    #[test]
    fn an_import_may_be_silent_for_longer_but_not_for_ever() {
        let fs = fresh::volume();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let (root, mut replies) = (Caller::root(), Replies::new(Outgoing::for_tests(ours)));
        let (import, _) = Import::open(&fs, &root, b"/", (true, None), true, &mut replies).unwrap();
        assert_eq!(Work::default().silence_max(), Some(SILENCE_MAX));
        let mut work = Work { import: Some(import), ..Work::default() };
        assert_eq!(work.silence_max(), Some(SILENT_IMPORT_MAX));
        work.import = None;
        let call = Call::ReceiveOpen { path: b"/copy", name: None, force: false, hold: false };
        work.receive =
            Some(Receive::open((&fs, &std::sync::Arc::default()), &root, &call).unwrap());
        assert_eq!(work.silence_max(), Some(SILENT_STREAM_MAX));
    }
}
