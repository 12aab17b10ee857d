//! Where an export is safe: no other user can move or replace what it makes.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, Stat};
use wire::{Failure, FailureKind};

use crate::failure::{self, Result};

const GROUP_AND_OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Opens a directory, and returns its path without symbolic links. Refuses it if another user can
/// change it or one above it: so nobody else changes what that path names.
pub(super) fn open(directory: &Path) -> Result<(OwnedFd, PathBuf)> {
    let whole = directory.canonicalize();
    let whole = whole.map_err(|error| failure::io("open", directory, &error))?;
    let mut path = PathBuf::from("/");
    let mut at = opened(&CWD, &path, &path)?;
    for part in whole.components() {
        let Component::Normal(name) = part else { continue };
        path.push(name);
        at = opened(&at, Path::new(name), &path)?;
    }
    // The checks needed only the right to search. To make it durable needs a readable one.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let again = rustix::fs::openat(&at, ".", flags, Mode::empty());
    let again = again.map_err(|error| failure::io("open", &path, &error.into()))?;
    Ok((again, path))
}

fn opened(above: &impl AsFd, name: &Path, path: &Path) -> Result<OwnedFd> {
    let failed = |error: rustix::io::Errno| failure::io("open", path, &error.into());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let at = rustix::fs::openat(above, name, flags, Mode::empty()).map_err(failed)?;
    let stat = rustix::fs::fstat(&at).map_err(failed)?;
    let ours = stat.st_uid == 0 || is_own(&stat);
    if ours && (stat.st_mode & GROUP_AND_OTHERS_WRITE == 0 || stat.st_mode & STICKY != 0) {
        return Ok(at);
    }
    Err(unsafe_place(path))
}

/// Refuses a new directory that is not the caller's own, or that others can write to.
pub(super) fn check_own(directory: &OwnedFd, path: &Path) -> Result<()> {
    let stat = rustix::fs::fstat(directory);
    let stat = stat.map_err(|error| failure::io("open", path, &error.into()))?;
    if is_own(&stat) && stat.st_mode & GROUP_AND_OTHERS_WRITE == 0 {
        return Ok(());
    }
    Err(unsafe_place(path))
}

fn is_own(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw()
}

fn unsafe_place(path: &Path) -> Failure {
    let message = format!("another user can change {}", path.display());
    let hint = "export to a place that only you can change; the caller or root owns each directory \
                above it, and group and others cannot write there";
    Failure::new(FailureKind::Permission, message).hint(hint)
}
