//! Whose a log is that is elsewhere: one volume's, and one process's.
//!
//! The directory of such a log is locked while the volume is open, and holds a symbolic link
//! `volume.INODE` to the directory of its volume: INODE is that directory's number in its file
//! system. A volume that was moved keeps the number, one that was copied has another, and its
//! link to the log still leads to the log of the first. Two volumes would overwrite each other's
//! records there.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use device::Clock;
use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use wire::{Failure, FailureKind};

use crate::failure::{self, Result};

/// What the name of the link back starts with.
const BACK: &str = "volume.";

/// How long one that ends may take to let go of the log after it let go of the volume.
const PATIENCE: Duration = Duration::from_secs(10);

/// The log is ours as long as this lives. All that is done in its directory is done through this
/// descriptor: its path may lead elsewhere by now, where another user owns a directory above.
#[derive(Debug)]
pub(crate) struct LogHeld(File);

impl LogHeld {
    /// The directory.
    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The names in the directory.
    pub(crate) fn names(&self) -> std::io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if !matches!(&name[..], b"." | b"..") {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }

    /// Removes a file of the directory.
    pub(crate) fn remove(&self, name: &OsString) -> std::io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Whether what is locked is what is at a path now.
    pub(crate) fn is_of(&self, log: &Path) -> Result<bool> {
        let failed = |error| failure::io("open", log, &error);
        let held = self.0.metadata().map_err(failed)?;
        match log.metadata() {
            Ok(found) => Ok((found.dev(), found.ino()) == (held.dev(), held.ino())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }
}

/// Whether a log that does not say whose it is, is told so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It is, from now on.
    Write,
    /// It is not: nothing is changed.
    Leave,
}

impl Drop for LogHeld {
    fn drop(&mut self) {
        // Whoever was started just before may have the directory open still; we close it anyway.
        rustix::fs::flock(&self.0, FlockOperation::Unlock).unwrap_or_default();
    }
}

/// Takes the log of a volume whose log is elsewhere. The caller holds `owner.lock`, and lets go
/// of this first.
///
/// # Errors
///
/// The log is another volume's, or in use; or it cannot be told where it is.
pub(crate) fn hold(volume: &Path, clock: &dyn Clock, claim: Claim) -> Result<Option<LogHeld>> {
    let link = volume.join(fs::LOG_DIRECTORY);
    let is_link = found(link.symlink_metadata(), &link)?.is_some_and(|it| it.is_symlink());
    // A link that leads nowhere is told of by who opens the log.
    if !is_link || !found(link.metadata(), &link)?.is_some_and(|it| it.is_dir()) {
        return Ok(None);
    }
    let log = std::fs::canonicalize(&link).map_err(|error| failure::io("open", &link, &error))?;
    let open = |error| failure::io("open", &log, &error);
    is_theirs(volume, &log, &log.metadata().map_err(open)?)?;
    let begin = clock.monotonic();
    let held = loop {
        if let Some(held) = try_lock(&log)? {
            break held;
        }
        if clock.monotonic().saturating_sub(begin) > PATIENCE {
            return Err(in_use(&log));
        }
        clock.sleep(Duration::from_millis(3));
    };
    // Another directory may have been put there meanwhile.
    is_theirs(volume, &log, &held.0.metadata().map_err(open)?)?;
    match back(&log, &held)? {
        Back::Of(number, path) => check(volume, &log, number, &path)?,
        Back::Nobody if claim == Claim::Write => link_back(volume, &log, &held)?,
        Back::Nobody | Back::Empty => {}
    }
    Ok(Some(held))
}

/// Refuses to follow, as the superuser, the link of somebody else's volume to what is not theirs:
/// they could have files made anywhere.
fn is_theirs(volume: &Path, log: &Path, found: &Metadata) -> Result<()> {
    let of_volume = volume.metadata().map_err(|error| failure::io("open", volume, &error))?;
    let (theirs, owner) = (of_volume.uid(), found.uid());
    if theirs == 0 || theirs == owner || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let message = format!(
        "the link `{}` in {} leads to {}, which is not the volume's owner's",
        fs::LOG_DIRECTORY,
        volume.display(),
        log.display()
    );
    Err(Failure::new(FailureKind::Permission, message)
        .hint("only if you put the log there: give that directory to the owner of the volume"))
}

/// What is at a path, if anything is. That it cannot be told is not that there is nothing: the log
/// of another would be written to.
fn found(at: std::io::Result<Metadata>, path: &Path) -> Result<Option<Metadata>> {
    match at {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failure::io("open", path, &error)),
    }
}

/// Locks the directory of a log; `None` while somebody else has it.
pub(crate) fn try_lock(log: &Path) -> Result<Option<LogHeld>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let directory = rustix::fs::open(log, flags, Mode::empty())
        .map_err(|error| failure::io("open", log, &error.into()))?;
    let directory = File::from(directory);
    match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(LogHeld(directory))),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(failure::io("lock", log, &error.into())),
    }
}

/// That another process has the log.
pub(crate) fn in_use(log: &Path) -> Failure {
    let message = format!("the log in {} is in use by another volume", log.display());
    Failure::new(FailureKind::Busy, message)
        .hint("each volume needs a directory of its own for its log")
}

/// Writes whose the log is.
pub(crate) fn link_back(volume: &Path, log: &Path, held: &LogHeld) -> Result<()> {
    let failed = |error| failure::io("open", volume, &error);
    let volume = std::fs::canonicalize(volume).map_err(failed)?;
    let number = volume.metadata().map_err(failed)?.ino();
    let name = format!("{BACK}{number}");
    match rustix::fs::symlinkat(&volume, &held.0, &name) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(failure::io("create", &log.join(name), &error.into())),
    }
    // Before a record is written there: after a loss of power a copy must not come first.
    held.0.sync_all().map_err(|error| failure::io("sync", log, &error))
}

/// What a directory says of whose log it is.
enum Back {
    /// The number of the volume's directory, and where that was.
    Of(u64, PathBuf),
    /// Nothing, and there is a log in it.
    Nobody,
    /// Nothing, for it is empty: the disk may not be mounted.
    Empty,
}

fn back(log: &Path, held: &LogHeld) -> Result<Back> {
    let failed = |error| failure::io("read", log, &error);
    let mut back = Back::Empty;
    for name in held.names().map_err(failed)? {
        let number = name.to_str().and_then(|name| name.strip_prefix(BACK)?.parse().ok());
        if let Some(number) = number {
            let target = rustix::fs::readlinkat(&held.0, &name, Vec::new());
            let target = target.map_err(|error| failed(error.into()))?.into_bytes();
            return Ok(Back::Of(number, OsString::from_vec(target).into()));
        }
        back = Back::Nobody;
    }
    Ok(back)
}

fn check(volume: &Path, log: &Path, number: u64, path: &Path) -> Result<()> {
    let own = volume.metadata().map_err(|error| failure::io("open", volume, &error))?;
    // Directories in two file systems may have one number. What is at the path now tells nothing
    // else: a volume may have been moved, and its copy put there.
    let is_another = path.metadata().is_ok_and(|it| it.ino() == number && it.dev() != own.dev());
    if own.ino() == number && !is_another {
        return Ok(());
    }
    let message = format!(
        "the log of {}, in {}, belongs to the volume in {}",
        volume.display(),
        log.display(),
        path.display()
    );
    let link = log.join(format!("{BACK}{number}"));
    Err(Failure::new(FailureKind::Busy, message).hint(format!(
        "a copy needs a copy of the log: copy that directory without {BACK}{number}, and have \
         `log` lead to it; if this is the volume itself, moved to another file system, remove {}",
        link.display()
    )))
}
