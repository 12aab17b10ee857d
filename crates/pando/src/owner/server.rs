//! The socket's side of an owner: accepts connections, knows which of them are in the middle of
//! something, and decides when it is time to leave.

use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
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
use super::{LAZY_PATIENCE, Start, connection};
use crate::failure::{self, Result};

/// Most connections at once; more wait in the socket's queue.
const CONNECTIONS_MAX: usize = 256;

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

/// An import of which nothing is heard for so long stands still.
const STANDS_STILL: Duration = Duration::from_secs(30);

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
    background: Background,
    registry: Mutex<Registry>,
    changed: Condvar,
    door: Arc<Door>,
}

pub(super) struct Registry {
    open: BTreeMap<u64, Open>,
    last_id: u64,
    leaving: bool,
    /// How many wait until all rest, so that the owner can leave: nothing is begun.
    pausing: u32,
    last_active: Duration,
}

impl Registry {
    /// Whether something is under way that goes on when the mount goes, and of which something was
    /// heard lately: who stands still must not keep the volume from others.
    pub(super) fn goes_on(&self, now: Duration) -> bool {
        let lately = |busy: Busy| now.saturating_sub(busy.heard) < STANDS_STILL;
        let goes_on = |busy: Busy| busy.task.goes_on && lately(busy);
        self.open.values().any(|open| open.busy.is_some_and(goes_on))
    }
}

struct Open {
    stream: UnixStream,
    busy: Option<Busy>,
}

/// What a connection is in the middle of.
#[derive(Debug, Clone, Copy)]
struct Busy {
    task: Task,
    since: Duration,
    /// When the last message of it came.
    heard: Duration,
}

/// Something that was asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    /// What it is, for people.
    pub(super) what: &'static str,
    /// The process that asked for it.
    pub(super) pid: i32,
    /// It goes on when the mount goes: what it has not done yet would be missing.
    pub(super) goes_on: bool,
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
        let registry =
            Registry { open: BTreeMap::new(), last_id: 0, leaving: false, pausing: 0, last_active };
        Arc::new(Server {
            volume: start.volume.clone(),
            fs,
            clock,
            events,
            idle: start.idle.filter(|_| start.mount.is_none()),
            mount: OnceLock::new(),
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
        self.mount.get()
    }

    /// Where the volume is mounted.
    pub(super) fn mount_point(&self) -> Option<&Path> {
        self.mount.get().map(|mount| mount.mount_point())
    }

    pub(super) fn set_mount(&self, mount: Arc<fuse::Mount>) {
        assert!(self.mount.set(mount).is_ok(), "an owner mounts once");
    }

    /// Waits until the kernel has dropped what it cached of things that changed behind its back.
    pub(super) fn settle(&self) {
        if let Some(mount) = self.mount.get()
            && !mount.settle(SETTLE_PATIENCE)
        {
            tracing::warn!("the kernel is slow to drop what it cached");
        }
    }

    /// Waits until what the kernel has handed over is in the volume.
    pub(super) fn catch_up(&self) {
        if let Some(mount) = self.mount.get()
            && !mount.catch_up(&*self.clock, SETTLE_PATIENCE)
        {
            tracing::warn!("requests of the kernel take long");
        }
    }

    /// Has the owner leave, unless something is under way that takes long: then that is told, with
    /// how long it lasts, and the owner stays for everybody. Short requests are waited for.
    pub(super) fn hand_over(&self) -> std::result::Result<(), (Task, Duration)> {
        let mut registry = self.registry.lock();
        registry.pausing += 1;
        loop {
            let busy = registry.open.values().filter_map(|open| open.busy);
            let Some(Busy { task, since, .. }) = busy.min_by_key(|busy| busy.since) else {
                // What is not begun by now is left to the next owner.
                self.events.send(Event::HandOver).unwrap_or_default();
                return Ok(());
            };
            let lasts = self.clock.monotonic().saturating_sub(since);
            if lasts >= SHORT {
                registry.pausing -= 1;
                drop(registry);
                self.changed.notify_all();
                return Err((task, lasts));
            }
            self.changed.wait_for(&mut registry, SHORT.saturating_sub(lasts));
        }
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
        let mut registry = self.registry.lock();
        while registry.open.len() >= CONNECTIONS_MAX && !registry.leaving {
            self.changed.wait(&mut registry);
        }
        if registry.leaving {
            // Closed before the welcome: the client tries again and meets our successor.
            return;
        }
        let second = match stream.try_clone() {
            Ok(second) => second,
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                return;
            }
        };
        registry.last_id += 1;
        let id = registry.last_id;
        registry.open.insert(id, Open { stream: second, busy: None });
        drop(registry);
        let server = Arc::clone(self);
        let spawned = device::spawn("connection", move || {
            connection::serve(&server, id, stream);
            server.remove(id);
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread for a connection");
            self.remove(id);
        }
    }

    fn remove(&self, id: u64) {
        let mut registry = self.registry.lock();
        registry.open.remove(&id);
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
        if let Some(open) = registry.open.get_mut(&id) {
            open.busy = task.map(|task| Busy { task, since: now, heard: now });
        }
        if registry.pausing > 0 {
            self.changed.notify_all();
        }
        !registry.leaving
    }

    /// Notes that a connection goes on with what it is in the middle of.
    pub(super) fn heard(&self, id: u64) {
        let now = self.clock.monotonic();
        let mut registry = self.registry.lock();
        if let Some(busy) = registry.open.get_mut(&id).and_then(|open| open.busy.as_mut()) {
            busy.heard = now;
        }
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
                    if registry.open.is_empty() && quiet >= idle {
                        return Event::Idle;
                    }
                    let rest = idle.saturating_sub(quiet);
                    // A connection that closes starts the time afresh.
                    if registry.open.is_empty() { rest } else { rest.max(idle / 4) }
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

    /// Takes no more connections, closes those at rest, and waits for requests under way: until
    /// they end, or, from when there is reason to hurry, for at most [`LAZY_PATIENCE`].
    pub(super) fn leave(&self, hurry: &dyn Fn(&Registry, Duration) -> bool) {
        let mut registry = self.registry.lock();
        registry.leaving = true;
        self.door
            .close()
            .map_err(|error| failure::io("remove the socket of", &self.volume, &error))
            .unwrap_or_else(|failure| tracing::warn!(%failure, "the socket stays"));
        // A request that is on its way already is still read, and answered with our leave.
        for open in registry.open.values().filter(|open| open.busy.is_none()) {
            open.stream.shutdown(Shutdown::Read).unwrap_or_default();
        }
        self.changed.notify_all();
        let mut deadline = None;
        while !registry.open.is_empty() {
            if deadline.is_none() && hurry(&registry, self.clock.monotonic()) {
                // Even imports end here.
                for open in registry.open.values() {
                    open.stream.shutdown(Shutdown::Read).unwrap_or_default();
                }
                deadline = Some(self.clock.monotonic() + LAZY_PATIENCE);
            }
            let rest = deadline.map(|deadline| deadline.saturating_sub(self.clock.monotonic()));
            if rest.is_some_and(|rest| rest.is_zero()) {
                tracing::warn!(open = registry.open.len(), "requests are cut off");
                return;
            }
            self.changed.wait_for(&mut registry, rest.unwrap_or(LOOK_EVERY).min(LOOK_EVERY));
        }
    }

    /// Ends background work.
    pub(super) fn end_background(&self) {
        self.background.end();
    }
}
