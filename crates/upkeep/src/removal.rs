//! Removals where there may be no space for a trash, and where space is sought for it first.

use inode::{Caller, FsError, NodeId};
use ops::policy::Policy;
use policy::policies::Purpose;
use vfs::FsResult;
use volume::RmrInfo;

use crate::Upkeep;
use crate::foreground_reclaim::Search;

impl Upkeep {
    /// Runs a removal: into the trash, if that is on and there is space for that.
    #[inline]
    pub fn removing<T>(&self, run: impl Fn(&dyn Policy) -> FsResult<T>) -> FsResult<T> {
        let policies = self.policies();
        if !self.trash.is_on() {
            return self.with_space(|| run(&policies));
        }
        let mut search = Search::default();
        match self.searching(&mut search, || run(&policies)) {
            Err(FsError::NoSpace) if search.is_exhausted() => {
                run(&self.policies_for(Purpose::Delete))
            }
            result => result,
        }
    }

    /// Removes a directory with all below it, at once; its space is given back later, or it moves
    /// into the trash where that is on. Root may, and a user who may remove the name and owns every
    /// directory below. Snapshots of directories below stay, and are found by
    /// [`ops::Ops::snapshot_list_all`].
    pub fn rmr(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<RmrInfo> {
        self.wait_for_objects()?;
        if self.trash.is_on() {
            let mut search = Search::default();
            let kept = self.searching(&mut search, || self.rmr_into_trash(caller, parent, name));
            match kept {
                Ok(Some(info)) => return Ok(info),
                Ok(None) => {}
                Err(FsError::NoSpace) if search.is_exhausted() => {}
                Err(error) => return Err(error),
            }
        }
        self.rmr_now(&self.policies(), caller, parent, name)
    }
}
