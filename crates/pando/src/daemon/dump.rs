//! The daemon's side of `dump`. Of a directory that can change, the daemon takes a snapshot and
//! deletes it at the end, however the command ends. If the daemon itself is killed, the next dump
//! of the directory deletes what it left.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use fs::{FileSystem, Follow, SnapshotInfo, Volume};
use inode::{Caller, FsError, Kind, NodeId};
use wire::{Answer, Body};

use super::about::{Answered, WHO_CLONES, about, advise};
use super::held::Held;
use super::load::Granted;
use super::server::Server;
use super::staged::Staged;
use super::{stream_terms, watch};

/// Names of the snapshots that dumps take begin with this; a number follows.
const PREFIX: &[u8] = b".pando-dump-";
/// Most snapshots of earlier dumps that one dump deletes.
const DELETED_MAX: usize = 16;
/// How many names are tried that were not there a moment before.
const TRIES_MAX: usize = 100;

/// A number of a name, which no other dump under way has: so that none deletes what this one makes.
struct Reserved<'a> {
    staged: &'a Staged,
    number: u64,
}

impl<'a> Reserved<'a> {
    /// Reserves a number that is not among these.
    fn beside(staged: &'a Staged, taken: &BTreeSet<u64>) -> Reserved<'a> {
        let mut reserved = staged.dumps().lock();
        let is_free = |number: &u64| !taken.contains(number) && !reserved.contains(number);
        let number = (1..=u64::MAX).find(is_free);
        let number = number.expect("invariant: there are fewer snapshots than numbers");
        reserved.insert(number);
        Reserved { staged, number }
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.staged.dumps().lock().remove(&self.number);
    }
}

/// The snapshot of a dump. Dropping this deletes it.
struct Taken<'a> {
    server: &'a Server,
    caller: &'a Caller,
    snapshot: SnapshotInfo,
    _reserved: Reserved<'a>,
}

impl<'a> Taken<'a> {
    fn take(server: &'a Server, caller: &'a Caller, dir: NodeId) -> Result<Taken<'a>, FsError> {
        let fs = server.fs();
        let mut taken = delete_left(server, caller, dir)?;
        for _ in 0..TRIES_MAX {
            let reserved = Reserved::beside(server.staged(), &taken);
            let name = [PREFIX, reserved.number.to_string().as_bytes()].concat();
            match fs.snapshot_create(caller, dir, &name) {
                Err(FsError::Exists) => taken.insert(reserved.number),
                made => return Ok(Taken { server, caller, snapshot: made?, _reserved: reserved }),
            };
        }
        Err(FsError::Busy("others take snapshots with the names that dumps give; try again"))
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let number = self.snapshot.subvol;
        match self.server.fs().snapshot_delete_number(self.caller, number) {
            Ok(()) | Err(FsError::NotFound) => {}
            Err(error) => tracing::warn!(%error, "the snapshot of a dump is not deleted"),
        }
        self.server.settle();
        self.server.background().wake();
    }
}

/// Deletes what dumps left that ended with their daemon. Returns the numbers that are taken:
/// some cannot be deleted, as those that are held.
fn delete_left(server: &Server, caller: &Caller, dir: NodeId) -> Result<BTreeSet<u64>, FsError> {
    let fs = server.fs();
    let listed = fs.snapshot_list(caller, dir)?;
    // Dumps in the list were reserved before.
    let under_way = server.staged().dumps().lock().clone();
    let (mut taken, mut deleted) = (BTreeSet::new(), 0);
    for one in &listed {
        let Some(number) = of_a_dump(&one.name) else { continue };
        taken.insert(number);
        if deleted == DELETED_MAX || under_way.contains(&number) {
            continue;
        }
        match fs.snapshot_delete_number(caller, one.subvol) {
            Ok(()) => {
                deleted += 1;
                taken.remove(&number);
                tracing::info!(
                    snapshot = %one.name.escape_ascii(),
                    "deleted the snapshot of a dump that ended with its daemon"
                );
            }
            Err(error) => tracing::info!(%error, "the snapshot of an earlier dump stays"),
        }
    }
    Ok(taken)
}

/// The number in the name of a dump's snapshot.
fn of_a_dump(name: &[u8]) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?;
    let number = std::str::from_utf8(digits).ok()?.parse::<u64>().ok()?;
    (number.to_string().as_bytes() == digits).then_some(number)
}

/// Dumps the metadata of a directory, as it is now or in a snapshot.
pub(super) fn dump(
    server: &Server,
    caller: &Caller,
    (path, given): (&[u8], Granted),
    (peer, send): (&UnixStream, &mut dyn FnMut(Body) -> Answered<()>),
    found: impl FnOnce(),
) -> Answered<Answer> {
    let fs = server.fs();
    let held = Held::resolve(fs, caller, path, Follow::Yes)?;
    let node = held.entry.node;
    if fs.is_in_snapshot(node) {
        found();
        return lines(fs, caller, (node, path, given), (peer, send));
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
    let dumped = lines(fs, caller, (root, path, given), (peer, send));
    fs.forget(root, 1);
    dumped
}

fn lines(
    fs: &Volume,
    caller: &Caller,
    (node, path, given): (NodeId, &[u8], Granted),
    (peer, send): (&UnixStream, &mut dyn FnMut(Body) -> Answered<()>),
) -> Answered<Answer> {
    let memory = stream_terms::bounded(caller, given.bytes);
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
        .map_err(|error: transfer::Error| stream_terms::failed_within(error, path, given))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_dumps_are_deleted() {
        assert_eq!(of_a_dump(b".pando-dump-12"), Some(12));
        let others = [&b".pando-dump-"[..], b".pando-dump-1a", b".pando-dump-+1", b"pando-dump-1"];
        for other in others.into_iter().chain([&b".pando-dump-01"[..], b"dump-1", b"1"]) {
            assert_eq!(of_a_dump(other), None, "{}", other.escape_ascii());
        }
    }

    #[test]
    fn two_dumps_have_not_the_same_number() {
        let staged = Staged::default();
        let taken = BTreeSet::from([1, 3, u64::MAX]);
        let (one, two) = (Reserved::beside(&staged, &taken), Reserved::beside(&staged, &taken));
        assert_eq!((one.number, two.number), (2, 4));
        drop(one);
        assert_eq!(Reserved::beside(&staged, &taken).number, 2);
    }
}
