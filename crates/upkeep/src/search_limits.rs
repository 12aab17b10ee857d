//! How large clusters of the index become: a setting of the volume, in its own tree, that each
//! flush reads. Clusters with other limits are rewritten by the next flush of their subvolume. The
//! results of a search do not depend on it.

use format::cluster_limits::{ClusterLimitsRecord, DIRECTORIES_MAX, ROWS_MAX, ROWS_MIN};
use format::key;
use inode::{FsError, NodeId};
use ops::plan::Plan;
use ops::subvolumes::{Ledger, execute_with};
use search::index::ClusterLimits;
use vfs::FsResult;
use volume::subvol::VOLUME;
use volume::view::View;

use crate::Upkeep;

impl Upkeep {
    /// Limits of the clusters that are written from now on.
    pub fn cluster_limits(&self) -> FsResult<ClusterLimits> {
        let view = View::new(&*self.store, VOLUME);
        let record = view.read(&key::CLUSTER_LIMITS_KEY, ClusterLimitsRecord::decode)?;
        let own = || self.index.as_ref().map(|index| index.options().limits).unwrap_or_default();
        Ok(record.map_or_else(own, |record| {
            let ClusterLimitsRecord { directories, rows, .. } = record;
            ClusterLimits { directories, rows }
        }))
    }

    /// Sets them; `None` keeps the present one. The root's subvolume gets a new base by them, and
    /// others when they get one for another reason. Returns the limits now in force.
    pub fn set_cluster_limits(
        &self,
        directories: Option<u32>,
        rows: Option<u32>,
    ) -> FsResult<ClusterLimits> {
        let set = execute_with(self, &mut self.admin.lock(), |ledger, plan| {
            self.plan_cluster_limits(ledger, plan, (directories, rows))
        })?;
        let (limits, is_new) = set;
        if is_new {
            self.index_request(NodeId::ROOT)?;
        }
        Ok(limits)
    }

    /// Plans the record; returns the limits, and whether they are others than before.
    fn plan_cluster_limits(
        &self,
        ledger: &mut Ledger,
        plan: &mut Plan,
        (directories, rows): (Option<u32>, Option<u32>),
    ) -> FsResult<(ClusterLimits, bool)> {
        let limits = if let (Some(directories), Some(rows)) = (directories, rows) {
            // Also where the record is damaged.
            ClusterLimits { directories, rows }
        } else {
            let now = self.cluster_limits()?;
            ClusterLimits {
                directories: directories.unwrap_or(now.directories),
                rows: rows.unwrap_or(now.rows),
            }
        };
        let ClusterLimits { directories, rows } = limits;
        if !(1..=DIRECTORIES_MAX).contains(&directories) {
            return Err(FsError::InvalidArgument("a cluster has from 1 to 1000000 directories"));
        }
        if !(ROWS_MIN..=ROWS_MAX).contains(&rows) {
            return Err(FsError::InvalidArgument("a cluster has from 10 to 1000000 inodes"));
        }
        if self.cluster_limits().is_ok_and(|now| now == limits) {
            return Ok((limits, false));
        }
        // Bases that are begun later have greater numbers.
        let since = ledger.new_tree().0;
        let record = ClusterLimitsRecord { directories, rows, since };
        plan.batch().put(VOLUME, &key::CLUSTER_LIMITS_KEY, &record.encode());
        Ok((limits, true))
    }
}
