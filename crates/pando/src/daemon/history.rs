//! Histories of paths, in parts of bounded size.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use fs::{Change, FsResult, Paths, Version, Volume};
use inode::Caller;
use wire::{Body, Bytes, Failure};

use super::about::about;
use super::parts::Parts;
use super::replies::Replies;
use super::snapshots::{self, ok_or_note};
use super::watch;

/// Approximate bytes of a version without its names.
const VERSION_BYTES: usize = 160;

/// Sends the versions of a path, the oldest first.
pub(super) fn history(
    fs: &Volume,
    caller: &Caller,
    path: &[u8],
    replies: &mut Replies,
) -> Result<(), Failure> {
    let peer = replies.stream().map_err(|error| watch::cannot(&error))?;
    let cancel = AtomicBool::new(false);
    let mut parts = Parts::new(replies, Body::Versions);
    let mut failed = None;
    let reported = watch::while_heard(
        &peer,
        &cancel,
        || {},
        || {
            fs.history(caller, path, &cancel, &mut |one| {
                let Some(one) = ok_or_note(version(fs, one), &mut failed) else {
                    return ControlFlow::Break(());
                };
                let snapshot = one.snapshot.as_ref().map_or(0, snapshots::bytes);
                let bytes = VERSION_BYTES + one.directory.0.len() + snapshot;
                parts.offer(one, bytes)
            })
        },
    )?;
    if cancel.load(Ordering::Relaxed) {
        return Err(watch::cut_off("the history"));
    }
    reported.and(failed.map_or(Ok(()), Err)).map_err(|error| about(error, path))?;
    parts.end()
}

fn version(fs: &Volume, version: &Version) -> FsResult<wire::Version> {
    let (snapshot, directory) = match &version.snapshot {
        None => (None, Bytes::default()),
        Some((snapshot, directory)) => {
            (Some(snapshots::to_wire(fs, snapshot)?), directory.as_slice().into())
        }
    };
    let attr = version.attr.as_ref().map(wire::Attr::from);
    Ok(wire::Version { snapshot, directory, attr, change: change(version.change) })
}

fn change(change: Change) -> wire::Change {
    match change {
        Change::Absent => wire::Change::Absent,
        Change::Appeared => wire::Change::Appeared,
        Change::Present => wire::Change::Present,
        Change::Same => wire::Change::Same,
        Change::Contents => wire::Change::Contents,
        Change::Attributes => wire::Change::Attributes,
        Change::Replaced => wire::Change::Replaced,
        Change::Vanished => wire::Change::Vanished,
    }
}
