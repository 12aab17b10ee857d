//! `mount -o remount`: changes the flags of an existing mount, as mount(8) requests it.
//!
//! Only the kernel's own flags of a mount can change while mounted. They are whether it takes
//! changes, and what may be run, opened or become root on it. The settings the daemon was started
//! with (a cache, threads, time-outs) stay, so options about them are refused rather than dropped.
//! Options that mount(8) repeats from the table of mounts already apply to the mount, and are
//! skipped.

use std::path::Path;

use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;

use crate::attach::flags;
use crate::mountinfo::{self, FILE_SYSTEM_TYPE};
use crate::options::{Atime, MountOptions, OptionError, is_changeable, is_for_mount_program};
use crate::{MountError, source};

/// The option that requests one.
const REMOUNT: &str = "remount";
/// What the table of mounts lists for a mount in addition to its flags.
const OWN: [&str; 7] = [
    "default_permissions",
    "allow_other",
    "user_id=",
    "group_id=",
    "max_read=",
    "blksize=",
    "fsname=",
];

/// Whether a list of mount options asks for a remount.
pub fn asks_for_remount(lists: &[String]) -> bool {
    lists.iter().flat_map(|list| list.split(',')).any(|option| option.trim() == REMOUNT)
}

/// Changes the flags of a mount of ours. For root only, as for every file system.
pub fn remount(mount_point: &Path, lists: &[String]) -> Result<(), MountError> {
    let place =
        mountinfo::resolve(mount_point).ok_or_else(|| MountError::Missing(mount_point.into()))?;
    let record = mountinfo::on_top(&place)
        .filter(|record| record.kind == FILE_SYSTEM_TYPE)
        .ok_or_else(|| MountError::NotMounted(place.clone()))?;
    let mut options = present(&place, &source::decode(&record.source).0)?;
    let atime = options.atime;
    let words = lists.iter().flat_map(|list| list.split(',')).map(str::trim);
    for word in words.filter(|word| !word.is_empty()) {
        if word == REMOUNT || is_for_mount_program(word) {
            continue;
        }
        if is_changeable(word) {
            options.parse(word)?;
        } else if !OWN.iter().any(|own| word == own.trim_end_matches('=') || starts(word, own)) {
            let expected = "not while mounted: unmount, and mount with it";
            return Err(OptionError::Value { option: word.to_owned(), expected }.into());
        }
    }
    if options.atime != atime {
        // The daemon handles the times, not the kernel.
        let expected = "when times of reading are kept is fixed while mounted";
        return Err(OptionError::Value { option: "noatime".to_owned(), expected }.into());
    }
    rustix::mount::mount_remount(&place, flags(&options), c"").map_err(|error| match error {
        Errno::PERM => MountError::NotPermitted(format!("remount: {error}")),
        error => MountError::system(format!("remounting {}", place.display()), error),
    })
}

fn starts(word: &str, own: &str) -> bool {
    own.ends_with('=') && word.starts_with(own)
}

/// The flags that a mount has.
fn present(place: &Path, volume: &Path) -> Result<MountOptions, MountError> {
    let space = rustix::fs::statvfs(place)
        .map_err(|error| MountError::system(format!("looking at {}", place.display()), error))?;
    let has = |flag| space.f_flag.contains(flag);
    let mut options = MountOptions::new(volume, place);
    options.read_only = has(StatVfsMountFlags::RDONLY);
    options.suid = !has(StatVfsMountFlags::NOSUID);
    options.dev = !has(StatVfsMountFlags::NODEV);
    options.exec = !has(StatVfsMountFlags::NOEXEC);
    options.sync = has(StatVfsMountFlags::SYNCHRONOUS);
    let noatime = has(StatVfsMountFlags::NOATIME);
    options.atime = if noatime { Atime::Never } else { Atime::Relative };
    Ok(options)
}
