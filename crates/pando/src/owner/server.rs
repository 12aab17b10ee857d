//! The socket's side of an owner: accepts connections, knows which of them are in the middle of
//! something, and decides when it is time to leave.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use client::Listening;
use device::Clock;
use fs::Fs;
use parking_lot::{Condvar, Mutex};
use wire::{Failure, FailureKind};

use super::background::Background;
use super::door::Door;
use super::sessions::{Busy, Load, Sessions, Task, Who};
use super::{LAZY_PATIENCE, Start, connection};
use crate::failure::{self, Result};

/// How long a command waits until it sees what was done through the mount, and until its effect is
/// seen there: to drop pages the kernel may have to write them first, on a disk that has other
/// work.
const SETTLE_PATIENCE: Duration = Duration::from_secs(30);

/// How often it is looked whether the socket is there: who finds none looks for an owner for far
/// longer.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What takes longer than this is not waited for when a mount wants the volume: others would find
/// no owner meanwhile.
const SHORT: Duration = Duration::from_secs(1);

/// How long a session that is ended may take before its connection is cut off, and after that.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// How long a search waits until others of its user have ended.
const LOAD_PATIENCE: Duration = Duration::from_secs(10);

/// What ends an owner.
#[derive(Debug)]
pub(super) enum Event {
    /// A signal.
    Signal,
    /// A mount wants the volume.
    HandOver,
    /// Nothing happened for long.
    Idle,
    /// The mount is gone, in order or with an error.
    Unmounted(std::result::Result<(), String>),
}

/// What the threads of an owner share.
pub(super) struct Server {
    volume: PathBuf,
    fs: Arc<Fs>,
    clock: Arc<dyn Clock>,
    events: Sender<Event>,
    /// How long it stays without a request, if it does not stay for ever.
    idle: Option<Duration>,
    mount: OnceLock<Arc<fuse::Mount>>,
    /// The mount is gone, and the daemon goes on for sessions that are under way.
    unmounted: AtomicBool,
    background: Background,
    registry: Mutex<Registry>,
    changed: Condvar,
    door: Arc<Door>,
}

struct Registry {
    sessions: Sessions,
    leaving: bool,
    /// How many wait until all rest, so that the owner can leave: nothing is begun.
    pausing: u32,
    last_active: Duration,
}

impl Server {
    pub(super) fn new(
        start: &Start,
        fs: Arc<Fs>,
        clock: Arc<dyn Clock>,
        events: Sender<Event>,
        door: Arc<Door>,
    ) -> Arc<Server> {
        let last_active = clock.monotonic();
        let sessions = Sessions::default();
        let registry = Registry { sessions, leaving: false, pausing: 0, last_active };
        Arc::new(Server {
            volume: start.volume.clone(),
            fs,
            clock,
            events,
            idle: start.idle.filter(|_| start.mount.is_none()),
            mount: OnceLock::new(),
            unmounted: AtomicBool::new(false),
            background: Background::new(),
            registry: Mutex::new(registry),
            changed: Condvar::new(),
            door,
        })
    }

    /// The volume's directory.
    pub(super) fn volume(&self) -> &Path {
        &self.volume
    }

    /// How long it stays without a request.
    pub(super) fn idle(&self) -> Option<Duration> {
        self.idle
    }

    /// The volume.
    pub(super) fn fs(&self) -> &Arc<Fs> {
        &self.fs
    }

    /// Its background work.
    pub(super) fn background(&self) -> &Background {
        &self.background
    }

    /// The mount, if there is one.
    pub(super) fn mount(&self) -> Option<&Arc<fuse::Mount>> {
        self.mount.get().filter(|_| !self.unmounted.load(Ordering::Relaxed))
    }

    /// Where the volume is mounted.
    pub(super) fn mount_point(&self) -> Option<&Path> {
        self.mount().map(|mount| mount.mount_point())
    }

    pub(super) fn set_mount(&self, mount: Arc<fuse::Mount>) {
        assert!(self.mount.set(mount).is_ok(), "an owner mounts once");
    }

    /// Waits until the kernel has dropped what it cached of things that changed behind its back.
    pub(super) fn settle(&self) {
        if let Some(mount) = self.mount()
            && !mount.settle(SETTLE_PATIENCE)
        {
            tracing::warn!("the kernel is slow to drop what it cached");
        }
    }

    /// Waits until what the kernel has handed over is in the volume.
    pub(super) fn catch_up(&self) {
        if let Some(mount) = self.mount()
            && !mount.catch_up(&*self.clock, SETTLE_PATIENCE)
        {
            tracing::warn!("requests of the kernel take long");
        }
    }

    /// Has the owner leave, unless something is under way that takes long: then that is told, with
    /// how long it lasts, and the owner stays for everybody. Short requests are waited for.
    pub(super) fn hand_over(&self) -> std::result::Result<(), (u64, Who, Busy, Duration)> {
        let mut registry = self.registry.lock();
        registry.pausing += 1;
        loop {
            let now = self.clock.monotonic();
            let Some((id, who, busy)) = registry.sessions.first_at_work(now) else {
                // What is not begun by now is left to the next owner.
                self.events.send(Event::HandOver).unwrap_or_default();
                return Ok(());
            };
            let lasts = now.saturating_sub(busy.since);
            if lasts >= SHORT {
                registry.pausing -= 1;
                drop(registry);
                self.changed.notify_all();
                return Err((id, who, busy, lasts));
            }
            self.changed.wait_for(&mut registry, SHORT.saturating_sub(lasts));
        }
    }

    /// Whether a user may see and end the sessions of all: root, and whose the volume or this
    /// process is.
    pub(super) fn trusts(&self, uid: u32) -> bool {
        let own = rustix::process::geteuid().as_raw();
        uid == 0 || uid == own || Some(uid) == self.directory_uid()
    }

    /// The sessions that one may see who asks over a session of his own.
    pub(super) fn sessions(&self, asks: u64) -> Vec<wire::Session> {
        let registry = self.registry.lock();
        let Some(who) = registry.sessions.get(asks).map(|session| session.who) else {
            return Vec::new();
        };
        registry.sessions.shown(who, asks, self.clock.monotonic())
    }

    /// Ends a session, as the user of another one asks. What it has done stays.
    pub(super) fn end_session(&self, id: u64, asks: u64) -> Result<()> {
        let mut registry = self.registry.lock();
        let who = registry.sessions.get(asks).map(|session| session.who);
        let target = registry.sessions.get(id).map(|session| session.who);
        let may = |who: &Who, target: &Who| who.trusted || who.uid == target.uid;
        let (Some(who), Some(_)) =
            (who, target.filter(|target| who.is_some_and(|w| may(&w, target))))
        else {
            let message = format!("there is no session {id}, or it is another user's");
            return Err(Failure::new(FailureKind::NotFound, message));
        };
        registry.sessions.end(id, who.uid);
        for last in [false, true] {
            let deadline = self.clock.monotonic() + END_PATIENCE;
            while registry.sessions.get(id).is_some() {
                let rest = deadline.saturating_sub(self.clock.monotonic());
                if rest.is_zero() {
                    break;
                }
                self.changed.wait_for(&mut registry, rest);
            }
            if !last {
                registry.sessions.cut_off(id);
            }
        }
        if registry.sessions.get(id).is_some() {
            let message = format!("session {id} ends with the request that it is in the middle of");
            return Err(Failure::new(FailureKind::Busy, message).hint("look again in a while"));
        }
        Ok(())
    }

    /// Which user ended a session, if one did.
    pub(super) fn session_ended_by(&self, id: u64) -> Option<u32> {
        self.registry.lock().sessions.ended_by(id)
    }

    /// Whose the directory of the volume is.
    pub(super) fn directory_uid(&self) -> Option<u32> {
        let listening = self.door.listening();
        rustix::fs::fstat(listening.directory()).map(|found| found.st_uid).ok()
    }

    /// Starts to accept connections and to do background work.
    pub(super) fn start(self: &Arc<Server>) -> Result<()> {
        self.listen(self.door.listening()).and_then(|()| self.background.start(&self.fs)).map_err(
            |error| Failure::new(FailureKind::Other, format!("cannot start a thread: {error}")),
        )
    }

    fn listen(self: &Arc<Server>, listening: Arc<Listening>) -> io::Result<()> {
        let server = Arc::clone(self);
        device::spawn("accept", move || server.accept(&listening)).map(drop)
    }

    /// Makes the socket again if somebody removed it.
    fn keep_socket(self: &Arc<Server>) {
        match self.door.restore() {
            Ok(None) => {}
            Ok(Some(listening)) => {
                tracing::warn!("somebody removed the socket: it was made again");
                if let Err(error) = self.listen(listening) {
                    tracing::warn!(%error, "no thread for connections");
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
                    tracing::warn!(%error, "a connection was not accepted");
                    self.clock.sleep(Duration::from_millis(50));
                }
            }
        }
    }

    fn admit(self: &Arc<Server>, stream: UnixStream) {
        if let Err(error) = self.try_admit(stream) {
            tracing::warn!(%error, "a connection was not accepted");
        }
    }

    fn try_admit(self: &Arc<Server>, stream: UnixStream) -> io::Result<()> {
        let client::Peer { uid, pid, .. } = client::peer(stream.as_fd())?;
        let who = Who { uid, pid, trusted: self.trusts(uid) };
        let mut registry = self.registry.lock();
        if registry.leaving {
            // Closed before the welcome: the client tries again and meets our successor.
            return Ok(());
        }
        let added = registry.sessions.add(stream.try_clone()?, who, self.clock.monotonic());
        drop(registry);
        let id = match added {
            Ok(id) => id,
            Err(failure) => return connection::refuse(&stream, failure),
        };
        let server = Arc::clone(self);
        let spawned = device::spawn("connection", move || {
            connection::serve(&server, id, stream);
            server.remove(id);
        });
        if let Err(error) = spawned {
            self.remove(id);
            return Err(error);
        }
        Ok(())
    }

    fn remove(&self, id: u64) {
        let mut registry = self.registry.lock();
        registry.sessions.remove(id);
        registry.last_active = self.clock.monotonic();
        drop(registry);
        self.changed.notify_all();
    }

    /// Notes what a connection is in the middle of, if anything. `false`: the owner is leaving, and
    /// the connection is to begin nothing.
    pub(super) fn set_busy(&self, id: u64, task: Option<Task>) -> bool {
        let mut registry = self.registry.lock();
        while task.is_some() && registry.pausing > 0 && !registry.leaving {
            self.changed.wait(&mut registry);
        }
        let now = self.clock.monotonic();
        registry.last_active = now;
        if registry.leaving && task.is_some() {
            return false;
        }
        registry.sessions.set_busy(id, task, now);
        if task.is_none() || registry.pausing > 0 {
            self.changed.notify_all();
        }
        !registry.leaving
    }

    /// Begins what a connection is in the middle of, as soon as there are few enough of its kind.
    pub(super) fn begin(&self, id: u64, load: Load) -> Result<()> {
        let mut registry = self.registry.lock();
        let deadline = self.clock.monotonic() + LOAD_PATIENCE;
        loop {
            let begun = registry.sessions.begin(id, load);
            let rest = deadline.saturating_sub(self.clock.monotonic());
            let ended = registry.leaving || registry.sessions.ended_by(id).is_some();
            if begun.is_ok() || rest.is_zero() || ended {
                return begun;
            }
            self.changed.wait_for(&mut registry, rest);
        }
    }

    /// Notes that a connection sent more to do of what it is in the middle of.
    pub(super) fn heard(&self, id: u64) {
        let now = self.clock.monotonic();
        self.registry.lock().sessions.heard(id, now);
    }

    /// Whether nothing new is begun any more.
    pub(super) fn is_leaving(&self) -> bool {
        self.registry.lock().leaving
    }

    /// Waits for an event; to be without any connection for long is one.
    pub(super) fn wait(self: &Arc<Server>, inbox: &Receiver<Event>) -> Event {
        loop {
            self.keep_socket();
            let patience = match self.idle {
                None => Duration::from_secs(3600),
                Some(idle) => {
                    let registry = self.registry.lock();
                    let quiet = self.clock.monotonic().saturating_sub(registry.last_active);
                    if registry.sessions.is_empty() && quiet >= idle {
                        return Event::Idle;
                    }
                    let rest = idle.saturating_sub(quiet);
                    // A connection that closes starts the time afresh.
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

    /// After the mount is gone: answers on as a daemon without a mount until nothing is under way
    /// that goes on, or an event comes that ends it.
    pub(super) fn go_on(self: &Arc<Server>, inbox: &Receiver<Event>) {
        self.unmounted.store(true, Ordering::Relaxed);
        while self.registry.lock().sessions.goes_on(self.clock.monotonic()) {
            self.keep_socket();
            if inbox.recv_timeout(SHORT).is_ok() {
                return;
            }
        }
    }

    /// Takes no more connections, closes idle ones, and waits for requests under way: first until
    /// short ones end, then until long ones that are given up have ended, but no longer than
    /// [`LAZY_PATIENCE`].
    pub(super) fn leave(&self) {
        let mut registry = self.registry.lock();
        registry.leaving = true;
        self.door
            .close()
            .map_err(|error| failure::io("remove the socket of", &self.volume, &error))
            .unwrap_or_else(|failure| tracing::warn!(%failure, "the socket stays"));
        self.changed.notify_all();
        for (idle_only, patience) in [(true, SHORT), (false, LAZY_PATIENCE)] {
            // A request that is on its way already is still read, and answered with our leave.
            registry.sessions.end_reading(idle_only);
            let deadline = self.clock.monotonic() + patience;
            while !registry.sessions.is_empty() {
                let rest = deadline.saturating_sub(self.clock.monotonic());
                if rest.is_zero() {
                    break;
                }
                self.changed.wait_for(&mut registry, rest);
            }
        }
        if !registry.sessions.is_empty() {
            tracing::warn!(open = registry.sessions.len(), "requests are cut off");
        }
    }

    /// Ends background work.
    pub(super) fn end_background(&self) {
        self.background.end();
    }
}
