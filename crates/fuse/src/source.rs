//! The source of a mount, as `mount` shows it: the volume's directory, and `subdir` after `:/`.
//!
//! The kernel keeps nothing else about a mount of ours. So the source must name the volume and the
//! directory in it, and be parsed unambiguously. The last `:/` divides the two. In the part after
//! it a colon is written `%3A` and a percent sign `%25`. A volume directory that contains `:/`
//! itself always gets the divider.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The source to show.
pub(crate) fn encode(volume_dir: &Path, subdir: Option<&Path>) -> OsString {
    let mut source = volume_dir.as_os_str().as_bytes().to_vec();
    let ambiguous = source.windows(2).any(|pair| pair == b":/");
    if subdir.is_some() || ambiguous {
        source.extend_from_slice(b":/");
    }
    for byte in subdir.map_or(&b""[..], |subdir| subdir.as_os_str().as_bytes()) {
        match byte {
            b':' => source.extend_from_slice(b"%3A"),
            b'%' => source.extend_from_slice(b"%25"),
            other => source.push(*other),
        }
    }
    OsString::from_vec(source)
}

/// The volume's directory and the directory in it that is the root of the mount.
pub(crate) fn decode(source: &[u8]) -> (PathBuf, Option<PathBuf>) {
    let divider = source.windows(2).rposition(|pair| pair == b":/");
    let Some(at) = divider else { return (path(source), None) };
    let (volume_dir, below) = (&source[..at], &source[at + 2..]);
    let mut subdir = Vec::with_capacity(below.len());
    let mut rest = below;
    while let Some((first, after)) = rest.split_first() {
        let (byte, after) = match rest {
            [b'%', b'3', b'A', after @ ..] => (b':', after),
            [b'%', b'2', b'5', after @ ..] => (b'%', after),
            _ => (*first, after),
        };
        subdir.push(byte);
        rest = after;
    }
    (path(volume_dir), (!subdir.is_empty()).then(|| path(&subdir)))
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_source_round_trips() {
        let volumes = ["/srv/volume", "/a:/b", "/odd:name", "/x:/", "/with space,comma"];
        let subdirs = [None, Some("home"), Some("a:/b:"), Some("100%3A"), Some("deep/er")];
        for volume in volumes {
            for subdir in subdirs {
                let source = encode(Path::new(volume), subdir.map(Path::new));
                let (volume_back, subdir_back) = decode(source.as_bytes());
                assert_eq!(volume_back, Path::new(volume), "{source:?}");
                assert_eq!(subdir_back.as_deref(), subdir.map(Path::new), "{source:?}");
            }
        }
    }

    #[test]
    fn a_plain_mount_shows_the_plain_directory() {
        assert_eq!(encode(Path::new("/srv/v"), None), "/srv/v");
        assert_eq!(encode(Path::new("/srv/v"), Some(Path::new("a/b"))), "/srv/v:/a/b");
    }
}
