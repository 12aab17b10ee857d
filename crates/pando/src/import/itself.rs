//! Detects a tree that would be copied into itself, and so a part of the copy into the copy. That
//! happens if the source is in a mount of the destination's volume, and is the destination or
//! above it. It also happens if that mount is below the source. The volume itself identifies both,
//! however their paths are spelled.

use std::path::Path;

use wire::{Answer, Call, Failure, FailureKind, Kind};

use crate::failure::Result;
use crate::mounts;
use crate::place::VolumePath;
use crate::session;

/// Refuses a source that contains the destination.
pub(crate) fn refuse(source: &Path, destination: &VolumePath) -> Result<()> {
    let Ok(canonical) = std::fs::canonicalize(source) else { return Ok(()) };
    if !canonical.is_dir() {
        return Ok(());
    }
    let within = match mounts::find(&canonical)? {
        Some(found) if found.volume_dir == destination.volume => {
            is_above(found.inner_path.as_os_str().as_encoded_bytes(), destination)?
        }
        _ => mounts::of(&destination.volume).iter().any(|mount| {
            let shown = mount.subdir.as_deref().unwrap_or(Path::new("/"));
            mount.mount_point.starts_with(&canonical)
                && is_above(shown.as_os_str().as_encoded_bytes(), destination) == Ok(true)
        }),
    };
    if !within {
        return Ok(());
    }
    let message = format!(
        "cannot copy a directory into itself: {} is, or contains, the destination",
        source.display()
    );
    let failure = Failure::new(FailureKind::Invalid, message).at(destination.typed());
    Err(failure.hint("choose a destination outside of the source, or clone it: `pando clone`"))
}

/// Whether a directory of the volume is the destination, or above it.
fn is_above(directory: &[u8], destination: &VolumePath) -> Result<bool> {
    let Some(wanted) = number(destination, &[directory, b"/"].concat())? else { return Ok(false) };
    let mut at = [&destination.inner[..], b"/"].concat();
    if number(destination, &at)?.is_none() {
        // The destination will be created, in the directory above.
        let name = destination.inner.iter().rposition(|&byte| byte != b'/');
        let slash = destination.inner[..name.unwrap_or(0)].iter().rposition(|&byte| byte == b'/');
        at = destination.inner[..=slash.unwrap_or(0)].to_vec();
    }
    let mut below = None;
    while let Some(found) = number(destination, &at)? {
        if found == wanted {
            return Ok(true);
        }
        // Nothing is above the root.
        if below == Some(found) {
            break;
        }
        below = Some(found);
        at.extend_from_slice(b"../");
    }
    Ok(false)
}

/// The inode number of a directory; `None` if nothing is there, or no directory, or it cannot be
/// read.
fn number(destination: &VolumePath, path: &[u8]) -> Result<Option<u64>> {
    match session::ask(&destination.volume, &Call::Stat { path }) {
        Ok(Answer::Stat(found)) if found.attr.kind == Kind::Directory => Ok(Some(found.attr.node)),
        Ok(Answer::Stat(_)) => Ok(None),
        Ok(other) => Err(session::unexpected(&other)),
        Err(failure) => match failure.kind {
            FailureKind::NotFound | FailureKind::NotDirectory | FailureKind::Permission => Ok(None),
            _ => Err(failure),
        },
    }
}
