//! Schedules of snapshots, and holds on them.
//!
//! The volume stores when snapshots of a directory are due and how many are kept. The daemon, which
//! has a calendar, decides when that is (`snapshot_scheduled`). A schedule belongs to a lineage, so
//! a rollback keeps it and a clone has none. It acts with the rights of the user who set it.
//!
//! A held snapshot is not deleted, by whomever and however that is requested: every deletion goes
//! through `check_held`, with the ledger locked, as holding does.

use device::Timestamp;
use format::key;
use format::retention::{
    self, CRON_BYTES_MAX, HOLD_NAME_BYTES_MAX, HoldRecord, PREFIX_BYTES_MAX, ScheduleRecord,
};
use inode::{Caller, FsError, NodeId, SubvolId};
use vfs::FsResult;
use volume::error::{from_store, malformed};
use volume::subvol::{VOLUME, node_of, read_record};
use volume::{Hold, Schedule, ScheduleInfo, SnapshotInfo};

use super::access::directory_of;
use super::execute::{Through, execute};
use super::snapshot::{check_name, owned_directory};
use crate::Ops;
use crate::plan::Plan;
use crate::policy::Policy;

/// Most schedules of a volume: the daemon looks at each every few seconds.
const SCHEDULES_MAX: usize = 10_000;
/// Most schedules that one user other than root sets.
const SCHEDULES_OF_USER_MAX: usize = 100;
/// Most holds on one snapshot.
const HOLDS_MAX: usize = 16;

impl Ops {
    /// Sets when snapshots of a directory are taken; `None`: no more are, and those that there are
    /// stay. The owner of the directory may, and root.
    pub fn schedule_set(
        &self,
        policy: &dyn Policy,
        caller: &Caller,
        dir: NodeId,
        schedule: Option<&Schedule>,
    ) -> FsResult<()> {
        let (subvol, ino) = owned_directory(self, caller, dir)?;
        if let Some(Schedule { cron, prefix, .. }) = schedule {
            policy.may_copy(caller, (&subvol, ino), (subvol.id.0, ino))?;
            check_name(prefix)?;
            if prefix.len() > PREFIX_BYTES_MAX {
                return Err(FsError::InvalidArgument("a prefix of more than 64 bytes"));
            }
            if cron.len() > CRON_BYTES_MAX {
                return Err(FsError::InvalidArgument("a cron expression of more than 128 bytes"));
            }
        }
        let key = retention::schedule_key(subvol.lineage, ino);
        if schedule.is_some() && self.schedule_at(&key)?.is_none() {
            self.make_space_for_schedule(caller)?;
        }
        self.execute_with_ledger(|plan| {
            let present = self.schedule_at(&key)?;
            match schedule {
                None if present.is_none() => return Err(FsError::NotFound),
                None => plan.batch().delete(VOLUME, &key),
                Some(schedule) => {
                    if present.is_none() {
                        check_schedules(caller, &self.schedules()?)?;
                    }
                    let record = ScheduleRecord {
                        uid: caller.uid,
                        gid: caller.gid,
                        last: self.env.clock.now().0,
                        keep: schedule.keep,
                        cron: schedule.cron.clone(),
                        prefix: schedule.prefix.clone(),
                    };
                    plan.batch().put(VOLUME, &key, &record.encode());
                }
            }
            Ok(())
        })
    }

    /// Executes a change of the volume's records, with the ledger locked.
    fn execute_with_ledger(&self, change: impl FnOnce(&mut Plan) -> FsResult<()>) -> FsResult<()> {
        let ledger = self.admin.lock();
        execute(self, ledger, Through::default(), |_| Ok(()), |_, plan| change(plan))
    }

    /// The schedule of a directory's snapshots. Any caller that holds the directory may read it.
    pub fn schedule_get(&self, dir: NodeId) -> FsResult<Option<ScheduleInfo>> {
        let (subvol, ino) = self.place(dir)?;
        directory_of(self, &subvol, ino)?;
        let record = self.schedule_at(&retention::schedule_key(subvol.lineage, ino))?;
        Ok(record.map(|record| schedule_info(subvol.lineage, ino, record)))
    }

    /// All schedules of the volume. One that does not decode is left out; a check reports it.
    pub fn schedules(&self) -> FsResult<Vec<ScheduleInfo>> {
        let mut found = Vec::new();
        self.visit_volume(&retention::SCHEDULES_PREFIX, &mut |key, value| {
            let place =
                retention::parse_schedule(key).map_err(|error| malformed(VOLUME, &error))?;
            if let Ok(record) = ScheduleRecord::decode(value) {
                found.push(schedule_info(place.0, place.1, record));
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// The directory of a schedule; `None` if it was removed.
    pub fn schedule_directory(&self, of: &ScheduleInfo) -> FsResult<Option<NodeId>> {
        let there = self.reachable_directory(of.lineage, of.directory, &Caller::root())?;
        Ok(there.map(|there| node_of(there.subvol, of.directory)))
    }

    /// Takes a snapshot that a schedule requests, with the rights and groups of the user who set
    /// it. Records in the same commit that this was done. `Stale`: the schedule is another one by
    /// now.
    pub fn snapshot_scheduled(
        &self,
        policy: &dyn Policy,
        (of, groups): (&ScheduleInfo, Vec<u32>),
        dir: NodeId,
        name: &[u8],
        at: Timestamp,
    ) -> FsResult<SnapshotInfo> {
        let key = retention::schedule_key(of.lineage, of.directory);
        self.create_snapshot((policy, &of.caller(groups)), dir, name, &mut |plan, _| {
            let record = self.schedule_at(&key)?.filter(|record| record.last == of.last.0);
            let record = ScheduleRecord { last: at.0, ..record.ok_or(FsError::Stale)? };
            plan.batch().put(VOLUME, &key, &record.encode());
            Ok(())
        })
    }

    /// Removes the schedule of a directory that was removed and cannot come back. A rollback to any
    /// snapshot of its lineage may bring it back, with its number. One in a trash counts as
    /// present.
    pub fn schedule_forget(&self, of: &ScheduleInfo) -> FsResult<()> {
        let mut has_snapshots = false;
        let of_lineage = &key::snapshot_names_prefix(of.lineage, of.directory)[..9];
        self.visit_volume(of_lineage, &mut |_, _| {
            has_snapshots = true;
            Ok(())
        })?;
        if has_snapshots || self.schedule_directory(of)?.is_some() {
            return Ok(());
        }
        self.execute_with_ledger(|plan| {
            plan.batch().delete(VOLUME, &retention::schedule_key(of.lineage, of.directory));
            Ok(())
        })
    }

    /// Prevents that a snapshot is deleted, until the hold of this name is released. The owner of
    /// the directory may, and root. `Exists`: it has a hold of this name.
    pub fn hold(
        &self,
        policy: &dyn Policy,
        caller: &Caller,
        snapshot: SubvolId,
        name: &[u8],
    ) -> FsResult<()> {
        inode::Name::new(name)?;
        if name.len() > HOLD_NAME_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        self.check_changes_snapshot(caller, snapshot)?;
        self.check_keeps_snapshot(policy, caller, snapshot)?;
        self.execute_with_ledger(|plan| {
            // It may have been deleted just now.
            let record = read_record(&*self.store, snapshot)?;
            record.filter(|record| record.snapshot && !record.detached).ok_or(FsError::NotFound)?;
            let holds = self.holds_of(snapshot)?;
            if holds.iter().any(|hold| hold.name == name) {
                return Err(FsError::Exists);
            }
            if holds.len() >= HOLDS_MAX {
                return Err(FsError::LimitReached(
                    "a snapshot has at most 16 holds: release one with `pando snapshot release`",
                ));
            }
            let record = HoldRecord { uid: caller.uid, since: self.env.clock.now().0 };
            plan.batch().put(VOLUME, &retention::hold_key(snapshot.0, name), &record.encode());
            Ok(())
        })
    }

    /// Ends a hold.
    pub fn release(&self, caller: &Caller, snapshot: SubvolId, name: &[u8]) -> FsResult<()> {
        self.check_changes_snapshot(caller, snapshot)?;
        self.execute_with_ledger(|plan| {
            if !self.holds_of(snapshot)?.iter().any(|hold| hold.name == name) {
                return Err(FsError::NotFound);
            }
            plan.batch().delete(VOLUME, &retention::hold_key(snapshot.0, name));
            Ok(())
        })
    }

    /// The holds on a snapshot, by name.
    pub fn holds_of(&self, snapshot: SubvolId) -> FsResult<Vec<Hold>> {
        let mut found = Vec::new();
        self.visit_volume(&retention::holds_prefix(snapshot.0), &mut |key, value| {
            let malformed = |error| malformed(VOLUME, &error);
            let (_, name) = retention::parse_hold(key).map_err(malformed)?;
            let record = HoldRecord::decode(value).map_err(malformed)?;
            found.push(Hold {
                name: name.to_vec(),
                uid: record.uid,
                since: Timestamp(record.since),
            });
            Ok(())
        })?;
        Ok(found)
    }

    /// Refuses to delete a held snapshot. With the ledger locked. A hold that cannot be read holds.
    pub(super) fn check_held(&self, snapshot: u64) -> FsResult<()> {
        if self.holds_of(SubvolId(snapshot))?.is_empty() {
            return Ok(());
        }
        Err(FsError::Busy("the snapshot is held: `pando snapshot release` ends a hold"))
    }

    /// The number of a snapshot of a directory.
    pub(crate) fn snapshot_number(&self, dir: NodeId, name: &[u8]) -> FsResult<SubvolId> {
        let (subvol, ino) = self.place(dir)?;
        let id = self.snapshot_id(&key::snapshot_name(subvol.lineage, ino, name))?;
        id.map(SubvolId).ok_or(FsError::NotFound)
    }

    fn schedule_at(&self, key: &[u8]) -> FsResult<Option<ScheduleRecord>> {
        let value = self.store.get(VOLUME, key).map_err(from_store)?;
        let decode =
            |value| ScheduleRecord::decode(value).map_err(|error| malformed(VOLUME, &error));
        value.as_deref().map(decode).transpose()
    }

    /// Forgets schedules of removed directories before another one would be refused for them.
    fn make_space_for_schedule(&self, caller: &Caller) -> FsResult<()> {
        let all = self.schedules()?;
        if check_schedules(caller, &all).is_err() {
            let own = |one: &&ScheduleInfo| caller.is_root() || one.uid == caller.uid;
            all.iter().filter(own).try_for_each(|one| self.schedule_forget(one))?;
        }
        Ok(())
    }
}

/// Refuses another schedule beyond the bounds.
fn check_schedules(caller: &Caller, all: &[ScheduleInfo]) -> FsResult<()> {
    let own = all.iter().filter(|other| other.uid == caller.uid).count();
    if !caller.is_root() && own >= SCHEDULES_OF_USER_MAX {
        return Err(FsError::LimitReached(
            "a user has at most 100 schedules: end one with \
             `pando snapshot schedule --off`",
        ));
    }
    if all.len() >= SCHEDULES_MAX {
        return Err(FsError::LimitReached(
            "a volume has at most 10,000 schedules: end one with `pando snapshot schedule --off`",
        ));
    }
    Ok(())
}

fn schedule_info(lineage: u64, directory: u64, record: ScheduleRecord) -> ScheduleInfo {
    let ScheduleRecord { uid, gid, last, keep, cron, prefix } = record;
    let (last, schedule) = (Timestamp(last), Schedule { cron, prefix, keep });
    ScheduleInfo { lineage, directory, uid, gid, last, schedule }
}
