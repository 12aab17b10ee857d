//! The server: accepts connections, finds out who they are, and runs their requests.
//!
//! Threads: one accepts, one for each connection receives, a pool executes, one ends sessions whose
//! clients are gone. All that a stranger can cause before its certificate was verified is one
//! thread for a bounded time, and a bounded number of those.

mod calls;
mod connection;
mod control;
mod locks;
mod pool;
mod session;
mod volume;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use device::sync::Mutex;
use device::{Clock, Listener, Net, Random};
use rpc::{Grant, ServerTls};

use self::pool::Pool;
use self::volume::Served;
pub use self::volume::{Export, OpenControl};

/// Most connections at once.
const CONNECTIONS_MAX: usize = 4096;
/// Most of those that have not said who they are, and of those from one address.
const STRANGERS_MAX: usize = 64;
const STRANGERS_OF_ADDRESS_MAX: usize = 24;
/// How long a session lives without a connection.
const GRACE: Duration = Duration::from_secs(60);
/// How often sessions without a connection are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Who the process behind a connection on this machine is: the connection's two ends, its own and
/// ours.
pub type WhoIsLocal = dyn Fn(SocketAddr, SocketAddr) -> Option<(String, Grant)> + Send + Sync;

/// How clients prove who they are.
pub enum Security {
    /// By certificates.
    Tls(ServerTls),
    /// They are on this machine, which tells whose they are. Only on loopback addresses.
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
    volumes: Mutex<BTreeMap<String, Arc<Served>>>,
    pool: Arc<Pool>,
    ended: AtomicBool,
    connections: AtomicUsize,
    /// Where those come from that have not said who they are.
    strangers: Mutex<Vec<IpAddr>>,
}

impl Server {
    /// Starts to listen; no volume is served yet.
    pub fn start(net: &dyn Net, at: SocketAddr, settings: Settings) -> io::Result<Server> {
        if matches!(settings.security, Security::Local(_)) && !at.ip().is_loopback() {
            let text = "connections without TLS are accepted on loopback addresses only";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let listener = net.listen(at)?;
        let shared = Arc::new(Shared {
            listener,
            settings,
            volumes: Mutex::default(),
            pool: Pool::start()?,
            ended: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            strangers: Mutex::default(),
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
        let mut volumes = self.shared.volumes.lock();
        if volumes.contains_key(&export.name) {
            return false;
        }
        volumes.insert(export.name.clone(), Arc::new(Served::new(export)));
        true
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
            let (strangers, of_address) = {
                let mut strangers = self.strangers.lock();
                let of_address = strangers.iter().filter(|other| **other == from.ip()).count();
                strangers.push(from.ip());
                (strangers.len(), of_address)
            };
            let counted = Counted { shared: Arc::clone(self), stranger: Some(from.ip()) };
            if connections >= CONNECTIONS_MAX
                || strangers > STRANGERS_MAX
                || of_address >= STRANGERS_OF_ADDRESS_MAX
            {
                tracing::warn!(%from, "refused a connection: there are too many");
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

    /// Ends sessions whose clients did not come back.
    fn look_after_sessions(&self) {
        let (clock, every) = (&self.settings.clock, LOOK_EVERY.min(self.grace()));
        while !self.ended() {
            clock.sleep(every);
            let volumes: Vec<_> = self.volumes.lock().values().cloned().collect();
            for volume in volumes {
                for session in volume.sessions() {
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

/// A connection that is counted.
struct Counted {
    shared: Arc<Shared>,
    stranger: Option<IpAddr>,
}

impl Counted {
    /// It said who it is.
    fn is_known(&mut self) {
        let Some(from) = self.stranger.take() else { return };
        let mut strangers = self.shared.strangers.lock();
        if let Some(at) = strangers.iter().position(|other| *other == from) {
            strangers.swap_remove(at);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.is_known();
        self.shared.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
