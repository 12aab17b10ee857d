//! Paths below a mount: one walk, component by component, as the kernel does.
//!
//! Every path argument that is no `VOLDIR:/path` is walked here, once. The invariants of the walk:
//!
//! * what it returns has no symbolic link, except as the last name where the verb acts on it;
//! * nothing is done by names alone: `..` needs a directory before it;
//! * 40 links are followed, as by Linux, and the next is ELOOP;
//! * an absolute target begins at the root of the machine, as for every other program. (A path
//!   `VOLDIR:/path` is followed by the daemon, to which the root of the volume is the root.)
//! * a link that another user left in a directory like `/tmp` is refused, by the daemon too.
//!
//! A name that does not exist is kept as written: the daemon reports it, or the verb makes it.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io::{Error, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;
use wire::{Failure, FailureKind};

use crate::failure::{self, Result};

/// What a verb acts on if the last name of its path is a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    /// The link, as lstat(2): verbs that show a link itself. A slash behind it follows it.
    Link,
    /// The name, as rmdir(2) and rename(2): a slash behind a link does not follow it, and is
    /// refused.
    Name,
    /// The name that is made, as mkdir(2): a link is a name that exists, with a slash behind it
    /// too.
    New,
    /// What it points to: verbs on a directory, and those that read contents.
    Target,
}

/// Most symbolic links on the way, as Linux has it.
const LINKS_MAX: usize = 40;

/// The mode of a directory in which every user makes names and removes only their own.
const OPEN_TO_ALL: u32 = 0o1002;

/// Whether a path is a symbolic link that points to nothing, on this machine.
pub(crate) fn is_dangling(argument: &Path) -> bool {
    let target = || argument.metadata();
    argument.is_symlink() && target().is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Where a path leads.
pub(super) struct Walked {
    /// Absolute, and without symbolic links on the way.
    pub(super) path: PathBuf,
    /// What follows `path` immediately: `@SNAPSHOT` and the rest, which the kernel does not know.
    pub(super) snapshot: Vec<u8>,
    /// The place of the link that was the last name, if it was followed.
    pub(super) link: Option<PathBuf>,
}

/// Whether `NAME@SNAPSHOT` in a path may mean a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signs {
    /// It may: the walk ends at NAME. A literal name takes precedence.
    Read,
    /// It is a name.
    Plain,
}

struct Walk<'a> {
    argument: &'a Path,
    at: PathBuf,
    /// Names to walk, the next one last; targets of links are pushed on top.
    rest: Vec<OsString>,
    /// How many of them, from the bottom, are names of the argument.
    typed: usize,
    /// Whether a link that is the last name is followed.
    follows_last: bool,
    /// Whether the path ends with a slash.
    slash: bool,
    signs: Signs,
    links: usize,
    snapshot: Vec<u8>,
    link: Option<PathBuf>,
}

/// Walks a path. Refuses what the kernel would, and a link that another user left in a directory
/// like `/tmp`, whatever the machine has set. Such a link would misdirect root, too.
pub(super) fn walk(argument: &Path, last: Last, signs: Signs) -> Result<Walked> {
    let mut rest = Vec::new();
    push(&mut rest, argument);
    let at = if argument.is_absolute() {
        PathBuf::from("/")
    } else {
        std::env::current_dir().map_err(|error| failure::io("find", argument, &error))?
    };
    let typed = argument.as_os_str().as_bytes();
    let ends_with = |name: &OsStr| typed.ends_with(name.as_bytes());
    let slash = argument.file_name().is_some_and(|name| !ends_with(name));
    let follows_last = last == Last::Target || last == Last::Link && slash;
    let typed = rest.len();
    let (links, snapshot, link) = (0, Vec::new(), None);
    let mut walk =
        Walk { argument, at, rest, typed, follows_last, slash, signs, links, snapshot, link };
    let mut found = walk.at.symlink_metadata();
    while let Some(name) = walk.rest.pop() {
        found = walk.step(&name)?;
    }
    if let Some(link) = &walk.link {
        check_target(argument, link, found.as_ref().err())?;
    }
    let is_directory = found.map_or(true, |found| found.is_dir());
    if walk.slash && walk.snapshot.is_empty() && last != Last::New && !is_directory {
        let error = Error::from(Errno::NOTDIR);
        let failure = failure::io("find", argument, &error);
        return Err(failure.hint("without the slash at its end the path names what is there"));
    }
    Ok(Walked { path: walk.at, snapshot: walk.snapshot, link: walk.link })
}

impl Walk<'_> {
    /// Walks one name; returns what was found there.
    fn step(&mut self, name: &OsStr) -> Result<std::io::Result<Metadata>> {
        let is_typed = self.rest.len() < self.typed;
        self.typed = self.typed.min(self.rest.len());
        let next = self.at.join(name);
        let found = next.symlink_metadata();
        if name == ".." {
            // The kernel looked whether there is a directory.
            let found = found.map_err(|error| self.refused(&error))?;
            self.at.pop();
            return Ok(Ok(found));
        }
        let is_absent = found.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound);
        if is_absent && is_typed && self.signs == Signs::Read && self.split(name) {
            return Ok(found);
        }
        let is_last = self.rest.is_empty();
        let link = match found {
            Ok(found) if found.is_symlink() && (!is_last || self.follows_last) => found,
            found => {
                self.at = next;
                return Ok(found);
            }
        };
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(self.refused(&Error::from(Errno::LOOP)));
        }
        if self.at.metadata().is_ok_and(|directory| is_trap(&link, &directory)) {
            let message = "a symbolic link of another user, in a directory that all may write";
            let hint = "it is not followed; use the path of its target";
            return Err(failed(self.argument, (FailureKind::Permission, message.to_owned()), hint));
        }
        let target = next.read_link().map_err(|error| self.refused(&error))?;
        self.slash |= is_last && target.as_os_str().as_bytes().ends_with(b"/");
        if is_typed && is_last {
            self.link = Some(next);
        }
        push(&mut self.rest, &target);
        if target.is_absolute() {
            self.at = PathBuf::from("/");
        }
        // Its target is the subject of the next step, or is the directory `at`.
        Ok(self.at.symlink_metadata())
    }

    /// Divides a name that does not exist at the sign of its snapshot, if what is before the sign
    /// exists: that becomes the last name.
    fn split(&mut self, name: &OsStr) -> bool {
        let bytes = name.as_bytes();
        let mut signs = (1..bytes.len()).rev().filter(|&at| bytes[at] == b'@');
        let exists = |&at: &usize| {
            let before = self.at.join(OsStr::from_bytes(&bytes[..at])).symlink_metadata();
            !before.is_err_and(|error| error.kind() == ErrorKind::NotFound)
        };
        let Some(sign) = signs.find(exists) else { return false };
        self.snapshot = bytes[sign..].to_vec();
        for name in self.rest.drain(..).rev() {
            self.snapshot.push(b'/');
            self.snapshot.extend_from_slice(name.as_bytes());
        }
        if self.slash {
            self.snapshot.push(b'/');
        }
        push(&mut self.rest, Path::new(OsStr::from_bytes(&bytes[..sign])));
        self.typed = self.rest.len();
        self.follows_last = true;
        self.signs = Signs::Plain;
        true
    }

    fn refused(&self, error: &Error) -> Failure {
        failure::io("find", self.argument, error)
    }
}

/// Refuses a link at the end that points to nothing, or to what cannot be looked at.
fn check_target(argument: &Path, link: &Path, error: Option<&Error>) -> Result<()> {
    match error {
        Some(error) if error.kind() == ErrorKind::NotFound => {
            let to = to(link);
            let message = format!("the symbolic link points to {to}, which does not exist");
            let hint = "an absolute target begins at the root of this machine, as for other \
                        programs";
            Err(failed(argument, (FailureKind::NotFound, message), hint))
        }
        Some(error) => Err(failure::io("follow", argument, error)),
        None => Ok(()),
    }
}

/// The names of a path, the next one last.
fn push(rest: &mut Vec<OsString>, path: &Path) {
    let names = path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        _ => None,
    });
    rest.extend(names);
}

fn is_trap(link: &Metadata, directory: &Metadata) -> bool {
    let me = rustix::process::geteuid().as_raw();
    let is_open = directory.mode() & OPEN_TO_ALL == OPEN_TO_ALL;
    is_open && !is_same(link.uid(), me) && !is_same(link.uid(), directory.uid())
}

/// Whether two numbers are of one user. In a user namespace every user that it does not map has
/// the same number.
fn is_same(one: u32, other: u32) -> bool {
    one == other && (one != overflow() || maps_all())
}

/// The number that users without a number have.
fn overflow() -> u32 {
    let number = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
    number.and_then(|number| number.trim().parse().ok()).unwrap_or(65534)
}

/// Whether every user has a number here: not in a user namespace.
fn maps_all() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Why a link in a volume points to no place in one.
pub(super) fn leads_out(argument: &Path, link: &Path) -> Failure {
    let message =
        format!("the symbolic link points to {}, which is not below a mounted volume", to(link));
    let hint = "to begin absolute targets at the root of the volume, use VOLDIR:/path";
    failed(argument, (FailureKind::NotFound, message), hint)
}

/// The target, for a message.
fn to(link: &Path) -> String {
    link.read_link().unwrap_or_default().display().to_string()
}

fn failed(argument: &Path, (kind, message): (FailureKind, String), hint: &str) -> Failure {
    Failure::new(kind, message).hint(hint).at(argument.as_os_str().as_bytes())
}
