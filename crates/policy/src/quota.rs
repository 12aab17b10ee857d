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
//!    name ([`InodeRecord::charged_bytes`]). An inherited one is charged, as a whole, when its
//!    contents are changed or it gets a name. From then on it is the subvolume's own.
//!
//! The quotas of users and groups (`owners`) are charged along.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::sync::{Mutex, MutexGuard, RwLock};
use device::{Map, Set};
use format::directory_record::DirectoryRecord;
use format::inode_record::InodeRecord;
use format::key;
use format::quota::{Charge, Charged, QuotaRecord};
use inode::{Caller, FsError, NodeId};
use ops::edit::edit;
use ops::plan::Plan;
use vfs::FsResult;
use volume::account::{self, Account, Change, UNLIMITED, signed};
use volume::load::Inode;
use volume::subvol::{VOLUME, node_of};
use volume::view::View;
use volume::{QuotaChange, QuotaInfo};

use crate::Governed;
use crate::owners::{Owned, Owners, share};
use crate::quota_adopt::Adopting;

/// The quotas of a volume.
#[derive(Default)]
pub struct Quotas {
    domains: RwLock<Map<u64, Arc<Domain>>>,
    /// The domains to which the inodes of a subvolume were charged, and perhaps still are.
    charged_in: RwLock<Map<u64, Set<u64>>>,
    /// Users and groups.
    pub owners: Owners,
    /// Held while limits are set, so that those in memory are those of the last commit.
    setting: Mutex<()>,
    pub(crate) adopting: Mutex<Adopting>,
    /// Why the charges are not known.
    unknown: Mutex<Option<FsError>>,
    /// How often limits were set, and subvolumes charged to another quota.
    changes: AtomicU64,
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
    account: Arc<Account>,
}

impl Domain {
    fn new(id: u64, record: &QuotaRecord) -> Domain {
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
    pub fn load(&self, fs: &Governed) -> FsResult<()> {
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
    fn adopting_at(&self, place: (u64, u64)) -> Option<Arc<Domain>> {
        let all = self.all();
        all.into_iter().find(|domain| {
            (domain.subvolume, domain.directory) == place && domain.adopting_from().is_some()
        })
    }

    fn note_charged_in(&self, subvolume: u64, domain: u64) {
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

/// Marks an inherited inode as a subvolume's own, because it changed. Only the names that it got
/// with the change are charged: the others are inherited, and may be out of reach.
pub fn take_over(inode: &mut InodeRecord, before: Option<&InodeRecord>, charge: Charge) {
    let inherited = before.map_or(0, |before| before.charged_names);
    inode.charged_names = inode.charged_names.saturating_sub(inherited);
    inode.charge = Some(charge);
}

/// Refuses to move an object from one domain into another under the same charge.
pub(crate) fn check_same(from: u64, to: u64) -> FsResult<()> {
    if from == to { Ok(()) } else { Err(FsError::CrossSubvolume("another quota is charged there")) }
}

/// Refuses to move a directory that the quota around it has not reached yet: the quota would skip
/// it. A directory of another quota moves as a whole.
pub(crate) fn check_adopted(around: &DirectoryRecord, moved: &DirectoryRecord) -> FsResult<()> {
    match (domain_of(around), domain_of(moved)) {
        (1.., Charge::NO_DOMAIN) => {
            Err(FsError::CrossSubvolume("a quota is being set around the directory"))
        }
        _ => Ok(()),
    }
}

/// Charges in a plan.
pub struct Charging<'p> {
    fs: &'p Governed,
    /// The plan that charges.
    pub plan: &'p mut Plan,
}

impl<'p> Charging<'p> {
    /// Charges in a plan.
    pub fn of(fs: &'p Governed, plan: &'p mut Plan) -> Charging<'p> {
        Charging { fs, plan }
    }

    /// The volume.
    pub fn fs(&self) -> &'p Governed {
        self.fs
    }

    /// Charges a directory that was created in the trash, and leaves it; returns its mark. One with
    /// such a mark that was inherited is charged to no one, wherever it goes.
    pub(crate) fn charge_out_of_trash(
        &mut self,
        (subvolume, ino): (u64, u64),
        record: &DirectoryRecord,
    ) -> FsResult<Option<Charge>> {
        let own = self.fs.subvols.first_own_ino(subvolume).is_some_and(|first| ino >= first);
        let nobody = |charge: &Charge| own && charge.subvolume == Charge::NOBODY;
        let Some(charge) = record.charge.filter(nobody) else {
            return Ok(record.charge);
        };
        if record.subdirectories != 0 {
            // Those below would stay uncharged.
            return Err(FsError::CrossSubvolume("directories of the trash are charged one by one"));
        }
        self.charge(charge.domain, subvolume, 1, 0)?;
        if self.fs.quotas.owners.is_on() {
            self.charge_new_owned(subvolume, (record.uid, record.gid), 0)?;
        }
        Ok(Some(Charge { subvolume, ..charge }))
    }

    /// Charges a file to a domain that is not that of the place where it was.
    pub(crate) fn move_to_domain(
        &mut self,
        (subvolume, ino): (u64, u64),
        inode: &mut InodeRecord,
        domain: u64,
    ) -> FsResult<()> {
        let known = inode.charge.map_or(Charge::NO_DOMAIN, |charge| charge.domain);
        if known == domain {
            return Ok(());
        }
        let bytes = inode.charged_bytes();
        let own = self.is_own(subvolume, ino, inode.charge);
        if let Some(charge) = inode.charge {
            self.credit(subvolume, charge, bytes);
        }
        let nobody = inode.charge.map_or(Charge::NOBODY, |charge| charge.subvolume);
        if own {
            self.charge(domain, subvolume, 1, signed(bytes))?;
        }
        inode.charge = Some(Charge { domain, subvolume: if own { subvolume } else { nobody } });
        Ok(())
    }

    /// Charges a new inode that is created in a directory, and returns its mark.
    #[inline]
    pub(crate) fn charge_new(
        &mut self,
        subvolume: u64,
        directory: &DirectoryRecord,
        (owned, bytes): (Owned, u64),
    ) -> FsResult<Option<Charge>> {
        if self.fs.quotas.owners.is_on() {
            self.charge_new_owned(subvolume, owned, bytes)?;
        }
        match directory.charge {
            None => Ok(None),
            Some(Charge { domain, .. }) => {
                self.charge(domain, subvolume, 1, signed(bytes))?;
                Ok(Some(Charge { domain, subvolume }))
            }
        }
    }

    /// The mark of an inode that is charged to neither a domain nor owners, although it is created
    /// here; none where nothing is charged.
    pub(crate) fn uncharged(&self, domain: u64) -> Option<Charge> {
        let counts = domain != Charge::NO_DOMAIN || self.fs.quotas.owners.is_on();
        counts.then_some(Charge { domain, subvolume: Charge::NOBODY })
    }

    /// Changes the charges of a subvolume's inodes to a domain.
    #[cold]
    pub fn charge(&mut self, domain: u64, subvolume: u64, inodes: i64, bytes: i64) -> FsResult<()> {
        self.charge_domain((domain, subvolume), (inodes, bytes), false)
    }

    /// Like [`Charging::charge`]; `force`: regardless of the limits.
    pub(crate) fn charge_domain(
        &mut self,
        (domain, subvolume): (u64, u64),
        (inodes, bytes): (i64, i64),
        force: bool,
    ) -> FsResult<()> {
        if (inodes, bytes) == (0, 0) || domain == Charge::NO_DOMAIN {
            return Ok(());
        }
        let quotas = &self.fs.quotas;
        if let Some(known) = quotas.get(domain) {
            let change = Change::take(Arc::clone(&known.account), (inodes, bytes), force)?;
            self.plan.reserve(change);
        }
        quotas.note_charged_in(subvolume, domain);
        let (lanes, used) = account::lanes(inodes, bytes);
        self.plan.batch().merge(VOLUME, &key::quota_charges(domain, subvolume), &lanes[..used]);
        Ok(())
    }

    /// Returns the charge of a directory that is removed.
    #[inline]
    pub fn credit_directory(&mut self, subvolume: u64, ino: u64, record: &DirectoryRecord) {
        if let Some(charge) = record.charge {
            self.credit(subvolume, charge, 0);
        }
        self.credit_owned(subvolume, ino, record.charge, ((record.uid, record.gid), 0));
    }

    /// Returns the charge of an inode that is removed.
    #[inline]
    pub(crate) fn credit_inode(&mut self, subvolume: u64, ino: u64, inode: &InodeRecord) {
        if let Some(charge) = inode.charge {
            self.credit(subvolume, charge, inode.charged_bytes());
        }
        self.credit_owned(subvolume, ino, inode.charge, share(inode));
    }

    /// Returns an inode's charge to a domain, if it was charged in this subvolume.
    #[cold]
    pub(crate) fn credit(&mut self, subvolume: u64, charge: Charge, bytes: u64) {
        if charge.subvolume == subvolume {
            let credited = self.charge(charge.domain, subvolume, -1, -signed(bytes));
            credited.expect("invariant: what shrinks a charge is not refused");
        }
    }

    /// Charges an inode that changed from what was stored before, if anything was. `changed`: its
    /// contents changed, even if their number did not, or it got a name.
    #[inline]
    pub(crate) fn charge_changed(
        &mut self,
        subvolume: u64,
        ino: u64,
        (before, inode): (Option<&InodeRecord>, &mut InodeRecord),
        changed: bool,
    ) -> FsResult<()> {
        if let Some(charge) = inode.charge {
            self.charge_domain_change(subvolume, charge, (before, inode), changed)?;
        }
        if self.fs.quotas.owners.is_on() {
            self.charge_owned_change(subvolume, ino, (before, inode), changed)?;
        }
        Ok(())
    }

    #[cold]
    fn charge_domain_change(
        &mut self,
        subvolume: u64,
        charge: Charge,
        (before, inode): (Option<&InodeRecord>, &mut InodeRecord),
        changed: bool,
    ) -> FsResult<()> {
        if charge.domain == Charge::NO_DOMAIN {
            return Ok(());
        }
        if charge.subvolume == subvolume {
            let before = before.map_or(0, InodeRecord::charged_bytes);
            let more = signed(inode.charged_bytes()) - signed(before);
            return self.charge(charge.domain, subvolume, 0, more);
        }
        if changed {
            take_over(inode, before, Charge { subvolume, ..charge });
            self.charge(charge.domain, subvolume, 1, signed(inode.charged_bytes()))?;
        }
        Ok(())
    }

    /// Adds to the batch that the charges of a subvolume are removed with it.
    pub fn drop_charges(&mut self, subvolume: u64) -> FsResult<()> {
        self.drop_owner_charges(subvolume)?;
        let fs = self.fs;
        let domains = fs.quotas.charged_in.read().get(&subvolume).cloned().unwrap_or_default();
        let mut domains: Vec<u64> = domains.into_iter().collect();
        domains.sort_unstable();
        let view = View::new(&*fs.store, VOLUME);
        for id in domains {
            let key = key::quota_charges(id, subvolume);
            let known = view.read(&key, |bytes| Ok(Charged::decode(bytes).unwrap_or_default()))?;
            let Some(Charged { inodes, bytes }) = known else { continue };
            self.plan.batch().delete(VOLUME, &key);
            if let Some(domain) = fs.quotas.get(id) {
                let account = Arc::clone(&domain.account);
                self.plan.reserve(Change::take(account, (-inodes, -bytes), true)?);
            }
        }
        Ok(())
    }
}

impl Governed {
    /// Changes the limits, and begins a domain if there is none. Its contents are not charged yet.
    /// The caller holds the lock of [`Quotas::setting`].
    pub fn set_limits(&self, dir: NodeId, change: QuotaChange) -> FsResult<Arc<Domain>> {
        let mut made = None;
        let set = edit(self, &self.policies(), dir, |edit| {
            let node = edit.node;
            let Inode::Directory(record, true) = &mut edit.inode else {
                return Err(FsError::NotDirectory);
            };
            let known = record.charge.and_then(|charge| self.quotas.get(charge.domain));
            // That of a clone or of a roll-back is the same quota.
            let own = known.filter(|domain| domain.directory == node.ino().0);
            let (subvolume, directory) = (self.subvol_of(node)?.id.0, node.ino().0);
            let own = own.or_else(|| self.quotas.adopting_at((subvolume, directory)));
            if let Some(domain) = own {
                let max = account::changed(domain.account.limits(), change);
                let record = QuotaRecord { inodes_max: max.0, bytes_max: max.1, ..domain.record() };
                edit.plan.batch().put(VOLUME, &key::quota(domain.id), &record.encode());
                return Ok((domain, max));
            }
            let max = account::changed((UNLIMITED, UNLIMITED), change);
            let id = self.numbers.next_ino(&*self.store)?;
            let quota = QuotaRecord {
                subvolume,
                directory,
                inodes_max: max.0,
                bytes_max: max.1,
                adopting_from: (record.entries != 0).then(|| domain_of(record)),
            };
            let domain = Arc::new(Domain::new(id, &quota));
            self.quotas.domains.write().insert(id, Arc::clone(&domain));
            made = Some(id);
            edit.plan.batch().put(VOLUME, &key::quota(id), &quota.encode());
            if quota.adopting_from.is_none() {
                let marked = Charging::of(self, edit.plan).mark(
                    id,
                    (subvolume, directory),
                    record.charge,
                    0,
                )?;
                record.charge = Some(marked);
            }
            Ok((domain, max))
        });
        if let (Err(_), Some(id)) = (&set, made) {
            self.quotas.domains.write().remove(&id);
        }
        let (domain, max) = set?;
        domain.account.set_limits(max);
        self.quotas.changes.fetch_add(1, Ordering::AcqRel);
        Ok(domain)
    }

    /// The quota that a file or a directory is charged to, if any. Any caller that holds the inode
    /// may read it.
    pub fn quota_get(&self, node: NodeId) -> FsResult<Option<QuotaInfo>> {
        Ok(self.domain_at(node)?.map(|domain| info(&domain)))
    }

    /// The domain that a node is in.
    pub(crate) fn domain_at(&self, node: NodeId) -> FsResult<Option<Arc<Domain>>> {
        self.quotas.check_known()?;
        if self.quotas.is_empty() {
            return Ok(None);
        }
        let (subvol, ino) = self.place(node)?;
        let charge = subvol.read(|tree| {
            let view = View::new(&*self.store, tree);
            let inode = volume::load::load(self, view, subvol.node(ino), ino)?;
            Ok(match inode {
                Inode::Directory(record, _) => record.charge,
                Inode::File(file) => file.inode.charge,
            })
        })?;
        Ok(charge.and_then(|charge| self.quotas.get(charge.domain)))
    }

    /// All quotas of directories, except those whose directory is gone and to which nothing is
    /// charged. Only root may read them.
    pub fn quota_list(&self, caller: &Caller) -> FsResult<Vec<QuotaInfo>> {
        if !caller.is_root() {
            return Err(FsError::RootOnly("only root lists quotas"));
        }
        self.quotas.check_known()?;
        let mut listed = Vec::new();
        for domain in self.quotas.all() {
            if !domain.account.is_unused() || self.has_directory(&domain)? {
                listed.push(info(&domain));
            }
        }
        Ok(listed)
    }

    /// Whether the directory of a quota still exists.
    fn has_directory(&self, domain: &Domain) -> FsResult<bool> {
        let subvol = match self.subvol(inode::SubvolId(domain.subvolume)) {
            Err(FsError::Stale) => return Ok(false),
            subvol => subvol?,
        };
        let found = subvol.read(|tree| View::new(&*self.store, tree).directory(domain.directory));
        match found {
            Err(FsError::Stale) => Ok(false),
            found => Ok(found?.is_some_and(|record| !record.detached)),
        }
    }
}

/// The report about a domain.
pub fn info(domain: &Domain) -> QuotaInfo {
    let (inodes, bytes) = domain.account.used();
    QuotaInfo {
        id: domain.id,
        directory: node_of(domain.subvolume, domain.directory),
        limits: account::decoded(domain.account.limits()),
        inodes,
        bytes,
    }
}
