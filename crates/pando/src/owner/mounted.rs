//! What is mounted below a directory of a mounted volume. The kernel takes the names of a directory
//! that a command removes or rolls back out of its cache, and with them whatever is mounted there:
//! the mounts of others, and what they have written. So the command is refused, as `rmdir` and
//! `rename` are through the mount.

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
        Call::Remove { path } => refuse_below(server, caller, path, Follow::No),
        Call::Rollback { path, .. } => refuse_below(server, caller, path, Follow::Yes),
        Call::SnapshotDelete { path, name } => {
            let path = [path, server.fs().snapshot_dir(), name].join(&b'/');
            refuse_below(server, caller, &path, Follow::No)
        }
        _ => Ok(()),
    }
}

/// Refuses where something is mounted at or below a path of the volume. As far as this process
/// sees: what is mounted in a mount namespace of its own is not known here.
fn refuse_below(server: &Server, caller: &Caller, path: &[u8], follow: Follow) -> Answered<()> {
    let mounted = server.mount().map(|mount| mount.mounted_below()).unwrap_or_default();
    if mounted.is_empty() {
        return Ok(());
    }
    let fs = server.fs();
    // That it is not there tells who does it.
    let Ok(held) = Held::resolve(fs, caller, path, follow) else { return Ok(()) };
    match mounted.iter().find(|(inner, _)| is_below(fs, inner, held.entry.node)) {
        None => Ok(()),
        Some((_, seen)) => Err(Failure::new(
            FailureKind::Busy,
            format!("{} is a mount point of another file system", seen.display()),
        )
        .at(path)
        .hint("unmount that first")),
    }
}

/// Whether a path leads through a node.
fn is_below(fs: &Fs, path: &Path, node: NodeId) -> bool {
    let leads_there = |at: &Path| {
        let at = at.as_os_str().as_bytes();
        let held = Held::exactly(fs, &Caller::root(), at, Follow::No);
        held.is_ok_and(|held| held.entry.node == node)
    };
    path.ancestors().any(leads_there)
}
