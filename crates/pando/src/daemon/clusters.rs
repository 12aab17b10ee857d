//! Requests about the search index: what it holds, how it is divided, and when it is written.

use fs::{Follow, Volume};
use inode::{Caller, FsError};
use search::index::ClusterLimits;
use wire::{Answer, Call, Failure, FailureKind};

use super::about::about;
use super::check;
use super::held::Held;

type Answered<T> = Result<T, Failure>;

/// Runs one of these requests.
pub(super) fn set(fs: &Volume, caller: &Caller, call: &Call<'_>) -> Answered<Answer> {
    match *call {
        Call::Declare { ref names, searchable } => {
            declare(fs, caller, names, searchable).map(|()| Answer::Nothing)
        }
        Call::ClusterLimits { directories, inodes } => {
            set_limits(fs, caller, (directories, inodes))
        }
        Call::IndexFlush { path } => flush(fs, caller, path).map(|()| Answer::Nothing),
        _ => Err(Failure::new(FailureKind::Protocol, "an unexpected request")),
    }
}

/// Declares extended attributes searchable, or not searchable.
fn declare(fs: &Volume, caller: &Caller, names: &[&[u8]], searchable: bool) -> Answered<()> {
    check::only_for_owner(caller, "decides which attributes are searchable")?;
    let names: Vec<Vec<u8>> = names.iter().map(|name| name.to_vec()).collect();
    let done =
        if searchable { fs.declare_searchable(&names) } else { fs.undeclare_searchable(&names) };
    done.map_err(|error| match error {
        FsError::NotFound => {
            Failure::new(FailureKind::NotFound, "not all of these are declared; none was withdrawn")
                .hint("`pando search list VOLUME` shows those that are")
        }
        error => Failure::from(error),
    })
}

/// Returns the limits of clusters.
pub(super) fn limits(fs: &Volume) -> Answered<Answer> {
    fs.cluster_limits().map(limits_answer).map_err(Failure::from)
}

/// Sets the limits that are given.
fn set_limits(
    fs: &Volume,
    caller: &Caller,
    (directories, inodes): (Option<u32>, Option<u32>),
) -> Answered<Answer> {
    check::only_for_owner(caller, "sets the limits of clusters")?;
    fs.set_cluster_limits(directories, inodes).map(limits_answer).map_err(Failure::from)
}

fn limits_answer(limits: ClusterLimits) -> Answer {
    Answer::ClusterLimits { directories: limits.directories, inodes: limits.rows }
}

/// Writes what differs from the index of the subvolume that contains a path.
fn flush(fs: &Volume, caller: &Caller, path: &[u8]) -> Answered<()> {
    check::only_for_owner(caller, "has the index written")?;
    if fs.index_stats().map_err(Failure::from)?.is_none() {
        let message = "the daemon of the volume keeps no index for searches";
        let hint =
            "end it, and start it with memory for the index (PANDO_INDEX_CACHE, --index-cache)";
        return Err(Failure::new(FailureKind::NotSupported, message).hint(hint));
    }
    let held = Held::resolve(fs, caller, path, Follow::Yes)?;
    fs.index_flush(held.entry.node).map_err(|error| about(error, path))
}
