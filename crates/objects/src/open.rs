//! Opening a store by its name.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use device::{Blobs, Error, LocalDevice, Result, SharedDir};

use crate::aws::{self, Resolved};
use crate::location::Location;
use crate::prompt::Prompt;
use crate::rules;
use crate::s3::{S3Blobs, S3Bucket};
use crate::settings::{Opened, Probe, Seams, Settings};
use crate::traffic::{Counted, Traffic};

/// Longest time of an attempt, and of all pauses before the last one, of a request that must be
/// answered soon. It is below half of the period of signs of life.
const SOON: Duration = Duration::from_secs(2);

impl Location {
    /// Opens the objects here. Errors name what is wrong and what to check.
    pub fn open(&self, settings: &Settings, seams: &Seams) -> Result<Opened> {
        match self {
            Location::S3 { bucket, prefix } => open_bucket(bucket, prefix, settings, seams),
            Location::Directory { path } => open_directory(path, settings, seams),
        }
    }

    /// A name of this store that no other store has: one bucket's name may exist on several
    /// servers.
    pub fn identity(&self, settings: &Settings, seams: &Seams) -> Result<String> {
        Ok(match self {
            Location::S3 { bucket, .. } => {
                let found = aws::find(settings, bucket, &*seams.config)?;
                let endpoint = found.endpoints.first().map_or("", String::as_str);
                format!("{self} at {}", endpoint.trim_end_matches('/'))
            }
            Location::Directory { .. } => self.to_string(),
        })
    }
}

/// Where a bucket is, by what the user has set.
pub(crate) fn place(
    bucket: &str,
    prefix: &str,
    settings: &Settings,
    seams: &Seams,
) -> Result<S3Bucket> {
    let Resolved { keys, region, endpoints, virtual_host, ca_bundle } =
        aws::find(settings, bucket, &*seams.config)?;
    let keys = keys.ok_or_else(|| aws::no_keys(bucket))?;
    let authorities = ca_bundle.map(|path| read_bundle(&path, seams)).transpose()?;
    let again = (settings.clone(), bucket.to_owned(), Arc::clone(&seams.config));
    let renew = move || aws::find(&again.0, &again.1, &*again.2).ok()?.keys;
    let mut endpoints = endpoints.into_iter();
    let endpoint = endpoints.next().unwrap_or_default();
    Ok(S3Bucket {
        other_endpoints: endpoints.collect(),
        virtual_host,
        prefix: if prefix.is_empty() { String::new() } else { format!("{prefix}/") },
        authorities,
        renew: Some(Arc::new(renew)),
        silence: settings.silence,
        deadline: settings.deadline,
        probe: settings.probe,
        ..S3Bucket::new(&endpoint, bucket, &region, keys)
    })
}

fn open_bucket(bucket: &str, prefix: &str, settings: &Settings, seams: &Seams) -> Result<Opened> {
    let place = place(bucket, prefix, settings, seams)?;
    let blobs = S3Blobs::open(&place, Arc::clone(&seams.clock), Arc::clone(&seams.random))?;
    let warnings = match settings.probe {
        Probe::Race => rules::check(blobs.server())?,
        Probe::Trust => Vec::new(),
    };
    let traffic = Arc::clone(blobs.traffic());
    let soon = Arc::new(blobs.within(&place, SOON)?);
    Ok(Opened { blobs: Arc::new(blobs), soon, traffic, warnings })
}

fn read_bundle(path: &str, seams: &Seams) -> Result<String> {
    let text = seams.config.read(path);
    let text = text.map_err(|error| Error::new("read the CA bundle", path, error))?;
    text.ok_or_else(|| {
        let why =
            "there is no such file: check AWS_CA_BUNDLE, or ca_bundle in the AWS configuration";
        Error::new("read the CA bundle", path, io::Error::new(io::ErrorKind::NotFound, why))
    })
}

fn open_directory(path: &str, settings: &Settings, seams: &Seams) -> Result<Opened> {
    let device = LocalDevice::open(Path::new(path)).map_err(|error| {
        if !error.is_not_found() {
            return error;
        }
        let why = "there is no such directory: create it, or mount the file system that has it";
        Error::new("open", path, io::Error::new(io::ErrorKind::NotFound, why))
    })?;
    let found = device.file_system()?;
    if let Some(why) = found.unfit.filter(|_| !settings.any_file_system) {
        let why = format!(
            "it is on {}: {why}. Use a directory of a file system that the guide to object stores \
             lists, or s3://",
            found.kind
        );
        let error = io::Error::new(io::ErrorKind::Unsupported, why);
        return Err(Error::new("share the directory", path, error));
    }
    let (clock, random) = (Arc::clone(&seams.clock), Arc::clone(&seams.random));
    let blobs = SharedDir::open(Arc::new(device), clock, random)?;
    // It only frees space: what it does not find now, the next opening does.
    blobs.remove_stale().ok();
    let traffic = Arc::<Traffic>::default();
    let counted = Counted { blobs, traffic: Arc::clone(&traffic), clock: Arc::clone(&seams.clock) };
    let blobs: Arc<dyn Blobs> = Arc::new(counted);
    let soon = Arc::new(Prompt::new(Arc::clone(&blobs), SOON));
    Ok(Opened { soon, blobs, traffic, warnings: Vec::new() })
}
