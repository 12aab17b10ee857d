//! Snapshots that are asked for by their numbers: those of the whole volume, of directories that
//! are gone too.

use fs::{FileSystem, Fs, SnapshotInfo, Whereabouts};
use inode::{Caller, FsError, SubvolId};
use wire::{Answer, Body, Failure, FailureKind, KeptSnapshot, Snapshot, SnapshotOf};

use super::calls::{advise, below};
use super::connection::Replies;

/// Snapshots in one message: their paths may be long.
const KEPT_A_PART: usize = 100;
/// Bytes of paths from which on a message is long enough.
const PATHS_A_PART: usize = 64 << 10;

const WHOSE: &str = "only the owner of what it holds, or root, does, who can come to its directory";

type Answered<T> = Result<T, Failure>;

/// A snapshot as it is sent.
pub(super) fn shown(snapshot: &SnapshotInfo) -> Snapshot {
    Snapshot {
        name: snapshot.name.as_slice().into(),
        subvolume: snapshot.subvol.0,
        lineage: snapshot.lineage,
        created: snapshot.created.0,
    }
}

/// Tells all that the caller may see.
pub(super) fn list(fs: &Fs, caller: &Caller, replies: &mut Replies) -> Answered<Answer> {
    let (mut part, mut bytes) = (Vec::new(), 0);
    for kept in fs.snapshots_kept(caller).map_err(Failure::from)? {
        let directory = match kept.directory {
            Whereabouts::At(path) => {
                bytes += path.len();
                SnapshotOf::At(path.into())
            }
            Whereabouts::Gone => SnapshotOf::Gone,
            Whereabouts::NotTold => SnapshotOf::NotTold,
        };
        part.push(KeptSnapshot { snapshot: shown(&kept.snapshot), directory });
        if part.len() >= KEPT_A_PART || bytes >= PATHS_A_PART {
            replies.part(Body::Kept(std::mem::take(&mut part)))?;
            bytes = 0;
        }
    }
    if !part.is_empty() {
        replies.part(Body::Kept(part))?;
    }
    Ok(Answer::Nothing)
}

/// Clones one.
pub(super) fn clone(fs: &Fs, caller: &Caller, snapshot: u64, destination: &[u8]) -> Answered<()> {
    look(fs, caller, snapshot)?;
    below(fs, caller, destination, |parent, name| {
        fs.clone_snapshot(caller, SubvolId(snapshot), parent, name).map(drop)
    })
    .map_err(|failure| advise(failure, WHOSE))
}

/// Deletes one whose directory is gone.
pub(super) fn delete(fs: &Fs, caller: &Caller, snapshot: u64) -> Answered<()> {
    look(fs, caller, snapshot)?;
    let deleted = fs.snapshot_delete_kept(caller, SubvolId(snapshot));
    deleted.map_err(|error| advise(Failure::from(error), WHOSE))
}

/// Fails where there is none of a number, or it is not the caller's.
fn look(fs: &Fs, caller: &Caller, snapshot: u64) -> Answered<()> {
    match fs.snapshot_entry(caller, SubvolId(snapshot)) {
        Ok(found) => {
            fs.forget(found.node, 1);
            Ok(())
        }
        Err(FsError::NotFound) => {
            let message = format!("no snapshot has the number {snapshot}");
            Err(Failure::new(FailureKind::NotFound, message)
                .hint("`pando snapshot list --all` shows their numbers"))
        }
        Err(error) => Err(advise(Failure::from(error), WHOSE)),
    }
}
