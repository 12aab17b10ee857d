//! PATH arguments: a path below a mount, or `VOLDIR:/inner/path`.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use format::volume::{COPY, FILE, UNFINISHED};
use wire::{Failure, FailureKind};

use crate::failure::{self, Result};

/// Where a PATH argument leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The volume directory, absolute.
    pub(crate) volume: PathBuf,
    /// The path inside the volume, from its root.
    pub(crate) inner: Vec<u8>,
}

impl Place {
    /// Finds where an argument leads, for a verb that changes what is there: not through a mount
    /// that takes no changes.
    pub(crate) fn to_change(argument: &Path) -> Result<Place> {
        let place = Place::locate(argument)?;
        check_changes(argument)?;
        Ok(place)
    }

    /// Finds the volume that an argument names, for a verb that changes it.
    pub(crate) fn volume_to_change(argument: &Path) -> Result<PathBuf> {
        let volume = Place::volume(argument)?;
        check_changes(argument)?;
        Ok(volume)
    }

    /// Finds where an argument leads.
    pub(crate) fn locate(argument: &Path) -> Result<Place> {
        if let Some((volume, inner)) = split(argument) {
            return Ok(Place { volume: absolute(&volume)?, inner });
        }
        if let Some(place) = below_mount(argument) {
            return Ok(place);
        }
        Err(nowhere(argument))
    }

    /// Where `VOLDIR:/path` leads; `None` for any other argument.
    pub(crate) fn split(argument: &Path) -> Option<Result<Place>> {
        let (volume, inner) = split(argument)?;
        Some(absolute(&volume).map(|volume| Place { volume, inner }))
    }

    /// Finds the volume that an argument names: its directory, or anything inside.
    pub(crate) fn volume(argument: &Path) -> Result<PathBuf> {
        if is_volume(argument) {
            return absolute(argument);
        }
        match Place::locate(argument) {
            Ok(place) => Ok(place.volume),
            Err(_) if argument.is_dir() => Err(not_a_volume(argument)),
            // No colon: a path of which it was meant that a volume is there.
            Err(_) if !argument.as_os_str().as_bytes().contains(&b':') && is_absent(argument) => {
                Err(no_volume(argument))
            }
            Err(failure) => Err(failure),
        }
    }
}

/// Refuses an argument that leads through a mount which takes no changes: the owner would make them
/// all the same, for others.
fn check_changes(argument: &Path) -> Result<()> {
    if split(argument).is_some() || is_volume(argument) {
        return Ok(());
    }
    match mount_of(argument) {
        Some((found, _)) if found.read_only => {
            let message = format!("{} is mounted read-only", found.mount_point.display());
            let failure = Failure::new(FailureKind::ReadOnly, message)
                .hint("mount it without `ro`; or, where that came later, `mount -o remount,rw`");
            Err(failure.at(argument.as_os_str().as_bytes()))
        }
        _ => Ok(()),
    }
}

/// Two arguments that must lie in one volume; what is at the second is changed.
pub(crate) fn both(one: &Path, other: &Path) -> Result<(Place, Place)> {
    let (one, other) = (Place::locate(one)?, Place::to_change(other)?);
    if one.volume == other.volume {
        Ok((one, other))
    } else {
        let message = format!(
            "the two paths are in different volumes, {} and {}",
            one.volume.display(),
            other.volume.display()
        );
        Err(Failure::new(FailureKind::Invalid, message)
            .hint("`pando import` copies from one volume to another"))
    }
}

/// Whether there is a volume in a directory, or what one is without its header: not one that was
/// never finished.
pub(crate) fn is_volume(directory: &Path) -> bool {
    let there = |name| directory.join(name).symlink_metadata().is_ok();
    there(FILE) || there(COPY) && !there(UNFINISHED)
}

/// Splits at the first colon before which a volume stands.
fn split(argument: &Path) -> Option<(PathBuf, Vec<u8>)> {
    let bytes = argument.as_os_str().as_bytes();
    let colons = bytes.iter().enumerate().filter(|&(_, byte)| *byte == b':');
    for (at, _) in colons {
        let volume = Path::new(OsStr::from_bytes(&bytes[..at]));
        if at > 0 && is_volume(volume) {
            let mut inner = bytes[at + 1..].to_vec();
            if inner.first() != Some(&b'/') {
                inner.insert(0, b'/');
            }
            return Some((volume.to_owned(), inner));
        }
    }
    None
}

fn below_mount(argument: &Path) -> Option<Place> {
    let (found, last) = mount_of(argument)?;
    let mut inner = found.inner_path;
    inner.extend(last);
    Some(Place { volume: found.volume_dir, inner: inner.into_os_string().into_vec() })
}

/// The mount that an argument leads into, and the name in it that was not followed: a symbolic link
/// at the end is the subject itself, so only what stands before is.
fn mount_of(argument: &Path) -> Option<(fuse::MountInfo, Option<&OsStr>)> {
    match argument.file_name().filter(|_| argument.is_symlink()) {
        Some(last) => {
            let parent = argument.parent().filter(|parent| !parent.as_os_str().is_empty());
            Some((fuse::find_mount(parent.unwrap_or(Path::new(".")))?, Some(last)))
        }
        None => Some((fuse::find_mount(argument)?, None)),
    }
}

fn absolute(volume: &Path) -> Result<PathBuf> {
    std::fs::canonicalize(volume).map_err(|error| failure::io("open", volume, &error))
}

fn is_absent(argument: &Path) -> bool {
    argument.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn no_volume(argument: &Path) -> Failure {
    let argument = argument.display();
    Failure::new(FailureKind::NotFound, format!("there is no volume at {argument}"))
        .hint(format!("`pando format {argument}` makes one"))
}

fn not_a_volume(directory: &Path) -> Failure {
    if directory.join("btree").is_dir() && directory.join("log").is_dir() {
        let message = format!("{} is missing from the volume", directory.join(FILE).display());
        return Failure::new(FailureKind::Damaged, message)
            .hint("restore the file from a copy of the volume");
    }
    let message = format!("{} is not a volume: there is no {FILE} in it", directory.display());
    Failure::new(FailureKind::NotVolume, message).hint("`pando format` makes a volume")
}

fn nowhere(argument: &Path) -> Failure {
    let bytes = argument.as_os_str().as_bytes();
    if let Some(at) = bytes.iter().position(|&byte| byte == b':') {
        let volume = Path::new(OsStr::from_bytes(&bytes[..at]));
        if volume.is_dir() {
            return not_a_volume(volume);
        }
        let message = format!("there is no directory {}", volume.display());
        return Failure::new(FailureKind::NotFound, message);
    }
    let message = format!("{} is not below a mounted volume", argument.display());
    let failure = Failure::new(FailureKind::NotFound, message);
    if is_volume(argument) {
        failure.hint(format!("for the root of this volume say {}:/", argument.display()))
    } else {
        failure.hint("say VOLDIR:/path for a path in a volume that is not mounted")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_colon_after_a_volume_splits() {
        let temporary = tempfile::tempdir().unwrap();
        let volume = temporary.path().join("a:b");
        std::fs::create_dir(&volume).unwrap();
        std::fs::write(volume.join(FILE), b"").unwrap();
        let mut argument = volume.clone().into_os_string();
        argument.push(":/x:y/z");
        let place = Place::locate(Path::new(&argument)).unwrap();
        assert_eq!(place.inner, b"/x:y/z");
        assert_eq!(place.volume, volume.canonicalize().unwrap());
        assert_eq!(Place::locate(&volume).unwrap_err().kind, FailureKind::NotFound);
        assert_eq!(Place::volume(temporary.path()).unwrap_err().kind, FailureKind::NotVolume);
    }
}
