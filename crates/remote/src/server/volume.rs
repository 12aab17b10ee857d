//! A volume that is served, with its sessions and locks.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use device::Clock;
use device::sync::{Condvar, Mutex};
use inode::{Caller, NodeId};
use rpc::Channel;
use vfs::{FileSystem, FsResult};

use super::bounds::Bounds;
use super::calls;
use super::lasting::{Grace, Lasting, SessionId};
use super::locks::{Locks, Waiter};
use super::memory::{Pots, Usage, Waiting};
use super::pongs::Pongs;
use super::session::Session;
use super::settling::{ANSWER_BYTES, Settling};

/// Opens a control connection of a client, by its name, for a caller; the answer is its other end.
pub type OpenControl = dyn Fn(&str, Caller) -> io::Result<UnixStream> + Send + Sync;

/// A volume to serve.
pub struct Export {
    /// What clients call it.
    pub name: String,
    /// Its calls. Front ends that cache must learn of changes from it.
    pub fs: Arc<dyn FileSystem>,
    /// Its control connections.
    pub control: Box<OpenControl>,
    /// Whether this process still owns it, if another one can.
    pub warrant: Option<Arc<dyn Warrant>>,
    /// What outlives this process of its sessions, if anything does.
    pub lasting: Option<Arc<dyn Lasting>>,
}

/// Whether the process that serves a volume still owns it. Another one may own it since a moment of
/// which this one knows nothing: it was stopped, or cut off.
pub trait Warrant: Send + Sync {
    /// Whether an answer may be sent now; it may take a request to find out. After the first
    /// `false` it never may again.
    fn may_answer(&self) -> bool;

    /// Whether it is known that an answer may be sent now.
    fn is_known(&self) -> bool;

    /// For how long that is known, for an administrator.
    fn holds_for(&self) -> Duration {
        Duration::ZERO
    }
}

/// A volume that is served.
pub(super) struct Served {
    pub(super) name: String,
    pub(super) bounds: Arc<Bounds>,
    pots: Arc<Pots>,
    pub(super) fs: Arc<dyn FileSystem>,
    pub(super) control: Box<OpenControl>,
    pub(super) locks: Locks,
    warrant: Option<Arc<dyn Warrant>>,
    pub(super) lasting: Option<Arc<dyn Lasting>>,
    pub(super) grace: Option<Grace>,
    /// Whether that time is over, for who may not wait to ask.
    is_past_grace: Arc<AtomicBool>,
    pub(super) pongs: Pongs,
    pub(super) settling: Arc<Settling>,
    sessions: Mutex<Sessions>,
    /// A request ended.
    changed: Condvar,
}

#[derive(Default)]
struct Sessions {
    all: BTreeMap<u64, Arc<Session>>,
    /// Control connections, by numbers.
    tunnels: BTreeMap<u64, Arc<Channel>>,
    tunnels_begun: u64,
    usages: BTreeMap<Arc<str>, Weak<Usage>>,
    /// How many clients there were.
    clients: u64,
    /// Requests under way.
    running: usize,
    ended: bool,
}

impl Sessions {
    /// How many a client has.
    fn of_client(&self, client: &Arc<str>) -> usize {
        self.all.values().filter(|session| session.client == *client).count()
    }
}

/// What became of a session that was to be added.
pub(super) enum Adding {
    /// It is.
    Added,
    /// An earlier hello of its client has added it: this one is it.
    Known(Arc<Session>),
    /// Another session has its number.
    Taken,
    /// Its client has the most.
    TooMany,
    /// The volume is served no more.
    Ended,
}

/// A request under way.
pub(super) struct Running(Arc<Served>);

/// An earlier session while its client's hello is answered. That may fail: then the session is
/// awaited as before, or ends with those that are.
pub(super) struct Continuing<'a> {
    volume: &'a Served,
    secret: SessionId,
}

impl Drop for Continuing<'_> {
    fn drop(&mut self) {
        let sessions = self.volume.sessions.lock();
        let is_there = sessions.all.values().any(|session| session.secret == self.secret);
        let closes = sessions.ended;
        drop(sessions);
        if let Some(grace) = &self.volume.grace
            && !is_there
            && !closes
        {
            grace.is_away(&self.secret);
        }
    }
}

/// A control connection, which ends with the volume.
pub(super) struct Tunnel<'a>(&'a Served, u64);

impl Drop for Tunnel<'_> {
    fn drop(&mut self) {
        self.0.sessions.lock().tunnels.remove(&self.1);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut sessions = self.0.sessions.lock();
        sessions.running -= 1;
        if sessions.ended {
            self.0.changed.notify_all();
        }
    }
}

impl Served {
    pub(super) fn new(export: Export, bounds: &Arc<Bounds>, pots: &Arc<Pots>) -> Served {
        let Export { name, fs, control, warrant, lasting } = export;
        let grace = lasting.clone().map(Grace::begin);
        let locks = Locks::at_most(bounds.locks);
        let (sessions, changed) = (Mutex::default(), Condvar::new());
        let is_past_grace = Arc::new(AtomicBool::new(grace.is_none()));
        let (pongs, settling) = (Pongs::default(), Settling::new(&fs));
        Served {
            name,
            bounds: Arc::clone(bounds),
            pots: Arc::clone(pots),
            fs,
            control,
            locks,
            warrant,
            lasting,
            grace,
            is_past_grace,
            pongs,
            settling,
            sessions,
            changed,
        }
    }

    /// Earlier sessions are waited for from now on.
    pub(super) fn start(&self, clock: &dyn Clock) {
        if let Some(grace) = &self.grace {
            grace.start(clock);
        }
        self.note_grace();
    }

    /// Notes whether the time is over in which only those get locks who had them.
    pub(super) fn note_grace(&self) {
        if !self.is_past_grace.load(Ordering::Relaxed) && !self.is_in_grace() {
            self.is_past_grace.store(true, Ordering::SeqCst);
        }
    }

    /// Gets set when that time is over.
    pub(super) fn past_grace(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_past_grace)
    }

    /// Looks whether that time is over.
    pub(super) fn look(&self, clock: &dyn Clock) {
        if let Some(grace) = &self.grace {
            grace.look(clock);
        }
        self.note_grace();
    }

    /// Waits a moment, or until a request ends.
    pub(super) fn pause(&self) {
        self.changed.wait_for(&mut self.sessions.lock(), Duration::from_millis(20));
    }

    /// Whether only those get locks who had them before.
    pub(super) fn is_in_grace(&self) -> bool {
        self.grace.as_ref().is_some_and(Grace::lasts)
    }

    /// Whether another server may take the volume over.
    pub(super) fn may_be_taken_over(&self) -> bool {
        self.warrant.is_some()
    }

    /// Whether an answer may be sent now; it may take a request to find out.
    pub(super) fn may_answer(&self) -> bool {
        self.warrant.as_ref().is_none_or(|warrant| warrant.may_answer())
    }

    /// Whether it is known that an answer may be sent now.
    pub(super) fn is_known_to_be_ours(&self) -> bool {
        self.warrant.as_ref().is_none_or(|warrant| warrant.is_known())
    }

    /// For how long it is known that answers may be sent, if another server may take over.
    pub(super) fn granted_for(&self) -> Option<Duration> {
        self.warrant.as_ref().map(|warrant| warrant.holds_for())
    }

    /// Connections of commands, and bytes of answers that are kept, and that wait to be read.
    pub(super) fn used(&self) -> (usize, usize, usize) {
        let sessions = self.sessions.lock();
        let usages = sessions.usages.values().filter_map(Weak::upgrade);
        let bytes = usages.map(|usage| (usage.kept(), usage.unread()));
        let (kept, unread) = bytes.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        (sessions.tunnels.len(), kept, unread)
    }

    /// Begins a request; `None`: the volume is served no more.
    pub(super) fn begin(self: &Arc<Served>) -> Option<Running> {
        let mut sessions = self.sessions.lock();
        if sessions.ended {
            return None;
        }
        sessions.running += 1;
        drop(sessions);
        Some(Running(Arc::clone(self)))
    }

    /// Begins a control connection; `None`: the volume is served no more.
    pub(super) fn tunnel(&self, channel: &Arc<Channel>) -> Option<Tunnel<'_>> {
        let mut sessions = self.sessions.lock();
        if sessions.ended {
            return None;
        }
        sessions.tunnels_begun += 1;
        let number = sessions.tunnels_begun;
        sessions.tunnels.insert(number, Arc::clone(channel));
        Some(Tunnel(self, number))
    }

    /// What a client uses.
    pub(super) fn usage(&self, client: &Arc<str>) -> Arc<Usage> {
        let mut sessions = self.sessions.lock();
        if let Some(usage) = sessions.usages.get(client).and_then(Weak::upgrade) {
            return usage;
        }
        sessions.clients += 1;
        let usage = Arc::new(Usage::new(sessions.clients, &self.pots));
        sessions.usages.retain(|_, usage| usage.strong_count() > 0);
        sessions.usages.insert(Arc::clone(client), Arc::downgrade(&usage));
        usage
    }

    /// Adds a session, unless it is there, its client has the most, or the volume is served no
    /// more. (Hellos that wait for the store continue at the same moment.)
    pub(super) fn add(&self, session: &Arc<Session>) -> Adding {
        let mut sessions = self.sessions.lock();
        if sessions.ended {
            return Adding::Ended;
        }
        match sessions.all.get(&session.id) {
            Some(other) if is_same(other, session) => return Adding::Known(Arc::clone(other)),
            Some(_) => return Adding::Taken,
            None => {}
        }
        if sessions.of_client(&session.client) >= self.bounds.sessions_of_client {
            return Adding::TooMany;
        }
        sessions.all.insert(session.id, Arc::clone(session));
        Adding::Added
    }

    /// Whether there are as many sessions as may be.
    pub(super) fn has_all_sessions(&self) -> bool {
        self.sessions.lock().all.len() >= self.bounds.sessions
    }

    /// Continues an earlier session, if it is one, unless nothing has it in the end.
    pub(super) fn continuing(&self, secret: SessionId) -> Option<Continuing<'_>> {
        let continues = self.grace.as_ref().is_some_and(|grace| grace.continues(&secret));
        continues.then_some(Continuing { volume: self, secret })
    }

    /// Whether a client may have another session.
    pub(super) fn may_add(&self, client: &Arc<str>) -> bool {
        let sessions = self.sessions.lock();
        !sessions.ended
            && sessions.all.len() < self.bounds.sessions
            && sessions.of_client(client) < self.bounds.sessions_of_client
    }

    /// A session by its number.
    pub(super) fn session(&self, id: u64) -> Option<Arc<Session>> {
        self.sessions.lock().all.get(&id).cloned()
    }

    /// All sessions.
    pub(super) fn sessions(&self) -> Vec<Arc<Session>> {
        self.sessions.lock().all.values().cloned().collect()
    }

    /// Ends a session: what it holds is released.
    pub(super) fn end(&self, session: &Session) {
        let known = self.sessions.lock().all.remove(&session.id);
        if known.is_some() {
            session.end();
            session.end_for_good();
        }
    }

    /// Nobody can continue a session any more.
    pub(super) fn awaits_no_more(&self, session: &Session) {
        if let Some(grace) = &self.grace {
            grace.is_back(&session.secret);
        }
        self.note_grace();
    }

    /// Ends the locks of a session, and wakes those that waited for them.
    pub(super) fn forget_session(self: &Arc<Served>, id: u64) {
        let granted = self.locks.end_session(id);
        self.granted(&granted);
    }

    /// Ends the locks of a session on a file.
    pub(super) fn forget_locks(self: &Arc<Served>, session: u64, node: NodeId) {
        let granted = self.locks.end_file(session, node);
        self.granted(&granted);
    }

    /// Answers requests for locks that were waiting.
    pub(super) fn granted(self: &Arc<Served>, granted: &[Waiter]) {
        for Waiter { session, request } in granted {
            let Some(session) = self.session(*session) else { continue };
            let Some(running) = self.begin() else { return };
            self.answer(&session, (*request, calls::done(*request)), false, running);
        }
    }

    /// Sends an answer when everything is durable that it rests on, or an error in its place. (An
    /// error, too, may rest on a change that no answer has announced yet.)
    pub(super) fn answer(
        &self,
        to: &Arc<Session>,
        (id, frame): (u64, Vec<u8>),
        is_repeatable: bool,
        running: Running,
    ) {
        let Some(position) = self.fs.unsettled() else {
            return to.answered(id, frame, is_repeatable);
        };
        let early = u64::from(device::mutated("an answer waits for the change before its own"));
        let position = position.saturating_sub(early);
        let own = Arc::clone(to);
        let bytes = frame.len() + ANSWER_BYTES;
        let waiting = Waiting::new(&to.usage, bytes);
        let send = move |settled: &FsResult<()>| {
            let frame = match settled {
                Ok(()) => frame,
                Err(error) => calls::failed(&own, id, error),
            };
            own.answered(id, frame, is_repeatable);
            drop((waiting, running));
        };
        self.settling.put(position, (&*to.usage, bytes), Box::new(send));
    }

    /// Ends all sessions, takes no more, and waits for requests under way: after this the file
    /// system may be closed.
    pub(super) fn close(&self) {
        // Before they give back what they hold: they continue elsewhere.
        if let Some(grace) = &self.grace {
            grace.close();
        }
        let (all, tunnels) = {
            let mut sessions = self.sessions.lock();
            sessions.ended = true;
            (std::mem::take(&mut sessions.all), std::mem::take(&mut sessions.tunnels))
        };
        for channel in tunnels.into_values() {
            channel.close();
        }
        for session in all.into_values() {
            session.end();
            session.let_go();
        }
        let mut sessions = self.sessions.lock();
        while sessions.running > 0 {
            self.changed.wait(&mut sessions);
        }
        drop(sessions);
        self.settling.end();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.settling.end();
    }
}

/// Whether two are the same to their client and to the volume.
fn is_same(one: &Session, other: &Session) -> bool {
    (one.secret, &one.client, &one.grant) == (other.secret, &other.client, &other.grant)
}
