//! `Remote`: calls over a connection that is made again when it is lost.
//!
//! A call has a number and waits for its answer. The connection may be lost while the server still
//! has the session. Then every call without an answer is sent again with its number, and the server
//! executes none twice. If the server has lost the session, calls that change nothing are sent
//! again; the others fail, for they may have been executed. A call that finds no server waits for a
//! bounded time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use device::sync::{Condvar, Mutex};
use device::{Clock, Net};
use inode::{FsError, NodeId};
use rpc::Channel;
use vfs::FsResult;
use wire::remote::{
    Asker, FEATURE_TAKEN_OVER, FrameKind, FsAnswer, FsCall, FsFailure, LockKind, LockRange, Node,
    put_head, split_head,
};
use wire::{decode, encode};

use super::connect::{ConnectError, Purpose, Target, connect};
use super::kept::Kept;
use super::silent::Silent;
use super::under_way::{How, Owed, State, Waiting};
use crate::convert;
use crate::server::Locks;

/// How often the server hears that the client lives; pauses of it are filled, too.
const PING_EVERY: Duration = Duration::from_secs(8);
/// How often returned look-ups are sent.
const FORGET_EVERY: Duration = Duration::from_millis(100);
/// The same if another server may take over: one that hangs must be noticed.
const PING_EVERY_OF_SEVERAL: Duration = Duration::from_secs(1);
/// How long a call waits for a server to come back: less than a server keeps a session.
const PATIENCE: Duration = Duration::from_secs(45);
/// How often a waiting call looks whether its caller still waits.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Most calls that wait for locks.
const LOCK_WAITS_MAX: usize = 48;
/// Most look-ups returned in one message.
const FORGOTTEN_MAX: usize = 4096;

/// What a call that found no server fails with.
const NO_CONNECTION: &str = "no connection to the server";

/// Calls to a server.
pub struct Remote {
    pub(super) target: Target,
    pub(super) net: Arc<dyn Net>,
    pub(super) clock: Arc<dyn Clock>,
    patience: Duration,
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
    /// Wakes the thread that reports.
    pub(super) signal: Condvar,
    /// The number of the last ping.
    pub(super) pings: AtomicU64,
    /// Raised with each new session: what was opened before is not open in it.
    pub(super) epoch: AtomicU64,
    /// Whether the server lets this client change nothing.
    read_only: bool,
    /// Whether the server's volume is one that another one may take over.
    pub(super) may_move: AtomicBool,
    /// Servers that do not answer.
    pub(super) silent: Silent,
    /// What the client holds, and its locks: a server that takes over asks for them.
    pub(super) kept: Arc<Kept>,
    pub(super) locks: Locks,
}

impl Remote {
    /// Connects; later connections are made by threads of its own.
    pub fn connect(
        net: Arc<dyn Net>,
        clock: Arc<dyn Clock>,
        target: Target,
        patience: Option<Duration>,
    ) -> Result<Arc<Remote>, ConnectError> {
        let silent = Silent::default();
        let purpose = Purpose::of_session(None, &[]);
        let (channel, welcome) = connect(&*net, &clock, (&target, &silent), &purpose)?;
        let requests_max = (welcome.requests_max as usize).clamp(1, 1024);
        let state = State::new(Arc::clone(&channel), welcome.session, requests_max);
        let remote = Arc::new(Remote {
            target,
            net,
            clock,
            patience: patience.unwrap_or(PATIENCE),
            state: Mutex::new(state),
            changed: Condvar::new(),
            signal: Condvar::new(),
            pings: AtomicU64::new(0),
            epoch: AtomicU64::new(1),
            read_only: welcome.read_only,
            may_move: AtomicBool::new(welcome.features & FEATURE_TAKEN_OVER != 0),
            silent,
            kept: Arc::default(),
            locks: Locks::default(),
        });
        let failed = |error: std::io::Error| ConnectError::Broken(error.into());
        let own = Arc::clone(&remote);
        device::spawn("remote-receive", move || own.keep_connected(channel)).map_err(failed)?;
        let own = Arc::clone(&remote);
        device::spawn("remote-ping", move || own.keep_reporting()).map_err(failed)?;
        Ok(remote)
    }

    /// The session's number among those of this mount.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// What the client holds.
    pub(super) fn kept(&self) -> &Arc<Kept> {
        &self.kept
    }

    /// Notes a lock that the server granted, or ended.
    pub(super) fn note_lock(&self, node: NodeId, lock: LockRange) {
        self.locks.note(node, lock);
    }

    /// Whether the server lets this client change nothing.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Ends the session: the server releases what it holds.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        if let Some(connection) = state.connection.take() {
            let mut frame = Vec::new();
            put_head(FrameKind::Bye, 0, &mut frame);
            drop(state);
            connection.send(&frame).unwrap_or_default();
            // Closed by the server, so that the message arrives.
            state = self.state.lock();
        }
        for call in std::mem::take(&mut state.calls).into_values() {
            call.waiting.put(Err(gone("the mount ends")));
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Returns look-ups, soon.
    pub(super) fn forget(&self, node: NodeId, lookups: u64) {
        let mut state = self.state.lock();
        // At once: a server that takes over between the two would be given it back twice.
        self.kept.forget(node, lookups);
        state.forgotten.push((convert::node_to_wire(node), lookups));
        if state.forgotten.len() == FORGOTTEN_MAX {
            drop(state);
            self.signal.notify_all();
        }
    }

    /// Reports a close. Nobody waits for the answer. With the last one of a file end locks of which
    /// the kernel reports no end: those of open file descriptions (OFD).
    pub(super) fn release(&self, node: NodeId) {
        let mut state = self.state.lock();
        // Behind those before it.
        let is_next = state.owed.is_empty();
        // (See above.)
        if self.kept.was_released(node) {
            // In one step: a later lock, of a later open, waits for the end of an earlier one.
            for LockRange { owner, whole, .. } in self.locks.of(node) {
                let (kind, end) = (LockKind::None, u64::MAX);
                self.locks.note(node, LockRange { owner, pid: 0, kind, start: 0, end, whole });
                let of = (convert::node_to_wire(node), owner);
                state.owed.push_back(Owed::Unlock { of, whole });
            }
        }
        state.owed.push_back(Owed::Release(convert::node_to_wire(node)));
        drop(state);
        if is_next {
            self.pay();
        }
    }

    /// Ends the locks of an owner, now or, if the caller does not wait that long, later.
    pub(super) fn unlock(&self, who: Asker, node: Node, owner: u64, whole: bool) -> FsResult<()> {
        let call = FsCall::Unlock { node, owner, whole };
        if let Some(node) = convert::node(node) {
            let (kind, end) = (LockKind::None, u64::MAX);
            self.locks.note(node, LockRange { owner, pid: 0, kind, start: 0, end, whole });
        }
        match self.begin(&vfs::cancel(), who, call) {
            Ok((id, waiting)) => self.wait_and_read(id, &waiting, &vfs::cancel(), |answer| {
                matches!(answer, FsAnswer::Number(_)).then_some(())
            }),
            Err(error) => {
                let mut state = self.state.lock();
                if !state.ended {
                    state.owed.push_back(Owed::Unlock { of: (node, owner), whole });
                }
                Err(error)
            }
        }
    }

    /// Sends reports that are owed, as far as there is space.
    fn pay(&self) {
        loop {
            let mut state = self.state.lock();
            let Some(connection) = state.connection.clone().filter(|_| state.has_space()) else {
                return;
            };
            let (call, how) = if let Some(owed) = state.owed.pop_front() {
                (owed.call(), How { ends: owed.ends(), ..How::default() })
            } else if state.forgotten.is_empty() {
                return;
            } else {
                let count = state.forgotten.len().min(FORGOTTEN_MAX);
                let items = state.forgotten.drain(..count).collect();
                (FsCall::Forget { items }, How::default())
            };
            // A repeat is executed once, as of any call.
            let now = self.clock.monotonic();
            let (_, _, frame) = state.add(Asker::default(), call, (how, now));
            drop(state);
            if connection.send(&frame).is_err() {
                connection.close();
            }
        }
    }

    /// Makes a call and reads its answer.
    pub(super) fn call<T>(
        &self,
        who: Asker,
        call: FsCall<'_>,
        read: impl FnOnce(FsAnswer<'_>) -> Option<T>,
    ) -> FsResult<T> {
        let cancel = vfs::cancel();
        let (id, waiting) = self.begin(&cancel, who, call)?;
        self.wait_and_read(id, &waiting, &cancel, read)
    }

    fn wait_and_read<T>(
        &self,
        id: u64,
        waiting: &Waiting,
        cancel: &AtomicBool,
        read: impl FnOnce(FsAnswer<'_>) -> Option<T>,
    ) -> FsResult<T> {
        let frame = self.wait(id, waiting, cancel)?;
        let body = split_head(&frame).map(|(_, _, body)| body).unwrap_or_default();
        let answer: Result<FsAnswer<'_>, FsFailure> = decode(body)
            .map_err(|error| gone(&format!("the server's answer is not understood: {error}")))?;
        let answer = answer.map_err(convert::error)?;
        read(answer).ok_or_else(|| gone("the server sent an unexpected answer"))
    }

    /// Registers a call and sends it, when there is space for it.
    fn begin(
        &self,
        cancel: &AtomicBool,
        who: Asker,
        call: FsCall<'_>,
    ) -> FsResult<(u64, Arc<Waiting>)> {
        let how = How::of(&call);
        let epoch = self.epoch();
        let mut state = self.state.lock();
        loop {
            if how.is_of_handle && self.epoch() != epoch {
                return Err(FsError::Stale);
            }
            if state.ended {
                return Err(gone("the mount ends"));
            }
            let lock_waits = || state.calls.values().filter(|call| call.waits_for_lock).count();
            if how.waits_for_lock && lock_waits() >= LOCK_WAITS_MAX {
                return Err(FsError::LimitReached("too many wait for locks"));
            }
            let is_free = how.takes.is_none_or(|of| !state.is_ending(of));
            let has_space = state.has_space() && (!call.changes() || state.has_space_for_change());
            if is_free && (how.waits_for_lock || has_space) {
                break;
            }
            // It was not sent, so it may be dropped.
            if vfs::is_cancelled(cancel) {
                return Err(FsError::Interrupted);
            }
            if self.is_lost(&state) {
                return Err(gone(NO_CONNECTION));
            }
            self.changed.wait_for(&mut state, LOOK_EVERY);
        }
        let connection = state.connection.clone();
        let (id, waiting, frame) = state.add(who, call, (how, self.clock.monotonic()));
        drop(state);
        if let Some(connection) = connection
            && connection.send(&frame).is_err()
        {
            // The receiver notices, and sends it again.
            connection.close();
        }
        Ok((id, waiting))
    }

    fn wait(&self, id: u64, waiting: &Waiting, cancel: &AtomicBool) -> FsResult<Vec<u8>> {
        let mut answer = waiting.answer.lock();
        loop {
            if let Some(answer) = answer.take() {
                return answer;
            }
            waiting.changed.wait_for(&mut answer, LOOK_EVERY);
            if answer.is_some() {
                continue;
            }
            drop(answer);
            if vfs::is_cancelled(cancel) {
                self.cancel(id)?;
            }
            self.give_up_if_lost(id);
            answer = waiting.answer.lock();
        }
    }

    /// Informs the server, once, that nobody waits for a call. Without a server a call ends at once
    /// if it was not executed, or changes nothing. Any other call may have been executed: its
    /// caller would repeat it after "interrupted", so it has to wait.
    fn cancel(&self, id: u64) -> FsResult<()> {
        let mut state = self.state.lock();
        let connection = state.connection.clone();
        let Some(call) = state.calls.get_mut(&id) else { return Ok(()) };
        if call.ends.is_some() {
            // It stays, and is sent until it is answered.
            return Err(FsError::Interrupted);
        }
        let Some(connection) = connection else {
            call.is_cancelled = true;
            if call.is_sent && !call.is_repeatable {
                return Ok(());
            }
            state.calls.remove(&id);
            return Err(FsError::Interrupted);
        };
        if std::mem::replace(&mut call.is_cancelled, true) {
            return Ok(());
        }
        drop(state);
        connection.send(&cancel_frame(id)).unwrap_or_default();
        Ok(())
    }

    /// Whether there has been no server for too long.
    fn is_lost(&self, state: &State) -> bool {
        let now = self.clock.monotonic();
        state.connection.is_none() && now.saturating_sub(state.lost_since) >= self.patience
    }

    /// Ends a call if there has been no server for too long.
    fn give_up_if_lost(&self, id: u64) {
        let mut state = self.state.lock();
        if !self.is_lost(&state) {
            return;
        }
        let waiting = match state.calls.get(&id) {
            // It stays, and is sent until it is answered.
            Some(call) if call.ends.is_some() => Some(Arc::clone(&call.waiting)),
            Some(_) => state.calls.remove(&id).map(|call| call.waiting),
            None => None,
        };
        if let Some(waiting) = waiting {
            tracing::error!(server = %self.target, "no connection to the server: a call fails");
            waiting.put(Err(gone(NO_CONNECTION)));
        }
    }

    fn ping(&self, channel: &Channel, acknowledged: &[u64]) {
        let number = self.pings.fetch_add(1, Ordering::SeqCst) + 1;
        let mut frame = Vec::new();
        put_head(FrameKind::Ping, number, &mut frame);
        encode(&acknowledged, &mut frame);
        channel.send(&frame).unwrap_or_default();
    }

    /// Returns look-ups, and pings, until the session ends.
    fn keep_reporting(&self) {
        let every = if self.has_several() { PING_EVERY_OF_SEVERAL } else { PING_EVERY };
        let mut next_ping = self.clock.monotonic() + every;
        loop {
            let mut state = self.state.lock();
            if state.ended {
                return;
            }
            if !state.ping_is_due || state.connection.is_none() {
                self.signal.wait_for(&mut state, FORGET_EVERY);
            }
            let now = self.clock.monotonic();
            let Some(connection) = state.connection.clone() else { continue };
            let ping = now >= next_ping || state.ping_is_due || state.keeps_much();
            if ping {
                state.ping_is_due = false;
                let acknowledged = state.take_acknowledged();
                drop(state);
                next_ping = now + every;
                self.ping(&connection, &acknowledged);
            } else {
                drop(state);
            }
            self.pay();
        }
    }
}

pub(super) fn cancel_frame(id: u64) -> Vec<u8> {
    let mut frame = Vec::new();
    put_head(FrameKind::Cancel, id, &mut frame);
    frame
}

pub(super) fn gone(what: &str) -> FsError {
    FsError::Io(what.to_owned().into())
}
