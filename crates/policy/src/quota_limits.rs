//! Sets and reports the limits of directories.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::key;
use format::quota::QuotaRecord;
use inode::{Caller, FsError, NodeId};
use ops::edit::edit;
use vfs::FsResult;
use volume::account::{self, UNLIMITED};
use volume::load::Inode;
use volume::subvol::{VOLUME, node_of};
use volume::view::View;
use volume::{QuotaChange, QuotaInfo};

use crate::Governed;
use crate::charging::Charging;
use crate::quota::{Domain, domain_of};

impl Governed {
    /// Changes the limits, and begins a domain if there is none. Its contents are not charged yet.
    /// The caller has the lock that `Quotas::setting` returns.
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
