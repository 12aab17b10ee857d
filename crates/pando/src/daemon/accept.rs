//! Accepts connections: one thread for the socket, one for each connection. Keeps the socket there,
//! and waits for what ends the daemon.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use client::Listening;
use device::sync::{Receiver, RecvTimeoutError};
use inode::Caller;

use super::connection;
use super::event::Event;
use super::server::{SHORT, Server};
use super::sessions::Who;
use crate::failure::{self, Result};

/// How often the daemon checks that its socket exists. A client that finds no socket looks for a
/// daemon for far longer.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long a daemon without connections stays beyond its idle time for a collection, at most. The
/// next opening would begin it again.
const COLLECTING_MAX: Duration = Duration::from_secs(3600);

/// How long a daemon waits for its first connection, however short its idle time is. The command
/// that started it connects as soon as it runs again; if it found no daemon, it would start another
/// one, and so on.
const FIRST_WITHIN: Duration = Duration::from_secs(10);

impl Server {
    /// Starts to accept connections and to do background work.
    pub(super) fn start(self: &Arc<Server>) -> Result<()> {
        let started = self
            .listen(self.door.listening())
            .and_then(|()| self.background.start(self.fs().inner()))
            .and_then(|()| self.take_snapshots());
        started.map_err(|error| failure::thread(&error))
    }

    fn listen(self: &Arc<Server>, listening: Arc<Listening>) -> io::Result<()> {
        let server = Arc::clone(self);
        device::spawn("accept", move || server.accept(&listening)).map(drop)
    }

    /// Creates the socket again if it was removed.
    fn keep_socket(self: &Arc<Server>) {
        match self.door.restore() {
            Ok(None) => {}
            Ok(Some(listening)) => {
                tracing::warn!("the socket was removed: created it again");
                if let Err(error) = self.listen(listening) {
                    tracing::warn!(%error, "cannot start a thread for connections");
                }
            }
            Err(error) => tracing::debug!(%error, "the socket is gone"),
        }
    }

    fn accept(self: &Arc<Server>, listening: &Arc<Listening>) {
        loop {
            let accepted = listening.accept();
            if self.registry.lock().leaving || !self.door.is_in_use(listening) {
                return;
            }
            match accepted {
                Ok(stream) => self.admit(stream),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    self.clock.sleep(Duration::from_millis(50));
                }
            }
        }
    }

    fn admit(self: &Arc<Server>, stream: UnixStream) {
        if let Err(error) = self.try_admit(stream) {
            tracing::warn!(%error, "cannot accept a connection");
        }
    }

    fn try_admit(self: &Arc<Server>, stream: UnixStream) -> io::Result<()> {
        let client::Peer { uid, pid, .. } = client::peer(stream.as_fd())?;
        let who = Who { uid, pid, trusted: self.trusts(uid) };
        self.begin_session(stream, who, None)
    }

    /// Serves a connection by a thread of its own; `far`: for whom, and of which client, if not for
    /// the process at its other end.
    pub(super) fn begin_session(
        self: &Arc<Server>,
        stream: UnixStream,
        who: Who,
        far: Option<(Arc<str>, Caller)>,
    ) -> io::Result<()> {
        let (client, far) = far.unzip();
        let handle = device::with_a_descriptor(|| stream.try_clone())?;
        let mut registry = self.registry.lock();
        if registry.leaving {
            // Closed before the welcome: the client tries again and reaches the successor.
            return Ok(());
        }
        let added = registry.sessions.add(handle, who, client, self.clock.monotonic());
        drop(registry);
        let id = match added {
            Ok(id) => id,
            Err(failure) => return connection::refuse(&stream, failure),
        };
        // One that cannot be seen, or has ended already, mounts nothing.
        if far.is_none()
            && who.uid == 0
            && let Ok(process) = client::peer_process(stream.as_fd())
        {
            self.processes.lock().insert(id, Arc::new(process));
        }
        let server = Arc::clone(self);
        let spawned = device::spawn("connection", move || {
            connection::serve(&server, id, stream, far);
            server.remove(id);
        });
        if let Err(error) = spawned {
            self.remove(id);
            return Err(error);
        }
        Ok(())
    }

    fn remove(&self, id: u64) {
        self.processes.lock().remove(&id);
        let mut registry = self.registry.lock();
        registry.sessions.remove(id);
        registry.last_active = self.clock.monotonic();
        drop(registry);
        self.changed.notify_all();
    }

    /// Waits for an event. The end of the idle time without any connection is an event, too.
    pub(super) fn wait(self: &Arc<Server>, inbox: &Receiver<Event>) -> Event {
        loop {
            self.keep_socket();
            let patience = match self.idle {
                None => Duration::from_secs(3600),
                Some(idle) => {
                    let registry = self.registry.lock();
                    let is_new = !registry.sessions.were_any();
                    let idle = if is_new { idle.max(FIRST_WITHIN) } else { idle };
                    let quiet = self.clock.monotonic().saturating_sub(registry.last_active);
                    let is_over = quiet >= idle && !self.collects_beyond(idle, quiet);
                    if registry.sessions.is_empty() && (is_over || self.door.is_lost()) {
                        return Event::Idle;
                    }
                    let left = idle.saturating_sub(quiet);
                    let rest = if left.is_zero() { LOOK_EVERY } else { left };
                    // A connection that closes restarts the idle time.
                    if registry.sessions.is_empty() { rest } else { rest.max(idle / 4) }
                }
            };
            match inbox.recv_timeout(patience.clamp(Duration::from_millis(1), LOOK_EVERY)) {
                Ok(event) => return event,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    unreachable!("invariant: the server itself holds a sender")
                }
            }
        }
    }

    /// Whether a collection keeps the daemon from ending after its idle time.
    fn collects_beyond(&self, idle: Duration, quiet: Duration) -> bool {
        let fs = self.fs();
        let is_in_time = quiet < idle.saturating_add(COLLECTING_MAX);
        is_in_time && fs.collection_is_due(fs.env.clock.monotonic())
    }

    /// After the mount is gone, answers as a daemon without a mount. It ends when no request that
    /// continues is under way, or an event ends the daemon.
    pub(super) fn keep_serving(self: &Arc<Server>, inbox: &Receiver<Event>) {
        self.unmounted.store(true, Ordering::Relaxed);
        while self.registry.lock().sessions.continues(self.clock.monotonic()) {
            self.keep_socket();
            if inbox.recv_timeout(SHORT).is_ok() {
                return;
            }
        }
    }
}
