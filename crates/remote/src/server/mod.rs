//! The server: accepts connections, finds out who they are, and runs their requests.
//!
//! Threads: one accepts, two for each connection receive and send, a pool executes, one ends
//! sessions whose clients are gone. All that a stranger can cause before its certificate was
//! verified is one thread for a bounded time, and a bounded number of those. A few threads of each
//! volume wait until answers may be sent.
//!
//! Which module decides what:
//! * `connection`: who the other side is, and what runs when
//! * `session`: what a client holds, which answers are kept
//! * `request`, `calls`: a request until its answer; one call, with which rights
//! * `lasting`: what outlives the process
//! * `locks`: locks of files, and deadlocks
//! * `settling`: when an answer may be sent, by what it rests on
//! * `memory`: what all clients share, and how much of it one gets
//! * `pool`, `outbox`, `pongs`: threads of a client, clients that do not read, pings
//! * `volume`, `control`, `ahead`: a served volume; connections of verbs, and what they read ahead

mod connection;
mod request;
mod counts;
mod control;
mod ahead;
mod volume;
mod calls;
mod session;
mod settling;
mod pongs;
mod lasting;
mod locks;
mod outbox;
mod pool;
mod memory;
mod bounds;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use device::sync::Mutex;
use device::{Clock, Link, Listener, Net, Random};
use rpc::{Grant, ServerTls};

pub use self::bounds::Bounds;
pub use self::counts::{Client, Counts, Totals};
pub use self::lasting::{Executed, Lasting, SessionId};
pub(crate) use self::locks::Locks;
use self::memory::Pots;
use self::pool::Pool;
use self::volume::Served;
pub use self::volume::{Export, OpenControl, Warrant};

/// How long a session lives without a connection.
const GRACE: Duration = Duration::from_secs(60);
/// How often sessions without a connection are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Who the process behind a connection on this machine is: the connection's two ends, its own and
/// ours.
pub type WhoIsLocal = dyn Fn(SocketAddr, SocketAddr) -> Option<(String, Grant)> + Send + Sync;

/// How clients prove who they are.
pub enum Security {
    /// By certificates.
    Tls(ServerTls),
    /// They are on this machine, whose kernel reports their users. Only on loopback addresses.
    Local(Box<WhoIsLocal>),
}

/// What a server takes from its surroundings.
pub struct Settings {
    /// How clients prove who they are.
    pub security: Security,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Entropy, for secrets of sessions.
    pub random: Arc<dyn Random>,
    /// How long a session lives without a connection; `None`: the default.
    pub grace: Option<Duration>,
}

/// A server. Dropping it ends it.
pub struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    listener: Arc<dyn Listener>,
    settings: Settings,
    bounds: Arc<Bounds>,
    pots: Arc<Pots>,
    volumes: Mutex<BTreeMap<String, Arc<Served>>>,
    /// Where volumes are served that are not served here.
    elsewhere: Mutex<BTreeMap<String, String>>,
    pool: Arc<Pool>,
    ended: AtomicBool,
    connections: AtomicUsize,
    /// Connections that were refused.
    refused: AtomicU64,
    /// Where those come from that have not identified themselves, the oldest first.
    strangers: Mutex<Vec<Stranger>>,
    /// How many connections each client has.
    of_client: Mutex<BTreeMap<String, usize>>,
}

impl Server {
    /// Starts to listen; no volume is served yet.
    pub fn start(net: &dyn Net, at: SocketAddr, settings: Settings) -> io::Result<Server> {
        Server::start_within(net, at, settings, Bounds::default())
    }

    /// The same, with other bounds.
    pub fn start_within(
        net: &dyn Net,
        at: SocketAddr,
        settings: Settings,
        bounds: Bounds,
    ) -> io::Result<Server> {
        if matches!(settings.security, Security::Local(_)) && !at.ip().is_loopback() {
            let text = "connections without TLS are accepted on loopback addresses only";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let listener = net.listen(at)?;
        let shared = Arc::new(Shared {
            listener,
            settings,
            pool: Pool::start(&bounds)?,
            pots: Arc::new(Pots::new(&bounds)),
            bounds: Arc::new(bounds),
            volumes: Mutex::default(),
            elsewhere: Mutex::default(),
            ended: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            strangers: Mutex::default(),
            of_client: Mutex::default(),
        });
        let server = Server { shared: Arc::clone(&shared) };
        let accepting = Arc::clone(&shared);
        device::spawn("serve-accept", move || accepting.accept())?;
        device::spawn("serve-sessions", move || shared.look_after_sessions())?;
        Ok(server)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.shared.listener.address()
    }

    /// Serves a volume from now on; `false`: another has its name.
    pub fn add(&self, export: Export) -> bool {
        let name = export.name.clone();
        let is_taken = |volumes: &BTreeMap<String, _>| volumes.contains_key(&name);
        if is_taken(&self.shared.volumes.lock()) {
            return false;
        }
        // Without the lock: it reads the volume, whose store may be slow, and clients of others
        // are let in meanwhile.
        let served = Arc::new(Served::new(export, &self.shared.bounds, &self.shared.pots));
        let mut volumes = self.shared.volumes.lock();
        if is_taken(&volumes) {
            return false;
        }
        volumes.insert(name, Arc::clone(&served));
        drop(volumes);
        served.start(&*self.shared.settings.clock);
        true
    }

    /// Redirects clients to the server that has a volume, HOST:PORT, while it is not served here.
    pub fn set_elsewhere(&self, name: &str, address: Option<String>) {
        let mut elsewhere = self.shared.elsewhere.lock();
        match address {
            Some(address) => elsewhere.insert(name.to_owned(), address),
            None => elsewhere.remove(name),
        };
    }

    /// Serves a volume no more: its sessions end, and what they hold is released.
    pub fn remove(&self, name: &str) {
        let removed = self.shared.volumes.lock().remove(name);
        if let Some(volume) = removed {
            volume.close();
        }
    }

    /// How many sessions there are, and how many nodes they hold.
    pub fn held(&self) -> (usize, usize) {
        let volumes: Vec<_> = self.shared.volumes.lock().values().cloned().collect();
        let sessions: Vec<_> = volumes.iter().flat_map(|volume| volume.sessions()).collect();
        (sessions.len(), sessions.iter().map(|session| session.nodes()).sum())
    }

    /// Closes all connections, as a network that fails does; the sessions continue. For tests.
    pub fn hang_up(&self) {
        let volumes: Vec<_> = self.shared.volumes.lock().values().cloned().collect();
        for session in volumes.iter().flat_map(|volume| volume.sessions()) {
            session.hang_up();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        self.shared.listener.close();
        let volumes = std::mem::take(&mut *self.shared.volumes.lock());
        for volume in volumes.into_values() {
            volume.close();
        }
        self.shared.pool.end();
    }
}

impl Shared {
    fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    fn grace(&self) -> Duration {
        self.settings.grace.unwrap_or(GRACE)
    }

    fn accept(self: &Arc<Shared>) {
        loop {
            let accepted = self.listener.accept();
            if self.ended() {
                return;
            }
            let (link, from) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    self.settings.clock.sleep(Duration::from_millis(50));
                    continue;
                }
            };
            let connections = self.connections.fetch_add(1, Ordering::Relaxed);
            let stranger = Arc::new(Unknown { from: network(from.ip()), link: Arc::clone(&link) });
            self.meet(&stranger);
            let counted =
                Counted { shared: Arc::clone(self), stranger: Some(stranger), client: None };
            if connections >= self.bounds.connections {
                // Anybody can cause this, as often as it likes.
                tracing::debug!(%from, "refused a connection: there are too many");
                self.refused.fetch_add(1, Ordering::Relaxed);
                drop(counted);
                link.close();
                continue;
            }
            let shared = Arc::clone(self);
            let serve = move || connection::serve(&shared, link, from, counted);
            if let Err(error) = device::spawn("serve-link", serve) {
                tracing::warn!(%error, "cannot serve a connection");
            }
        }
    }

    /// Counts a stranger. If there are too many, of its network or of all, the oldest of them must
    /// go: those who mean well take a moment only.
    fn meet(&self, stranger: &Stranger) {
        let mut strangers = self.strangers.lock();
        let is_near = |other: &Stranger| other.from == stranger.from;
        let of_network = strangers.iter().filter(|other| is_near(other)).count();
        let oldest = if of_network >= self.bounds.strangers_of_address {
            strangers.iter().position(is_near)
        } else {
            (strangers.len() >= self.bounds.strangers).then_some(0)
        };
        if let Some(at) = oldest {
            strangers.remove(at).link.close();
        }
        strangers.push(Arc::clone(stranger));
    }

    /// Ends sessions whose clients did not come back.
    fn look_after_sessions(&self) {
        let (clock, every) = (&self.settings.clock, LOOK_EVERY.min(self.grace()));
        while !self.ended() {
            // Also for threads that rested before: what they returned goes back to the system a
            // moment later, when some thread looks.
            device::rest();
            clock.sleep(every);
            let volumes: Vec<_> = self.volumes.lock().values().cloned().collect();
            // Locks wait for the end of the time of earlier sessions, or of their own session.
            self.pool.look_again();
            for volume in volumes {
                volume.look(&**clock);
                for session in volume.sessions() {
                    if session.must_end() {
                        let client = &session.client;
                        tracing::warn!(%client, "it acknowledges no answers: a session ends");
                        volume.end(&session);
                        continue;
                    }
                    let lost = session.lost_for(clock.monotonic());
                    if lost.is_some_and(|lost| lost >= self.grace()) {
                        tracing::info!(client = %session.client, "a client did not come back");
                        volume.end(&session);
                    }
                }
            }
        }
    }
}

/// The network that one of its hosts can take addresses of as it likes.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
        IpAddr::V4(address) if address.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V4(address) => IpAddr::V4(address),
    }
}

/// A connection that has not identified itself.
struct Unknown {
    from: IpAddr,
    link: Arc<dyn Link>,
}

type Stranger = Arc<Unknown>;

/// A connection that is counted.
struct Counted {
    shared: Arc<Shared>,
    stranger: Option<Stranger>,
    client: Option<String>,
}

impl Counted {
    /// It identified itself; `false`: that client has the most.
    fn is_known(&mut self, client: &str) -> bool {
        self.is_no_stranger();
        let mut of_client = self.shared.of_client.lock();
        let count = of_client.entry(client.to_owned()).or_default();
        if *count >= self.shared.bounds.connections_of_client {
            return false;
        }
        *count += 1;
        self.client = Some(client.to_owned());
        true
    }

    fn is_no_stranger(&mut self) {
        let Some(own) = self.stranger.take() else { return };
        self.shared.strangers.lock().retain(|other| !Arc::ptr_eq(other, &own));
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.is_no_stranger();
        if let Some(client) = self.client.take() {
            let mut of_client = self.shared.of_client.lock();
            if let Some(count) = of_client.get_mut(&client) {
                *count -= 1;
                if *count == 0 {
                    of_client.remove(&client);
                }
            }
        }
        self.shared.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
