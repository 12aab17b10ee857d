//! Snapshots that were received from elsewhere: which snapshot each one equals, and how far an
//! unfinished stream was applied. The base of an increment is found by these.
//!
//! What is received is built in a subvolume of its own, the *stage*. A complete one becomes a
//! snapshot of its directory in one commit, which also records where it came from.

use format::key;
use format::received_record::{ReceivedRecord, received};
use format::stream::{ORIGINS_MAX, Origin};
use inode::{Caller, FsError, NodeId, SubvolId};
use vfs::FsResult;
use volume::SnapshotInfo;
use volume::error::{from_store, malformed};
use volume::subvol::{VOLUME, read_record};

use super::copied::Copied;
use super::execute::{Through, execute};
use super::snapshot::{check_name, info, owned_directory};
use crate::Ops;
use crate::plan::Plan;
use crate::policy::Policy;

impl Ops {
    /// The identities of a snapshot: its own, and those of the snapshots that it was received
    /// from.
    pub fn origins(&self, snapshot: SubvolId) -> FsResult<Vec<Origin>> {
        let own = Origin { volume: self.header.volume_id, snapshot: snapshot.0 };
        let mut origins = vec![own];
        if let Some(record) = self.received(snapshot)?.filter(|record| record.is_complete) {
            origins.extend(record.origins);
        }
        origins.truncate(ORIGINS_MAX);
        Ok(origins)
    }

    /// Where a subvolume was received from, if it was.
    pub fn received(&self, subvol: SubvolId) -> FsResult<Option<ReceivedRecord>> {
        let value = self.store.get(VOLUME, &received(subvol.0)).map_err(from_store)?;
        let decode =
            |value: &[u8]| ReceivedRecord::decode(value).map_err(|e| malformed(VOLUME, &e));
        value.as_deref().map(decode).transpose()
    }

    /// The number of a subvolume, if a node is its root.
    pub fn subvolume_of_root(&self, node: NodeId) -> FsResult<Option<SubvolId>> {
        let (subvol, ino) = self.place(node)?;
        Ok((ino == subvol.root).then_some(subvol.id))
    }

    /// The number of a snapshot, if a node is the root of one.
    pub fn snapshot_of_root(&self, node: NodeId) -> FsResult<Option<SubvolId>> {
        let Some(subvol) = self.subvolume_of_root(node)? else { return Ok(None) };
        let record = read_record(&*self.store, subvol)?;
        Ok(record.filter(|record| record.snapshot && !record.detached).map(|_| subvol))
    }

    /// A snapshot, by its number.
    pub fn snapshot_info(&self, snapshot: SubvolId) -> FsResult<SnapshotInfo> {
        let record = read_record(&*self.store, snapshot)?;
        let record = record.filter(|record| record.snapshot && !record.detached);
        Ok(info(snapshot.0, &record.ok_or(FsError::NotFound)?))
    }

    /// Notes how far a stream was applied to a stage, of which the caller is the owner.
    pub fn note_received(
        &self,
        caller: &Caller,
        stage: NodeId,
        record: &ReceivedRecord,
    ) -> FsResult<()> {
        self.set_received(caller, stage, Some(record))
    }

    /// Ends a stage: it is an ordinary directory from now on.
    pub fn forget_received(&self, caller: &Caller, stage: NodeId) -> FsResult<()> {
        self.set_received(caller, stage, None)
    }

    fn set_received(
        &self,
        caller: &Caller,
        stage: NodeId,
        record: Option<&ReceivedRecord>,
    ) -> FsResult<()> {
        let (subvol, ino) = owned_directory(self, caller, stage)?;
        if ino != subvol.root || subvol.id == self.root_subvol()?.id {
            return Err(FsError::InvalidArgument("a stream is applied to a subvolume of its own"));
        }
        let ledger = self.admin.lock();
        execute(
            self,
            ledger,
            Through::default(),
            |_| Ok(()),
            |_, plan| {
                let present = read_record(&*self.store, subvol.id)?;
                present.filter(|present| !present.detached).ok_or(FsError::Stale)?;
                let key = received(subvol.id.0);
                match record {
                    Some(record) => plan.batch().put(VOLUME, &key, &record.encode()),
                    None => plan.batch().delete(VOLUME, &key),
                }
                Ok(())
            },
        )
    }

    /// Takes a snapshot of a stage under a directory. The stage is the directory itself, or a copy
    /// of one of its snapshots that was changed. Records in the same commit where it was received
    /// from.
    pub fn snapshot_received(
        &self,
        policy: &dyn Policy,
        caller: &Caller,
        (stage, dir): (NodeId, NodeId),
        name: &[u8],
        origins: &[Origin],
    ) -> FsResult<SnapshotInfo> {
        check_name(name)?;
        let (staged, ino) = owned_directory(self, caller, stage)?;
        let (subvol, dir) = owned_directory(self, caller, dir)?;
        if ino != dir {
            return Err(FsError::InvalidArgument("not two states of one directory"));
        }
        let record = ReceivedRecord {
            is_complete: true,
            applied: 0,
            origins: origins.iter().copied().take(ORIGINS_MAX).collect(),
        };
        let also = &mut |plan: &mut Plan, copied: &mut Copied| {
            copied.record.lineage = subvol.lineage;
            plan.batch().put(VOLUME, &key::subvolume(copied.id), &copied.record.encode());
            plan.batch().put(VOLUME, &received(copied.id), &record.encode());
            Ok(())
        };
        self.copy_as_snapshot((policy, caller), (&staged, &subvol, ino), name, also)
    }
}
