//! Makes one connection to a server: address, TLS, hello, welcome.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use device::{Clock, Net};
use rpc::{Channel, ChannelError, ClientTls};
use wire::remote::{
    Asker, FEATURES, FrameKind, REMOTE_MAGIC, REMOTE_VERSION, REMOTE_VERSION_MIN, RemoteHello,
    RemoteWelcome, Resume, Use, put_head, split_head,
};
use wire::{Bytes, Failure, decode, encode};

use super::silent::{Heard, Silent};

/// How long a server may take to accept a connection, and to answer the hello.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// The same, of one of several servers: the next one is asked then.
const NEXT_AFTER: Duration = Duration::from_secs(2);
/// The least time of one of several addresses of a name.
const ADDRESS_AT_LEAST: Duration = Duration::from_secs(1);
/// How often an attempt is sent on to another server.
const MOVES_MAX: usize = 4;
/// Longest address of another server.
const ADDRESS_BYTES_MAX: usize = 512;
/// Longest welcome.
const WELCOME_BYTES_MAX: usize = 16 << 10;

/// A volume of a server.
#[derive(Clone)]
pub struct Target {
    /// Where servers are that may have it; at least one.
    pub places: Vec<ServerAddress>,
    /// The volume, as the server calls it.
    pub volume: String,
    /// How the server proves who it is.
    pub proof: Proof,
}

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    /// The host's name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl ServerAddress {
    /// Parses `HOST:PORT` or `[ADDRESS]:PORT`.
    pub fn parse(text: &str) -> Option<ServerAddress> {
        let (host, port) = text.rsplit_once(':')?;
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = inner.unwrap_or(host);
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
        let fits = !host.is_empty() && host.bytes().all(is_name);
        if !fits || inner.is_none() && host.contains(':') {
            return None;
        }
        let port = port.parse().ok().filter(|&port| port != 0)?;
        Some(ServerAddress { host: host.to_owned(), port })
    }
}

impl std::fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Brackets divide an address with colons from the port.
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// How a server proves who it is.
#[derive(Clone)]
pub enum Proof {
    /// By its certificate.
    Tls(ClientTls),
    /// By its user on this machine, so only on a loopback address. The function gets the server's
    /// address and the client's, of an open connection. It returns why the server's user is not
    /// trusted, if that is so. Any user may listen on the port while no server runs.
    Local(fn(SocketAddr, SocketAddr) -> Result<(), String>),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&url(&self.places, &self.volume))
    }
}

/// The URL of a volume of servers.
pub fn url(places: &[ServerAddress], volume: &str) -> String {
    let places: Vec<String> = places.iter().map(ServerAddress::to_string).collect();
    format!("pando://{}/{volume}", places.join(","))
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name has no address.
    #[error("the host {0} is not known: {1}")]
    Unknown(String, io::Error),
    /// Without certificates only this machine is spoken to.
    #[error("{0} is another machine: a connection to it needs certificates")]
    Plain(SocketAddr),
    /// The process that answers there is not a server that is trusted.
    #[error("{0}: {1}")]
    Untrusted(SocketAddr, String),
    /// Nobody answers there.
    #[error("cannot connect to {0}: {1}")]
    Unreachable(SocketAddr, io::Error),
    /// Certificates that do not fit the name.
    #[error("{0}")]
    Certificates(#[from] rpc::TlsError),
    /// The server refused, and why.
    #[error("the server refuses: {0}")]
    Refused(Failure),
    /// The connection broke, or is none of ours.
    #[error("{0}")]
    Broken(#[from] ChannelError),
    /// It does not have the volume, and the one that it names does not either.
    #[error("{0} names {1} as the server of the volume, which does not have it")]
    Elsewhere(ServerAddress, ServerAddress),
    /// It does not speak this protocol.
    #[error("{0} speaks a different protocol")]
    Foreign(SocketAddr),
}

impl ConnectError {
    /// Whether another attempt may end otherwise.
    pub(super) fn may_pass(&self) -> bool {
        use wire::FailureKind::{Busy, Leaving, NotFound};
        match self {
            // A server that starts does not have its volumes at once.
            ConnectError::Refused(failure) => {
                matches!(failure.kind, Busy | Leaving | NotFound)
            }
            ConnectError::Untrusted(..) => false,
            _ => true,
        }
    }

    /// What the machine sent, if anything.
    fn heard(&self) -> Heard {
        match self {
            ConnectError::Unreachable(..) => Heard::Nothing,
            ConnectError::Broken(_) => Heard::Connection,
            _ => Heard::Answer,
        }
    }

    /// Whether its message explains more than another server's.
    fn explains_more_than(&self, other: Option<&ConnectError>) -> bool {
        let is_away = matches!(
            self,
            ConnectError::Unreachable(..) | ConnectError::Broken(_) | ConnectError::Unknown(..)
        );
        !is_away || other.is_none()
    }
}

/// What a connection is made for.
pub(super) struct Purpose<'a> {
    pub(super) use_for: Use,
    pub(super) who: Asker,
    pub(super) resume: Option<Resume>,
    pub(super) awaits: &'a [u64],
}

impl Purpose<'_> {
    /// To begin a session, or to continue one, which awaits answers to these requests.
    pub(super) fn of_session(resume: Option<Resume>, awaits: &[u64]) -> Purpose<'_> {
        Purpose { use_for: Use::Mount, who: Asker::default(), resume, awaits }
    }
}

/// Connects to the server that has the volume. Each place is asked in turn, and a server that does
/// not have it may name the one that has. Places that did not answer just now are asked only if
/// there is no other.
pub(super) fn connect(
    net: &dyn Net,
    clock: &Arc<dyn Clock>,
    (target, silent): (&Target, &Silent),
    purpose: &Purpose<'_>,
) -> Result<(Arc<Channel>, RemoteWelcome), ConnectError> {
    let mut last = None;
    let is_silent = |place: &ServerAddress| silent.has(&place.to_string(), &**clock);
    let all_are = target.places.iter().all(is_silent);
    for place in target.places.iter().filter(|place| all_are || !is_silent(place)) {
        let mut place = place.clone();
        for _ in 0..=MOVES_MAX {
            let begun = clock.monotonic();
            let greeted = connect_to(net, clock, (target, &place), purpose);
            let heard = greeted.as_ref().map_or_else(ConnectError::heard, |_| Heard::Answer);
            silent.note(&place.to_string(), heard, begun, &**clock);
            match greeted {
                Ok(Greeted::Welcome(channel, welcome)) => return Ok((channel, welcome)),
                Ok(Greeted::Moved(next)) if next != place => {
                    last = Some(ConnectError::Elsewhere(place, next.clone()));
                    if is_silent(&next) {
                        break;
                    }
                    place = next;
                }
                Ok(Greeted::Moved(next)) => {
                    last = Some(ConnectError::Elsewhere(place, next));
                    break;
                }
                // Of one server that is the whole answer.
                Err(error @ ConnectError::Refused(_)) if target.places.len() == 1 => {
                    return Err(error);
                }
                Err(error) => {
                    // Why a server refuses explains more than that another one is down.
                    if error.explains_more_than(last.as_ref()) {
                        last = Some(error);
                    }
                    break;
                }
            }
        }
    }
    let nothing = io::Error::new(io::ErrorKind::NotFound, "no server is named");
    Err(last.unwrap_or(ConnectError::Unknown(target.volume.clone(), nothing)))
}

/// What a server answered to a hello.
enum Greeted {
    Welcome(Arc<Channel>, RemoteWelcome),
    Moved(ServerAddress),
}

fn connect_to(
    net: &dyn Net,
    clock: &Arc<dyn Clock>,
    (target, place): (&Target, &ServerAddress),
    purpose: &Purpose<'_>,
) -> Result<Greeted, ConnectError> {
    let unknown = |error| ConnectError::Unknown(place.host.clone(), error);
    let addresses = net.resolve(&place.host, place.port).map_err(unknown)?;
    let nothing = || unknown(io::Error::new(io::ErrorKind::NotFound, "it has no address"));
    let within = if target.places.len() > 1 { NEXT_AFTER } else { CONNECT_WITHIN };
    // They share the time: of a name with many addresses most may be of no machine.
    let within = (within / addresses.len().clamp(1, 8) as u32).max(ADDRESS_AT_LEAST);
    let mut last: Option<ConnectError> = None;
    for address in addresses {
        match greet(net, clock, (target, place), (address, within), purpose) {
            Ok(greeted) => return Ok(greeted),
            Err(error @ ConnectError::Refused(_)) => return Err(error),
            Err(error) if error.explains_more_than(last.as_ref()) => last = Some(error),
            Err(_) => {}
        }
    }
    Err(last.unwrap_or_else(nothing))
}

fn greet(
    net: &dyn Net,
    clock: &Arc<dyn Clock>,
    (target, place): (&Target, &ServerAddress),
    (address, within): (SocketAddr, Duration),
    purpose: &Purpose<'_>,
) -> Result<Greeted, ConnectError> {
    if matches!(target.proof, Proof::Local(_)) && !address.ip().is_loopback() {
        return Err(ConnectError::Plain(address));
    }
    let link = net.connect(address, within);
    let link = link.map_err(|error| ConnectError::Unreachable(address, error))?;
    let clock = Arc::clone(clock);
    let ours = link.local_address();
    let channel = match &target.proof {
        Proof::Local(_) => Channel::plain(link, clock).map_err(ChannelError::from)?,
        Proof::Tls(tls) => Channel::encrypted(link, clock, tls.connect(&place.host)?, within)?,
    };
    let hello = RemoteHello {
        magic: REMOTE_MAGIC,
        version_min: REMOTE_VERSION_MIN,
        version: REMOTE_VERSION,
        features: FEATURES,
        volume: Bytes::from(target.volume.as_bytes()),
        use_for: purpose.use_for,
        who: purpose.who.clone(),
        resume: purpose.resume,
        awaits: purpose.awaits.to_vec(),
    };
    let mut frame = Vec::new();
    put_head(FrameKind::Hello, 0, &mut frame);
    encode(&hello, &mut frame);
    channel.send(&frame).map_err(ChannelError::from)?;
    channel.receive(&mut frame, WELCOME_BYTES_MAX, within)?;
    let foreign = || ConnectError::Foreign(address);
    match split_head(&frame).ok_or_else(foreign)? {
        (FrameKind::Welcome, _, body) => {
            let welcome: RemoteWelcome = decode(body).map_err(|_| foreign())?;
            let versions = REMOTE_VERSION_MIN..=REMOTE_VERSION;
            if welcome.magic != REMOTE_MAGIC || !versions.contains(&welcome.version) {
                return Err(foreign());
            }
            // A process has accepted the connection: the kernel knows whose it is.
            if let Proof::Local(check) = target.proof {
                let untrusted = |why| ConnectError::Untrusted(address, why);
                let ours =
                    ours.ok_or_else(|| untrusted("the connection has no address".to_owned()))?;
                check(address, ours).map_err(untrusted)?;
            }
            Ok(Greeted::Welcome(Arc::new(channel), welcome))
        }
        (FrameKind::Moved, _, body) => {
            let text = std::str::from_utf8(body).ok().filter(|_| body.len() <= ADDRESS_BYTES_MAX);
            Ok(Greeted::Moved(text.and_then(ServerAddress::parse).ok_or_else(foreign)?))
        }
        (FrameKind::Refused, _, body) => {
            Err(ConnectError::Refused(decode(body).map_err(|_| foreign())?))
        }
        _ => Err(foreign()),
    }
}
