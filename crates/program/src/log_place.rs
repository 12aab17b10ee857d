//! Ownership of a log that is stored outside the volume: it belongs to one volume and one process.
//!
//! The daemon locks the directory of such a log while the volume is open. The directory holds a
//! symbolic link `volume.INODE` to the directory of its volume, where INODE is that directory's
//! inode number in its file system. A volume that was moved keeps the number. A copied volume has
//! another number, but its link to the log still points to the log of the original. The two
//! volumes would overwrite each other's records there.

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

/// Prefix of the name of the link back to the volume.
const BACK: &str = "volume.";

/// How long a process that ends may take to release the log after it released the volume.
const PATIENCE: Duration = Duration::from_secs(10);

/// The lock on the log, held as long as this lives. All work in its directory goes through this
/// descriptor: its path may point elsewhere by now, where another user owns a directory above.
#[derive(Debug)]
pub struct LogHeld(File);

impl LogHeld {
    /// The directory.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The names in the directory.
    pub fn names(&self) -> std::io::Result<Vec<OsString>> {
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
    pub fn remove(&self, name: &OsString) -> std::io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Whether the locked directory is the one that is at a path now.
    pub fn is_of(&self, log: &Path) -> Result<bool> {
        let failed = |error| failure::io("open", log, &error);
        let held = self.0.metadata().map_err(failed)?;
        match log.metadata() {
            Ok(found) => Ok((found.dev(), found.ino()) == (held.dev(), held.ino())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }
}

/// Whether to write the link back into a log directory that has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// Write it.
    Write,
    /// Do not write it: nothing is changed.
    Leave,
}

impl Drop for LogHeld {
    fn drop(&mut self) {
        // A process started just before may still have the directory open; the unlock takes effect
        // anyway.
        rustix::fs::flock(&self.0, FlockOperation::Unlock).unwrap_or_default();
    }
}

/// Takes the log of a volume whose log is stored elsewhere. The caller holds `owner.lock`, and
/// releases this lock first.
///
/// # Errors
///
/// The log belongs to another volume, or is in use; or its location cannot be determined.
pub fn hold(volume: &Path, clock: &dyn Clock, claim: Claim) -> Result<Option<LogHeld>> {
    let link = volume.join(fs::LOG_DIRECTORY);
    let is_link = found(link.symlink_metadata(), &link)?.is_some_and(|it| it.is_symlink());
    // The code that opens the log reports a dangling link.
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
    // The path may have been given another directory meanwhile.
    is_theirs(volume, &log, &held.0.metadata().map_err(open)?)?;
    match back(&log, &held)? {
        Back::Of(number, path) => check(volume, &log, number, &path)?,
        Back::Nobody if claim == Claim::Write => link_back(volume, &log, &held)?,
        Back::Nobody | Back::Empty => {}
    }
    Ok(Some(held))
}

/// As the superuser, refuses to follow a link in another user's volume to a directory that this
/// user does not own. The user could have files created anywhere.
fn is_theirs(volume: &Path, log: &Path, found: &Metadata) -> Result<()> {
    let of_volume = volume.metadata().map_err(|error| failure::io("open", volume, &error))?;
    let (theirs, owner) = (of_volume.uid(), found.uid());
    if theirs == 0 || theirs == owner || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let message = format!(
        "the link `{}` in {} points to {}, which does not belong to the volume's owner",
        fs::LOG_DIRECTORY,
        volume.display(),
        log.display()
    );
    Err(Failure::new(FailureKind::Permission, message)
        .hint("if you put the log there, make the volume's owner the owner of that directory"))
}

/// What is at a path, if anything. An error does not mean that nothing is there: the daemon would
/// write to another volume's log.
fn found(at: std::io::Result<Metadata>, path: &Path) -> Result<Option<Metadata>> {
    match at {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failure::io("open", path, &error)),
    }
}

/// Locks the directory of a log; `None` while another process holds the lock.
pub fn try_lock(log: &Path) -> Result<Option<LogHeld>> {
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

/// Reports that another process has the log.
pub fn in_use(log: &Path) -> Failure {
    let message = format!("the log in {} is in use by another volume", log.display());
    Failure::new(FailureKind::Busy, message)
        .hint("each volume needs a directory of its own for its log")
}

/// Writes the link back to the volume that the log belongs to.
pub fn link_back(volume: &Path, log: &Path, held: &LogHeld) -> Result<()> {
    let failed = |error| failure::io("open", volume, &error);
    let volume = std::fs::canonicalize(volume).map_err(failed)?;
    let number = volume.metadata().map_err(failed)?.ino();
    let name = format!("{BACK}{number}");
    match rustix::fs::symlinkat(&volume, &held.0, &name) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(failure::io("create", &log.join(name), &error.into())),
    }
    // Before a record is written there: after a power loss a copy must not take the log first.
    held.0.sync_all().map_err(|error| failure::io("sync", log, &error))
}

/// What a log directory records about its volume.
enum Back {
    /// The inode number of the volume's directory, and its path at that time.
    Of(u64, PathBuf),
    /// No link, and there is a log in it.
    Nobody,
    /// No link and no log: the disk may not be mounted.
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
    // Directories in two file systems may have the same number. What is at the path now proves
    // nothing else: the volume may have been moved, and a copy put there.
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
         `log` point to it; if this is the volume itself, moved to another file system, remove {}",
        link.display()
    )))
}
