//! Who may use the socket of a volume that is mounted: it gives nobody more than the mount does.
//!
//! Root, the user of the daemon and the owner of the volume's directory may do all. Everybody else
//! is let in where the mount lets them in: it was mounted with `allow_other`, it shows the whole
//! volume, and they may search every directory above the mount point. Inside the volume each
//! request has the rights of its caller in any case.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use inode::Caller;
use inode::permissions::EXECUTE;
use wire::{Call, Failure, FailureKind};

use super::calls::Answered;
use super::server::Server;

/// Refuses a request of a caller whom the mount keeps out.
pub(super) fn check(server: &Server, caller: &Caller, call: &Call<'_>) -> Answered<()> {
    let Some(mount) = server.mount() else { return Ok(()) };
    // Both decide by themselves.
    if matches!(call, Call::ServesMount { .. } | Call::HandOver) || may_do_all(server, caller) {
        return Ok(());
    }
    let refused = |message: String, hint: &str| {
        Err(Failure::new(FailureKind::Permission, message).hint(hint))
    };
    let place = mount.mount_point().display();
    if !mount.allows_others() {
        return refused(
            format!("the volume is mounted on {place} for one user alone"),
            "mounting it with `-o allow_other` lets others in",
        );
    }
    if mount.subdir().is_some() {
        return refused(
            format!("a directory of the volume is mounted on {place}, and not the volume"),
            "use the files below the mount point: `pando` could show more than that directory",
        );
    }
    match closed_above(mount.mount_point(), caller) {
        None => Ok(()),
        Some(closed) => refused(
            format!("the volume is mounted below {}, which is closed to you", closed.display()),
            "it takes the right to search each directory above the mount point",
        ),
    }
}

fn may_do_all(server: &Server, caller: &Caller) -> bool {
    let own = rustix::process::geteuid().as_raw();
    caller.is_root() || caller.uid == own || Some(caller.uid) == server.directory_uid()
}

/// A directory above the mount point that a caller may not search, by its permission bits. One that
/// cannot be looked at counts as closed.
fn closed_above<'a>(mount_point: &'a Path, caller: &Caller) -> Option<&'a Path> {
    let searches = |directory: &Path| {
        directory.metadata().is_ok_and(|found| {
            let groups = || caller.groups.iter().chain([&caller.gid]);
            let bits = if found.uid() == caller.uid {
                found.mode() >> 6
            } else if groups().any(|&group| group == found.gid()) {
                found.mode() >> 3
            } else {
                found.mode()
            };
            bits & EXECUTE != 0
        })
    };
    mount_point.ancestors().skip(1).find(|above| !searches(above))
}
