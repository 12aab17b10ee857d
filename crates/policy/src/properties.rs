//! Properties of directories: limits of quotas, schedules of snapshots, settings of trashes, as
//! streams carry them.
//!
//! They are not in the tree of a subvolume, but in records of the volume: those of a directory
//! are the present ones, also of its snapshots. A schedule and a trash belong to a lineage. The
//! quota of a directory is the one whose mark the directory has, or that was set for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use format::key;
use format::property::Property;
use format::retention::ScheduleRecord;
use format::trash::TrashRecord;
use inode::{Caller, FsError, NodeId, SubvolId};
use ops::subvolumes::{Access, inside};
use vfs::FsResult;
use volume::account::{self, UNLIMITED};
use volume::error::malformed;
use volume::subvol::{Subvol, VOLUME, node_of, read_record};
use volume::view::{NameBuf, View};
use volume::{QuotaLimits, Schedule};

use crate::Governed;
use crate::quota::{Domain, Quotas, domain_of, info};

/// Deepest directory whose path is composed.
const DEPTH_MAX: usize = 1 << 16;

/// A property of a directory below another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PropertyBelow {
    /// The path from the other directory, which itself has the empty one.
    pub path: Vec<u8>,
    /// The number of the directory.
    pub ino: u64,
    /// The property.
    pub property: Property,
}

/// Limits are lifted until this is dropped.
pub struct Lifted {
    quotas: Arc<Quotas>,
    subvolume: u64,
}

impl Lifted {
    /// Lifts the limits of domains for a subvolume.
    fn new(quotas: &Arc<Quotas>, subvolume: u64, domains: BTreeSet<u64>) -> Lifted {
        quotas.lifted.write().insert(subvolume, domains);
        Lifted { quotas: Arc::clone(quotas), subvolume }
    }
}

impl Drop for Lifted {
    fn drop(&mut self) {
        self.quotas.lifted.write().remove(&self.subvolume);
    }
}

/// Properties by lineage and number of the directory, and by kind.
type ByPlace = BTreeMap<((u64, u64), u8), Property>;

impl Governed {
    /// The properties of a directory and of those below it, which may be in a snapshot. Where a
    /// subvolume inside was moved since the snapshot, the path is that of the present.
    pub fn properties_below(&self, top: NodeId) -> FsResult<Vec<PropertyBelow>> {
        let (subvol, ino) = self.place(self.real(top))?;
        let mut all = self.settings()?;
        let quotas = self.quotas.limited();
        if all.is_empty() && quotas.is_empty() {
            return Ok(Vec::new());
        }
        let inside = self.inside(&subvol, ino)?;
        self.add_quotas(&mut all, (&subvol, &inside), &quotas)?;
        let mut present: Option<Option<Vec<u8>>> = None;
        let mut found = Vec::new();
        for ((place, _), property) in all {
            let is_own = place.0 == subvol.lineage;
            let own = is_own.then(|| self.path_between(&subvol, ino, place.1));
            let mut path = own.transpose()?.flatten();
            if path.is_none() && inside.iter().any(|one| one.lineage == place.0) {
                if present.is_none() {
                    present = Some(self.present_path(&subvol, ino)?);
                }
                if let Some(top) = present.as_ref().and_then(Option::as_ref) {
                    path = self.path_inside(place, top)?;
                }
            }
            found.extend(path.map(|path| PropertyBelow { path, ino: place.1, property }));
        }
        found.sort_by(|a, b| (&a.path, a.property.kind()).cmp(&(&b.path, b.property.kind())));
        Ok(found)
    }

    /// The path to a directory of the same subvolume, by its number, from one above it; `None`: it
    /// is not there.
    pub fn path_below(&self, top: NodeId, ino: u64) -> FsResult<Option<Vec<u8>>> {
        let (subvol, top) = self.place(self.real(top))?;
        self.path_between(&subvol, top, ino)
    }

    /// Gives a directory a property, in place of the one of its kind. Root sets the schedules of
    /// all users, with the rights of each.
    pub fn property_set(&self, caller: &Caller, dir: NodeId, property: &Property) -> FsResult<()> {
        match property {
            Property::Quota { inodes_max, bytes_max } => {
                self.quota_set(caller, dir, account::decoded((*inodes_max, *bytes_max)))
            }
            Property::Schedule(ScheduleRecord { uid, gid, keep, cron, prefix, .. }) => {
                let (cron, prefix) = (cron.clone(), prefix.clone());
                let schedule = Schedule { cron, prefix, keep: *keep };
                let (uid, gid) = (*uid, *gid);
                let user = if caller.is_root() {
                    Caller { uid, gid, groups: Vec::new(), ..caller.clone() }
                } else {
                    caller.clone()
                };
                self.schedule_set(&self.policies(), &user, dir, Some(&schedule))
            }
            Property::Trash(TrashRecord { keep_seconds }) => {
                self.trash_set(caller, dir, Some(*keep_seconds))
            }
        }
    }

    /// Takes a property from a directory that may have it.
    pub fn property_remove(
        &self,
        caller: &Caller,
        dir: NodeId,
        property: &Property,
    ) -> FsResult<()> {
        let removed = match property {
            Property::Quota { .. } => {
                self.quota_set(caller, dir, QuotaLimits { inodes: None, bytes: None })
            }
            Property::Schedule(_) => self.schedule_set(&self.policies(), caller, dir, None),
            Property::Trash(_) => self.trash_set(caller, dir, None),
        };
        match removed {
            Err(FsError::NotFound) => Ok(()),
            removed => removed,
        }
    }

    /// Lifts the limits of quotas that a directory has inside, for what is written there until the
    /// result is dropped: a copy of a directory is changed in steps, some of which take more than
    /// both states. Only root may.
    pub fn lift_limits(&self, caller: &Caller, top: NodeId) -> FsResult<Lifted> {
        if !caller.is_root() {
            return Err(FsError::RootOnly("only root lifts limits"));
        }
        let (subvol, _) = self.place(top)?;
        let mut lifted = BTreeSet::new();
        for domain in self.quotas.all() {
            if self.has_mark(&subvol, &domain)? {
                lifted.insert(domain.id);
            }
        }
        Ok(Lifted::new(&self.quotas, subvol.id.0, lifted))
    }

    /// All schedules and trashes of the volume.
    fn settings(&self) -> FsResult<ByPlace> {
        let mut found = ByPlace::new();
        for of in self.schedules()? {
            let Schedule { cron, prefix, keep } = of.schedule;
            let (uid, gid) = (of.uid, of.gid);
            let record = ScheduleRecord { uid, gid, last: 0, keep, cron, prefix };
            let property = Property::Schedule(record);
            found.insert(((of.lineage, of.directory), property.kind()), property);
        }
        self.visit_volume(&key::TRASH_PREFIX, &mut |key, value| {
            let place = key::parse_trash(key).map_err(|error| malformed(VOLUME, &error))?;
            if let Ok(record) = TrashRecord::decode(value) {
                let property = Property::Trash(record);
                found.insert((place, property.kind()), property);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Adds quotas: those whose mark a directory has, and those that were set for one.
    fn add_quotas(
        &self,
        all: &mut ByPlace,
        (subvol, inside): (&Subvol, &[Arc<Subvol>]),
        quotas: &[Arc<Domain>],
    ) -> FsResult<()> {
        let mut set_for = ByPlace::new();
        for domain in quotas {
            let (inodes_max, bytes_max) = encoded(info(domain).limits);
            let property = Property::Quota { inodes_max, bytes_max };
            let kind = property.kind();
            for one in std::iter::once(subvol).chain(inside.iter().map(|one| &**one)) {
                if self.has_mark(one, domain)? {
                    all.insert(((one.lineage, domain.directory), kind), property.clone());
                }
            }
            if let Some(lineage) = self.lineage_of(domain)? {
                set_for.insert(((lineage, domain.directory), kind), property);
            }
        }
        // What was set last counts.
        all.append(&mut set_for);
        Ok(())
    }

    /// Whether the directory of a quota has its mark in a subvolume.
    fn has_mark(&self, subvol: &Subvol, domain: &Domain) -> FsResult<bool> {
        let found =
            subvol.read(|tree| View::new(&*self.store, tree).directory(domain.directory))?;
        Ok(found.is_some_and(|record| domain_of(&record) == domain.id))
    }

    /// The lineage of the directory that a quota was set for, if that exists.
    fn lineage_of(&self, domain: &Domain) -> FsResult<Option<u64>> {
        let record = read_record(&*self.store, SubvolId(domain.subvolume))?;
        let record = record.filter(|record| !record.detached && !record.snapshot);
        Ok(match record {
            Some(record) if self.has_directory(domain)? => Some(record.lineage),
            _ => None,
        })
    }

    /// The path from one directory of a subvolume to another, if that is below it.
    fn path_between(&self, subvol: &Subvol, top: u64, ino: u64) -> FsResult<Option<Vec<u8>>> {
        subvol.read(|tree| {
            let view = View::new(&*self.store, tree);
            let (mut at, mut names) = (ino, Vec::new());
            while at != top {
                let record = view.directory(at)?.filter(|record| !record.detached);
                let Some(record) = record else { return Ok(None) };
                // A snapshot has all of the tree that its directory is in, whose root has no name.
                let is_root = at == subvol.root || record.parent_cookie == 0;
                if is_root || names.len() == DEPTH_MAX {
                    return Ok(None);
                }
                let mut name = NameBuf::empty();
                let entry = view.entry_at(record.parent, record.parent_cookie, &mut name)?;
                if entry.is_none_or(|entry| entry.ino != at) {
                    return Ok(None);
                }
                names.push(name.as_bytes().to_vec());
                at = record.parent;
            }
            names.reverse();
            Ok(Some(names.join(&b'/')))
        })
    }

    /// The subvolumes inside a directory.
    fn inside(&self, subvol: &Subvol, ino: u64) -> FsResult<Vec<Arc<Subvol>>> {
        let inside = inside(self, Access::Looks(&self.admin), (subvol, Some(ino)))?;
        let mut found = Vec::new();
        for one in inside {
            match self.subvol(SubvolId(one.id)) {
                // It was removed meanwhile.
                Err(FsError::Stale) => {}
                one => found.push(one?),
            }
        }
        Ok(found)
    }

    /// The path of a directory, of which a subvolume may be a snapshot; `None`: it was removed.
    fn present_path(&self, subvol: &Subvol, ino: u64) -> FsResult<Option<Vec<u8>>> {
        let record = read_record(&*self.store, subvol.id)?.filter(|record| record.snapshot);
        let present = match record {
            Some(record) => self.shown_in(&record)?.map(|(id, dir)| node_of(id, dir)),
            None => Some(subvol.node(ino)),
        };
        Ok(present.map(|node| self.path_of(node)).transpose()?.flatten())
    }

    /// The path of a directory of another subvolume, from one whose path is known.
    fn path_inside(&self, place: (u64, u64), top: &[u8]) -> FsResult<Option<Vec<u8>>> {
        let Some(node) = self.directory_of_lineage(place)? else { return Ok(None) };
        let Some(path) = self.path_of(node)? else { return Ok(None) };
        let below = path.strip_prefix(top).and_then(|rest| match top {
            b"/" => Some(rest),
            _ => rest.strip_prefix(b"/"),
        });
        Ok(below.map(<[u8]>::to_vec))
    }
}

/// Limits as records have them.
fn encoded(limits: QuotaLimits) -> (u64, u64) {
    (limits.inodes.unwrap_or(UNLIMITED), limits.bytes.unwrap_or(UNLIMITED))
}
