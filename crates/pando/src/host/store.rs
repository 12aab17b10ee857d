//! The connection of a daemon, or of a check, to the object store of a volume.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use device::{Blobs, Device, Env, Objects};
use fs::VolumeId;
use objects::{CachedBlobs, Location, Seams, Settings, Traffic};
use wire::{Failure, FailureKind, StoreCache};

use crate::environment::OBJECT_CACHE;
use crate::failure::{self, Result};

/// The cache in a host directory.
const CACHE: &str = "cache";
/// File of a host directory that names the store with its server.
pub(super) const SERVER: &str = "server";
/// Maximum bytes of that.
const SERVER_BYTES_MAX: usize = 4096;
/// Most bytes of a cache, unless the environment sets it.
const CACHE_BYTES_MAX: u64 = 10 << 30;
/// The default is at most this fraction of the disk: one divided by this.
const CACHE_SHARE: u64 = 10;

/// The object store of a volume that is open.
pub(crate) struct Store {
    /// The volume.
    pub(crate) volume: VolumeId,
    /// Where it is.
    pub(crate) location: Location,
    /// The objects, without retries beyond those of a request, and without a cache.
    pub(crate) blobs: Arc<dyn Blobs>,
    /// The same for requests that must be answered soon or fail.
    pub(crate) soon: Arc<dyn Blobs>,
    /// Requests so far.
    pub(crate) traffic: Arc<Traffic>,
    cache: Option<Arc<CachedBlobs>>,
}

impl Store {
    /// The cache on this host's disk, if there is one.
    pub(crate) fn cache(&self) -> Option<StoreCache> {
        let stats = self.cache.as_ref()?.stats();
        Some(StoreCache { hits: stats.hits, misses: stats.misses, bytes: stats.bytes })
    }
}

/// Parses the URL of a volume.
pub(crate) fn parse(url: &str) -> Result<Location> {
    Location::parse(url).map_err(|error| {
        Failure::new(FailureKind::Invalid, error.to_string())
            .hint("as in s3://BUCKET/PREFIX or file:///DIR")
    })
}

/// An error of an object store.
pub(crate) fn of_store(location: &Location, error: &device::Error) -> Failure {
    let kind = failure::io_kind(&std::io::Error::from(error.kind));
    let name = if error.path.is_empty() { String::new() } else { format!(" {}", error.path) };
    Failure::new(kind, format!("{location}: {}{name}: {}", error.operation, error.message))
        .hint("check the URL, the credentials, and that the server answers")
}

/// Opens the object store of a volume whose directory is a host directory; any other environment is
/// returned as it is.
pub(crate) fn connect(volume: &Path, env: Env) -> Result<(Env, Option<Store>)> {
    // The opening of the volume reports faults of a header.
    let Ok(Some(host)) = fs::host_directory(&*env.device) else { return Ok((env, None)) };
    let location = parse(&host.url)?;
    is_own(volume, &location)?;
    is_same_server(volume, &*env.device, &location)?;
    let seams = Seams { clock: Arc::clone(&env.clock), ..Seams::system() };
    let opened = location.open(&Settings::default(), &seams);
    let opened = opened.map_err(|error| of_store(&location, &error))?;
    for warning in &opened.warnings {
        tracing::warn!(volume = %volume.display(), "{location}: {warning}");
    }
    let (blobs, soon) = (Arc::clone(&opened.blobs), opened.soon);
    let mut objects = Objects::new(opened.blobs, Arc::clone(&env.clock));
    let mut cache = None;
    let bytes = cache_bytes(volume, &env)?;
    if bytes > 0 {
        let device = Arc::clone(&env.device);
        let plain = Arc::<device::PatientBlobs>::clone(&objects.store);
        let cached = Arc::new(CachedBlobs::new(plain, device, CACHE, host.volume, bytes));
        cache = Some(Arc::clone(&cached));
        objects = objects.cached(|_| cached);
    }
    let (volume, traffic) = (VolumeId(host.volume), opened.traffic);
    let store = Store { volume, location, blobs, soon, traffic, cache };
    Ok((Env { objects: Some(objects), ..env }, Some(store)))
}

/// The store and its server, as the settings name it.
pub(super) fn server_of(location: &Location) -> device::Result<String> {
    location.identity(&Settings::default(), &Seams::system())
}

/// Refuses a host directory of a store on a server that the settings do not name now: buckets of
/// one name may exist on both. A verb that has the URL finds the directory by the server; one that
/// only has the directory does not.
fn is_same_server(volume: &Path, device: &dyn Device, location: &Location) -> Result<()> {
    let Ok(file) = device.open(SERVER) else { return Ok(()) };
    let mut bytes = [0; SERVER_BYTES_MAX];
    let read = file.read_at(&mut bytes, 0).map_err(|error| of_store(location, &error))?;
    let noted = String::from_utf8_lossy(&bytes[..read]);
    let server = server_of(location).map_err(|error| of_store(location, &error))?;
    // What does not begin so is damaged, and was written by nobody.
    if noted == server || !noted.starts_with(&location.to_string()) {
        return Ok(());
    }
    let message =
        format!("{} is of {noted}, and the present settings name {server}", volume.display());
    Err(Failure::new(FailureKind::Invalid, message).hint(format!(
        "set AWS_ENDPOINT_URL as before; or name the volume {location}, for a host directory of \
         its own"
    )))
}

/// Refuses a host directory of another user, or one in which others may put a header. Otherwise
/// this user's keys would open a store of their choice, and its contents would be cached in their
/// directory.
fn is_own(volume: &Path, location: &Location) -> Result<()> {
    let own = rustix::process::geteuid().as_raw();
    for path in [volume.to_owned(), volume.join(format::volume::FILE)] {
        let found = path.symlink_metadata();
        let found = found.map_err(|error| failure::io("open", &path, &error))?;
        let is_writable = found.is_dir() && found.mode() & 0o022 != 0;
        if found.uid() != own || found.is_symlink() || is_writable {
            let shown = volume.display();
            let message = format!("{shown} is not only your host directory of {location}");
            let hint = format!(
                "name the volume {location}: then a host directory is used that only you can write"
            );
            return Err(Failure::new(FailureKind::Permission, message).hint(hint));
        }
    }
    Ok(())
}

/// How many bytes the cache may have; 0: there is none.
fn cache_bytes(volume: &Path, env: &Env) -> Result<u64> {
    let Ok(text) = std::env::var(OBJECT_CACHE) else {
        let space = env.device.space().map_err(|error| failure::device(volume, &error))?;
        return Ok((space.total_bytes / CACHE_SHARE).min(CACHE_BYTES_MAX));
    };
    inode::parse_bytes(&text).ok_or_else(|| {
        let message = format!("{OBJECT_CACHE} is '{text}'");
        Failure::new(FailureKind::Invalid, message)
            .hint("a number of bytes, such as 20G, or 0 for no cache")
    })
}
