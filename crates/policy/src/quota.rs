//! Quotas of directories: domains of accounting, like XFS projects.
//!
//! A quota directory begins a domain. Whatever is created in it belongs to it; its record has a
//! flag for that, together with the subvolume in which it was charged. Only that subvolume returns
//! charges. So what a clone or a snapshot inherits is charged to no one, and never twice.
//!
//! 1. Before a batch is committed its growth is reserved in memory, where the limits are
//!    ([`Account`]). So no two writers can both get the last byte. Shrinking counts when it is
//!    committed.
//! 2. The batch merges the same numbers into the record of (domain, subvolume), which survives a
//!    crash. Opening the volume fills the memory from it.
//! 3. A charged inode is charged with all bytes that it stores, and a flat amount for each further
//!    name (`InodeRecord::charged_bytes`). An inherited one is charged, as a whole, when its
//!    contents are changed or it gets a name. From then on it is the subvolume's own.
//!
//! The quotas of users and groups (`owners`) are charged along.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::sync::{Mutex, MutexGuard, RwLock};
use device::{Map, Set};
use format::directory_record::DirectoryRecord;
use format::key;
use format::quota::{Charge, Charged, QuotaRecord};
use inode::FsError;
use ops::Ops;
use vfs::FsResult;
use volume::account::Account;

use crate::owners::Owners;

/// The quotas of a volume.
#[derive(Default)]
pub struct Quotas {
    pub(crate) domains: RwLock<Map<u64, Arc<Domain>>>,
    /// The domains to which the inodes of a subvolume were charged, and perhaps still are.
    pub(crate) charged_in: RwLock<Map<u64, Set<u64>>>,
    /// Users and groups.
    pub owners: Owners,
    /// Held while limits are set, so that those in memory are those of the last commit.
    setting: Mutex<()>,
    pub(crate) adopting: Mutex<Adopting>,
    /// Why the charges are not known.
    unknown: Mutex<Option<FsError>>,
    /// How often limits were set, and subvolumes charged to another quota.
    pub(crate) changes: AtomicU64,
    /// Whether a limit is in force in what is mounted or inherited in subvolumes.
    pub(crate) inside: Mutex<Map<u64, Inside>>,
}

/// Whether a limit is in force in anything that is mounted or inherited in a subvolume.
#[derive(Clone, Copy)]
pub(crate) struct Inside {
    /// How often limits had changed, and when something was last mounted there.
    pub(crate) at: (u64, u64),
    pub(crate) is_limited: bool,
}

/// The domain whose directory is gone through.
#[derive(Default)]
pub(crate) struct Adopting {
    pub(crate) pass: Option<Pass>,
    /// Until when the background skips it, after a failure.
    pub(crate) rests_until: Duration,
}

/// A pass over the directories of a domain.
pub(crate) struct Pass {
    pub(crate) domain: Arc<Domain>,
    pub(crate) left: Vec<u64>,
    /// Whether nothing was found that was not charged.
    pub(crate) clean: bool,
    /// Directories that were found below the first one, valid while `moves` is unchanged.
    pub(crate) below: Set<u64>,
    pub(crate) moves: u64,
}

/// A domain: where it begins, and its account.
pub struct Domain {
    /// Its number.
    pub id: u64,
    /// The subvolume of its directory.
    pub subvolume: u64,
    /// The inode of its directory.
    pub directory: u64,
    /// While earlier contents of the directory are still being charged: their domain.
    adopting_from: Mutex<Option<u64>>,
    pub(crate) account: Arc<Account>,
}

impl Domain {
    pub(crate) fn new(id: u64, record: &QuotaRecord) -> Domain {
        Domain {
            id,
            subvolume: record.subvolume,
            directory: record.directory,
            adopting_from: Mutex::new(record.adopting_from),
            account: Arc::new(Account::new((record.inodes_max, record.bytes_max))),
        }
    }

    /// Its record.
    pub fn record(&self) -> QuotaRecord {
        let (inodes_max, bytes_max) = self.account.limits();
        QuotaRecord {
            subvolume: self.subvolume,
            directory: self.directory,
            inodes_max,
            bytes_max,
            adopting_from: self.adopting_from(),
        }
    }

    /// Whether it has a limit.
    pub fn is_limited(&self) -> bool {
        self.account.is_limited()
    }

    /// While earlier contents of the directory are still being charged: their domain, 0: none.
    pub fn adopting_from(&self) -> Option<u64> {
        *self.adopting_from.lock()
    }

    /// The contents of the directory are charged.
    pub(crate) fn adopted(&self) {
        *self.adopting_from.lock() = None;
    }
}

impl Quotas {
    /// Reads the quotas of a volume. A record that does not decode limits no one, and does not
    /// prevent opening: a check of the volume reports it.
    pub fn load(&self, fs: &Ops) -> FsResult<()> {
        let mut domains = Map::default();
        let mut charged_in: Map<u64, Set<u64>> = Map::default();
        fs.visit_volume(&key::QUOTAS_PREFIX, &mut |key, value| {
            match key::parse_quota(key) {
                Ok((id, None)) => {
                    if let Ok(record) = QuotaRecord::decode(value) {
                        domains.insert(id, Arc::new(Domain::new(id, &record)));
                    }
                }
                Ok((id, Some(subvolume))) => {
                    charged_in.entry(subvolume).or_default().insert(id);
                    let domain = domains.get(&id);
                    if let (Some(domain), Ok(charged)) = (domain, Charged::decode(value)) {
                        domain.account.add(charged.inodes, charged.bytes);
                    }
                }
                Err(_) => {}
            }
            Ok(())
        })?;
        *self.domains.write() = domains;
        *self.charged_in.write() = charged_in;
        self.owners.load(fs)
    }

    /// Notes that the charges could not be read.
    pub(crate) fn set_unknown(&self, why: FsError) {
        *self.unknown.lock() = Some(why);
    }

    /// Refuses to report charges that could not be read.
    pub(crate) fn check_known(&self) -> FsResult<()> {
        self.unknown.lock().clone().map_or(Ok(()), Err)
    }

    /// A domain that an inode names. A missing one is damage, and limits no one.
    pub fn get(&self, id: u64) -> Option<Arc<Domain>> {
        self.domains.read().get(&id).map(Arc::clone)
    }

    /// All domains, by number.
    pub fn all(&self) -> Vec<Arc<Domain>> {
        let mut all: Vec<_> = self.domains.read().values().map(Arc::clone).collect();
        all.sort_unstable_by_key(|domain| domain.id);
        all
    }

    /// Whether there is none, of directories.
    pub fn is_empty(&self) -> bool {
        self.domains.read().is_empty()
    }

    /// The lock for setting limits.
    pub fn setting(&self) -> MutexGuard<'_, ()> {
        self.setting.lock()
    }

    /// The domain of a directory whose contents are still being charged.
    pub(crate) fn adopting_at(&self, place: (u64, u64)) -> Option<Arc<Domain>> {
        let all = self.all();
        all.into_iter().find(|domain| {
            (domain.subvolume, domain.directory) == place && domain.adopting_from().is_some()
        })
    }

    pub(crate) fn note_charged_in(&self, subvolume: u64, domain: u64) {
        let known = self.charged_in.read().get(&subvolume).is_some_and(|set| set.contains(&domain));
        if !known {
            self.charged_in.write().entry(subvolume).or_default().insert(domain);
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// How often something changed because of which a copy may be refused.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The quotas to which inodes of a subvolume were charged, and perhaps still are.
    pub fn charged_in(&self, subvolume: u64) -> Vec<Arc<Domain>> {
        let charged = self.charged_in.read().get(&subvolume).cloned().unwrap_or_default();
        charged.into_iter().filter_map(|id| self.get(id)).collect()
    }

    /// The quotas with a limit.
    pub fn limited(&self) -> Vec<Arc<Domain>> {
        let mut all = self.all();
        all.retain(|domain| domain.is_limited());
        all
    }
}

/// The domain of what is created in a directory; 0: none.
pub fn domain_of(directory: &DirectoryRecord) -> u64 {
    directory.charge.map_or(Charge::NO_DOMAIN, |charge| charge.domain)
}

/// Refuses to move an object from one domain into another under the same charge.
pub(crate) fn check_same(from: u64, to: u64) -> FsResult<()> {
    if from == to {
        Ok(())
    } else {
        Err(FsError::CrossSubvolume("another quota is charged there; copy it instead"))
    }
}

/// Refuses to move a directory that the quota around it has not reached yet: the quota would skip
/// it. A directory of another quota moves as a whole.
pub(crate) fn check_adopted(around: &DirectoryRecord, moved: &DirectoryRecord) -> FsResult<()> {
    match (domain_of(around), domain_of(moved)) {
        (1.., Charge::NO_DOMAIN) => Err(FsError::CrossSubvolume(
            "a quota is being set around the directory; try again when it has counted",
        )),
        _ => Ok(()),
    }
}
