//! Where an export to a directory is made: below a hidden directory beside the destination, which
//! only the caller can enter. At the end what was made gets its name by one rename. So an export
//! that is interrupted, or fails, never leaves a part of a tree under the name of the whole.
//!
//! Dropping a [`Staging`] removes what was made. A process that is killed leaves it; its lock is
//! gone then, and the next export to the same destination removes it.

use std::ffi::{CString, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use wire::{Failure, FailureKind};

use super::safe;
use crate::failure::{self, Result};

/// Ends the names of hidden directories, before a number.
const SUFFIX: &str = ".pando-export";
/// How much of a long name is in that of the hidden directory.
const NAME_BYTES_MAX: usize = 200;
/// How many hidden directories of others may be there.
const OTHERS_MAX: u32 = 100;

/// The hidden directory of one export.
pub(super) struct Staging {
    /// The directory that the destination will be in.
    parent: OwnedFd,
    /// It, and where it is.
    directory: OwnedFd,
    name: CString,
    path: PathBuf,
    /// The name of the destination.
    last: CString,
    destination: PathBuf,
}

impl Staging {
    /// The destination must not exist yet.
    pub(super) fn create(destination: &Path) -> Result<Staging> {
        refuse_existing(destination)?;
        let invalid = || {
            Failure::new(FailureKind::Invalid, "the path must end with a name")
                .hint("name the new directory, as in DIR/copy")
        };
        let last = destination.file_name().ok_or_else(invalid)?.as_bytes();
        let above = match destination.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let parent = safe::open(above)?;
        let short = &last[..last.len().min(NAME_BYTES_MAX)];
        for number in 0..OTHERS_MAX {
            let number = if number == 0 { String::new() } else { format!("-{number}") };
            let name = [b".", short, SUFFIX.as_bytes(), number.as_bytes()].concat();
            let path = above.join(OsStr::from_bytes(&name));
            let (name, last) = (of(&name)?, of(last)?);
            if let Some(directory) = make(&parent, &name, &path)? {
                let destination = destination.to_owned();
                return Ok(Staging { parent, directory, name, path, last, destination });
            }
        }
        let message = format!("other exports to {} are under way", destination.display());
        Err(Failure::new(FailureKind::Busy, message)
            .hint(format!("remove what ends with {SUFFIX} beside it, once they have ended")))
    }

    /// The hidden directory.
    pub(super) fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives what was made its name, and makes all of it durable. `top`: the exported directory and
    /// its mode.
    pub(super) fn publish(&self, top: Option<&(OwnedFd, Mode)>) -> Result<()> {
        let failed =
            |doing: &str, error: Errno| failure::io(doing, &self.destination, &error.into());
        rustix::fs::syncfs(&self.directory).map_err(|error| failed("make durable", error))?;
        // To get another parent a directory must be writable by its owner.
        let closed = top.filter(|(_, mode)| !mode.contains(Mode::WUSR));
        let to_mode = |(directory, mode): &(OwnedFd, Mode), more: Mode| {
            let changed = rustix::fs::fchmod(directory, *mode | more);
            changed.map_err(|error| failed("set the mode of", error))
        };
        if let Some(top) = closed {
            to_mode(top, Mode::WUSR)?;
        }
        self.rename().map_err(|error| failed("create", error))?;
        if let Some(top) = closed {
            to_mode(top, Mode::empty())?;
        }
        rustix::fs::unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR).unwrap_or_default();
        rustix::fs::fsync(&self.parent).map_err(|error| failed("make durable", error))
    }

    fn rename(&self) -> rustix::io::Result<()> {
        let (from, to, last) = (&self.directory, &self.parent, &self.last);
        let renamed = rustix::fs::renameat_with(from, last, to, last, RenameFlags::NOREPLACE);
        if !matches!(renamed, Err(Errno::INVAL | Errno::NOSYS)) {
            return renamed;
        }
        // This file system cannot do it in one step. Nobody else can change the directory.
        if self.destination.symlink_metadata().is_ok() {
            return Err(Errno::EXIST);
        }
        rustix::fs::renameat(from, last, to, last)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // After it was published there is nothing.
        std::fs::remove_dir_all(&self.path).unwrap_or_default();
    }
}

/// Refuses a destination that exists.
pub(super) fn refuse_existing(destination: &Path) -> Result<()> {
    if destination.symlink_metadata().is_err() {
        return Ok(());
    }
    let failure = Failure::new(FailureKind::Exists, format!("{} exists", destination.display()));
    Err(failure.hint("an export replaces nothing: choose another name"))
}

/// Makes a hidden directory, in the place of one whose export was killed. `None`: it is another
/// process's.
fn make(parent: &OwnedFd, name: &CString, path: &Path) -> Result<Option<OwnedFd>> {
    let failed = |doing: &str, error: Errno| failure::io(doing, path, &error.into());
    for _ in 0..2 {
        let made = rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o700));
        if !matches!(made, Ok(()) | Err(Errno::EXIST)) {
            return made.map(|()| None).map_err(|error| failed("create", error));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = match rustix::fs::openat(parent, name, flags, Mode::empty()) {
            Ok(opened) => opened,
            Err(error) if made.is_ok() => return Err(failed("open", error)),
            // It is somebody else's, or no directory.
            Err(_) => return Ok(None),
        };
        if made.is_ok() {
            safe::check_own(&opened, path)?;
        } else if safe::check_own(&opened, path).is_err() {
            return Ok(None);
        }
        let locked = rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive);
        match (made, locked) {
            (Ok(()), _) => return Ok(Some(opened)),
            (Err(_), Ok(())) => std::fs::remove_dir_all(path)
                .map_err(|error| failure::io("remove an earlier export in", path, &error))?,
            (Err(_), Err(_)) => return Ok(None),
        }
    }
    Ok(None)
}

fn of(name: &[u8]) -> Result<CString> {
    CString::new(name).map_err(|_| Failure::new(FailureKind::Protocol, "a name with a NUL"))
}
