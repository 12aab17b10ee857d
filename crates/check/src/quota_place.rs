//! Where quotas begin: a directory to which inodes are charged carries the quota itself. Otherwise
//! what is created in it is charged to no quota.
//!
//! A quota's record stays when its directory is removed, and a clone or a roll-back may have the
//! directory without it. So only a contradiction is reported. Inodes are charged to a quota in the
//! subvolume that should hold its directory. The directory is there, but carries another quota, or
//! none. No directory there waits to be removed. (One that is gone may have been removed: what is
//! charged is in a trash, or is held.)

use std::collections::BTreeMap;

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::inode_record::LinkedRecord;
use format::key::{self, Parsed, Part};
use format::quota::{Charge, Charged, QuotaRecord};
use policy::quota::domain_of;
use policy::quota_check::{Counting, UsageTable, count_subvolumes};
use store::TreeId;
use vfs::FsResult;
use volume::readable::Scan;
use volume::subvol::VOLUME;

use super::look::{self, Look};
use super::{Checker, Edit, Fix, Problem, ProblemKind};

/// A quota that is not where its record places it.
struct Displaced {
    domain: u64,
    record: QuotaRecord,
    tree: TreeId,
    /// The state of its directory.
    directory: DirectoryRecord,
    /// Inodes that are charged to it in the subvolume.
    charged: i64,
}

impl Checker<'_, '_> {
    /// Checks the directory of each quota.
    pub(super) fn check_quota_places(&mut self) -> FsResult<()> {
        let mut records = BTreeMap::new();
        let mut scan = Scan::new(self.pin, VOLUME, &key::QUOTAS_PREFIX)?;
        while scan.advance()? {
            if let (Ok((domain, None)), Ok(record)) =
                (key::parse_quota(&scan.key), QuotaRecord::decode(&scan.value))
            {
                records.insert(domain, record);
            }
        }
        if !scan.lost.is_empty() {
            return Ok(());
        }
        let mut displaced = Vec::new();
        for (domain, record) in records {
            displaced.extend(self.displaced(domain, record)?);
        }
        if displaced.is_empty() {
            return Ok(());
        }
        let mut found = UsageTable::damaged(displaced.iter().map(|one| one.domain));
        // What cannot be read may be the directory that carries it.
        let known = count_subvolumes(self.pin, &mut found, &mut Counting::silent()).is_ok();
        for one in displaced {
            let Displaced { domain, record, ref directory, charged, .. } = one;
            let how = match domain_of(directory) {
                Charge::NO_DOMAIN => "carries none".to_owned(),
                other => format!("carries quota {other}"),
            };
            let (subvolume, ino) = (record.subvolume, record.directory);
            let what = format!(
                "the directory of quota {domain}, inode {ino}, {how}, and {charged} inodes are \
                 charged to it"
            );
            let fix = if known { self.put_right(&one, &found)? } else { None };
            let problem = Problem { ino, fix, ..Problem::new(ProblemKind::Quota, what) };
            let problem = self.at(problem, (subvolume, ino), b"")?;
            self.found(problem);
        }
        Ok(())
    }

    /// Whether a quota is not where its record places it; unknown counts as yes.
    fn displaced(&self, domain: u64, record: QuotaRecord) -> FsResult<Option<Displaced>> {
        let Some(of) = self.table.subvolumes.get(&record.subvolume) else { return Ok(None) };
        let is_idle = record.adopting_from.is_none()
            && !of.detached
            && !self.table.has_detached(record.subvolume);
        let charges = key::quota_charges(domain, record.subvolume);
        let charged = look::get(self.pin, VOLUME, &charges, Charged::decode)?.found();
        let charged = charged.map_or(0, |charged| charged.inodes);
        if !is_idle || charged <= 0 {
            return Ok(None);
        }
        let tree = TreeId(of.tree);
        let directory = match look::directory(self.pin, tree, record.directory)? {
            Look::Unknown | Look::Absent => return Ok(None),
            Look::Found(directory) if directory.detached || domain_of(&directory) == domain => {
                return Ok(None);
            }
            Look::Found(directory) => directory,
        };
        Ok(Some(Displaced { domain, record, tree, directory, charged }))
    }

    /// The repair of a quota. The directory gets its mark if everything in it carries a quota, and
    /// something carries this one. Otherwise the record moves to the first directory that carries
    /// it.
    fn put_right(&self, one: &Displaced, found: &UsageTable) -> FsResult<Option<Fix>> {
        let Displaced { domain, record, tree, directory, .. } = one;
        if self.all_carry(*tree, record.directory, *domain)? {
            let subvolume = directory.charge.map_or(record.subvolume, |old| old.subvolume);
            let charge = Some(Charge { domain: *domain, subvolume });
            let value = DirectoryRecord { charge, ..*directory }.encode();
            let key = key::directory(record.directory, Part::Attributes).to_vec();
            let edit = Edit::Put(*tree, key, value);
            return Ok(Some(Fix::Edits("record the quota in the directory again", vec![edit])));
        }
        let Some((subvolume, directory)) = found.first_directory(*domain) else { return Ok(None) };
        let value = QuotaRecord { subvolume, directory, ..*record }.encode();
        let edit = Edit::Put(VOLUME, key::quota(*domain).to_vec(), value);
        Ok(Some(Fix::Edits("record the directory that has the quota", vec![edit])))
    }

    /// Whether everything in a directory carries a quota, and something carries this one.
    fn all_carry(&self, tree: TreeId, directory: u64, domain: u64) -> FsResult<bool> {
        let mut scan = Scan::new(self.pin, tree, &key::directory_prefix(directory))?;
        let mut any = false;
        while scan.advance()? {
            let Ok(Parsed::Entry { cookie: 1.., part: Part::Attributes, .. }) =
                key::parse(&scan.key)
            else {
                continue;
            };
            let Ok(entry) = EntryRecord::decode(&scan.value) else { return Ok(false) };
            let charge = match entry.target {
                Target::Tombstone | Target::Subvolume(_) => continue,
                Target::Embedded(inode) => inode.charge,
                Target::Directory => {
                    look::directory(self.pin, tree, entry.ino)?.found().and_then(|of| of.charge)
                }
                Target::Linked(_) => {
                    let key = key::linked(entry.ino, Part::Attributes);
                    let linked = look::get(self.pin, tree, &key, LinkedRecord::decode)?;
                    linked.found().and_then(|of| of.inode.charge)
                }
            };
            match charge.map_or(Charge::NO_DOMAIN, |charge| charge.domain) {
                Charge::NO_DOMAIN => return Ok(false),
                carried => any |= carried == domain,
            }
        }
        Ok(any && scan.lost.is_empty())
    }
}
