//! Quotas of directories: domains of accounting, as XFS has projects.
//!
//! A quota directory begins a domain; whatever is made in it belongs to it and says so in its
//! record, together with the subvolume in which it was charged. Charges are given back only by
//! that subvolume, so that what a clone or a snapshot inherits charges nobody, twice neither.
//!
//! 1. Before a batch is committed its growth is reserved in memory, where the limits are: so no
//!    two writers get the last byte. Shrinking counts when it is committed.
//! 2. The batch merges the same numbers into the record of (domain, subvolume), which is what a
//!    crash leaves, and what the memory is filled from when the volume is opened.
//! 3. An inode that is charged is charged with all bytes that it stores. One that was inherited
//!    is charged, as a whole, when its contents are changed: from then on they are its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use device::Map;
use format::directory_record::DirectoryRecord;
use format::inode_record::InodeRecord;
use format::key;
use format::quota::{BYTES_AT, Charge, Charged, FILES_AT, QuotaRecord};
use inode::{Caller, FsError, NodeId};
use parking_lot::{Mutex, RwLock};
use store::{Lane, MergeKind};

use crate::edit::edit;
use crate::error::malformed;
use crate::load::Inode;
use crate::subvol::VOLUME;
use crate::txn::Txn;
use crate::{Fs, FsResult, QuotaInfo, QuotaLimits};

/// No limit.
const UNLIMITED: u64 = u64::MAX;

/// The domains of a volume.
#[derive(Default)]
pub(crate) struct Quotas {
    domains: RwLock<Map<u64, Arc<Domain>>>,
    /// Held while limits are set, so that those in memory are those of the last commit.
    setting: Mutex<()>,
}

/// A domain: its limits, and what is charged to it, with what is reserved for batches under way.
pub(crate) struct Domain {
    id: u64,
    subvolume: u64,
    directory: u64,
    files_max: AtomicU64,
    bytes_max: AtomicU64,
    files: AtomicI64,
    bytes: AtomicI64,
}

/// What a batch changes of a domain.
pub(crate) struct Change {
    domain: Arc<Domain>,
    files: i64,
    bytes: i64,
}

impl Domain {
    fn new(id: u64, record: &QuotaRecord) -> Domain {
        Domain {
            id,
            subvolume: record.subvolume,
            directory: record.directory,
            files_max: AtomicU64::new(record.files_max),
            bytes_max: AtomicU64::new(record.bytes_max),
            files: AtomicI64::new(0),
            bytes: AtomicI64::new(0),
        }
    }

    fn add(&self, files: i64, bytes: i64) {
        self.files.fetch_add(files, Ordering::AcqRel);
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Takes what a batch makes grow, or nothing.
    fn reserve(&self, files: i64, bytes: i64) -> FsResult<()> {
        take(&self.files, &self.files_max, files)?;
        take(&self.bytes, &self.bytes_max, bytes).inspect_err(|_| {
            self.files.fetch_sub(files, Ordering::AcqRel);
        })
    }

    fn record(&self) -> QuotaRecord {
        QuotaRecord {
            subvolume: self.subvolume,
            directory: self.directory,
            files_max: self.files_max.load(Ordering::Acquire),
            bytes_max: self.bytes_max.load(Ordering::Acquire),
        }
    }
}

fn take(used: &AtomicI64, most: &AtomicU64, more: i64) -> FsResult<()> {
    if more == 0 {
        return Ok(());
    }
    let most = i64::try_from(most.load(Ordering::Acquire)).unwrap_or(i64::MAX);
    let grown = |used: i64| used.checked_add(more).filter(|grown| *grown <= most);
    let taken = used.fetch_update(Ordering::AcqRel, Ordering::Acquire, grown);
    taken.map(drop).map_err(|_| FsError::QuotaExceeded)
}

impl Quotas {
    /// Reads the domains of a volume.
    pub(crate) fn load(&self, fs: &Fs) -> FsResult<()> {
        let mut domains = Map::default();
        fs.visit_volume(&key::QUOTAS_PREFIX, &mut |key, value| {
            let malformed = |error| malformed(VOLUME, &error);
            let (id, subvolume) = key::parse_quota(key).map_err(malformed)?;
            if subvolume.is_none() {
                let record = QuotaRecord::decode(value).map_err(malformed)?;
                domains.insert(id, Arc::new(Domain::new(id, &record)));
            } else if let (Some(domain), Ok(charged)) = (domains.get(&id), Charged::decode(value)) {
                // A damaged count is no reason not to open; a check of the volume tells of it.
                domain.add(charged.files, charged.bytes);
            }
            Ok(())
        })?;
        *self.domains.write() = domains;
        Ok(())
    }

    /// A domain that an inode names. One that is not there is damage, which limits nobody.
    fn get(&self, id: u64) -> Option<Arc<Domain>> {
        self.domains.read().get(&id).map(Arc::clone)
    }

    /// All domains, by number.
    fn all(&self) -> Vec<Arc<Domain>> {
        let mut all: Vec<_> = self.domains.read().values().map(Arc::clone).collect();
        all.sort_unstable_by_key(|domain| domain.id);
        all
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.domains.read().is_empty()
    }
}

impl Change {
    /// After the commit: what shrank is free for others.
    pub(crate) fn committed(&self) {
        self.domain.add(self.files.min(0), self.bytes.min(0));
    }

    /// Nothing was committed: what was reserved is free again.
    pub(crate) fn given_up(&self) {
        self.domain.add(-self.files.max(0), -self.bytes.max(0));
    }
}

/// The domain of what is made in a directory.
pub(crate) fn domain_of(directory: &DirectoryRecord) -> u64 {
    directory.charge.map_or(0, |charge| charge.domain)
}

/// Refuses to bring anything from one domain into another under the same charge.
pub(crate) fn check_same(from: u64, to: u64) -> FsResult<()> {
    if from == to { Ok(()) } else { Err(FsError::CrossSubvolume("another quota is charged there")) }
}

impl Txn<'_> {
    /// Charges a new inode that is made in a directory, and returns its mark.
    #[inline]
    pub(crate) fn charge_new(
        &mut self,
        subvolume: u64,
        directory: &DirectoryRecord,
        bytes: u64,
    ) -> FsResult<Option<Charge>> {
        match directory.charge {
            None => Ok(None),
            Some(Charge { domain, .. }) => {
                self.charge(domain, subvolume, 1, signed(bytes))?;
                Ok(Some(Charge { domain, subvolume }))
            }
        }
    }

    /// Changes what the inodes of a subvolume are charged to a domain.
    #[cold]
    pub(crate) fn charge(
        &mut self,
        domain: u64,
        subvolume: u64,
        files: i64,
        bytes: i64,
    ) -> FsResult<()> {
        if (files, bytes) == (0, 0) {
            return Ok(());
        }
        if let Some(domain) = self.quotas().get(domain) {
            domain.reserve(files.max(0), bytes.max(0))?;
            self.note_charge(Change { domain, files, bytes });
        }
        let lane = |offset, operand| Lane { offset, kind: MergeKind::Add, operand };
        let lanes = [lane(FILES_AT, files), lane(BYTES_AT, bytes)];
        self.batch().merge(VOLUME, &key::quota_charges(domain, subvolume), &lanes);
        Ok(())
    }

    /// Gives back what a directory that goes was charged.
    #[inline]
    pub(crate) fn credit_directory(&mut self, subvolume: u64, record: &DirectoryRecord) {
        if let Some(charge) = record.charge {
            self.credit(subvolume, charge, 0);
        }
    }

    /// Gives back what an inode that goes was charged, if it was in this subvolume.
    #[cold]
    pub(crate) fn credit(&mut self, subvolume: u64, charge: Charge, bytes: u64) {
        if charge.subvolume == subvolume {
            let credited = self.charge(charge.domain, subvolume, -1, -signed(bytes));
            credited.expect("invariant: what shrinks a charge is not refused");
        }
    }

    /// Charges an inode whose contents changed from `before` stored bytes. `changed`: they are not
    /// what they were, whatever their number.
    #[cold]
    pub(crate) fn charge_changed(
        &mut self,
        subvolume: u64,
        inode: &mut InodeRecord,
        before: u64,
        changed: bool,
    ) -> FsResult<()> {
        let Some(charge) = inode.charge else { return Ok(()) };
        let after = inode.stored();
        if charge.subvolume == subvolume {
            return self.charge(charge.domain, subvolume, 0, signed(after) - signed(before));
        }
        if changed {
            self.charge(charge.domain, subvolume, 1, signed(after))?;
            inode.charge = Some(Charge { subvolume, ..charge });
        }
        Ok(())
    }

    /// Adds to the batch that the charges of a subvolume go with it.
    pub(crate) fn drop_charges(&mut self, fs: &Fs, subvolume: u64) -> FsResult<()> {
        if fs.quotas.is_empty() {
            return Ok(());
        }
        let mut gone = Vec::new();
        fs.visit_volume(&key::QUOTAS_PREFIX, &mut |key, value| {
            let malformed = |error| malformed(VOLUME, &error);
            let (domain, of) = key::parse_quota(key).map_err(malformed)?;
            if of == Some(subvolume) {
                gone.push((domain, Charged::decode(value).unwrap_or_default()));
            }
            Ok(())
        })?;
        for (id, Charged { files, bytes }) in gone {
            self.batch().delete(VOLUME, &key::quota_charges(id, subvolume));
            if let Some(domain) = fs.quotas.get(id) {
                self.note_charge(Change { domain, files: -files, bytes: -bytes });
            }
        }
        Ok(())
    }
}

impl Fs {
    /// Sets the limits of a quota directory, or makes an empty directory one. Root may.
    pub fn quota_set(&self, caller: &Caller, dir: NodeId, limits: QuotaLimits) -> FsResult<()> {
        if !caller.is_root() {
            return Err(FsError::NotPermitted("only root sets quotas"));
        }
        let _setting = self.quotas.setting.lock();
        let mut made = None;
        let set = edit(self, dir, |edit| {
            let node = edit.node;
            let Inode::Directory(record, true) = &mut edit.inode else {
                return Err(FsError::NotDirectory);
            };
            let known = record.charge.and_then(|charge| self.quotas.get(charge.domain));
            // That of a clone or of a roll-back is the same quota.
            let own = known.filter(|domain| domain.directory == place(node).1);
            if let Some(domain) = own {
                let max = |max: Option<u64>| max.unwrap_or(UNLIMITED);
                let (files_max, bytes_max) = (max(limits.files), max(limits.bytes));
                let record = QuotaRecord { files_max, bytes_max, ..domain.record() };
                edit.txn.batch().put(VOLUME, &key::quota(domain.id), &record.encode());
                return Ok(Some((domain, record)));
            }
            if record.entries != 0 {
                return Err(FsError::NotEmpty);
            }
            let id = self.numbers.next_ino(&*self.store)?;
            let (subvolume, directory) = place(node);
            let quota = QuotaRecord {
                subvolume,
                directory,
                files_max: limits.files.unwrap_or(UNLIMITED),
                bytes_max: limits.bytes.unwrap_or(UNLIMITED),
            };
            edit.txn.credit_directory(subvolume, record);
            record.charge = Some(Charge { domain: id, subvolume });
            self.quotas.domains.write().insert(id, Arc::new(Domain::new(id, &quota)));
            made = Some(id);
            edit.txn.batch().put(VOLUME, &key::quota(id), &quota.encode());
            edit.txn.charge(id, subvolume, 1, 0)?;
            Ok(None)
        });
        if let (Err(_), Some(id)) = (&set, made) {
            self.quotas.domains.write().remove(&id);
        }
        if let (Some((domain, record)), _) = set? {
            domain.files_max.store(record.files_max, Ordering::Release);
            domain.bytes_max.store(record.bytes_max, Ordering::Release);
        }
        Ok(())
    }

    /// The quota that a file or a directory is charged to, if any. Whoever got hold of it may ask.
    pub fn quota_get(&self, node: NodeId) -> FsResult<Option<QuotaInfo>> {
        let (subvol, ino) = self.place(node)?;
        let charge = subvol.read(|tree| {
            let view = crate::view::View::new(&*self.store, tree);
            let inode = crate::load::load(self, view, subvol.node(ino), ino)?;
            Ok(match inode {
                Inode::Directory(record, _) => record.charge,
                Inode::File(file) => file.inode.charge,
            })
        })?;
        Ok(charge.and_then(|charge| self.quotas.get(charge.domain)).map(|domain| info(&domain)))
    }

    /// All quotas. Root may.
    pub fn quota_list(&self, caller: &Caller) -> FsResult<Vec<QuotaInfo>> {
        if !caller.is_root() {
            return Err(FsError::NotPermitted("only root lists quotas"));
        }
        Ok(self.quotas.all().iter().map(|domain| info(domain)).collect())
    }
}

/// Bytes that an inode stores: what a damaged record says may be more than there can be.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn place(node: NodeId) -> (u64, u64) {
    (node.subvol().0, node.ino().0)
}

fn info(domain: &Domain) -> QuotaInfo {
    let record = domain.record();
    let limit = |max| (max != UNLIMITED).then_some(max);
    QuotaInfo {
        id: domain.id,
        directory: Fs::node_of(record.subvolume, record.directory),
        limits: QuotaLimits { files: limit(record.files_max), bytes: limit(record.bytes_max) },
        files: domain.files.load(Ordering::Acquire).max(0) as u64,
        bytes: domain.bytes.load(Ordering::Acquire).max(0) as u64,
    }
}
