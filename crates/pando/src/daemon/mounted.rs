//! Checks for mounts below a directory of a mounted volume. When a command removes or rolls back a
//! directory, the kernel drops the names from its cache, and with them every mount below. Mounts of
//! other file systems would go, and the data written there. So the daemon refuses the command, as
//! `rmdir` and `rename` are refused through the mount. The root of a mount is not removed, nor
//! rolled back with a directory above it. The mount would continue with a directory that no path
//! reaches any more. A root that is rolled back by itself stays the root.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use fs::{Follow, Volume};
use inode::{Caller, NodeId};
use wire::{Call, Failure, FailureKind};

use super::about::Answered;
use super::held::Held;
use super::server::Server;

/// Refuses a request that takes away names below which something is mounted.
pub(super) fn refuse(server: &Server, caller: &Caller, call: &Call<'_>) -> Answered<()> {
    match *call {
        Call::Remove { path } => refuse_below(server, caller, path, (Follow::No, Top::Refused)),
        Call::Rollback { path, .. } | Call::ReceiveOpen { path, .. } => {
            refuse_below(server, caller, path, (Follow::Yes, Top::Stays))
        }
        Call::SnapshotDeleteNumber { number } => refuse_where(server, b"", Top::Refused, |node| {
            server.fs().subvolume_of(node).is_ok_and(|subvolume| subvolume.0 == number)
        }),
        Call::SnapshotDelete { path, name } | Call::SnapshotRename { path, from: name, .. } => {
            let path = [path, server.fs().snapshot_dir(), name].join(&b'/');
            refuse_below(server, caller, &path, (Follow::No, Top::Refused))
        }
        // Each call is named: a new one that takes directories away is added above.
        Call::Status
        | Call::Info { .. }
        | Call::Stat { .. }
        | Call::List { .. }
        | Call::Find(_)
        | Call::Read { .. }
        | Call::Export { .. }
        | Call::SnapshotCreate { .. }
        | Call::SnapshotList { .. }
        | Call::SnapshotsOfVolume { .. }
        | Call::ScheduleSet { .. }
        | Call::ScheduleGet { .. }
        | Call::Schedules
        | Call::SnapshotHold { .. }
        | Call::Clone { .. }
        | Call::Reclaiming { .. }
        | Call::SubvolumeCreate { .. }
        | Call::Totals { .. }
        | Call::History { .. }
        | Call::Diff { .. }
        | Call::Send { .. }
        | Call::Dump { .. }
        | Call::Receive { .. }
        | Call::ReceiveClose
        | Call::ReceiveToken { .. }
        | Call::Searchable
        | Call::Declare { .. }
        | Call::ClusterLimits { .. }
        | Call::IndexFlush { .. }
        | Call::Sync
        | Call::HandOver
        | Call::Sessions
        | Call::SessionEnd { .. }
        | Call::Check
        | Call::Collect { .. }
        | Call::ImportOpen { .. }
        | Call::ImportPublish { .. }
        | Call::Import { .. }
        | Call::ImportEnter { .. }
        | Call::ImportFlush
        | Call::ImportClose
        | Call::ScanInfo
        | Call::ScanFollow { .. }
        | Call::ScanOpen { .. }
        | Call::ScanDirectories
        | Call::Scan { .. }
        | Call::ScanFlush
        | Call::ScanClose { .. }
        | Call::QuotaSet { .. }
        | Call::QuotaGet { .. }
        | Call::OwnerQuotaSet { .. }
        | Call::OwnerQuotaGet { .. }
        | Call::QuotaList
        | Call::QuotaCheck
        | Call::TrashSet { .. }
        | Call::TrashList { .. }
        | Call::TrashEmpty { .. }
        | Call::Restore { .. }
        | Call::RestoreFrom { .. }
        | Call::ServesMount { .. }
        | Call::MountAgain { .. } => Ok(()),
    }
}

/// What happens to the root of a mount, if the request affects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Top {
    /// The root becomes another directory, and the mount shows that.
    Stays,
    /// The request is refused.
    Refused,
}

/// Refuses if something is mounted at or below a path of the volume, as far as this process can
/// see. Mounts in other mount namespaces are not visible here.
fn refuse_below(
    server: &Server,
    caller: &Caller,
    path: &[u8],
    (follow, top): (Follow, Top),
) -> Answered<()> {
    // The operation itself reports that the path does not exist.
    let Ok(held) = Held::resolve(server.fs(), caller, path, follow) else { return Ok(()) };
    refuse_where(server, path, top, |node| node == held.entry.node)
}

/// Refuses where something is mounted below a node of this kind.
fn refuse_where(
    server: &Server,
    path: &[u8],
    top: Top,
    is_it: impl Fn(NodeId) -> bool,
) -> Answered<()> {
    let Some(mount) = server.mount() else { return Ok(()) };
    let above = match (mount.subdir(), top) {
        (Some(subdir), Top::Stays) => subdir.parent(),
        (subdir, _) => subdir,
    };
    if above.is_some_and(|above| is_below(server.fs(), above, &is_it)) {
        let seen = mount.mount_point();
        let message = format!("it is mounted at {}, or a directory in it is", seen.display());
        return Err(Failure::new(FailureKind::Busy, message).at(path).hint("unmount it first"));
    }
    let mounted = mount.mounted_below();
    match mounted.iter().find(|(inner, _)| is_below(server.fs(), inner, &is_it)) {
        None => Ok(()),
        Some((_, seen)) => Err(Failure::new(
            FailureKind::Busy,
            format!("{} is a mount point of another file system", seen.display()),
        )
        .at(path)
        .hint("unmount it first")),
    }
}

/// Whether a path passes through a node for which `is_it` is true.
fn is_below(fs: &Volume, path: &Path, is_it: &impl Fn(NodeId) -> bool) -> bool {
    let reaches_it = |at: &Path| {
        let at = at.as_os_str().as_bytes();
        let held = Held::exactly(fs, &Caller::root(), at, Follow::No);
        held.is_ok_and(|held| is_it(held.entry.node))
    };
    path.ancestors().any(reaches_it)
}
