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

/// How long a server may take to accept a connection, and to answer the hello.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Longest welcome.
const WELCOME_BYTES_MAX: usize = 16 << 10;

/// A volume of a server.
#[derive(Clone)]
pub struct Target {
    /// The host's name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The volume, as the server calls it.
    pub volume: String,
    /// How the server proves who it is.
    pub proof: Proof,
}

/// How a server proves who it is.
#[derive(Clone)]
pub enum Proof {
    /// By its certificate.
    Tls(ClientTls),
    /// By its user on this machine, so only on a loopback address. The function gets the server's
    /// address and the client's, of an open connection, and returns why the server's user is not
    /// trusted, if that is so: any user may listen on the port while no server runs.
    Local(fn(SocketAddr, SocketAddr) -> Result<(), String>),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&url(&self.host, self.port, &self.volume))
    }
}

/// The URL of a volume of a server.
pub fn url(host: &str, port: u16, volume: &str) -> String {
    // Brackets divide an address with colons from the port.
    if host.contains(':') {
        format!("pando://[{host}]:{port}/{volume}")
    } else {
        format!("pando://{host}:{port}/{volume}")
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name has no address.
    #[error("the host {0} is not known: {1}")]
    Unknown(String, io::Error),
    /// Without certificates only this machine is spoken to.
    #[error("{0} is another machine: that takes certificates")]
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
    /// It does not speak this protocol.
    #[error("{0} speaks another protocol")]
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
}

/// What a connection is made for.
pub(super) struct Purpose<'a> {
    pub(super) use_for: Use,
    pub(super) who: Asker,
    pub(super) resume: Option<Resume>,
    pub(super) awaits: &'a [u64],
}

/// Connects.
pub(super) fn connect(
    net: &dyn Net,
    clock: &Arc<dyn Clock>,
    target: &Target,
    purpose: &Purpose<'_>,
) -> Result<(Arc<Channel>, RemoteWelcome), ConnectError> {
    let unknown = |error| ConnectError::Unknown(target.host.clone(), error);
    let addresses = net.resolve(&target.host, target.port).map_err(unknown)?;
    let nothing = || unknown(io::Error::new(io::ErrorKind::NotFound, "it has no address"));
    let mut last = None;
    for address in addresses {
        match greet(net, clock, target, address, purpose) {
            Ok(greeted) => return Ok(greeted),
            Err(error @ ConnectError::Refused(_)) => return Err(error),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(nothing))
}

fn greet(
    net: &dyn Net,
    clock: &Arc<dyn Clock>,
    target: &Target,
    address: SocketAddr,
    purpose: &Purpose<'_>,
) -> Result<(Arc<Channel>, RemoteWelcome), ConnectError> {
    if matches!(target.proof, Proof::Local(_)) && !address.ip().is_loopback() {
        return Err(ConnectError::Plain(address));
    }
    let link = net.connect(address, CONNECT_WITHIN);
    let link = link.map_err(|error| ConnectError::Unreachable(address, error))?;
    let clock = Arc::clone(clock);
    let ours = link.local_address();
    let channel = match &target.proof {
        Proof::Local(_) => Channel::plain(link, clock).map_err(ChannelError::from)?,
        Proof::Tls(tls) => {
            Channel::encrypted(link, clock, tls.connect(&target.host)?, CONNECT_WITHIN)?
        }
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
    channel.receive(&mut frame, WELCOME_BYTES_MAX, CONNECT_WITHIN)?;
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
            Ok((Arc::new(channel), welcome))
        }
        (FrameKind::Refused, _, body) => {
            Err(ConnectError::Refused(decode(body).map_err(|_| foreign())?))
        }
        _ => Err(foreign()),
    }
}
