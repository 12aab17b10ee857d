//! The connection of a daemon, or of a check, to the object store of a volume.

use std::path::Path;
use std::sync::Arc;

use device::{Env, Objects};
use objects::{Location, Seams, Settings, Traffic};
use wire::{Failure, FailureKind, StoreCache};

use crate::failure::{self, Result};

/// The object store of a volume that is open.
pub(crate) struct Store {
    /// Its location.
    pub(crate) location: Location,
    /// Requests so far.
    pub(crate) traffic: Arc<Traffic>,
}

impl Store {
    /// The cache on this host's disk, if there is one.
    pub(crate) fn cache(&self) -> Option<StoreCache> {
        None
    }
}

/// Parses the URL of a volume.
pub(crate) fn parse(url: &str) -> Result<Location> {
    Location::parse(url).map_err(|error| Failure::new(FailureKind::Invalid, error.to_string()))
}

/// An error of an object store.
pub(crate) fn of_store(location: &Location, error: &device::Error) -> Failure {
    let kind = failure::io_kind(&std::io::Error::from(error.kind));
    let name = if error.path.is_empty() { String::new() } else { format!(" {}", error.path) };
    Failure::new(kind, format!("{location}: {}{name}: {}", error.operation, error.message))
}

/// Opens the object store of a volume whose directory is a host directory; any other environment is
/// returned as it is.
pub(crate) fn connect(volume: &Path, env: Env) -> Result<(Env, Option<Store>)> {
    // What is wrong with a header is reported when the volume is opened.
    let Ok(Some(host)) = fs::host_directory(&*env.device) else { return Ok((env, None)) };
    let location = parse(&host.url)?;
    let seams = Seams { clock: Arc::clone(&env.clock), ..Seams::system() };
    let opened = location.open(&Settings::default(), &seams);
    let opened = opened.map_err(|error| of_store(&location, &error))?;
    for warning in &opened.warnings {
        tracing::warn!(volume = %volume.display(), "{location}: {warning}");
    }
    let objects = Objects::new(opened.blobs, Arc::clone(&env.clock));
    let store = Store { location, traffic: opened.traffic };
    Ok((Env { objects: Some(objects), ..env }, Some(store)))
}
