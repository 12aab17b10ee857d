//! A symbolic link at the end of a path below a mount: whether a verb follows it, and how.
//!
//! A path below a mount is followed by this machine's kernel, as by every other program: an
//! absolute target begins at the root of the machine, and must lead into a volume. A path
//! `VOLDIR:/path` is followed by the daemon, to which the root of the volume is the root. Both
//! refuse a link that another user left in a directory like `/tmp`.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use wire::{Failure, FailureKind};

use crate::failure::{self, Result};

/// What a verb acts on if the last name of its path is a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    /// The link: verbs on a name (`rmr`, `restore`, a new name), and those that show a link itself.
    Link,
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

/// Refuses a link at the end that the kernel does not follow to an end.
pub(super) fn check_target(argument: &Path) -> Result<()> {
    if is_dangling(argument) {
        let message = format!("the symbolic link points to {}, which does not exist", to(argument));
        let hint = "an absolute target begins at the root of this machine, as for other programs";
        return Err(failed(argument, (FailureKind::NotFound, message), hint));
    }
    let found = argument.metadata();
    found.map(drop).map_err(|error| failure::io("follow", argument, &error))
}

/// Follows the symbolic links of a path: what it returns is absolute and has none. What cannot be
/// looked at is used as written; the daemon, or the kernel, reports it. Refuses a link that another
/// user left in a directory like `/tmp`, whatever the machine has set: root too would be led
/// elsewhere by it.
///
/// A directory that is replaced by a link afterwards is one for the daemon, which refuses it.
pub(super) fn followed(argument: &Path, last: Last) -> Result<PathBuf> {
    let refused = |error: &std::io::Error| failure::io("find", argument, error);
    let mut rest: Vec<OsString> = Vec::new();
    push(&mut rest, argument);
    let typed = argument.as_os_str().as_bytes();
    let follows_last = last == Last::Target || typed.ends_with(b"/") || typed.ends_with(b"/.");
    let mut at = if argument.is_absolute() {
        PathBuf::from("/")
    } else {
        std::env::current_dir().map_err(|error| refused(&error))?
    };
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&name);
        let found = next.symlink_metadata().ok();
        let link = found.filter(|found| found.is_symlink() && (!rest.is_empty() || follows_last));
        let Some(link) = link.filter(|_| links < LINKS_MAX) else {
            at = next;
            continue;
        };
        links += 1;
        if at.metadata().is_ok_and(|directory| is_trap(&link, &directory)) {
            let message = "a symbolic link of another user, in a directory that all may write";
            let hint = "it is not followed; use the path of its target";
            return Err(failed(argument, (FailureKind::Permission, message.to_owned()), hint));
        }
        let target = next.read_link().map_err(|error| refused(&error))?;
        push(&mut rest, &target);
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
    }
    Ok(at)
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
    is_open && link.uid() != me && link.uid() != directory.uid()
}

/// Why a link in a volume points to no place in one.
pub(super) fn leads_out(argument: &Path) -> Failure {
    let message = format!(
        "the symbolic link points to {}, which is not below a mounted volume",
        to(argument)
    );
    let hint = "to begin absolute targets at the root of the volume, use VOLDIR:/path";
    failed(argument, (FailureKind::NotFound, message), hint)
}

/// Where the sign of `LINK@SNAPSHOT` is, if LINK is a symbolic link to an absolute path and the
/// whole is no name: the daemon would begin at the root of the volume.
pub(super) fn snapshot_of(argument: &Path) -> Option<usize> {
    let bytes = argument.as_os_str().as_bytes();
    if !bytes.contains(&b'@') || argument.symlink_metadata().is_ok() {
        return None;
    }
    let signs = bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'@');
    let is_link = |at: usize| {
        let before = Path::new(OsStr::from_bytes(&bytes[..at]));
        before.read_link().is_ok_and(|target| target.is_absolute())
    };
    signs.map(|(at, _)| at).find(|&at| is_link(at))
}

/// The target, for a message.
fn to(link: &Path) -> String {
    link.read_link().unwrap_or_default().display().to_string()
}

fn failed(argument: &Path, (kind, message): (FailureKind, String), hint: &str) -> Failure {
    Failure::new(kind, message).hint(hint).at(argument.as_os_str().as_bytes())
}
