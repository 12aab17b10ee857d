//! Lists snapshots of a directory and of the whole volume, in parts of bounded size, and deletes a
//! snapshot by its number.

use fs::{KeptSnapshot, SnapshotInfo, SnapshotsOf, Volume};
use inode::{Caller, SubvolId};
use wire::{Body, Bytes, Failure, FailureKind, Hold, Snapshot};

use super::connection::Replies;
use super::find_from::numbered;

/// Most snapshots in one message.
const SNAPSHOTS_A_PART: usize = 1000;
/// Approximate bytes of snapshots with paths in one message.
const PART_BYTES: usize = 64 << 10;
/// Approximate bytes of one snapshot without its path.
const SNAPSHOT_BYTES: usize = 400;

const WHO_DELETES: &str = "only root, or the owner of its directory, deletes it; if that \
                           directory is gone, the owner of what the snapshot holds";

/// Sends the snapshots of a directory.
pub(super) fn send(
    fs: &Volume,
    snapshots: &[SnapshotInfo],
    replies: &mut Replies,
) -> Result<(), Failure> {
    for part in snapshots.chunks(SNAPSHOTS_A_PART) {
        replies.part(Body::Snapshots(part.iter().map(|one| to_wire(fs, one)).collect()))?;
    }
    Ok(())
}

/// A snapshot in the form that the reply carries.
pub(super) fn to_wire(fs: &Volume, snapshot: &SnapshotInfo) -> Snapshot {
    Snapshot {
        name: snapshot.name.as_slice().into(),
        subvolume: snapshot.subvol.0,
        lineage: snapshot.lineage,
        created: snapshot.created.0,
        holds: holds(fs, snapshot.subvol),
    }
}

/// The holds on a snapshot, for a list.
fn holds(fs: &Volume, snapshot: SubvolId) -> Vec<Hold> {
    let held = fs.holds_of(snapshot).unwrap_or_default().into_iter();
    held.map(|hold| Hold { name: Bytes(hold.name), uid: hold.uid, since: hold.since.0 }).collect()
}

/// Sends the snapshots of the volume, the oldest first.
pub(super) fn of_volume(
    fs: &Volume,
    caller: &Caller,
    removed: bool,
    replies: &mut Replies,
) -> Result<(), Failure> {
    let of = if removed { SnapshotsOf::Removed } else { SnapshotsOf::All };
    let (mut part, mut bytes) = (Vec::new(), 0);
    for kept in fs.snapshot_list_volume(caller, of).map_err(Failure::from)? {
        bytes += SNAPSHOT_BYTES + 2 * kept.path.as_ref().map_or(0, Vec::len);
        part.push(wire::KeptSnapshot {
            at: Bytes(place(fs, &kept)),
            snapshot: to_wire(fs, &kept.snapshot),
            removed: kept.removed,
            path: kept.path.map(Bytes),
        });
        if bytes >= PART_BYTES {
            replies.part(Body::KeptSnapshots(std::mem::take(&mut part)))?;
            bytes = 0;
        }
    }
    if part.is_empty() { Ok(()) } else { replies.part(Body::KeptSnapshots(part)) }
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
