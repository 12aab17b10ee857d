//! `Fs`: a volume, made, opened, and asked about. The calls on what is inside it are in `ops/`.

use std::sync::Arc;

use device::Env;
use inode::{Attr, Caller, FsError, NodeId};

use crate::{
    CloneInfo, Entry, Follow, FormatOptions, FsResult, OpenError, OpenOptions, Progress, RmrInfo,
    SnapshotInfo, VolumeId, VolumeStatus,
};

/// A volume.
pub struct Fs {
    #[expect(dead_code, reason = "the calls follow")]
    env: Env,
}

const NOT_BUILT: FsError = FsError::NotSupported("not built yet");

#[expect(unused_variables, clippy::unused_self, reason = "the bodies follow")]
impl Fs {
    /// Makes a volume in a directory that is empty.
    pub fn format(env: &Env, options: &FormatOptions) -> Result<VolumeId, OpenError> {
        Err(OpenError::InvalidOption("not built yet"))
    }

    /// Opens a volume, recovering it where it was not closed. The caller holds `owner.lock`.
    pub fn open(env: Env, options: &OpenOptions) -> Result<Arc<Fs>, OpenError> {
        Err(OpenError::InvalidOption("not built yet"))
    }

    /// Makes everything durable and takes no more changes.
    pub fn close(&self) -> FsResult<()> {
        Err(NOT_BUILT)
    }

    /// What the volume tells about itself.
    pub fn status(&self) -> FsResult<VolumeStatus> {
        Err(NOT_BUILT)
    }

    /// One bounded step of background work, about `budget` records or nodes.
    pub fn background_step(&self, budget: usize) -> FsResult<Progress> {
        Err(NOT_BUILT)
    }

    /// Walks a path from the root, with permission checks and symbolic links. Takes one look-up.
    pub fn resolve(&self, caller: &Caller, path: &[u8], follow: Follow) -> FsResult<Entry> {
        Err(NOT_BUILT)
    }

    /// The attributes of a name, without a look-up count.
    pub fn stat_at(&self, caller: &Caller, dir: NodeId, name: &[u8]) -> FsResult<Attr> {
        Err(NOT_BUILT)
    }

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

    /// Makes everything durable that returned before the call.
    pub fn sync(&self) -> FsResult<()> {
        Err(NOT_BUILT)
    }
}
