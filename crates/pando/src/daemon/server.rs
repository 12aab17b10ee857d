//! State that the threads of the daemon share: which connections have a request under way, and
//! whether the daemon leaves. It knows no request and starts no connection.

mod ended;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use device::Clock;
use device::sync::{Condvar, Mutex, Sender};
use fs::Volume;
use program::Background;
use wire::{Followed, ScanWatch};

use super::clients::Clients;
use super::door::Door;
use super::event::Event;
use super::load::{Load, Memory};
use super::peer_wait::Outgoing;
use super::schedules::{FrontEnd, Schedules};
use super::sessions::{Busy, Sessions, Task, Who};
use super::shares::Taker;
use super::staged::Staged;
use super::start::{LAZY_PATIENCE, Settings, Start};
use crate::failure::{self, Result};
use crate::host::Store;

/// How long a command waits to see changes made through the mount, and for its own effect to be
/// visible there. To drop pages the kernel may have to write them first, on a disk that is busy
/// with other work.
const SETTLE_PATIENCE: Duration = Duration::from_secs(30);

/// A mount that requests the volume does not wait for work that takes longer than this: other
/// clients would find no daemon meanwhile.
pub(super) const SHORT: Duration = Duration::from_secs(1);

/// How often the bytes of a volume in an object store are measured, if it changed. The interval is
/// this for each request of the last time, which is one for each thousand objects.
const MEASURE_EVERY: Duration = Duration::from_secs(60);
/// The same after an opening; each time doubles it.
const MEASURE_FIRST: Duration = Duration::from_secs(4);

/// How long a search waits for other searches of its user to end.
const LOAD_PATIENCE: Duration = Duration::from_secs(10);

/// Returns how overdue the daemon's next sign of life is.
pub(super) type Silent = Box<dyn Fn() -> Option<Duration> + Send + Sync>;

/// State that the daemon's threads share.
pub(super) struct Server {
    volume: PathBuf,
    fs: Arc<Volume>,
    /// The object store that keeps the volume, if one does.
    store: Option<Store>,
    /// For how long other hosts have seen no sign of this daemon, if the next one is overdue.
    silent: Option<Silent>,
    pub(super) clock: Arc<dyn Clock>,
    /// When the daemon started, on that clock.
    started: Duration,
    events: Sender<Event>,
    /// How long it stays without a request; `None` means for ever.
    pub(super) idle: Option<Duration>,
    mount: OnceLock<(Arc<fuse::Mount>, Settings)>,
    /// The mount is gone, and the daemon continues for sessions that are under way.
    pub(super) unmounted: AtomicBool,
    pub(super) background: Background,
    schedules: Schedules,
    pub(super) registry: Mutex<Registry>,
    /// The processes at the other end of root's connections, by the numbers of these. The number of
    /// a process is used again, and a connection may outlive the process that made it.
    pub(super) processes: Mutex<BTreeMap<u64, Arc<OwnedFd>>>,
    pub(super) changed: Condvar,
    pub(super) door: Arc<Door>,
    staged: Arc<Staged>,
    /// The clients of other machines, if they use the volume.
    clients: Option<Clients>,
}

/// The connections, and whether the daemon leaves.
pub(super) struct Registry {
    pub(super) sessions: Sessions,
    pub(super) leaving: bool,
    /// How many threads wait for all connections to be idle, so that the daemon can leave: no
    /// request begins.
    pausing: u32,
    pub(super) last_active: Duration,
}

impl Server {
    pub(super) fn new(
        start: &Start,
        (fs, store, silent): (Arc<Volume>, Option<Store>, Option<Silent>),
        clock: Arc<dyn Clock>,
        events: Sender<Event>,
        door: Arc<Door>,
    ) -> Arc<Server> {
        let last_active = clock.monotonic();
        let mut sessions = Sessions::default();
        if let Some(serve) = &start.serve {
            sessions.reserve_at_most(serve.memory.streams);
        }
        let registry = Registry { sessions, leaving: false, pausing: 0, last_active };
        Arc::new(Server {
            volume: start.volume.clone(),
            fs,
            store,
            silent,
            clock,
            started: last_active,
            events,
            idle: start.idle.filter(|_| start.mount.is_none()),
            mount: OnceLock::new(),
            processes: Mutex::default(),
            unmounted: AtomicBool::new(false),
            background: Background::default(),
            schedules: Schedules::default(),
            registry: Mutex::new(registry),
            changed: Condvar::new(),
            door,
            staged: Arc::default(),
            clients: start.serve.as_ref().map(Clients::of),
        })
    }

    /// Whose shares count what a connection takes; `None`: nobody's.
    pub(super) fn taker(&self, id: u64) -> Option<Taker> {
        self.registry.lock().sessions.get(id)?.taker()
    }

    /// Most memory of a stream or dump for another machine.
    pub(super) fn far_stream_bytes(&self) -> u64 {
        self.registry.lock().sessions.most_of_stream()
    }

    /// Its clock.
    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Whether other machines use the volume.
    pub(super) fn is_served(&self) -> bool {
        self.clients.is_some()
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
    pub(super) fn fs(&self) -> &Arc<Volume> {
        &self.fs
    }

    /// What imports and dumps have staged.
    pub(super) fn staged(&self) -> &Arc<Staged> {
        &self.staged
    }

    /// The object store that keeps the volume, if one does, and the time since the daemon started.
    pub(super) fn store(&self) -> Option<(&Store, Duration)> {
        let running = self.clock.monotonic().saturating_sub(self.started);
        self.store.as_ref().map(|store| (store, running))
    }

    /// For how long other hosts have seen no sign of this daemon, if the next one is overdue.
    pub(super) fn silent(&self) -> Option<Duration> {
        self.silent.as_ref().and_then(|silent| silent())
    }

    /// Its background work.
    pub(super) fn background(&self) -> &Background {
        &self.background
    }

    /// What it knows of schedules.
    pub(super) fn schedules(&self) -> &Schedules {
        &self.schedules
    }

    /// Starts to take scheduled snapshots.
    pub(super) fn take_snapshots(self: &Arc<Server>) -> io::Result<()> {
        let server = Arc::downgrade(self);
        self.background.drive("snapshots", move || match server.upgrade() {
            Some(server) => server.schedules.step(&*server, &*server.clock),
            None => Ok(Duration::MAX),
        })
    }

    /// Starts to measure what the object store has of the volume, now and then.
    pub(super) fn measure(self: &Arc<Server>) -> io::Result<()> {
        let (clock, fs) = (Arc::clone(&self.clock), Arc::clone(&self.fs));
        let times = Mutex::new((Duration::ZERO, MEASURE_FIRST));
        let traffic = self.store.as_ref().map(|store| Arc::clone(&store.traffic));
        self.background.drive("measure", move || {
            let (now, mut times) = (clock.monotonic(), times.lock());
            let (next, every) = &mut *times;
            if now >= *next {
                *next = now + *every;
                let lists = || traffic.as_ref().map_or(0, |traffic| traffic.counts().list);
                let before = lists();
                fs.measure_objects()?;
                let requests = u32::try_from(lists() - before).unwrap_or(u32::MAX);
                *next = now + every.saturating_mul(requests.max(1));
                *every = (*every * 2).min(MEASURE_EVERY);
            }
            Ok(*every)
        })
    }

    /// The mount, if there is one.
    pub(super) fn mount(&self) -> Option<&Arc<fuse::Mount>> {
        self.mounted().map(|(mount, _)| mount)
    }

    /// The mount, and what it was made with.
    pub(super) fn mounted(&self) -> Option<&(Arc<fuse::Mount>, Settings)> {
        self.mount.get().filter(|_| !self.unmounted.load(Ordering::Relaxed))
    }

    /// Where the volume is mounted.
    pub(super) fn mount_point(&self) -> Option<Arc<Path>> {
        self.mount().map(|mount| mount.mount_point())
    }

    pub(super) fn set_mount(&self, mount: Arc<fuse::Mount>, settings: Settings) {
        assert!(self.mount.set((mount, settings)).is_ok(), "a daemon has one mount");
    }

    /// Waits until the kernel has dropped its caches of what was changed without its knowledge.
    pub(super) fn settle(&self) {
        if let Some(mount) = self.mount()
            && !mount.settle(SETTLE_PATIENCE)
        {
            tracing::warn!("the kernel is slow to drop what it cached");
        }
    }

    /// Waits until everything that the kernel has handed over is in the volume.
    pub(super) fn catch_up(&self) {
        if let Some(mount) = self.mount()
            && !mount.catch_up(&*self.clock, SETTLE_PATIENCE)
        {
            tracing::warn!("requests of the kernel take too long");
        }
    }

    /// Makes the daemon leave, unless a long request is under way. Then it returns that request and
    /// its duration, and the daemon stays for all clients. It waits for short requests.
    pub(super) fn hand_over(&self) -> std::result::Result<(), (u64, Who, Busy, Duration)> {
        let mut registry = self.registry.lock();
        registry.pausing += 1;
        loop {
            let now = self.clock.monotonic();
            let Some((id, who, busy)) = registry.sessions.first_at_work(now) else {
                // Requests not begun by now are left to the next daemon.
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

    /// Whether a user is trusted with the volume as a whole (checks, all sessions, any mount's
    /// socket). These are root, the user that owns the volume's directory, and the one of this
    /// process.
    pub(super) fn trusts(&self, uid: u32) -> bool {
        let own = rustix::process::geteuid().as_raw();
        uid == 0 || uid == own || Some(uid) == self.directory_uid()
    }

    /// The user that owns the volume's directory.
    pub(super) fn directory_uid(&self) -> Option<u32> {
        let listening = self.door.listening();
        rustix::fs::fstat(listening.directory()).map(|found| found.st_uid).ok()
    }

    /// The process at the other end of a connection.
    pub(super) fn who(&self, id: u64) -> Option<Who> {
        self.registry.lock().sessions.get(id).map(|session| session.who)
    }

    /// The process that made a connection of root.
    pub(super) fn process(&self, id: u64) -> Option<Arc<OwnedFd>> {
        self.processes.lock().get(&id).cloned()
    }

    /// The stream of a connection, for its answers; `None` if the connection ended.
    pub(super) fn outgoing(&self, id: u64, stream: UnixStream) -> Option<Outgoing> {
        let wait = self.registry.lock().sessions.get(id)?.wait();
        Some(Outgoing::new(stream, wait, Arc::clone(&self.clock)))
    }

    /// Records the current request of a connection, if any. `false`: the daemon is leaving, and
    /// the connection must begin nothing.
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

    /// Begins a request of a connection, as soon as few enough of its kind are under way. Returns
    /// how much memory it may take.
    pub(super) fn begin(&self, id: u64, load: (Load, Memory)) -> Result<u64> {
        let mut registry = self.registry.lock();
        let deadline = self.clock.monotonic() + LOAD_PATIENCE;
        loop {
            let begun = registry.sessions.begin_with(id, load);
            let rest = deadline.saturating_sub(self.clock.monotonic());
            let ended = registry.leaving || registry.sessions.ended_by(id).is_some();
            if begun.is_ok() || rest.is_zero() || ended {
                return begun;
            }
            self.changed.wait_for(&mut registry, rest);
        }
    }

    /// Gives up the turn of a connection whose request continues and searches nothing more.
    pub(super) fn end_turn(&self, id: u64) {
        self.registry.lock().sessions.end_turn(id);
        self.changed.notify_all();
    }

    /// Records that a session follows the source of the index.
    pub(super) fn set_follows(&self, id: u64, by: ScanWatch, unwatched: u64) {
        self.registry.lock().sessions.set_follows(id, by, unwatched);
    }

    /// The session that follows the source of the index, if any.
    pub(super) fn followed(&self) -> Option<Followed> {
        self.registry.lock().sessions.followed()
    }

    /// Records that a connection sent more work for its current request.
    pub(super) fn heard(&self, id: u64) {
        let now = self.clock.monotonic();
        self.registry.lock().sessions.heard(id, now);
    }

    /// How many connections there are.
    pub(super) fn session_count(&self) -> usize {
        self.registry.lock().sessions.len()
    }

    /// Whether the daemon begins no new requests.
    pub(super) fn is_leaving(&self) -> bool {
        self.registry.lock().leaving
    }

    /// Accepts no more connections, closes those whose peers do not read and the idle ones, and
    /// waits for requests under way. It waits first until short ones end, then until cancelled long
    /// ones have ended, but no longer than [`LAZY_PATIENCE`].
    pub(super) fn leave(&self) {
        let mut registry = self.registry.lock();
        registry.leaving = true;
        self.door
            .close()
            .map_err(|error| failure::io("remove the socket of", &self.volume, &error))
            .unwrap_or_else(|failure| tracing::warn!(%failure, "cannot remove the socket"));
        self.changed.notify_all();
        registry.sessions.cut_off_stalled(self.clock.monotonic());
        for (idle_only, patience) in [(true, SHORT), (false, LAZY_PATIENCE)] {
            // A request that is already on its way is still read, and answered with a notice that
            // the daemon leaves.
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
            tracing::warn!(open = registry.sessions.len(), "ending requests that take too long");
        }
    }

    /// Ends background work.
    pub(super) fn end_background(&self) {
        self.background.end();
    }
}

impl FrontEnd for Server {
    fn fs(&self) -> &Volume {
        &self.fs
    }

    fn catch_up(&self) {
        Server::catch_up(self);
    }

    fn settle(&self) {
        Server::settle(self);
    }
}
