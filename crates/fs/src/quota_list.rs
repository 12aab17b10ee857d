//! What is told of the quotas of directories.

use inode::{Caller, FsError, SubvolId};

use crate::quota::Domain;
use crate::view::View;
use crate::{Fs, FsResult, QuotaInfo, account};

impl Fs {
    /// All quotas of directories, but those whose directory is gone and to which nothing is
    /// charged. Root may.
    pub fn quota_list(&self, caller: &Caller) -> FsResult<Vec<QuotaInfo>> {
        if !caller.is_root() {
            return Err(FsError::NotPermitted("only root lists quotas"));
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

    /// Whether the directory of a quota is still there.
    fn has_directory(&self, domain: &Domain) -> FsResult<bool> {
        let subvol = match self.subvol(SubvolId(domain.subvolume)) {
            Err(FsError::Stale) => return Ok(false),
            subvol => subvol?,
        };
        let found = subvol.read(|tree| View::new(&*self.store, tree).directory(domain.directory()));
        match found {
            Err(FsError::Stale) => Ok(false),
            found => Ok(found?.is_some_and(|record| !record.detached)),
        }
    }
}

/// What is told of a domain.
pub(crate) fn info(domain: &Domain) -> QuotaInfo {
    let (files, bytes) = domain.account.used();
    QuotaInfo {
        id: domain.id,
        directory: Fs::node_of(domain.subvolume, domain.directory()),
        limits: account::decoded(domain.account.limits()),
        files,
        bytes,
    }
}
