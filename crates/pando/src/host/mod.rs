//! Volumes in object stores, as this host sees them. Such a volume is named by a URL. On each host
//! it has its own directory, the *host directory*. That has what a volume directory has besides the
//! volume's files: the lock, the socket and the daemon's log. It also has a cache. Every verb finds
//! that directory by the URL, and continues as with a volume directory.
//!
//! A host directory may be deleted while no daemon has the volume open.

mod directory;
mod claim;
mod store;
mod closing;
mod prices;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use device::Device;

pub(crate) use claim::{Claim, TakeOver, announce_check};
pub(crate) use closing::{Closing, closing};
pub(crate) use directory::{directory, finish, for_format};
pub(crate) use prices::price_of_day;
pub(crate) use store::{Store, connect, of_store};

/// An argument that is a URL: the URL, and the path inside the volume, `/` if there is none.
pub(crate) fn url(argument: &Path) -> Option<(&str, Vec<u8>)> {
    let bytes = argument.as_os_str().as_bytes();
    let Some(scheme) = bytes.windows(3).position(|part| part == b"://") else {
        return without_slashes(argument);
    };
    let rest = scheme + 3;
    // `DIR:/path` has no second slash behind the colon.
    let colon = bytes[rest..].iter().position(|&byte| byte == b':').map(|at| rest + at);
    let (url, inner) = match colon {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &b"/"[..]),
    };
    let url = OsStr::from_bytes(url).to_str()?;
    // A file of that name has precedence, as for volume directories.
    if !objects::Location::is_url(url) || argument.symlink_metadata().is_ok() {
        return None;
    }
    let mut inner = inner.to_vec();
    if inner.first() != Some(&b'/') {
        inner.insert(0, b'/');
    }
    Some((url, inner))
}

/// How messages name a volume: by its URL, if the directory is a host directory.
pub(crate) fn shown(volume: &Path) -> String {
    let host = || fs::host_directory(&fs::volume_files(volume).ok()?).ok()?;
    host().map_or_else(|| volume.display().to_string(), |host| host.url)
}

/// File of a host directory while its daemon only reads the volume. It has the host that has the
/// volume open, and the time of the state that verbs show.
const OBSERVED: &str = "observed";

/// Notes that the daemon of a host directory only reads, or that it does not.
pub(crate) fn set_observed(device: &dyn Device, remark: Option<&str>) {
    if let Err(error) = note(device, OBSERVED, remark) {
        tracing::warn!(%error, "verbs may not name what they show");
    }
}

/// Writes a note into the host directory, or removes it. A daemon that was killed may have left its
/// own.
fn note(device: &dyn Device, name: &str, text: Option<&str>) -> device::Result<()> {
    match device.remove(name) {
        Err(error) if !error.is_not_found() => return Err(error),
        _ => {}
    }
    match text {
        Some(text) => device.create(name)?.write_at(text.as_bytes(), 0),
        None => Ok(()),
    }
}

/// The longest note that is read.
const NOTE_BYTES_MAX: usize = 4096;

/// What verbs print if the daemon of a volume directory only reads. The directory may be another
/// user's: nothing but a regular file of its owner is read, and no more than a remark needs.
pub(crate) fn observed(volume: &Path) -> Option<String> {
    noted(volume, OBSERVED)
}

fn noted(volume: &Path, name: &str) -> Option<String> {
    let bytes = fs::volume_files(volume).ok()?.read(name, NOTE_BYTES_MAX).ok()?;
    String::from_utf8(bytes).ok()
}

/// A URL that lacks its slashes, so that parsing it explains what is missing.
fn without_slashes(argument: &Path) -> Option<(&str, Vec<u8>)> {
    let text = argument.to_str()?;
    let (scheme, _) = text.split_once(':')?;
    let is_file = [scheme, text].iter().any(|name| Path::new(name).symlink_metadata().is_ok());
    (objects::Location::is_url(text) && !is_file).then(|| (text, b"/".to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_may_be_followed_by_a_path() {
        let found = |text| url(Path::new(text)).map(|(url, inner)| (url.to_owned(), inner));
        let expected = |url: &str, inner: &str| Some((url.to_owned(), inner.as_bytes().to_vec()));
        assert_eq!(found("s3://bucket/a/b"), expected("s3://bucket/a/b", "/"));
        assert_eq!(found("s3://bucket/a:/x:y"), expected("s3://bucket/a", "/x:y"));
        assert_eq!(found("s3://bucket:x"), expected("s3://bucket", "/x"));
        assert_eq!(found("file:///srv/v:/x"), expected("file:///srv/v", "/x"));
        assert_eq!(found("s3:bucket"), expected("s3:bucket", "/"));
        for other in ["/srv/vol", "vol:/x", "s3", "dir:s3", "."] {
            assert_eq!(found(other), None, "{other}");
        }
    }
}
