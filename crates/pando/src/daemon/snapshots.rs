//! Lists snapshots of a directory and of the whole volume, in parts of bounded size, and deletes a
//! snapshot by its number.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use fs::{FsResult, KeptSnapshot, SnapshotInfo, SnapshotQuery, SnapshotsOf, Volume};
use inode::{Caller, FsError, NodeId, SubvolId};
use wire::{Body, Bytes, Failure, FailureKind, Hold, Snapshot};

use super::about::about;
use super::find_from::numbered;
use super::parts::Parts;
use super::replies::Replies;
use super::watch;

/// Approximate bytes of one snapshot without its names.
const SNAPSHOT_BYTES: usize = 100;
/// Approximate bytes of a hold without its name.
const HOLD_BYTES: usize = 32;

const WHO_DELETES: &str = "only root, or the owner of its directory, deletes it; if that \
                           directory is gone, the owner of what the snapshot holds";

/// Sends the snapshots of a directory.
pub(super) fn of_directory(
    fs: &Volume,
    caller: &Caller,
    (directory, path): (NodeId, &[u8]),
    replies: &mut Replies,
) -> Result<(), Failure> {
    let mut parts = Parts::new(replies, Body::Snapshots);
    let mut failed = None;
    let listed = fs.snapshot_each(caller, directory, &mut |snapshot| {
        let Some(one) = ok_or_note(to_wire(fs, &snapshot), &mut failed) else {
            return ControlFlow::Break(());
        };
        let bytes = bytes(&one);
        parts.offer(one, bytes)
    });
    listed.and(failed.map_or(Ok(()), Err)).map_err(|error| about(error, path))?;
    parts.end()
}

/// How many bytes a snapshot takes in a message, approximately.
pub(super) fn bytes(snapshot: &Snapshot) -> usize {
    let holds = snapshot.holds.iter().map(|hold| HOLD_BYTES + hold.name.0.len());
    SNAPSHOT_BYTES + snapshot.name.0.len() + holds.sum::<usize>()
}

/// A snapshot in the form that the reply carries. It is not listed without holds that cannot be
/// read: a program would take it for one that may be deleted.
pub(super) fn to_wire(fs: &Volume, snapshot: &SnapshotInfo) -> FsResult<Snapshot> {
    Ok(Snapshot {
        name: snapshot.name.as_slice().into(),
        subvolume: snapshot.subvol.0,
        lineage: snapshot.lineage,
        created: snapshot.created.0,
        holds: holds(fs, snapshot.subvol)?,
    })
}

/// What was read; keeps the error otherwise.
pub(super) fn ok_or_note<T>(read: FsResult<T>, failed: &mut Option<FsError>) -> Option<T> {
    read.map_err(|error| *failed = Some(error)).ok()
}

/// The holds on a snapshot, for a list.
fn holds(fs: &Volume, snapshot: SubvolId) -> FsResult<Vec<Hold>> {
    let held = fs.holds_of(snapshot)?.into_iter();
    let to_wire =
        |hold: fs::Hold| Hold { name: Bytes(hold.name), uid: hold.uid, since: hold.since.0 };
    Ok(held.map(to_wire).collect())
}

/// Sends the snapshots of the volume, the oldest first.
pub(super) fn of_volume(
    fs: &Volume,
    caller: &Caller,
    removed: bool,
    replies: &mut Replies,
) -> Result<(), Failure> {
    let of = if removed { SnapshotsOf::Removed } else { SnapshotsOf::All };
    let peer = replies.stream().map_err(|error| watch::cannot(&error))?;
    let cancel = AtomicBool::new(false);
    let mut parts = Parts::new(replies, Body::KeptSnapshots);
    let mut failed = None;
    let listed = watch::while_heard(
        &peer,
        &cancel,
        || {},
        || {
            fs.snapshot_list_volume(caller, &SnapshotQuery::all(of, &cancel), &mut |kept| {
                let Some(snapshot) = ok_or_note(to_wire(fs, &kept.snapshot), &mut failed) else {
                    return ControlFlow::Break(());
                };
                let one = wire::KeptSnapshot {
                    at: Bytes(place(fs, &kept)),
                    snapshot,
                    removed: kept.removed,
                    path: kept.path.map(Bytes),
                };
                let paths = one.at.0.len() + one.path.as_ref().map_or(0, |path| path.0.len());
                let bytes = bytes(&one.snapshot) + paths;
                parts.offer(one, bytes)
            })
        },
    )?;
    if cancel.load(Ordering::Relaxed) {
        return Err(watch::cut_off("the list"));
    }
    listed.and(failed.map_or(Ok(()), Err)).map_err(Failure::from)?;
    parts.end()
}

/// The path of a snapshot's contents: by name below its directory, or by number.
fn place(fs: &Volume, kept: &KeptSnapshot) -> Vec<u8> {
    match &kept.path {
        Some(path) if !kept.removed => {
            let above = path.strip_suffix(b"/").unwrap_or(path);
            [above, b"/", fs.snapshot_dir(), b"/", &kept.snapshot.name].concat()
        }
        _ => numbered(fs, kept.snapshot.subvol),
    }
}

/// Deletes a snapshot by its number.
pub(super) fn delete(fs: &Volume, caller: &Caller, number: u64) -> Result<(), Failure> {
    fs.snapshot_delete_number(caller, SubvolId(number)).map_err(|error| {
        let failure = Failure::from(error);
        match failure.kind {
            FailureKind::NotFound => {
                let message = format!("no snapshot has the number {number}");
                Failure { message, ..failure }
                    .hint("`pando snapshot list VOLUME --all` lists all snapshots")
            }
            FailureKind::Permission => failure.hint(WHO_DELETES),
            _ => failure,
        }
    })
}

#[cfg(test)]
mod tests {
    use format::retention;
    use fs::FileSystem as _;

    use super::*;
    use crate::daemon::fresh;

    #[test]
    fn a_snapshot_whose_holds_cannot_be_read_is_not_listed_without_them() {
        let (fs, root) = (fresh::volume(), Caller::root());
        let snapshot = fs.snapshot_create(&root, NodeId::ROOT, b"s").unwrap();
        assert!(to_wire(&fs, &snapshot).unwrap().holds.is_empty());
        let mut batch = store::Batch::new();
        let volume = store::TreeId(format::key::VOLUME_TREE);
        batch.put(volume, &retention::hold_key(snapshot.subvol.0, b"kept"), b"damaged");
        fs.store.commit(&batch).unwrap();
        to_wire(&fs, &snapshot).expect_err("its holds are not known");
    }
}
