//! Verbs that ask the policies of the volume, as callers of [`Fs`] call them.

use check::{self, Checks, Gc, GcReport, Repair, RepairReport, VolumeReport};
use device::Env;
use device::Timestamp;
use format::stream::Origin;
use inode::{Caller, NodeId, SubvolId};
use store::CheckProgress;
use vfs::{Entry, FsResult};
use volume::{CloneInfo, OpenError, Schedule, ScheduleInfo, SnapshotInfo};

use crate::Fs;
use crate::front_end::snapshot_dir;

impl Fs {
    /// Takes a snapshot of a directory: of all that was written before the call.
    pub fn snapshot_create(
        &self,
        caller: &Caller,
        dir: NodeId,
        name: &[u8],
    ) -> FsResult<SnapshotInfo> {
        (**self).snapshot_create(&self.policies(), caller, dir, name)
    }

    /// Takes a snapshot of what was received, beside or in place of a directory.
    pub fn snapshot_received(
        &self,
        caller: &Caller,
        nodes: (NodeId, NodeId),
        name: &[u8],
        origins: &[Origin],
    ) -> FsResult<SnapshotInfo> {
        (**self).snapshot_received(&self.policies(), caller, nodes, name, origins)
    }

    /// Renames a snapshot of a directory.
    pub fn snapshot_rename(
        &self,
        caller: &Caller,
        dir: NodeId,
        from: &[u8],
        to: &[u8],
    ) -> FsResult<()> {
        (**self).snapshot_rename(&self.policies(), caller, dir, from, to)
    }

    /// Takes a snapshot that a schedule requests, with the rights and groups of the user who set
    /// it. Records in the same commit that this was done. `Stale`: the schedule is another one by
    /// now.
    pub fn snapshot_scheduled(
        &self,
        of: (&ScheduleInfo, Vec<u32>),
        dir: NodeId,
        name: &[u8],
        at: Timestamp,
    ) -> FsResult<SnapshotInfo> {
        (**self).snapshot_scheduled(&self.policies(), of, dir, name, at)
    }

    /// Sets when snapshots of a directory are taken; `None`: no more are, and those that there are
    /// stay. The owner of the directory may, and root.
    pub fn schedule_set(
        &self,
        caller: &Caller,
        dir: NodeId,
        schedule: Option<&Schedule>,
    ) -> FsResult<()> {
        (**self).schedule_set(&self.policies(), caller, dir, schedule)
    }

    /// Keeps a snapshot from being deleted as long as the hold of this name exists.
    pub fn hold(&self, caller: &Caller, snapshot: SubvolId, name: &[u8]) -> FsResult<()> {
        (**self).hold(&self.policies(), caller, snapshot, name)
    }

    /// Clones a directory, which may be in a snapshot, with the subvolumes below it, which the
    /// clone inherits.
    ///
    /// Owners and modes stay as they are, so a user who could not read a file below the source
    /// cannot read it in the clone. The caller chooses the clone's parent, and so the way into it.
    /// Only the owner of the source, or root, may clone it: the clone outlives the removal of its
    /// source.
    pub fn clone_dir(
        &self,
        caller: &Caller,
        source: NodeId,
        parent: NodeId,
        name: &[u8],
    ) -> FsResult<CloneInfo> {
        (**self).clone_dir(&self.policies(), caller, source, parent, name)
    }

    /// Puts a directory back to one of its snapshots. Root may, and a user who owns every directory
    /// below it, but where a limit holds: what comes back is charged to nobody.
    pub fn rollback(&self, caller: &Caller, dir: NodeId, snapshot: &[u8]) -> FsResult<()> {
        (**self).rollback(&self.policies(), caller, dir, snapshot)
    }

    /// Makes an empty directory that is a subvolume of its own. Takes one look-up.
    pub fn subvolume_create(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        mode: u32,
    ) -> FsResult<Entry> {
        (**self).subvolume_create(&self.policies(), caller, parent, name, mode)
    }

    /// Reads and verifies everything that the volume has on disk, while other operations run, and
    /// changes nothing. `progress` receives the bytes done and an estimate of their total, and may
    /// cancel the check. What the disk cannot read is reported, and the rest is checked.
    pub fn check_volume(&self, progress: CheckProgress<'_>) -> FsResult<VolumeReport> {
        Checks::of(self, snapshot_dir).check_volume(progress)
    }

    /// Reads and verifies everything in a volume that no process has open. Nothing is changed. The
    /// caller keeps others from opening it meanwhile. Whatever prevents opening is a problem in the
    /// report; so is what the disk cannot read. Fails if there is no volume, or a newer one, or for
    /// lack of a resource that has nothing to do with the volume.
    pub fn check_offline(
        env: &Env,
        progress: CheckProgress<'_>,
    ) -> Result<VolumeReport, OpenError> {
        check::check_offline(env, snapshot_dir, progress)
    }

    /// Repairs a volume that no process has open; the caller keeps others from opening it
    /// meanwhile.
    pub fn repair(
        env: &Env,
        how: Repair,
        progress: CheckProgress<'_>,
    ) -> Result<RepairReport, OpenError> {
        check::repair(env, snapshot_dir, how, progress)
    }

    /// Finds what nothing names, while other operations run, and deletes it if requested.
    pub fn gc(&self, how: Gc, progress: CheckProgress<'_>) -> FsResult<GcReport> {
        Checks::of(self, snapshot_dir).gc(how, progress)
    }
}
