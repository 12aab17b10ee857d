//! Extended attributes that were declared searchable: names in the volume's tree. Rows of clusters
//! that are written from then on carry their values, so that queries skip clusters by them. What is
//! not declared, or was declared after a cluster was written, is read from the store. So a
//! declaration changes what a query costs, never what it finds.

use format::cluster_summary::CARRIED_MAX;
use format::key;
use inode::{FsError, NodeId};
use ops::posix::totals;
use ops::posix::xattr::check_name;
use ops::subvolumes::execute_with;
use vfs::FsResult;
use volume::subvol::VOLUME;

use crate::Upkeep;

/// The names that are declared, in order.
pub fn all(fs: &Upkeep) -> FsResult<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    fs.visit_volume(&key::SEARCHABLE_PREFIX, &mut |key, _| {
        names.extend(key.strip_prefix(&key::SEARCHABLE_PREFIX).map(<[u8]>::to_vec));
        Ok(())
    })?;
    Ok(names)
}

impl Upkeep {
    /// The extended attributes that are declared searchable, in order.
    pub fn searchable(&self) -> FsResult<Vec<Vec<u8>>> {
        all(self)
    }

    /// Declares extended attributes searchable, all or none, and requests a new base of the root's
    /// subvolume, whose rows carry them. Other subvolumes get theirs when they are searched.
    pub fn declare_searchable(&self, names: &[Vec<u8>]) -> FsResult<()> {
        for name in names {
            check_name(name)?;
            if totals::is_total(name) {
                return Err(FsError::InvalidArgument(
                    "totals are computed when they are requested",
                ));
            }
        }
        // Two at once must not be more than fit together.
        let is_new = execute_with(self, &mut self.admin.lock(), |_, plan| {
            let mut declared = all(self)?;
            let before = declared.len();
            declared.extend_from_slice(names);
            declared.sort();
            declared.dedup();
            if declared.len() > CARRIED_MAX {
                return Err(FsError::InvalidArgument("at most 64 attributes can be searchable"));
            }
            for name in names {
                plan.batch().put(VOLUME, &key::searchable(name), b"");
            }
            Ok(declared.len() > before)
        })?;
        if is_new {
            self.index_request(NodeId::ROOT)?;
        }
        Ok(())
    }

    /// Revokes declarations, all or none. Their values in clusters are removed when those are
    /// rewritten.
    pub fn undeclare_searchable(&self, names: &[Vec<u8>]) -> FsResult<()> {
        execute_with(self, &mut self.admin.lock(), |_, plan| {
            let declared = all(self)?;
            if names.iter().any(|name| !declared.contains(name)) {
                return Err(FsError::NotFound);
            }
            for name in names {
                plan.batch().delete(VOLUME, &key::searchable(name));
            }
            Ok(())
        })
    }
}
