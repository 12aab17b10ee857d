//! Histories of paths, in parts of bounded size.

use fs::{Change, Paths, Version, Volume};
use inode::Caller;
use wire::{Body, Bytes, Failure};

use super::about::about;
use super::connection::Replies;
use super::snapshots;

/// Approximate bytes of versions in one message; the number of versions of a path is not bounded.
const PART_BYTES: usize = 64 << 10;
/// Approximate bytes of a version without its names.
const VERSION_BYTES: usize = 160;

/// Sends the versions of a path, the oldest first.
pub(super) fn history(
    fs: &Volume,
    caller: &Caller,
    path: &[u8],
    replies: &mut Replies,
) -> Result<(), Failure> {
    let versions = fs.history(caller, path).map_err(|error| about(error, path))?;
    let (mut part, mut bytes) = (Vec::new(), 0);
    for one in versions.iter().map(|one| version(fs, one)) {
        bytes += VERSION_BYTES + one.directory.0.len();
        bytes += one.snapshot.as_ref().map_or(0, |snapshot| snapshot.name.0.len());
        part.push(one);
        if bytes >= PART_BYTES {
            replies.part(Body::Versions(std::mem::take(&mut part)))?;
            bytes = 0;
        }
    }
    if !part.is_empty() {
        replies.part(Body::Versions(part))?;
    }
    Ok(())
}

fn version(fs: &Volume, version: &Version) -> wire::Version {
    let (snapshot, directory) = match &version.snapshot {
        None => (None, Bytes::default()),
        Some((snapshot, directory)) => {
            (Some(snapshots::to_wire(fs, snapshot)), directory.as_slice().into())
        }
    };
    let attr = version.attr.as_ref().map(wire::Attr::from);
    wire::Version { snapshot, directory, attr, change: change(version.change) }
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
