//! A volume that is served, with its sessions and locks.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};
use std::time::Duration;

use device::Clock;
use device::sync::{Condvar, Mutex, MutexGuard};
use inode::{Caller, NodeId};
use vfs::FileSystem;

use super::calls;
use super::lasting::{Grace, Lasting};
use super::locks::{Locks, Waiter};
use super::session::Session;
use crate::convert;

/// Most sessions of one client, by the name in its certificate.
pub(super) const SESSIONS_OF_CLIENT_MAX: usize = 2048;

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
}

/// What one client uses of a volume, in all its sessions.
#[derive(Default)]
pub(super) struct Usage {
    /// Nodes that it holds.
    pub(super) nodes: AtomicUsize,
    /// Bytes of answers that it has not acknowledged.
    pub(super) kept: AtomicUsize,
    /// Searches under way.
    pub(super) searches: AtomicUsize,
    /// Bytes of answers that wait until it reads them.
    pub(super) unread: Arc<AtomicUsize>,
    /// A number of the client's own.
    pub(super) number: u64,
}

/// A volume that is served.
pub(super) struct Served {
    pub(super) name: String,
    pub(super) fs: Arc<dyn FileSystem>,
    pub(super) control: Box<OpenControl>,
    pub(super) locks: Locks,
    pub(super) appends: Appends,
    warrant: Option<Arc<dyn Warrant>>,
    pub(super) lasting: Option<Arc<dyn Lasting>>,
    pub(super) grace: Option<Grace>,
    sessions: Mutex<Sessions>,
    /// A request ended.
    changed: Condvar,
}

#[derive(Default)]
struct Sessions {
    all: BTreeMap<u64, Arc<Session>>,
    usages: BTreeMap<Arc<str>, Weak<Usage>>,
    /// How many clients there were.
    clients: u64,
    /// Requests under way.
    running: usize,
    ended: bool,
}

/// What became of a session that was to be added.
pub(super) enum Adding {
    /// It is.
    Added,
    /// Its client has the most.
    TooMany,
    /// The volume is served no more.
    Ended,
}

/// A request under way.
pub(super) struct Running<'a>(&'a Served);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut sessions = self.0.sessions.lock();
        sessions.running -= 1;
        if sessions.ended {
            self.0.changed.notify_all();
        }
    }
}

impl Served {
    pub(super) fn new(export: Export) -> Served {
        let Export { name, fs, control, warrant, lasting } = export;
        let grace = lasting.clone().map(Grace::begin);
        let locks = Locks::default();
        let (appends, sessions) = (Appends::default(), Mutex::default());
        let changed = Condvar::new();
        Served { name, fs, control, locks, appends, warrant, lasting, grace, sessions, changed }
    }

    /// Sessions of before are waited for from now on.
    pub(super) fn start(&self, clock: &dyn Clock) {
        if let Some(grace) = &self.grace {
            grace.start(clock);
        }
    }

    /// Looks whether that time is over.
    pub(super) fn look(&self, clock: &dyn Clock) {
        if let Some(grace) = &self.grace {
            grace.look(clock);
        }
    }

    /// Waits a moment, or until a request ends.
    pub(super) fn pause(&self) {
        self.changed.wait_for(&mut self.sessions.lock(), Duration::from_millis(20));
    }

    /// Whether only those get locks who had them before.
    pub(super) fn is_in_grace(&self) -> bool {
        self.grace.as_ref().is_some_and(Grace::lasts)
    }

    /// Whether an answer may be sent now; it may take a request to find out.
    pub(super) fn may_answer(&self) -> bool {
        self.warrant.as_ref().is_none_or(|warrant| warrant.may_answer())
    }

    /// Whether it is known that an answer may be sent now.
    pub(super) fn is_known_to_be_ours(&self) -> bool {
        self.warrant.as_ref().is_none_or(|warrant| warrant.is_known())
    }

    /// Begins a request; `None`: the volume is served no more.
    pub(super) fn begin(&self) -> Option<Running<'_>> {
        let mut sessions = self.sessions.lock();
        if sessions.ended {
            return None;
        }
        sessions.running += 1;
        Some(Running(self))
    }

    /// What a client uses.
    pub(super) fn usage(&self, client: &Arc<str>) -> Arc<Usage> {
        let mut sessions = self.sessions.lock();
        if let Some(usage) = sessions.usages.get(client).and_then(Weak::upgrade) {
            return usage;
        }
        sessions.clients += 1;
        let usage = Arc::new(Usage { number: sessions.clients, ..Usage::default() });
        sessions.usages.retain(|_, usage| usage.strong_count() > 0);
        sessions.usages.insert(Arc::clone(client), Arc::downgrade(&usage));
        usage
    }

    /// Adds a session, unless its client has the most, or the volume is served no more.
    pub(super) fn add(&self, session: &Arc<Session>) -> Adding {
        let mut sessions = self.sessions.lock();
        let of_client = |other: &&Arc<Session>| other.client == session.client;
        if sessions.ended {
            return Adding::Ended;
        }
        if sessions.all.values().filter(of_client).count() >= SESSIONS_OF_CLIENT_MAX {
            return Adding::TooMany;
        }
        sessions.all.insert(session.id, Arc::clone(session));
        Adding::Added
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

    /// Ends the locks of a session, and wakes those that waited for them.
    pub(super) fn forget_session(&self, id: u64) {
        let granted = self.locks.end_session(id);
        self.granted(&granted);
    }

    /// Ends the locks of a session on a file.
    pub(super) fn forget_locks(&self, session: u64, node: NodeId) {
        let granted = self.locks.end_file(session, node);
        self.granted(&granted);
    }

    /// Answers requests for locks that were waiting.
    pub(super) fn granted(&self, granted: &[Waiter]) {
        for Waiter { session, request } in granted {
            if let Some(session) = self.session(*session) {
                session.answered(*request, calls::done(*request), false);
            }
        }
    }

    /// Ends all sessions, takes no more, and waits for requests under way: after this the file
    /// system may be closed.
    pub(super) fn close(&self) {
        let all = {
            let mut sessions = self.sessions.lock();
            sessions.ended = true;
            std::mem::take(&mut sessions.all)
        };
        for session in all.into_values() {
            session.end();
        }
        let mut sessions = self.sessions.lock();
        while sessions.running > 0 {
            self.changed.wait(&mut sessions);
        }
    }
}

/// Turns of appends to files: files share them by their numbers.
#[derive(Default)]
pub(super) struct Appends([Mutex<()>; 32]);

impl Appends {
    pub(super) fn turn(&self, node: NodeId) -> MutexGuard<'_, ()> {
        self.0[(convert::node_to_wire(node).ino % self.0.len() as u64) as usize].lock()
    }
}
