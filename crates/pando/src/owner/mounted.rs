//! What is mounted below a directory of a mounted volume. The kernel takes the names of a directory
//! that a command removes or rolls back out of its cache, and with them whatever is mounted there:
//! the mounts of others, and what they have written. So the command is refused, as `rmdir` and
//! `rename` are through the mount. What is the root of a mount is not removed, nor rolled back with
//! a directory above it: the mount would go on with what nobody finds any more. Rolled back by
//! itself it stays the root.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use fs::{Follow, Fs};
use inode::{Caller, NodeId};
use wire::{Call, Failure, FailureKind};

use super::calls::{Answered, Held};
use super::server::Server;

/// Refuses a request that takes names away below which something is mounted.
pub(super) fn refuse(server: &Server, caller: &Caller, call: &Call<'_>) -> Answered<()> {
    match *call {
        Call::Remove { path } => refuse_below(server, caller, path, (Follow::No, Top::Refused)),
        Call::Rollback { path, .. } => {
            refuse_below(server, caller, path, (Follow::Yes, Top::Stays))
        }
        Call::SnapshotDeleteNumber { number } => refuse_where(server, b"", Top::Refused, |node| {
            server.fs().subvolume_of(node).is_ok_and(|subvolume| subvolume.0 == number)
        }),
        Call::SnapshotDelete { path, name } | Call::SnapshotRename { path, from: name, .. } => {
            let path = [path, server.fs().snapshot_dir(), name].join(&b'/');
            refuse_below(server, caller, &path, (Follow::No, Top::Refused))
        }
        _ => Ok(()),
    }
}

/// What becomes of the root of a mount, if the request is about that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Top {
    /// It is another directory then, and the mount shows that.
    Stays,
    /// The request is refused.
    Refused,
}

/// Refuses where something is mounted at or below a path of the volume. As far as this process
/// sees: what is mounted in a mount namespace of its own is not known here.
fn refuse_below(
    server: &Server,
    caller: &Caller,
    path: &[u8],
    (follow, top): (Follow, Top),
) -> Answered<()> {
    // That it is not there tells who does it.
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
        let seen = mount.mount_point().display();
        let message = format!("it is mounted at {seen}, or a directory in it is");
        return Err(Failure::new(FailureKind::Busy, message).at(path).hint("unmount that first"));
    }
    let mounted = mount.mounted_below();
    match mounted.iter().find(|(inner, _)| is_below(server.fs(), inner, &is_it)) {
        None => Ok(()),
        Some((_, seen)) => Err(Failure::new(
            FailureKind::Busy,
            format!("{} is a mount point of another file system", seen.display()),
        )
        .at(path)
        .hint("unmount that first")),
    }
}

/// Whether a path leads through such a node.
fn is_below(fs: &Fs, path: &Path, is_it: &impl Fn(NodeId) -> bool) -> bool {
    let leads_there = |at: &Path| {
        let at = at.as_os_str().as_bytes();
        let held = Held::exactly(fs, &Caller::root(), at, Follow::No);
        held.is_ok_and(|held| is_it(held.entry.node))
    };
    path.ancestors().any(leads_there)
}
