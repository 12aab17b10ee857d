//! What a client's connection has to do: calls without an answer, and reports that are owed.
//!
//! An end of locks, and a close, is never dropped while the session lives. The server would keep
//! the lock, or the rights of the open file, as long as the mount.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use device::sync::{Condvar, Mutex};
use inode::FsError;
use rpc::Channel;
use wire::remote::{
    Asked, Asker, FrameKind, FsAnswer, FsCall, FsFailure, LockKind, Node, Resume, put_head,
    split_head,
};
use wire::{decode, encode};

/// Most changes since the oldest one without an answer: half of what a server keeps.
const UNANSWERED_CHANGES_MAX: u64 = 512;

/// A client that makes no call acknowledges soon, and not with its next ping, if answers which the
/// server keeps have so many bytes. The answers of all clients share the server's memory. (Short
/// ones of all calls that may be under way have less.)
const KEPT_BYTES: usize = 16 << 10;

/// What most messages fit in.
const SHORT_BYTES: usize = 128;

/// A call under way.
#[expect(clippy::struct_excessive_bools, reason = "each is a property of its own")]
pub(super) struct Call {
    /// Its message, to be sent again.
    pub(super) frame: Vec<u8>,
    pub(super) waiting: Arc<Waiting>,
    /// When it was sent last, or is to be.
    pub(super) since: Duration,
    /// It was sent in the present session.
    pub(super) is_sent: bool,
    pub(super) is_repeatable: bool,
    pub(super) waits_for_lock: bool,
    /// It uses what a program opened, which a new session does not have open.
    pub(super) is_of_handle: bool,
    /// Its caller went away.
    pub(super) is_cancelled: bool,
    /// Its number among those that change something; 0: it is none.
    pub(super) once: u64,
    /// It only reports what its client does not hold any more.
    pub(super) is_report: bool,
    /// The owner whose locks on a file it ends. It is sent until it is answered, whether or not its
    /// caller still waits, or the lock would stay as long as the mount.
    pub(super) ends: Option<LocksOf>,
}

/// Whose locks on which file.
pub(super) type LocksOf = (Node, u64);

/// What a program gave up, to be reported.
pub(super) enum Owed {
    Release(Node),
    Unlock { of: LocksOf, whole: bool },
}

impl Owed {
    pub(super) fn call(&self) -> FsCall<'static> {
        match *self {
            Owed::Release(node) => FsCall::Release { node },
            Owed::Unlock { of: (node, owner), whole } => FsCall::Unlock { node, owner, whole },
        }
    }

    pub(super) fn ends(&self) -> Option<LocksOf> {
        match *self {
            Owed::Release(_) => None,
            Owed::Unlock { of, .. } => Some(of),
        }
    }
}

/// Where a caller waits for its answer.
#[derive(Default)]
pub(super) struct Waiting {
    pub(super) answer: Mutex<Option<Result<Vec<u8>, FsError>>>,
    pub(super) changed: Condvar,
}

impl Waiting {
    pub(super) fn put(&self, answer: Result<Vec<u8>, FsError>) {
        *self.answer.lock() = Some(answer);
        self.changed.notify_all();
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) calls: BTreeMap<u64, Call>,
    pub(super) last_id: u64,
    /// The last number of a call that changes something, in this session.
    pub(super) last_once: u64,
    pub(super) connection: Option<Arc<Channel>>,
    pub(super) session: Option<Resume>,
    pub(super) requests_max: usize,
    /// Callers whose answers have arrived, until they have read them.
    pub(super) readers: Vec<Weak<Waiting>>,
    /// Answers that the server need not keep any more.
    acknowledged: Vec<u64>,
    /// Bytes of those of them that it keeps until it learns of that.
    kept_bytes: usize,
    /// The call that is being sent again now, and, if its answer has arrived meanwhile, the bytes
    /// of it that the server keeps.
    sent_again: Option<(u64, Option<usize>)>,
    /// The thread that reports is to send a ping.
    pub(super) ping_is_due: bool,
    pub(super) lost_since: Duration,
    /// Look-ups to return.
    pub(super) forgotten: Vec<(Node, u64)>,
    /// Closes and ends of locks to report, oldest first.
    pub(super) owed: VecDeque<Owed>,
    pub(super) ended: bool,
}

impl State {
    /// Of a session that has begun.
    pub(super) fn new(connection: Arc<Channel>, session: Resume, requests_max: usize) -> State {
        let (connection, session) = (Some(connection), Some(session));
        State { connection, session, requests_max, ..State::default() }
    }

    /// Whether there is space for a call among those that are under way.
    pub(super) fn has_space(&self) -> bool {
        let others = self.calls.values().filter(|call| !call.waits_for_lock).count();
        others < self.requests_max
    }

    /// Registers a call; returns its number, where its answer comes, and its message.
    pub(super) fn add(
        &mut self,
        who: Asker,
        call: FsCall<'_>,
        (how, now): (How, Duration),
    ) -> (u64, Arc<Waiting>, Vec<u8>) {
        self.last_id += 1;
        let id = self.last_id;
        let is_repeatable = call.is_repeatable();
        let is_report =
            matches!(call, FsCall::Forget { .. } | FsCall::Release { .. } | FsCall::Unlock { .. });
        let once = self.next_once(&call);
        let done = self.done(once);
        let mut frame = Vec::with_capacity(SHORT_BYTES);
        put_head(FrameKind::Request, id, &mut frame);
        let acknowledged = self.take_acknowledged();
        encode(&Asked { acknowledged, once, done, who, call }, &mut frame);
        let waiting = Arc::new(Waiting::default());
        let call = Call {
            frame: frame.clone(),
            waiting: Arc::clone(&waiting),
            since: now,
            is_sent: self.connection.is_some(),
            is_repeatable,
            is_of_handle: how.is_of_handle,
            waits_for_lock: how.waits_for_lock,
            is_cancelled: false,
            once,
            is_report,
            ends: how.ends,
        };
        self.calls.insert(id, call);
        (id, waiting, frame)
    }

    /// Takes the answer to a call, of so many bytes; returns the call, if it has none yet.
    pub(super) fn take_answered(&mut self, id: u64, bytes: usize) -> Option<Call> {
        let call = self.calls.remove(&id);
        let is_kept = call.as_ref().is_some_and(|call| !call.is_repeatable);
        let kept = if is_kept { bytes } else { 0 };
        match &mut self.sent_again {
            Some((sent, answered)) if *sent == id => *answered = Some(kept),
            _ => self.acknowledge(id, kept),
        }
        call
    }

    /// An answer has arrived, of which the server keeps so many bytes until it learns that.
    fn acknowledge(&mut self, id: u64, kept: usize) {
        self.acknowledged.push(id);
        self.kept_bytes += kept;
    }

    /// Begins to send a call again; returns its message. Until [`State::was_sent_again`] its answer
    /// is not acknowledged: the server would not know a repeat that it receives after that, and
    /// would execute it.
    pub(super) fn send_again(&mut self, id: u64) -> Option<Vec<u8>> {
        let frame = self.calls.get(&id)?.frame.clone();
        self.sent_again = Some((id, None));
        Some(frame)
    }

    /// A call was sent again.
    pub(super) fn was_sent_again(&mut self) {
        if let Some((id, Some(kept))) = self.sent_again.take() {
            self.acknowledge(id, kept);
        }
    }

    /// Answers that the server is to learn of now.
    pub(super) fn take_acknowledged(&mut self) -> Vec<u64> {
        self.kept_bytes = 0;
        std::mem::take(&mut self.acknowledged)
    }

    /// Whether the server keeps long answers that have arrived.
    pub(super) fn keeps_much(&self) -> bool {
        self.kept_bytes >= KEPT_BYTES
    }

    /// Nothing of the connection before concerns the next one.
    pub(super) fn begin_connection(&mut self) {
        self.sent_again = None;
        self.ping_is_due = false;
    }

    /// The server knows nothing of what is to be reported.
    pub(super) fn drop_reports(&mut self) {
        self.forgotten.clear();
        self.owed.clear();
        self.take_acknowledged();
    }

    /// The number of a call among those that change something.
    fn next_once(&mut self, call: &FsCall<'_>) -> u64 {
        if !call.changes() {
            return 0;
        }
        self.last_once += 1;
        self.last_once
    }

    /// Up to which number no call that changes something is awaited any more. `new`: one that is
    /// being made.
    fn done(&self, new: u64) -> u64 {
        let awaited = self.calls.values().map(|call| call.once).chain([new]);
        let first = awaited.filter(|once| *once > 0).min();
        first.map_or(self.last_once, |first| first - 1)
    }

    /// Whether another change fits: a server keeps only so many answers.
    pub(super) fn has_space_for_change(&self) -> bool {
        self.last_once - self.done(self.last_once + 1) < UNANSWERED_CHANGES_MAX
    }

    /// Gives the calls that are kept numbers of a new session.
    pub(super) fn begin_numbers(&mut self) {
        self.last_once = 0;
        for call in self.calls.values_mut() {
            call.once = 0;
        }
        let ids: Vec<u64> = self.calls.keys().copied().collect();
        for id in ids {
            let Some(before) = self.calls.get(&id).map(|call| call.frame.clone()) else { continue };
            let Some((kind, _, body)) = split_head(&before) else { continue };
            let Ok(mut asked) = decode::<Asked<'_>>(body) else { continue };
            asked.once = self.next_once(&asked.call);
            asked.done = self.done(asked.once);
            asked.acknowledged.clear();
            let mut frame = Vec::new();
            put_head(kind, id, &mut frame);
            encode(&asked, &mut frame);
            let once = asked.once;
            if let Some(call) = self.calls.get_mut(&id) {
                (call.once, call.frame) = (once, frame);
            }
        }
    }

    /// Whether locks of an owner are being ended: a new lock must not overtake that.
    pub(super) fn is_ending(&self, of: LocksOf) -> bool {
        self.calls.values().any(|call| call.ends == Some(of))
            || self.owed.iter().any(|owed| owed.ends() == Some(of))
    }
}

/// How a call is made.
#[derive(Clone, Copy, Default)]
pub(super) struct How {
    pub(super) waits_for_lock: bool,
    pub(super) is_of_handle: bool,
    /// It takes a lock of this owner.
    pub(super) takes: Option<LocksOf>,
    pub(super) ends: Option<LocksOf>,
}

impl How {
    pub(super) fn of(call: &FsCall<'_>) -> How {
        let is_of_handle = matches!(
            call,
            FsCall::Read { .. }
                | FsCall::Write { .. }
                | FsCall::SetAttr { .. }
                | FsCall::Seek { .. }
                | FsCall::Sync { .. }
                | FsCall::Allocate { .. }
                | FsCall::CopyRange { .. }
                | FsCall::Lock { .. }
                | FsCall::TestLock { .. }
        );
        let how = How { is_of_handle, ..How::default() };
        match *call {
            FsCall::Lock { node, lock, .. } if lock.kind == LockKind::None => {
                How { ends: Some((node, lock.owner)), ..how }
            }
            FsCall::Lock { node, lock, wait } => {
                How { waits_for_lock: wait, takes: Some((node, lock.owner)), ..how }
            }
            FsCall::Unlock { node, owner, .. } => How { ends: Some((node, owner)), ..how },
            _ => how,
        }
    }
}

/// The answer to a report that the server need not get any more.
pub(super) fn nothing_more(id: u64) -> Vec<u8> {
    let mut frame = Vec::new();
    put_head(FrameKind::Reply, id, &mut frame);
    encode(&Ok::<_, FsFailure>(FsAnswer::Number(0)), &mut frame);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(state: &mut State) -> u64 {
        let (node, now) = (Node::ROOT, Duration::ZERO);
        let call = FsCall::Write { node, offset: 0, flags: 0, bytes: &[] };
        state.add(Asker::default(), call, (How::default(), now)).0
    }

    /// The server forgets a request with the acknowledgement of its answer, and would execute it.
    #[test]
    fn no_answer_is_acknowledged_while_its_call_is_sent_again() {
        let mut state = State::default();
        let (first, second) = (add(&mut state), add(&mut state));
        assert!(state.send_again(first).is_some());
        assert!(state.take_answered(first, 10).is_some());
        assert!(state.take_answered(second, 10).is_some());
        assert_eq!(state.take_acknowledged(), [second]);
        state.was_sent_again();
        assert_eq!(state.take_acknowledged(), [first]);
        // What is answered is not sent again.
        assert!(state.send_again(second).is_none());
        state.was_sent_again();
        assert!(state.take_acknowledged().is_empty());
    }

    #[test]
    fn what_the_server_keeps_is_counted_until_it_is_acknowledged() {
        let mut state = State::default();
        let write = add(&mut state);
        let call = FsCall::GetAttr { node: Node::ROOT };
        let (read, ..) = state.add(Asker::default(), call, (How::default(), Duration::ZERO));
        state.take_answered(read, KEPT_BYTES);
        assert!(!state.keeps_much(), "its answer is not kept");
        state.take_answered(write, KEPT_BYTES);
        assert!(state.keeps_much());
        let write = add(&mut state);
        assert!(!state.keeps_much());
        // One that is held back counts from when it can be acknowledged.
        assert!(state.send_again(write).is_some());
        state.take_answered(write, KEPT_BYTES);
        state.take_acknowledged();
        state.was_sent_again();
        assert!(state.keeps_much());
    }
}
