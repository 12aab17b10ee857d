//! Objects in a bucket.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use device::{Blobs, Clock, Device, Error, Random, Result, check_name};
use rusty_s3::{Bucket, UrlStyle};
use ureq::Agent;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use crate::aws::{Keys, wrong};
use crate::explain::Target;
use crate::probe::{self, Verdict};
use crate::request::Patience;
use crate::server::{KeyRing, Server};
use crate::settings::{Probe, Settings};
use crate::traffic::Traffic;

/// Maximum time to connect.
const CONNECT: Duration = Duration::from_secs(10);
/// Maximum time over all repeats of the first request: a person waits for it, and a wrong address
/// does not become right.
const FIRST: Duration = Duration::from_secs(10);
/// Multiples of the `silence` to wait for an answer when a large object was sent; once of others.
const SILENCES_OF_ANSWER: u32 = 4;
/// Multiples of the `silence` that an attempt takes at most, besides the time for its bytes.
const SILENCES_OF_ATTEMPT: u32 = 5;
/// Maximum bytes of an object. The protocol allows 5 GiB for one request.
const OBJECT_BYTES_MAX: u64 = 4 << 30;
/// Connections that are kept open for later requests: more threads than these seldom send.
const IDLE_CONNECTIONS: usize = 32;

/// Location of the objects.
#[derive(Clone)]
pub struct S3Bucket {
    /// The server, such as `http://127.0.0.1:9000`.
    pub endpoint: String,
    /// Further addresses of the same store, which the racing probe uses too.
    pub other_endpoints: Vec<String>,
    /// The bucket, which must exist.
    pub bucket: String,
    /// Whether requests name the bucket in the host's name, and not in their path.
    pub virtual_host: bool,
    /// The region that requests are signed for.
    pub region: String,
    /// Prefix of the names of all objects.
    pub prefix: String,
    /// What signs requests.
    pub keys: Keys,
    /// Reads the keys again when a server refuses them.
    pub renew: Option<Arc<dyn Fn() -> Option<Keys> + Send + Sync>>,
    /// Certificates, in PEM, that sign the server's; `None` for those of public authorities.
    pub authorities: Option<String>,
    /// Maximum time without sent or received data, after which a request is abandoned and retried.
    pub silence: Duration,
    /// Maximum time over all repeats of a request.
    pub deadline: Duration,
    /// How the server is tested.
    pub probe: Probe,
}

impl S3Bucket {
    /// A place on a server, with the defaults.
    pub fn new(endpoint: &str, bucket: &str, region: &str, keys: Keys) -> S3Bucket {
        S3Bucket {
            endpoint: endpoint.to_owned(),
            other_endpoints: Vec::new(),
            bucket: bucket.to_owned(),
            virtual_host: false,
            region: region.to_owned(),
            prefix: String::new(),
            keys,
            renew: None,
            authorities: None,
            silence: Settings::SILENCE,
            deadline: Settings::DEADLINE,
            probe: Probe::Trust,
        }
    }
}

/// Immutable objects below a prefix of a bucket.
pub struct S3Blobs {
    server: Server,
    /// The same bucket at the other endpoints.
    others: Vec<Server>,
    probe: Probe,
    /// The random part of its probes' names, and how many there were.
    own: u64,
    probes: AtomicU64,
    /// Whether the server honours conditional creation: not known of a server that accepted nothing
    /// when it was opened.
    heeds: AtomicBool,
}

impl S3Blobs {
    /// Checks that the server is reachable and honours conditional creation; the latter before the
    /// first creation, if it accepts none now.
    pub fn open(
        place: &S3Bucket,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<S3Blobs> {
        let mut own = [0; 8];
        random.fill(&mut own);
        let deadline = place.deadline;
        let traffic = Arc::default();
        let patience = Patience { clock, random, deadline, traffic };
        let long = |silences| Limits { silences, ..Limits::of(place) };
        let agents = (agent(place, &long(1))?, agent(place, &long(SILENCES_OF_ANSWER))?);
        let server = |endpoint| server(place, endpoint, &agents, &patience);
        let blobs = S3Blobs {
            server: server(&place.endpoint)?,
            others: place.other_endpoints.iter().map(|it| server(it)).collect::<Result<_>>()?,
            probe: place.probe,
            own: u64::from_le_bytes(own),
            probes: AtomicU64::new(0),
            heeds: AtomicBool::new(false),
        };
        blobs.first_contact()?;
        match blobs.probed() {
            Ok(Verdict::Unsound(error)) => Err(error),
            // An error: a full server, or one whose keys are read-only, still serves reads. That it
            // honours conditions is tested before the first creation.
            Ok(Verdict::Sound) | Err(_) => Ok(blobs),
        }
    }

    /// The same objects for requests that must be answered soon or fail: each attempt ends within
    /// `limit`, and none begins later. They are counted together.
    pub(crate) fn within(&self, place: &S3Bucket, limit: Duration) -> Result<S3Blobs> {
        let agent = agent(place, &Limits::of(place))?;
        let patience = self.server.patience.within(limit);
        let uploads = agent.clone();
        Ok(S3Blobs {
            server: Server { agent, uploads, limit, patience, ..self.server.clone() },
            others: Vec::new(),
            probe: Probe::Trust,
            own: self.own,
            // Names of probes are this value's own.
            probes: AtomicU64::new(1 << 32),
            heeds: AtomicBool::new(self.heeds.load(Ordering::Relaxed)),
        })
    }

    /// Counts of requests so far.
    pub fn traffic(&self) -> &Arc<Traffic> {
        &self.server.patience.traffic
    }

    /// What the bucket's rules would do to objects.
    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// The server answers, and these keys may list. Its errors are those of what a user has set.
    fn first_contact(&self) -> Result<()> {
        // Any prefix does: what the bucket has is not of interest.
        self.server.list_within("probe/", FIRST)
    }

    /// Tests whether of several creators of a name one succeeds.
    fn probed(&self) -> Result<Verdict> {
        let fresh = || {
            let number = self.probes.fetch_add(1, Ordering::Relaxed);
            format!("probe/{:016x}-{number:x}", self.own)
        };
        let verdict = match self.probe {
            Probe::Trust => probe::twice(&self.server, &fresh())?,
            Probe::Race => {
                let others = self.others.iter();
                let servers: Vec<&Server> = std::iter::once(&self.server).chain(others).collect();
                probe::race(&servers, fresh)?
            }
        };
        if matches!(verdict, Verdict::Sound) {
            self.heeds.store(true, Ordering::Relaxed);
        }
        Ok(verdict)
    }

    /// Checks that the server honours conditions, before the first creation relies on it.
    fn heed(&self) -> Result<()> {
        if self.heeds.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.probed()? {
            Verdict::Sound => Ok(()),
            Verdict::Unsound(error) => Err(error),
        }
    }
}

/// The bucket, to be read only: nothing is sent yet.
pub(crate) fn reader(
    place: &S3Bucket,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
) -> Result<Server> {
    let (deadline, traffic) = (place.deadline, Arc::default());
    let patience = Patience { clock, random, deadline, traffic };
    let agent = agent(place, &Limits::of(place))?;
    server(place, &place.endpoint, &(agent.clone(), agent), &patience)
}

/// The bucket at an endpoint.
fn server(
    place: &S3Bucket,
    endpoint: &str,
    (agent, uploads): &(Agent, Agent),
    patience: &Patience,
) -> Result<Server> {
    let url = endpoint.parse().map_err(|error| {
        let why = format!("{error}: an endpoint is written like https://store.example:9000");
        wrong("use as a server", endpoint, why)
    })?;
    let style = if place.virtual_host { UrlStyle::VirtualHost } else { UrlStyle::Path };
    let bucket = Bucket::new(url, style, place.bucket.clone(), place.region.clone());
    let bucket = bucket.map_err(|error| {
        let why = format!("{error}: an endpoint is written like https://store.example:9000");
        wrong("use as a server", endpoint, why)
    })?;
    let (bucket_name, region) = (place.bucket.clone(), place.region.clone());
    Ok(Server {
        bucket,
        keys: KeyRing::new(&place.keys, place.renew.clone()),
        prefix: place.prefix.clone(),
        agent: agent.clone(),
        uploads: uploads.clone(),
        limit: place.silence * SILENCES_OF_ATTEMPT,
        target: Target { endpoint: endpoint.to_owned(), bucket: bucket_name, region },
        patience: patience.clone(),
    })
}

/// How long requests may take.
struct Limits {
    /// Longest time without sent or received data.
    silence: Duration,
    /// Multiples of it to wait for an answer.
    silences: u32,
}

impl Limits {
    fn of(place: &S3Bucket) -> Limits {
        Limits { silence: place.silence, silences: 1 }
    }
}

/// What sends requests.
fn agent(place: &S3Bucket, limits: &Limits) -> Result<Agent> {
    let mut config = Agent::config_builder()
        .http_status_as_error(false)
        // A signature is for one host. The answer names the region.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .max_idle_connections(IDLE_CONNECTIONS)
        .max_idle_connections_per_host(IDLE_CONNECTIONS)
        .user_agent("pando")
        .timeout_connect(Some(CONNECT))
        .timeout_per_read(Some(limits.silence))
        .timeout_per_write(Some(limits.silence))
        .timeout_recv_response(Some(limits.silence * limits.silences))
        .proxy(None);
    if let Some(text) = &place.authorities {
        let mut certificates = Vec::new();
        for item in parse_pem(text.as_bytes()) {
            match item {
                Ok(PemItem::Certificate(certificate)) => certificates.push(certificate),
                Ok(_) => {}
                Err(error) => return Err(wrong("read", "the CA bundle", error.to_string())),
            }
        }
        if certificates.is_empty() {
            let why = "it has no certificate in PEM form (BEGIN CERTIFICATE): check AWS_CA_BUNDLE";
            return Err(wrong("read", "the CA bundle", why.to_owned()));
        }
        let roots = RootCerts::Specific(Arc::new(certificates));
        config = config.tls_config(TlsConfig::builder().root_certs(roots).build());
    }
    Ok(config.build().into())
}

impl Blobs for S3Blobs {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        check_name("create", name)?;
        self.heed()?;
        self.server.make(name, bytes)
    }

    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> Result<bool> {
        check_name("create", name)?;
        let file = device.open(path)?;
        let length = file.len()?;
        if length > OBJECT_BYTES_MAX {
            let why = format!("{length} bytes, and an object has at most {OBJECT_BYTES_MAX}");
            let error = io::Error::new(io::ErrorKind::FileTooLarge, why);
            return Err(Error::new("create", name, error));
        }
        self.heed()?;
        let part = |buffer: &mut [u8], at: u64| match file.read_at(buffer, at)? {
            0 if at < length && !buffer.is_empty() => {
                let short = io::Error::from(io::ErrorKind::UnexpectedEof);
                Err(Error::new("read", path, short).at(at))
            }
            read => Ok(read),
        };
        let made = self.server.put(name, length, &part)?;
        if made {
            device::remove_adopted(device, path);
        }
        Ok(made)
    }

    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> Result<usize> {
        check_name("read", name)?;
        self.server.read_at(name, buffer, offset)
    }

    fn length(&self, name: &str) -> Result<Option<u64>> {
        check_name("stat", name)?;
        self.server.length(name)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        Ok(self.server.list_all(prefix)?.into_iter().map(|(name, _)| name).collect())
    }

    fn delete(&self, name: &str) -> Result<()> {
        check_name("delete", name)?;
        self.server.delete(name)
    }

    fn delete_all(&self, names: &[String]) -> Result<()> {
        names.iter().try_for_each(|name| check_name("delete", name))?;
        self.server.delete_all(names)
    }

    fn punch(&self, _name: &str, _offset: u64, _length: u64) -> Result<bool> {
        Ok(false)
    }

    fn disk_bytes(&self, name: &str) -> Result<u64> {
        Ok(self.length(name)?.unwrap_or(0))
    }

    /// One request per thousand objects, which returns their lengths.
    fn disk_bytes_below(&self, prefix: &str) -> Result<u64> {
        Ok(self.server.list_all(prefix)?.into_iter().map(|(_, bytes)| bytes).sum())
    }

    fn bytes_max(&self) -> u64 {
        OBJECT_BYTES_MAX
    }

    fn answers_may_be_lost(&self) -> bool {
        true
    }
}
