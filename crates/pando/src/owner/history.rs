//! Histories of paths, in parts of bounded size.

use fs::{Change, Fs, Version};
use inode::Caller;
use wire::{Body, Bytes, Failure, Snapshot};

use super::calls::about;
use super::connection::Replies;

/// Versions in one message.
const VERSIONS_A_PART: usize = 500;

/// Tells the versions of a path, the oldest first.
pub(super) fn history(
    fs: &Fs,
    caller: &Caller,
    path: &[u8],
    replies: &mut Replies,
) -> Result<(), Failure> {
    let versions = fs.history(caller, path).map_err(|error| about(error, path))?;
    for part in versions.chunks(VERSIONS_A_PART) {
        replies.part(Body::Versions(part.iter().map(version).collect()))?;
    }
    Ok(())
}

fn version(version: &Version) -> wire::Version {
    let (snapshot, directory) = match &version.snapshot {
        None => (None, Bytes::default()),
        Some((snapshot, directory)) => {
            let told = Snapshot {
                name: snapshot.name.as_slice().into(),
                subvolume: snapshot.subvol.0,
                lineage: snapshot.lineage,
                created: snapshot.created.0,
            };
            (Some(told), directory.as_slice().into())
        }
    };
    let attr = version.attr.as_ref().map(wire::Attr::from);
    wire::Version { snapshot, directory, attr, change: change(version.change) }
}

fn change(change: Change) -> wire::Change {
    match change {
        Change::Absent => wire::Change::Absent,
        Change::Appeared => wire::Change::Appeared,
        Change::Same => wire::Change::Same,
        Change::Contents => wire::Change::Contents,
        Change::Attributes => wire::Change::Attributes,
        Change::Replaced => wire::Change::Replaced,
        Change::Vanished => wire::Change::Vanished,
    }
}
