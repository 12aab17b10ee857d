//! A volume in an object store: its header, its contents, and what a host waits for.
//!
//! The store has the header under two names, as a volume directory has, and below `lsm/`,
//! `data/sealed/` and `index/` what the directories of these names have. Each host has a directory
//! of its own for the volume. It has files that are being made, a cache, and a header with the
//! store's URL. Invariants:
//!
//! 1. A host directory holds nothing that the store lacks, except changes that are not durable.
//! 2. A volume is opened by the header in the store. That of the host directory must have the same
//!    id: the directory may be left from another volume.

use std::sync::Arc;
use std::time::Duration;

use data::Data;
use device::{Blobs, BlobsBelow, Device, Env};
use format::volume::{BYTES_MAX, COPY, EngineKind, FILE, Home, UNFINISHED, VolumeHeader};
use store::{Read, Store};

use crate::check::Problem;
use crate::header::{self, Headers};
use crate::{Fs, FsResult, ObjectsStatus, OpenError, OpenOptions, VolumeId, numbers};

/// Where sealed segments are, below the store.
const CONTENTS: &str = "data/sealed";
/// Bytes up to which a file is stored in its records, unless the options set it.
const INLINE_FILE_BYTES: u64 = 64 << 10;
/// How long the store may refuse objects before changes wait: at most this much of acknowledged
/// changes is not durable.
const UNDURABLE_MAX: Duration = Duration::from_secs(5);
/// Free space that a volume in an object store reports: nothing limits it.
pub(crate) const FREE_BYTES: u64 = 1 << 50;

/// Which volume a host directory is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostDirectory {
    /// The volume.
    pub volume: VolumeId,
    /// The URL of its object store.
    pub url: String,
}

/// Which volume a directory is a host directory of; `None` for any other volume.
pub fn host_directory(device: &dyn Device) -> Result<Option<HostDirectory>, OpenError> {
    let header = header::read(device)?;
    let volume = VolumeId(header.volume_id);
    match header.home {
        Home::Host(url) => Ok(Some(HostDirectory { volume, url })),
        Home::Directory | Home::Objects => Ok(None),
    }
}

/// Makes the files of a host directory for the volume in an object store, if the directory has
/// none.
pub fn make_host(
    device: &dyn Device,
    objects: &dyn Blobs,
    url: &str,
) -> Result<VolumeId, OpenError> {
    let found = read_header(objects)?;
    let id = VolumeId(found.volume_id);
    let header = VolumeHeader { home: Home::Host(url.to_owned()), ..found };
    let new = format!("{FILE}.host");
    header::write_file(device, &new, &header.encode())?;
    device.rename(&new, FILE)?;
    device.sync_dir("")?;
    Ok(id)
}

/// Both headers: those in the object store, if the volume is in one.
pub(crate) fn headers(env: &Env) -> Result<Headers, OpenError> {
    match &env.objects {
        None => Headers::read(&*env.device),
        Some(objects) => headers_in(&*objects.store),
    }
}

fn headers_in(objects: &dyn Blobs) -> Result<Headers, OpenError> {
    Headers::of(&mut |path| read_object(objects, path))
}

/// The header of the volume of a host directory, by whichever object is whole, and what is wrong
/// with both.
#[expect(clippy::type_complexity, reason = "the two parts of one answer")]
pub(crate) fn examine(
    env: &Env,
    host: &VolumeHeader,
) -> Result<(Result<VolumeHeader, OpenError>, Vec<Problem>), OpenError> {
    let headers = headers(env)?;
    let right = headers.of_volume(host.volume_id).cloned();
    let bad = headers.problems(right.as_ref());
    match (right, headers.opening()) {
        (_, Err(error @ OpenError::NewerFormat { .. })) => Err(error),
        (Some(right), _) => Ok((Ok(right), bad)),
        (None, Err(error)) => Ok((Err(error), bad)),
        (None, Ok(_)) => {
            Err(with_objects(env, host.clone()).err().unwrap_or(OpenError::NotAVolume))
        }
    }
}

/// Rewrites whichever header is wrong, in a volume that no process has open. In an object store a
/// header always has the same bytes, so a request that arrives late changes nothing.
pub(crate) fn repair_header(env: &Env) -> Result<(), OpenError> {
    let Some(objects) = &env.objects else { return header::repair(&*env.device) };
    let id = header::read(&*env.device)?.volume_id;
    let headers = headers(env)?;
    let Some(right) = headers.of_volume(id) else {
        return Err(headers.opening().err().unwrap_or(OpenError::NotAVolume));
    };
    for name in headers.unlike(right) {
        objects.store.delete(name)?;
        if !objects.store.create(name, &right.encode())? {
            let exists = std::io::ErrorKind::AlreadyExists.into();
            return Err(device::Error::new("rewrite", name, exists).into());
        }
    }
    Ok(())
}

/// Reads the header of the volume in an object store.
pub(crate) fn read_header(objects: &dyn Blobs) -> Result<VolumeHeader, OpenError> {
    let header = headers_in(objects)?.opening()?;
    match header.home {
        Home::Objects => Ok(header),
        Home::Directory | Home::Host(_) => Err(OpenError::NotObjects),
    }
}

/// The bytes of a small object; `None` if there is none.
fn read_object(objects: &dyn Blobs, name: &str) -> device::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; BYTES_MAX + 1];
    match objects.read_at(name, &mut bytes, 0) {
        Err(error) if error.is_not_found() => Ok(None),
        read => {
            bytes.truncate(read?);
            Ok(Some(bytes))
        }
    }
}

/// The header by which a volume is opened, for an environment that has what the header needs.
pub(crate) fn find_header(env: &Env) -> Result<VolumeHeader, OpenError> {
    with_objects(env, header::read(&*env.device)?)
}

/// The header in the object store, if a header of the directory is of a host directory.
pub(crate) fn with_objects(env: &Env, header: VolumeHeader) -> Result<VolumeHeader, OpenError> {
    match (&header.home, &env.objects) {
        (Home::Directory, None) => Ok(header),
        (Home::Objects, None) => Err(OpenError::ObjectsAsDirectory),
        (Home::Host(url), Some(objects)) => {
            // The cache may be of another volume.
            let found = read_header(&*objects.store)?;
            if found.volume_id == header.volume_id {
                return Ok(found);
            }
            Err(OpenError::AnotherVolume {
                url: url.clone(),
                expected: VolumeId(header.volume_id),
                found: VolumeId(found.volume_id),
            })
        }
        (Home::Host(_), None) => Err(OpenError::InvalidOption("the object store is not open")),
        (Home::Directory | Home::Objects, Some(_)) => {
            Err(OpenError::InvalidOption("the directory is not a host directory"))
        }
    }
}

/// Takes an empty object store for a new volume: of several programs that try, one succeeds.
pub(crate) fn begin_format(objects: &dyn Blobs, header: &VolumeHeader) -> Result<(), OpenError> {
    if header.engine != EngineKind::Lsm {
        return Err(OpenError::InvalidOption("a volume in an object store needs the engine lsm"));
    }
    let names = objects.list("")?;
    if names.iter().any(|name| name == FILE) {
        return Err(OpenError::Exists);
    }
    let own = |name: &String| name == UNFINISHED || name == COPY;
    if let Some(name) = names.iter().find(|name| own(name)).or(names.first()) {
        return Err(OpenError::NotEmpty(name.clone()));
    }
    let bytes = header.encode();
    if !objects.create(UNFINISHED, &bytes)? || !objects.create(COPY, &bytes)? {
        return Err(OpenError::NotEmpty(UNFINISHED.to_owned()));
    }
    Ok(())
}

/// Gives a new volume its header, last.
pub(crate) fn end_format(objects: &dyn Blobs, header: &VolumeHeader) -> Result<(), OpenError> {
    if !objects.create(FILE, &header.encode())? {
        return Err(OpenError::Exists);
    }
    objects.delete(UNFINISHED)?;
    Ok(())
}

/// Makes the directories of a host directory that engines and contents use.
pub(crate) fn make_directories(device: &dyn Device) -> device::Result<()> {
    for directory in ["lsm", "data"] {
        if device.metadata(directory)?.is_none() {
            device.create_dir(directory)?;
        }
    }
    Ok(())
}

/// Opens the contents of a volume.
pub(crate) fn open_data(
    env: &Env,
    store: &dyn Store,
    header: &VolumeHeader,
    options: &OpenOptions,
    read_only: bool,
) -> Result<Arc<Data>, OpenError> {
    let mut of_data = data::Options { volume: header.volume_id, ..options.data.clone() };
    let Some(objects) = &env.objects else {
        return Ok(Data::open_local(env, as_read(store), of_data)?);
    };
    let first =
        if read_only { numbers::next_segment(store) } else { numbers::reserve_segments(store) };
    of_data.upload_from = Some(first.map_err(OpenError::inconsistent)?);
    if of_data.inline_file_bytes == 0 {
        of_data.inline_file_bytes = INLINE_FILE_BYTES;
    }
    let blobs = Arc::new(BlobsBelow::new(Arc::clone(&objects.cached), CONTENTS));
    Ok(Data::open(env, blobs, as_read(store), of_data)?)
}

fn as_read(store: &dyn Store) -> &dyn Read {
    store
}

impl Fs {
    /// Waits while the object store has refused objects for so long that more changes would have
    /// to wait to be durable. The caller holds nothing.
    #[inline]
    pub(crate) fn wait_for_objects(&self) {
        if let Some(objects) = &self.env.objects {
            objects.store.wait_out(UNDURABLE_MAX);
        }
    }

    /// Bytes that the volume occupies where it is kept.
    pub(crate) fn stored_bytes(&self, stats: &store::Stats) -> FsResult<u64> {
        match &self.env.objects {
            None => {
                let data = self.data.disk_bytes().map_err(crate::error::from_store)?;
                Ok(stats.disk_bytes + stats.log_bytes + data)
            }
            // One request for each thousand objects; unknown while the store cannot be reached.
            Some(objects) => Ok(objects.store.disk_bytes_all().unwrap_or(0)),
        }
    }

    /// The state of the object store, if the volume is in one.
    pub(crate) fn objects_status(&self) -> Option<ObjectsStatus> {
        let objects = self.env.objects.as_ref()?;
        let now = self.env.clock.monotonic();
        let outage = objects.store.outage();
        Some(ObjectsStatus {
            waits: outage.map(|outage| (now.saturating_sub(outage.since), outage.why)),
        })
    }
}
