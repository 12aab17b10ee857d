//! What is charged to quotas: counted anew from the inodes.

use format::key;
use format::quota::Charged;

use super::{Checker, Edit, Fix, Problem, ProblemKind};
use crate::subvol::VOLUME;

impl Checker<'_, '_> {
    /// Compares the records of charges with what inodes say, where there is any quota and all of
    /// it can be read: what cannot has been told by then.
    pub(super) fn check_quotas(&mut self) {
        let Ok(differences) = self.fs.quota_differences(self.pin) else { return };
        for difference in differences {
            let ((files, bytes), (files_found, bytes_found)) =
                (difference.recorded, difference.found);
            let what = format!(
                "quota {}: {files} files and {bytes} bytes are charged, {files_found} and \
                 {bytes_found} are there",
                difference.id
            );
            let at = key::quota_charges(difference.id, difference.subvolume).to_vec();
            let charged = Charged { files: files_found, bytes: bytes_found };
            let edits = vec![Edit::Put(VOLUME, at, charged.encode())];
            let problem = Problem::new(ProblemKind::Quota, what);
            self.found(problem.mended_by(Fix::Edits("charge what is there", edits)));
        }
    }
}
