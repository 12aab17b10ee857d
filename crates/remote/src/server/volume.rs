//! A volume that is served, with its sessions and locks.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use device::sync::{Mutex, MutexGuard};
use inode::{Caller, NodeId};
use vfs::FileSystem;

use super::calls;
use super::locks::{Locks, Waiter};
use super::session::Session;
use crate::convert;

/// Opens a control connection for a caller; the answer is its other end.
pub type OpenControl = dyn Fn(Caller) -> io::Result<UnixStream> + Send + Sync;

/// A volume to serve.
pub struct Export {
    /// What clients call it.
    pub name: String,
    /// Its calls. Front ends that cache must learn of changes from it.
    pub fs: Arc<dyn FileSystem>,
    /// Its control connections.
    pub control: Box<OpenControl>,
}

/// A volume that is served.
pub(super) struct Served {
    pub(super) name: String,
    pub(super) fs: Arc<dyn FileSystem>,
    pub(super) control: Box<OpenControl>,
    pub(super) locks: Locks,
    pub(super) appends: Appends,
    sessions: Mutex<Sessions>,
}

#[derive(Default)]
struct Sessions {
    all: BTreeMap<u64, Arc<Session>>,
    ended: bool,
}

impl Served {
    pub(super) fn new(export: Export) -> Served {
        let Export { name, fs, control } = export;
        let locks = Locks::default();
        let (appends, sessions) = (Appends::default(), Mutex::default());
        Served { name, fs, control, locks, appends, sessions }
    }

    /// Adds a session; `false`: the volume is served no more.
    pub(super) fn add(&self, session: &Arc<Session>) -> bool {
        let mut sessions = self.sessions.lock();
        if !sessions.ended {
            sessions.all.insert(session.id, Arc::clone(session));
        }
        !sessions.ended
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
        }
    }

    /// Ends the locks of a session, and tells those that waited for them.
    pub(super) fn forget_session(&self, id: u64) {
        let granted = self.locks.end_session(id);
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

    /// Ends all sessions, and takes no more.
    pub(super) fn close(&self) {
        let all = {
            let mut sessions = self.sessions.lock();
            sessions.ended = true;
            std::mem::take(&mut sessions.all)
        };
        for session in all.into_values() {
            session.end();
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
