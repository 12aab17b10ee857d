//! Quotas: their records, and their charges, recounted from the inodes.

use format::key;
use format::owner_quota::{OwnerLimits, OwnerState};
use format::quota::{Charged, QuotaRecord};
use policy::quota_check::{Counting, UsageTable, count_subvolumes};
use vfs::FsResult;
use volume::QuotaOf;
use volume::account::UNLIMITED;
use volume::readable::Scan;
use volume::subvol::VOLUME;

use super::{Checker, Edit, Fix, Problem, ProblemKind};

impl Checker<'_, '_> {
    /// Checks the records, and compares those of charges with the inodes, if there is any quota and
    /// everything can be read. If something cannot be read and no problem reports that yet, this
    /// reports that they were not compared, and why. That is so with what waits to be removed.
    pub(super) fn check_quotas(&mut self) -> FsResult<()> {
        self.check_quota_records()?;
        self.check_quota_places()?;
        let differences = match self.fs.quota_differences(self.pin, &mut Counting::silent()) {
            Ok(differences) => differences,
            Err(error) => {
                let unread = [ProblemKind::Unreadable, ProblemKind::Structure];
                if !self.report.problems.iter().any(|problem| unread.contains(&problem.kind)) {
                    let what = format!("what is charged to quotas was not compared: {error}");
                    self.found(Problem::new(ProblemKind::Quota, what));
                }
                return Ok(());
            }
        };
        self.charges_are_right = differences.is_empty();
        for difference in differences {
            let ((inodes, bytes), (inodes_found, bytes_found)) =
                (difference.recorded, difference.found);
            let of = difference.of;
            let what = format!(
                "{of}: {inodes} inodes and {bytes} bytes are charged, but {inodes_found} and \
                 {bytes_found} were counted"
            );
            let at = match of {
                QuotaOf::Directory(id) => key::quota_charges(id, difference.subvolume).to_vec(),
                QuotaOf::Owner(owner) => key::owner_charges(difference.subvolume, owner).to_vec(),
            };
            let charged = Charged { inodes: inodes_found, bytes: bytes_found };
            self.wrong_quota(
                what,
                "charge what was counted",
                Edit::Put(VOLUME, at, charged.encode()),
            );
        }
        Ok(())
    }

    fn wrong_quota(&mut self, what: String, remedy: &'static str, edit: Edit) {
        let problem = Problem::new(ProblemKind::Quota, what);
        self.found(problem.repaired_by(Fix::Edits(remedy, vec![edit])));
    }

    /// Records that do not decode limit no one, and do not prevent opening a volume.
    fn check_quota_records(&mut self) -> FsResult<()> {
        let mut damaged = Vec::new();
        for prefix in [key::QUOTAS_PREFIX, key::OWNERS_PREFIX, key::OWNER_CHARGES_PREFIX] {
            let mut scan = Scan::new(self.pin, VOLUME, &prefix)?;
            while scan.advance()? {
                match wrong(prefix, &scan.key, &scan.value) {
                    None => {}
                    Some((what, Some(domain))) => damaged.push((what, domain)),
                    Some((what, None)) => {
                        let edit = Edit::Delete(VOLUME, scan.key.clone());
                        self.wrong_quota(what, "remove the record; the limit is lost", edit);
                    }
                }
            }
        }
        if damaged.is_empty() {
            return Ok(());
        }
        let mut found = UsageTable::damaged(damaged.iter().map(|(_, domain)| *domain));
        let known = count_subvolumes(self.pin, &mut found, &mut Counting::silent());
        for (what, domain) in damaged {
            let key = key::quota(domain).to_vec();
            let (remedy, edit) = match known.is_ok().then(|| found.first_directory(domain)) {
                Some(Some((subvolume, directory))) => {
                    let record = QuotaRecord {
                        subvolume,
                        directory,
                        inodes_max: UNLIMITED,
                        bytes_max: UNLIMITED,
                        adopting_from: None,
                    };
                    let edit = Edit::Put(VOLUME, key, record.encode());
                    ("rewrite the record, without limits", edit)
                }
                Some(None) => ("remove the record: no directory has it", Edit::Delete(VOLUME, key)),
                // The place of the directory is not known: nothing is done.
                None => {
                    self.found(Problem::new(ProblemKind::Quota, what));
                    continue;
                }
            };
            self.wrong_quota(what, remedy, edit);
        }
        Ok(())
    }
}

/// What is wrong with a record, and the domain whose limits are lost.
fn wrong(prefix: [u8; 1], key: &[u8], value: &[u8]) -> Option<(String, Option<u64>)> {
    if prefix == key::OWNER_CHARGES_PREFIX {
        // The comparison reports the value of a count that does not decode.
        return Some((key::parse_owner_charges(key).err()?.to_string(), None));
    }
    if prefix == key::QUOTAS_PREFIX {
        return match key::parse_quota(key) {
            Ok((domain, None)) => {
                let error = QuotaRecord::decode(value).err()?;
                Some((format!("quota {domain}: {error}"), Some(domain)))
            }
            Ok((_, Some(_))) => None,
            Err(error) => Some((error.to_string(), None)),
        };
    }
    let error = match key::parse_owner(key) {
        Ok(Some(owner)) => {
            let error = OwnerLimits::decode(value).err()?;
            format!("limits of {}: {error}", QuotaOf::Owner(owner))
        }
        Ok(None) => OwnerState::decode(value).err()?.to_string(),
        Err(error) => error.to_string(),
    };
    Some((error, None))
}
