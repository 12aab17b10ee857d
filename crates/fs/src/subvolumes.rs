//! Snapshots, clones, roll-back, detaching: the calls on whole directories.

use inode::{Caller, FsError, NodeId};

use crate::{CloneInfo, Entry, Fs, FsResult, RmrInfo, SnapshotInfo};

const NOT_BUILT: FsError = FsError::NotSupported("snapshots and clones");

/// Removes a bounded part of what was detached; returns how much.
#[expect(clippy::unnecessary_wraps, reason = "steps fail once there are some")]
pub(crate) fn reclaim_step(_fs: &Fs, _budget: usize) -> FsResult<u64> {
    Ok(0)
}

#[expect(unused_variables, clippy::unused_self, reason = "the bodies follow")]
impl Fs {
    /// Takes a snapshot of a directory.
    pub fn snapshot_create(
        &self,
        caller: &Caller,
        dir: NodeId,
        name: &[u8],
    ) -> FsResult<SnapshotInfo> {
        Err(NOT_BUILT)
    }

    /// The snapshots of a directory, by name.
    pub fn snapshot_list(&self, caller: &Caller, dir: NodeId) -> FsResult<Vec<SnapshotInfo>> {
        Err(NOT_BUILT)
    }

    /// Deletes a snapshot of a directory.
    pub fn snapshot_delete(&self, caller: &Caller, dir: NodeId, name: &[u8]) -> FsResult<()> {
        Err(NOT_BUILT)
    }

    /// Renames a snapshot of a directory.
    pub fn snapshot_rename(
        &self,
        caller: &Caller,
        dir: NodeId,
        from: &[u8],
        to: &[u8],
    ) -> FsResult<()> {
        Err(NOT_BUILT)
    }

    /// Clones a directory, which may lie in a snapshot.
    pub fn clone_dir(
        &self,
        caller: &Caller,
        source: NodeId,
        parent: NodeId,
        name: &[u8],
    ) -> FsResult<CloneInfo> {
        Err(NOT_BUILT)
    }

    /// Puts a directory back to one of its snapshots.
    pub fn rollback(&self, caller: &Caller, dir: NodeId, snapshot: &[u8]) -> FsResult<()> {
        Err(NOT_BUILT)
    }

    /// Removes a directory with all below it, at once; its room is given back later.
    pub fn rmr(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<RmrInfo> {
        Err(NOT_BUILT)
    }

    /// Makes an empty directory that is a subvolume of its own.
    pub fn subvolume_create(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        mode: u32,
    ) -> FsResult<Entry> {
        Err(NOT_BUILT)
    }
}

/// Removes the name of an empty subvolume, as `rmdir` does with a directory.
pub(crate) fn remove_link(
    _fs: &Fs,
    _caller: &Caller,
    _parent: NodeId,
    _name: &[u8],
) -> FsResult<()> {
    Err(FsError::CrossSubvolume("a subvolume is removed by rmr"))
}

/// Renames between two subvolumes, or renames the name of one.
pub(crate) fn rename_across(
    _fs: &Fs,
    _caller: &Caller,
    _from: (NodeId, &[u8]),
    _to: (NodeId, &[u8]),
    _mode: crate::RenameMode,
) -> FsResult<()> {
    Err(FsError::CrossSubvolume("rename"))
}

/// The directory above the root of a subvolume.
pub(crate) fn parent_of_root(fs: &Fs, node: NodeId) -> FsResult<NodeId> {
    let record = crate::subvol::read_record(&*fs.store, node.subvol())?.ok_or(FsError::Stale)?;
    Ok(match record.parent {
        (0, ..) => node,
        (subvol, dir, _) => Fs::node_of(subvol, dir),
    })
}
