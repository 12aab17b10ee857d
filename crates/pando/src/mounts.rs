//! Decides whether a mount really belongs to the volume that its source names.
//!
//! Any user may mount a FUSE file system of their own with any source (`-o fsname=`). If root ran a
//! verb on a path below that mount, the verb would act on the volume that the source names. So this
//! module trusts a mount only in two cases. The kernel reports that root or the caller made it, or
//! the volume's daemon confirms that it serves a mount of that device number. Mounts in other
//! namespaces are trusted only in the second case.

use std::collections::BTreeMap;
use std::path::Path;

use client::{Connection, Opened};
use fuse::MountInfo;
use wire::{Call, Failure, FailureKind};

use crate::failure::Result;

/// The PandoFS mount that contains a path, or `None`. A mount that no daemon confirms is an error.
pub(crate) fn find(path: &Path) -> Result<Option<MountInfo>> {
    believed(fuse::find_mount(path))
}

/// The same of a path that is absolute and free of symbolic links: none is followed.
pub(crate) fn at(path: &Path) -> Result<Option<MountInfo>> {
    believed(fuse::mount_at(path))
}

fn believed(found: Option<MountInfo>) -> Result<Option<MountInfo>> {
    match found {
        Some(found) if !is_believed(&found) => Err(not_confirmed(&found)),
        found => Ok(found),
    }
}

/// Where a volume is mounted; mounts with an unconfirmed source are left out.
pub(crate) fn of(volume: &Path) -> Vec<MountInfo> {
    fuse::mounts_of(volume).into_iter().filter(is_believed).collect()
}

/// Whether a mount belongs to the volume that its source names.
pub(crate) fn is_believed(found: &MountInfo) -> bool {
    let me = rustix::process::geteuid().as_raw();
    if found.user == Some(0) || found.user == Some(me) {
        return true;
    }
    // A link in the path could point to one volume now and to another one later.
    let canonical = std::fs::canonicalize(&found.volume_dir);
    if canonical.is_ok_and(|path| path != found.volume_dir) {
        return false;
    }
    serves(&found.volume_dir, &found.device)
}

/// Whether the mount of a volume's daemon is there, as far as this mount namespace shows. By the
/// device, too: the user who mounted it may have chosen another source.
pub(crate) fn is_here(volume: &Path, mount_point: &Path) -> bool {
    !of(volume).is_empty()
        || fuse::mount_at(mount_point).is_some_and(|found| serves(volume, &found.device))
}

/// Its mounts in other mount namespaces: those with the volume as source that its daemon confirms.
/// If there are none, it is the one that its daemon made, which may have another source. (The
/// number of a device is used again, so its place counts, too.)
pub(crate) fn copies(volume: &Path, mount_point: &Path) -> Vec<fuse::Copy> {
    let found = confirmed_copies(volume);
    if !found.is_empty() {
        return found;
    }
    fuse::copies_on(mount_point, |device| serves(volume, device))
}

/// Mounts in other mount namespaces that have the volume as source. Any user may make one with that
/// source in a user namespace, where they are root: so only those count that the volume's daemon
/// confirms.
pub(crate) fn confirmed_copies(volume: &Path) -> Vec<fuse::Copy> {
    let mut asked = BTreeMap::new();
    let mut found = fuse::copies_of(volume);
    found.retain(|copy| {
        *asked.entry(copy.device.clone()).or_insert_with_key(|device| serves(volume, device))
    });
    found
}

/// Whether the daemon of a volume confirms that it serves the mount of a device number.
pub(crate) fn serves(volume: &Path, device: &str) -> bool {
    let Ok(Opened::Connected(mut connection)) = Connection::open(volume) else { return false };
    connection.ask_briefly(Call::ServesMount { device: device.as_bytes() }).is_ok()
}

fn not_confirmed(found: &MountInfo) -> Failure {
    let (mount_point, volume) = (found.mount_point.display(), found.volume_dir.display());
    let who = found.user.map_or("an unknown user".to_owned(), |user| format!("user {user}"));
    let message = format!(
        "{who} mounted {mount_point} as the volume {volume}, and no daemon of that volume confirms \
         it"
    );
    Failure::new(FailureKind::Permission, message)
        .hint(format!("if you mean that volume, use {volume}:/path"))
}

/// Nothing shows a mount of the volume, and its daemon does not end.
pub(crate) fn not_ended(volume: &Path, mount_point: &Path, pid: u32) -> Failure {
    let (volume, place) = (volume.display(), mount_point.display());
    let message = format!(
        "{volume} is not mounted on {place} any more, and its daemon (pid {pid}) still runs: files \
         are open, or a mount that is not seen from here is left"
    );
    Failure::new(FailureKind::Busy, message).hint(format!(
        "close them; or `pando umount --lazy {volume}` ends the daemon, and what uses them fails"
    ))
}
