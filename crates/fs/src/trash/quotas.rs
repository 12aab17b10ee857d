//! Quotas whose directories come back out of the trash.
//!
//! A directory that is removed into a trash becomes its mirror there, which is another inode
//! (`keep`): what it is charged stays, and the quota's record names an inode that is gone. So it
//! stays while the directory is in the trash, for a roll-back brings that inode back. What is
//! restored is gone through, if any quota of the subvolume has lost its directory, and the quota
//! begins there again. After a crash in between the next restoring does, or who sets the limits.

use format::directory_record::DirectoryRecord;
use format::key;
use format::quota::QuotaRecord;
use inode::NodeId;

use super::place::names_of;
use crate::edit::edit;
use crate::load::Inode;
use crate::quota::{Domain, domain_of};
use crate::subvol::{Subvol, VOLUME};
use crate::view::View;
use crate::{Fs, FsResult};

/// Whether a quota begins in a directory which came back: its own is gone, and this one is
/// charged to it and is in none that is.
pub(crate) fn came_back(
    domain: &Domain,
    (node, record): (NodeId, &DirectoryRecord),
    view: View<'_>,
) -> FsResult<bool> {
    let place = (node.subvol().0, domain_of(record));
    let own = domain.directory() == node.ino().0;
    if place != (domain.subvolume, domain.id) || own || !is_gone(view, domain)? {
        return Ok(false);
    }
    let above = view.directory(record.parent)?;
    Ok(above.is_none_or(|above| domain_of(&above) != domain.id))
}

impl Fs {
    /// Has quotas begin again in what was restored: in a directory, or below it.
    pub(super) fn quotas_come_back(&self, subvol: &Subvol, top: u64) -> FsResult<()> {
        let view = View::new(&*self.store, subvol.tree());
        let mut lost = Vec::new();
        for domain in self.quotas.all() {
            if domain.subvolume == subvol.id.0 && is_gone(view, &domain)? {
                lost.push(domain);
            }
        }
        let mut left = vec![top];
        while let Some(at) = left.pop().filter(|_| !lost.is_empty()) {
            let Some(record) = view.directory(at)? else { continue };
            let of = |domain: &Domain| domain.id == domain_of(&record);
            if let Some(found) = lost.iter().position(|domain| of(domain))
                && self.begin_again(&lost[found], subvol.node(at))?
            {
                lost.swap_remove(found);
            }
            names_of(view, at, 0, &mut |_, found| {
                if found.is_directory() {
                    left.push(found.ino);
                }
                true
            })?;
        }
        Ok(())
    }

    fn begin_again(&self, domain: &Domain, node: NodeId) -> FsResult<bool> {
        let _setting = self.quotas.setting();
        let (back, attr) = edit(self, node, |edit| {
            let Inode::Directory(record, true) = &edit.inode else { return Ok(false) };
            if !came_back(domain, (edit.node, record), edit.view)? {
                return Ok(false);
            }
            let record = QuotaRecord { directory: edit.node.ino().0, ..domain.record() };
            edit.txn.batch().put(VOLUME, &key::quota(domain.id), &record.encode());
            Ok(true)
        })?;
        if back {
            domain.begins_in(attr.node.ino().0);
        }
        Ok(back)
    }
}

fn is_gone(view: View<'_>, domain: &Domain) -> FsResult<bool> {
    Ok(view.directory(domain.directory())?.is_none_or(|record| record.detached))
}
