//! Where an export to a directory is made: below a hidden directory beside the destination, which
//! only the caller can enter. At the end what was made gets its name by one rename. So an export
//! that is interrupted, or fails, never leaves a part of a tree under the name of the whole. If
//! something else has that name by then, the whole gets another one.
//!
//! Dropping a [`Staging`] removes what was made. A process that is killed leaves it; its lock is
//! gone then, and the next export to the same destination removes it.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use device::{Random, SystemRandom};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use wire::{Failure, FailureKind};

use super::{remove, safe};
use crate::failure::{self, Result};
use crate::output::Output;

/// Ends the names of hidden directories and files, before what nobody guesses.
const SUFFIX: &str = ".pando-export";
/// How much of a long name is in another one that is made of it.
const NAME_BYTES_MAX: usize = 200;
/// How many names are tried.
pub(super) const NAMES_MAX: u32 = 8;

/// The hidden directory of one export.
pub(super) struct Staging {
    /// The directory that the destination will be in.
    parent: OwnedFd,
    /// It, and where it is.
    directory: OwnedFd,
    name: CString,
    /// Without symbolic links: nobody else changes what it names.
    path: PathBuf,
    /// The name of the destination.
    last: CString,
    /// As the caller gave it, for messages.
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
        let (parent, above) = safe::open(above)?;
        for attempt in 0..NAMES_MAX {
            // The first name is what the next export finds; another user can have it already.
            let name = if attempt == 0 { hidden(last) } else { hidden_at_random(last) };
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
        let rename = |last: &CStr| rename(&self.directory, &self.last, &self.parent, last);
        let mut other = None;
        match rename(&self.last) {
            Err(Errno::EXIST) => {
                let name = of(&beside(self.last.to_bytes()))?;
                rename(&name).map_err(|error| failed("create", error))?;
                other = Some(name);
            }
            renamed => renamed.map_err(|error| failed("create", error))?,
        }
        // From here on it is there, whatever fails.
        let there = |failure: Failure| {
            failure.hint("everything was exported and has its name; this alone is left to be done")
        };
        if let Some(top) = closed {
            to_mode(top, Mode::empty()).map_err(there)?;
        }
        rustix::fs::unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR).unwrap_or_default();
        let durable = rustix::fs::fsync(&self.parent);
        durable.map_err(|error| there(failed("make the name durable of", error)))?;
        other.map_or(Ok(()), |other| Err(taken(&self.destination, &other)))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let Staging { parent, directory, name, path, .. } = self;
        let removed = remove::empty(directory)
            .and_then(|()| rustix::fs::unlinkat(&*parent, &*name, AtFlags::REMOVEDIR));
        match removed {
            // After it was published there is nothing.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => stays(path, error),
        }
    }
}

/// Reports a hidden directory that cannot be removed.
fn stays(path: &Path, error: Errno) {
    let error = std::io::Error::from(error);
    let remark =
        format!("{} is what an export left, and cannot be removed: {error}", path.display());
    Output::new(false, false).remark(&remark);
}

fn short(last: &[u8]) -> &[u8] {
    &last[..last.len().min(NAME_BYTES_MAX)]
}

fn hidden(last: &[u8]) -> Vec<u8> {
    [b".", short(last), SUFFIX.as_bytes()].concat()
}

fn at_random() -> String {
    format!("{:016x}", SystemRandom.next_u64())
}

/// A hidden name that nobody guesses.
pub(super) fn hidden_at_random(last: &[u8]) -> Vec<u8> {
    [&hidden(last), &b"-"[..], at_random().as_bytes()].concat()
}

/// Another name for what is complete.
pub(super) fn beside(last: &[u8]) -> Vec<u8> {
    [short(last), b".", at_random().as_bytes()].concat()
}

/// The failure of what is complete under another name.
pub(super) fn taken(destination: &Path, other: &CStr) -> Failure {
    let other = destination.with_file_name(OsStr::from_bytes(other.to_bytes()));
    let message = format!("another process made {} meanwhile", destination.display());
    let hint = format!("it is complete as {}: rename that", other.display());
    Failure::new(FailureKind::Exists, message).hint(hint)
}

/// Renames a file or directory, if nothing has the new name.
pub(super) fn rename(
    from: &OwnedFd,
    name: &CStr,
    to: &OwnedFd,
    last: &CStr,
) -> rustix::io::Result<()> {
    let renamed = rustix::fs::renameat_with(from, name, to, last, RenameFlags::NOREPLACE);
    if !matches!(renamed, Err(Errno::INVAL | Errno::NOSYS)) {
        return renamed;
    }
    // This file system cannot do it in one step. Of a file there may be two names for a moment.
    match rustix::fs::linkat(from, name, to, last, AtFlags::empty()) {
        Ok(()) => return rustix::fs::unlinkat(from, name, AtFlags::empty()),
        Err(Errno::EXIST) => return Err(Errno::EXIST),
        Err(_) => {}
    }
    if rustix::fs::statat(to, last, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Err(Errno::EXIST);
    }
    rustix::fs::renameat(from, name, to, last)
}

/// Refuses a destination that exists.
pub(crate) fn refuse_existing(destination: &Path) -> Result<()> {
    if destination.symlink_metadata().is_err() {
        return Ok(());
    }
    let failure = Failure::new(FailureKind::Exists, format!("{} exists", destination.display()));
    Err(failure.hint("nothing is replaced: choose another name"))
}

/// Makes a hidden directory, or takes over that of an export that was killed. `None`: it is another
/// process's.
fn make(parent: &OwnedFd, name: &CStr, path: &Path) -> Result<Option<OwnedFd>> {
    let failed = |doing: &str, error: Errno| failure::io(doing, path, &error.into());
    for _ in 0..NAMES_MAX {
        let made = match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(failed("create", error)),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = match rustix::fs::openat(parent, name, flags, Mode::empty()) {
            Ok(opened) => opened,
            // Another export took it for left over, or has ended.
            Err(Errno::NOENT) => continue,
            Err(error) if made => return Err(failed("open", error)),
            // It is somebody else's, or no directory.
            Err(_) => return Ok(None),
        };
        match safe::check_own(&opened, path) {
            Err(failure) if made => return Err(failure),
            Err(_) => return Ok(None),
            Ok(()) => {}
        }
        if rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive).is_err() {
            // Between the two calls another export can take it for left over.
            if made {
                continue;
            }
            return Ok(None);
        }
        if !has_name(&opened, parent, name).map_err(|error| failed("open", error))? {
            continue;
        }
        if made {
            return Ok(Some(opened));
        }
        let emptied = rustix::fs::fchmod(&opened, Mode::RWXU).and_then(|()| remove::empty(&opened));
        return match emptied {
            Ok(()) => Ok(Some(opened)),
            Err(error) => {
                stays(path, error);
                Ok(None)
            }
        };
    }
    Ok(None)
}

/// Whether an open directory has this name still.
fn has_name(opened: &OwnedFd, parent: &OwnedFd, name: &CStr) -> rustix::io::Result<bool> {
    let own = rustix::fs::fstat(opened)?;
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) => Ok((there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

pub(super) fn of(name: &[u8]) -> Result<CString> {
    CString::new(name).map_err(|_| Failure::new(FailureKind::Protocol, "a name with a NUL"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(place: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(place).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn fill(staging: &Staging) {
        rustix::fs::mkdirat(staging.directory(), c"copy", Mode::RWXU).unwrap();
        std::fs::write(staging.path().join("copy/file"), "text").unwrap();
    }

    /// A symbolic link on the way to the destination leads elsewhere later.
    #[test]
    fn a_link_that_is_changed_meanwhile_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::create_dir(at("good")).unwrap();
        std::fs::create_dir_all(at("evil/.copy.pando-export/copy")).unwrap();
        std::os::unix::fs::symlink(at("good"), at("link")).unwrap();
        let staging = Staging::create(&at("link/copy")).unwrap();
        std::fs::remove_file(at("link")).unwrap();
        std::os::unix::fs::symlink(at("evil"), at("link")).unwrap();
        fill(&staging);
        assert_eq!(names(&at("good/.copy.pando-export/copy")), ["file"]);
        drop(staging);
        assert_eq!(names(&at("evil/.copy.pando-export")), ["copy"]);
        assert_eq!(names(&at("good")), [""; 0]);
    }

    #[test]
    fn what_is_complete_stays_when_its_name_is_taken() {
        let place = tempfile::tempdir().unwrap();
        let copy = place.path().join("copy");
        let staging = Staging::create(&copy).unwrap();
        fill(&staging);
        std::fs::write(&copy, "another").unwrap();
        let failure = staging.publish(None).unwrap_err();
        drop(staging);
        assert_eq!((failure.kind, names(place.path()).len()), (FailureKind::Exists, 2));
        let other = names(place.path()).pop().unwrap();
        assert!(failure.hint.contains(&other), "{failure:?}");
        assert_eq!(names(&place.path().join(other)), ["file"]);
        assert_eq!(std::fs::read(&copy).unwrap(), b"another");
    }

    /// The name is that of another directory by the time the old one is locked.
    #[test]
    fn a_directory_that_lost_its_name_is_not_taken_over() {
        let place = tempfile::tempdir().unwrap();
        let (parent, _) = safe::open(place.path()).unwrap();
        let path = place.path().join("hidden");
        let first = make(&parent, c"hidden", &path).unwrap().unwrap();
        assert!(make(&parent, c"hidden", &path).unwrap().is_none(), "it is locked");
        assert!(has_name(&first, &parent, c"hidden").unwrap());
        std::fs::remove_dir(&path).unwrap();
        assert!(!has_name(&first, &parent, c"hidden").unwrap());
        let second = make(&parent, c"hidden", &path).unwrap().unwrap();
        assert!(!has_name(&first, &parent, c"hidden").unwrap());
        assert!(has_name(&second, &parent, c"hidden").unwrap());
    }
}
