//! The daemon's side of `dump`. Of a directory that can change, the daemon takes a snapshot and
//! deletes it at the end, however the command ends. If the daemon itself is killed, the next dump
//! of the directory deletes what it left.

use std::cell::Cell;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use fs::{FileSystem, Follow, SnapshotInfo, Volume};
use inode::{Caller, FsError, Kind, NodeId, SubvolId};
use wire::{Answer, Body};

use super::about::{Answered, about};
use super::calls::{WHO_CLONES, advise};
use super::held::Held;
use super::server::Server;
use super::{stream_terms, watch};

/// Names of the snapshots that dumps take begin with this; a number follows.
const PREFIX: &[u8] = b".pando-dump-";
/// Most snapshots of earlier dumps that one dump deletes.
const DELETED_MAX: usize = 16;
/// Most numbers that are tried.
const NUMBERS_MAX: u64 = 1000;

/// The snapshot of a dump. Dropping this deletes it.
struct Taken<'a> {
    server: &'a Server,
    caller: &'a Caller,
    snapshot: SnapshotInfo,
}

impl<'a> Taken<'a> {
    fn take(server: &'a Server, caller: &'a Caller, dir: NodeId) -> Result<Taken<'a>, FsError> {
        let fs = server.fs();
        // Locked until the snapshot is among those under way: another dump must not delete it.
        let mut under_way = server.staged().dumps().lock();
        delete_left(fs, caller, dir, &under_way);
        let mut number = 0;
        let snapshot = loop {
            number += 1;
            let name = [PREFIX, number.to_string().as_bytes()].concat();
            match fs.snapshot_create(caller, dir, &name) {
                Err(FsError::Exists) if number < NUMBERS_MAX => {}
                made => break made?,
            }
        };
        under_way.push(snapshot.subvol);
        Ok(Taken { server, caller, snapshot })
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let number = self.snapshot.subvol;
        match self.server.fs().snapshot_delete_number(self.caller, number) {
            Ok(()) | Err(FsError::NotFound) => {}
            Err(error) => tracing::warn!(%error, "the snapshot of a dump is not deleted"),
        }
        self.server.staged().dumps().lock().retain(|one| *one != number);
        self.server.settle();
        self.server.background().wake();
    }
}

/// Deletes what dumps left that were cut off with their daemon.
fn delete_left(fs: &Volume, caller: &Caller, dir: NodeId, under_way: &[SubvolId]) {
    let listed = fs.snapshot_list(caller, dir).unwrap_or_default();
    let left = listed.iter().filter(|one| is_of_a_dump(&one.name));
    for one in left.filter(|one| !under_way.contains(&one.subvol)).take(DELETED_MAX) {
        match fs.snapshot_delete_number(caller, one.subvol) {
            Ok(()) => tracing::info!(
                snapshot = %one.name.escape_ascii(),
                "deleted the snapshot of a dump that ended with its daemon"
            ),
            Err(error) => tracing::info!(%error, "the snapshot of an earlier dump stays"),
        }
    }
}

fn is_of_a_dump(name: &[u8]) -> bool {
    let number = name.strip_prefix(PREFIX);
    number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

/// Dumps the metadata of a directory, as it is now or in a snapshot.
pub(super) fn dump(
    server: &Server,
    caller: &Caller,
    (path, memory): (&[u8], u64),
    (peer, send): (&UnixStream, &mut dyn FnMut(Body) -> Answered<()>),
    found: impl FnOnce(),
) -> Answered<Answer> {
    let fs = server.fs();
    let held = Held::resolve(fs, caller, path, Follow::Yes)?;
    let node = held.entry.node;
    if fs.is_in_snapshot(node) {
        found();
        return lines(fs, caller, (node, path, memory), (peer, send));
    }
    if held.entry.attr.kind != Kind::Directory {
        return Err(about(FsError::NotDirectory, path));
    }
    // What returned before this call is in the dump.
    server.catch_up();
    let taken = Taken::take(server, caller, node);
    let taken = taken.map_err(|error| advise(about(error, path), WHO_CLONES))?;
    let root = fs.snapshot_entry(caller, taken.snapshot.subvol);
    let root = root.map_err(|error| about(error, path))?.node;
    found();
    let dumped = lines(fs, caller, (root, path, memory), (peer, send));
    fs.forget(root, 1);
    dumped
}

fn lines(
    fs: &Volume,
    caller: &Caller,
    (node, path, memory): (NodeId, &[u8], u64),
    (peer, send): (&UnixStream, &mut dyn FnMut(Body) -> Answered<()>),
) -> Answered<Answer> {
    let memory = stream_terms::bounded(caller, memory);
    let (cancel, broken) = (AtomicBool::new(false), Cell::new(None));
    let mut emit = |part: &[u8]| {
        let failed = send(Body::Data(part.into())).err();
        let continues = failed.is_none();
        broken.set(failed);
        continues
    };
    let dumped = watch::while_heard(
        peer,
        &cancel,
        || {},
        || transfer::dump(fs, caller, node, memory, (&cancel, &mut emit)),
    )?;
    if let Some(failure) = broken.take() {
        return Err(failure);
    }
    if cancel.load(Ordering::Relaxed) {
        return Err(watch::cut_off("the dump"));
    }
    dumped
        .map(|()| Answer::Nothing)
        .map_err(|error: transfer::Error| stream_terms::failed(error, path))
}

#[cfg(test)]
mod tests {
    use super::is_of_a_dump;

    #[test]
    fn only_names_of_dumps_are_deleted() {
        assert!(is_of_a_dump(b".pando-dump-12"));
        for other in [&b".pando-dump-"[..], b".pando-dump-1a", b"pando-dump-1", b"dump-1", b"1"] {
            assert!(!is_of_a_dump(other), "{}", other.escape_ascii());
        }
    }
}
