//! Whose a log is that is elsewhere: one volume's, and one process's.
//!
//! The directory of such a log is locked while the volume is open, and holds a symbolic link
//! `volume.INODE` to the directory of its volume: INODE is that directory's number in its file
//! system. A volume that was moved keeps the number, one that was copied has another, and its
//! link to the log still leads to the log of the first. Two volumes would overwrite each other's
//! records there.

use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use device::{Clock, Device, LocalDevice};
use rustix::fs::FlockOperation;
use wire::{Failure, FailureKind};

use crate::failure::{self, Result};

/// What the name of the link back starts with.
const BACK: &str = "volume.";

/// How long one that ends may take to let go of the log after it let go of the volume.
const PATIENCE: Duration = Duration::from_secs(10);

/// The log is ours as long as this lives.
#[derive(Debug)]
pub(crate) struct LogHeld(File);

impl LogHeld {
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
    is_theirs(volume, &log)?;
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
    match back(&log)? {
        Back::Of(number, path) => check(volume, &log, number, &path)?,
        Back::Nobody if claim == Claim::Write => link_back(volume, &log)?,
        Back::Nobody | Back::Empty => {}
    }
    Ok(Some(held))
}

/// Refuses to follow, as the superuser, the link of somebody else's volume to what is not theirs:
/// they could have files made anywhere. What is locked and written to is looked at again, by the
/// device; this is what says it well.
fn is_theirs(volume: &Path, log: &Path) -> Result<()> {
    let owner = |path: &Path| {
        path.metadata().map(|it| it.uid()).map_err(|error| failure::io("open", path, &error))
    };
    let (theirs, owner) = (owner(volume)?, owner(log)?);
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
#[expect(clippy::disallowed_methods, reason = "a directory, which is locked and not read")]
pub(crate) fn try_lock(log: &Path) -> Result<Option<LogHeld>> {
    let directory = File::open(log).map_err(|error| failure::io("open", log, &error))?;
    match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(LogHeld(directory))),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
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
pub(crate) fn link_back(volume: &Path, log: &Path) -> Result<()> {
    let failed = |error| failure::io("open", volume, &error);
    let volume = std::fs::canonicalize(volume).map_err(failed)?;
    let number = volume.metadata().map_err(failed)?.ino();
    let link = log.join(format!("{BACK}{number}"));
    match std::os::unix::fs::symlink(&volume, &link) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(failure::io("create", &link, &error));
        }
        _ => {}
    }
    // Before a record is written there: after a loss of power a copy must not come first.
    let synced = LocalDevice::open(log).and_then(|device| device.sync_dir(""));
    synced.map_err(|error| failure::device(log, &error))
}

/// What a directory says of whose log it is.
enum Back {
    /// The number of the volume's directory, and where that was.
    Of(u64, PathBuf),
    /// Nothing, and there is a log in it.
    Nobody,
    /// Nothing, for it is empty: the medium may not be mounted.
    Empty,
}

fn back(log: &Path) -> Result<Back> {
    let failed = |error| failure::io("read", log, &error);
    let mut back = Back::Empty;
    for entry in std::fs::read_dir(log).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(BACK)?.parse().ok());
        if let Some(number) = number {
            return Ok(Back::Of(number, std::fs::read_link(entry.path()).map_err(failed)?));
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
