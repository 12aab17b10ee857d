//! Which directory of this host belongs to a volume in an object store.

use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Device, Env, LocalDevice, Objects};
use nix::unistd::{Uid, User};
use objects::{Location, Probe, Seams, Settings};
use wire::{Failure, FailureKind};

use super::claim;
use super::store::{SERVER, of_store, parse, server_of};
use crate::environment::HOST_DIRECTORY;
use crate::failure::{self, Result};
use crate::place::is_volume;

/// Where root's host directories are.
const OF_ROOT: &str = "/var/cache/pando";
/// Bytes of a URL that the name of its directory shows.
const SHOWN_BYTES: usize = 80;

/// The host directory of the volume with a URL. If there is none it is made, for which the store
/// must hold a volume.
pub(crate) fn directory(url: &str) -> Result<PathBuf> {
    let location = parse(url)?;
    let path = path_of(&location)?;
    if !is_volume(&path) {
        make(&location, &path)?;
    }
    let device = LocalDevice::open(&path).map_err(|error| failure::device(&path, &error))?;
    let found = fs::host_directory(&device).map_err(|error| failure::open(&path, &error))?;
    if found.as_ref().is_none_or(|found| found.url != location.to_string()) {
        let found = found.map_or_else(|| "a volume in a directory".to_owned(), |found| found.url);
        let message = format!("{} belongs to {found}, not to {location}", path.display());
        return Err(Failure::new(FailureKind::Exists, message)
            .hint(format!("set {HOST_DIRECTORY} to another directory for this volume")));
    }
    std::fs::canonicalize(&path).map_err(|error| failure::io("open", &path, &error))
}

fn make(location: &Location, path: &Path) -> Result<()> {
    // The first use on this host: the store is examined as if it were new.
    let settings = Settings { probe: Probe::Race, ..Settings::default() };
    let opened = location.open(&settings, &Seams::system());
    let opened = opened.map_err(|error| of_store(location, &error))?;
    let was_there = path.is_dir();
    make_directory(path)?;
    let made = LocalDevice::open(path)
        .map_err(|error| failure::device(path, &error))
        .and_then(|device| host_in(location, &*opened.blobs, &device));
    match made {
        // Another process made it at the same time.
        Err(_) if is_volume(path) => Ok(()),
        Err(failure) => {
            if !was_there {
                std::fs::remove_dir_all(path).unwrap_or_default();
            }
            Err(failure)
        }
        Ok(()) => Ok(()),
    }
}

/// Gives a host directory its header.
fn host_in(location: &Location, blobs: &dyn device::Blobs, device: &LocalDevice) -> Result<()> {
    let made = fs::make_host(device, blobs, &location.to_string());
    made.map_err(|error| match error {
        fs::OpenError::NotAVolume => {
            let message = format!("there is no volume at {location}");
            Failure::new(FailureKind::NotFound, message)
                .hint(format!("`pando format {location}` makes one"))
        }
        fs::OpenError::Device(error) => of_store(location, &error),
        other => failure::open(Path::new(&location.to_string()), &other),
    })?;
    let server = server_of(location).map_err(|error| of_store(location, &error))?;
    let noted = device.create(SERVER).and_then(|file| file.write_at(server.as_bytes(), 0));
    noted.map_err(|error| of_store(location, &error))?;
    // Every user may reach the socket, and only the owner may list or read the directory.
    device.set_mode(0o711).map_err(|error| of_store(location, &error))
}

/// An environment to make a volume in, its host directory, and a function that finishes that.
pub(crate) fn for_format(url: &str) -> Result<(PathBuf, Env, Location)> {
    let location = parse(url)?;
    let path = path_of(&location)?;
    let settings = Settings { probe: Probe::Race, ..Settings::default() };
    let opened = location.open(&settings, &Seams::system());
    let opened = opened.map_err(|error| of_store(&location, &error))?;
    for warning in &opened.warnings {
        tracing::warn!("{location}: {warning}");
    }
    if is_volume(&path) {
        remove_old(&location, &path, &*opened.blobs)?;
    }
    make_directory(&path)?;
    let device = LocalDevice::open(&path).map_err(|error| failure::device(&path, &error))?;
    let env = Env::on(Arc::new(device));
    let objects = Objects::new(opened.blobs, Arc::clone(&env.clock));
    Ok((path, Env { objects: Some(objects), ..env }, location))
}

/// Finishes the host directory of a volume that was made.
pub(crate) fn finish(location: &Location, path: &Path, env: &Env) -> Result<()> {
    let objects = env.objects.as_ref().expect("invariant: it was opened with its store");
    let device = LocalDevice::open(path).map_err(|error| failure::device(path, &error))?;
    host_in(location, &*objects.store, &device)
}

/// Removes the host directory of a volume that is no longer in the store.
fn remove_old(location: &Location, path: &Path, blobs: &dyn device::Blobs) -> Result<()> {
    let found = blobs.length(format::volume::FILE);
    if found.map_err(|error| of_store(location, &error))?.is_some() {
        let message = format!("{location} holds a volume already");
        return Err(Failure::new(FailureKind::Exists, message)
            .hint("remove its objects first, or choose another prefix"));
    }
    let device = LocalDevice::open(path).map_err(|error| failure::device(path, &error))?;
    let lock = device.try_lock("owner.lock").map_err(|error| failure::device(path, &error))?;
    let Some(_lock) = lock else {
        let message = format!("a daemon still has {} open", path.display());
        return Err(Failure::new(FailureKind::Busy, message)
            .hint(format!("`pando umount {location}` ends it")));
    };
    std::fs::remove_dir_all(path).map_err(|error| failure::io("remove", path, &error))
}

fn make_directory(path: &Path) -> Result<()> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let failed = |error: std::io::Error| {
        failure::io("create", path, &error)
            .hint(format!("{HOST_DIRECTORY} names another directory for this"))
    };
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(parent).map_err(failed)?;
    match std::fs::DirBuilder::new().mode(0o711).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made.map_err(failed),
    }
}

/// The path of the host directory of a location.
fn path_of(location: &Location) -> Result<PathBuf> {
    let identity = location.identity(&Settings::default(), &Seams::system());
    let identity = identity.map_err(|error| of_store(location, &error))?;
    // Hosts may share a home directory.
    let identity = format!("{identity} on {}", machine());
    Ok(base()?.join(name_of(&location.to_string(), &identity)))
}

/// What distinguishes this host from others: its machine id, or its name if it has none.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let id = read("/etc/machine-id").map(|id| id.trim().to_owned());
    id.filter(|id| !id.is_empty() && id != "uninitialized").unwrap_or_else(claim::host_name)
}

/// The home directory of this user in the user database, for a process without `HOME`.
fn home_of_user() -> Option<PathBuf> {
    let user = User::from_uid(Uid::effective()).ok()??;
    Some(user.dir).filter(|home| home.is_absolute() && home.is_dir())
}

/// The directory of all host directories.
fn base() -> Result<PathBuf> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(text) = std::env::var_os(HOST_DIRECTORY) {
        return absolute(HOST_DIRECTORY).ok_or_else(|| {
            let message =
                format!("{HOST_DIRECTORY} is '{}': not an absolute path", text.to_string_lossy());
            Failure::new(FailureKind::Invalid, message)
                .hint("set it to an absolute path, or unset it")
        });
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from(OF_ROOT));
    }
    let home = || absolute("HOME").or_else(home_of_user).map(|home| home.join(".cache"));
    let cache = absolute("XDG_CACHE_HOME").or_else(home);
    cache.map(|cache| cache.join("pando")).ok_or_else(|| {
        Failure::new(
            FailureKind::Invalid,
            "this user has no home directory, so there is no place for a cache",
        )
        .hint(format!("set {HOST_DIRECTORY} to a directory for it"))
    })
}

/// A name for the directory of a URL: legible, and with a hash of everything that distinguishes the
/// store.
fn name_of(url: &str, identity: &str) -> String {
    let legible = |byte: u8| if byte.is_ascii_alphanumeric() { byte as char } else { '-' };
    let mut name: String = url.bytes().map(legible).take(SHOWN_BYTES).collect();
    while let Some(at) = name.find("--") {
        name.remove(at);
    }
    format!("{name}-{:016x}", fnv(identity.as_bytes()))
}

/// The hash FNV-1a of 64 bits. The header of a directory shows whether two URLs have one hash.
fn fnv(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_directories_are_legible_and_differ_by_endpoint() {
        assert_eq!(fnv(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(b"foobar"), 0x8594_4171_f739_67e8);
        let one = name_of("s3://bucket/a/b", "s3://bucket/a/b at one");
        let other = name_of("s3://bucket/a/b", "s3://bucket/a/b at other");
        assert!(one.starts_with("s3-bucket-a-b-") && one != other, "{one}, {other}");
        assert!(name_of(&"x".repeat(1000), "x").len() < 255);
    }
}
