//! Recounts quotas: compares the charges that the inodes of all subvolumes carry with the records
//! of charges, in one state of the store.

use std::collections::{BTreeMap, BTreeSet};

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::inode_record::{InodeRecord, LinkedRecord};
use format::key::{self, Parsed, Part};
use format::owner_quota::{Owner, OwnerState};
use format::quota::{Charge, Charged};
use format::subvolume_record::{SubvolumeRecord, UsageRecord};
use inode::FsError;
use store::{CheckProgress, KeyRange, Pinned, TreeId};
use vfs::FsResult;
use volume::core::Visit;
use volume::error::{from_store, malformed};
use volume::subvol::VOLUME;
use volume::{QuotaDifference, QuotaOf, account};

use crate::Governed;
use crate::owners::share;

/// What was counted, or what the records contain.
#[derive(Default)]
pub struct UsageTable {
    /// Charges of directories, by domain and subvolume; `None`: not counted.
    domains: Option<BTreeMap<(u64, u64), Charged>>,
    /// Charges of users and groups, by subvolume; empty when they are not counted.
    pub owners: BTreeMap<(u64, Owner), Charged>,
    with_owners: bool,
    /// Domains whose records are damaged, with their directories: where each is (subvolume and
    /// inode), and the directory that it is in.
    pub damaged: BTreeMap<u64, BTreeMap<(u64, u64), u64>>,
}

/// How many inodes are counted between two reports.
const REPORT_EVERY: u64 = 4096;

/// Receives the progress of a count, and may cancel it.
pub struct Counting<'p> {
    progress: Option<CheckProgress<'p>>,
    done: u64,
    total: u64,
}

impl<'p> Counting<'p> {
    /// No progress is reported.
    pub fn silent() -> Counting<'static> {
        Counting { progress: None, done: 0, total: 0 }
    }

    /// `progress` receives how many inodes were counted, and an estimate of their total.
    pub fn reporting(progress: CheckProgress<'p>) -> Counting<'p> {
        Counting { progress: Some(progress), done: 0, total: 0 }
    }

    /// Expects so many more inodes.
    pub fn expect(&mut self, more: u64) {
        self.total = self.total.saturating_add(more);
    }

    /// Some more were counted.
    pub fn did(&mut self, more: u64) -> FsResult<()> {
        let before = self.done / REPORT_EVERY;
        self.done += more;
        if before == self.done / REPORT_EVERY { Ok(()) } else { self.report() }
    }

    fn report(&mut self) -> FsResult<()> {
        let total = self.total.max(self.done);
        let Some(progress) = &mut self.progress else { return Ok(()) };
        if progress(self.done, total).is_break() { Err(FsError::Interrupted) } else { Ok(()) }
    }
}

/// A subvolume that can have charges.
struct Counted {
    id: u64,
    tree: TreeId,
    first_own_ino: u64,
    index: bool,
}

impl UsageTable {
    /// Owners are counted, and nothing else.
    pub fn owners() -> UsageTable {
        UsageTable { with_owners: true, ..UsageTable::default() }
    }

    /// Only finds the directories of damaged domains, and counts nothing.
    pub fn damaged(domains: impl IntoIterator<Item = u64>) -> UsageTable {
        let damaged = domains.into_iter().map(|id| (id, BTreeMap::new())).collect();
        UsageTable { domains: Some(BTreeMap::new()), damaged, ..UsageTable::default() }
    }

    /// The directory that a damaged domain begins with: one that is in no other of the domain.
    pub fn first_directory(&self, domain: u64) -> Option<(u64, u64)> {
        let directories = self.damaged.get(&domain)?;
        let is_first = |&(&(subvolume, ino), parent): &(&(u64, u64), &u64)| {
            ino == *parent || !directories.contains_key(&(subvolume, *parent))
        };
        directories.iter().find(is_first).map(|(place, _)| *place)
    }

    fn by_holder(&self) -> BTreeMap<(QuotaOf, u64), Charged> {
        let domains = self.domains.iter().flatten();
        let domains = domains.map(|(&(id, of), &charged)| ((QuotaOf::Directory(id), of), charged));
        let owners = self.owners.iter();
        let owners = owners.map(|(&(of, who), &charged)| ((QuotaOf::Owner(who), of), charged));
        domains.chain(owners).collect()
    }
}

impl Governed {
    /// Recounts the charges of every quota, and returns where the records differ. That is a walk
    /// over everything that is stored, in one state, while the volume is in use.
    pub fn quota_check(&self) -> FsResult<Vec<QuotaDifference>> {
        let pin = ops::unfinished::pin_whole(self)?;
        self.quota_differences(&*pin, &mut Counting::silent())
    }

    /// Like `quota_check`. `progress` receives how many inodes were counted and an estimate
    /// of their total, and may cancel the count.
    pub fn quota_check_with_progress(
        &self,
        progress: CheckProgress<'_>,
    ) -> FsResult<Vec<QuotaDifference>> {
        let pin = ops::unfinished::pin_whole(self)?;
        self.quota_differences(&*pin, &mut Counting::reporting(progress))
    }

    /// The same in a state of the store.
    pub fn quota_differences(
        &self,
        pin: &dyn Pinned,
        counting: &mut Counting<'_>,
    ) -> FsResult<Vec<QuotaDifference>> {
        let recorded = records(pin)?;
        let domains = recorded.domains.as_ref().is_some_and(|domains| !domains.is_empty())
            || !self.quotas.is_empty();
        let mut found = UsageTable {
            domains: domains.then(BTreeMap::new),
            with_owners: recorded.with_owners,
            ..UsageTable::default()
        };
        if domains || found.with_owners {
            count_subvolumes(pin, &mut found, counting)?;
        }
        let (recorded, found) = (recorded.by_holder(), found.by_holder());
        let keys: BTreeSet<_> = recorded.keys().chain(found.keys()).collect();
        let of = |charges: &BTreeMap<(QuotaOf, u64), Charged>, key| {
            charges.get(key).copied().unwrap_or_default()
        };
        Ok(keys
            .into_iter()
            .filter(|key| of(&recorded, *key) != of(&found, *key))
            .map(|key| {
                let (recorded, found) = (of(&recorded, key), of(&found, key));
                QuotaDifference {
                    of: key.0,
                    subvolume: key.1,
                    recorded: (recorded.inodes, recorded.bytes),
                    found: (found.inodes, found.bytes),
                }
            })
            .collect())
    }
}

/// The recorded charges. Those of owners mean nothing while owners are being counted.
fn records(pin: &dyn Pinned) -> FsResult<UsageTable> {
    // A damaged count is one that differs. A key that is none has no count (`check/quota`).
    let charged =
        |value: &[u8]| Charged::decode(value).unwrap_or(Charged { inodes: -1, bytes: -1 });
    let mut domains = BTreeMap::new();
    visit(pin, VOLUME, &key::QUOTAS_PREFIX, &mut |key, value| {
        if let Ok((domain, Some(subvolume))) = key::parse_quota(key) {
            domains.insert((domain, subvolume), charged(value));
        }
        Ok(())
    })?;
    let state = pin.get(VOLUME, &key::OWNERS_PREFIX).map_err(from_store)?;
    let state = state.and_then(|bytes| OwnerState::decode(&bytes).ok());
    let with_owners = state == Some(OwnerState::Counted);
    let mut owners = BTreeMap::new();
    if with_owners {
        visit(pin, VOLUME, &key::OWNER_CHARGES_PREFIX, &mut |key, value| {
            if let Ok(key) = key::parse_owner_charges(key) {
                owners.insert(key, charged(value));
            }
            Ok(())
        })?;
    }
    Ok(UsageTable { domains: Some(domains), owners, with_owners, ..UsageTable::default() })
}

fn visit(pin: &dyn Pinned, tree: TreeId, prefix: &[u8], visit: Visit<'_>) -> FsResult<()> {
    let mut cursor = pin.scan(tree, KeyRange::prefix(prefix)).map_err(from_store)?;
    while let Some(item) = cursor.next().map_err(from_store)? {
        visit(item.key, item.value)?;
    }
    Ok(())
}

/// Counts the charges of the inodes of all subvolumes that can have any.
pub fn count_subvolumes(
    pin: &dyn Pinned,
    found: &mut UsageTable,
    counting: &mut Counting<'_>,
) -> FsResult<()> {
    let mut subvolumes = Vec::new();
    visit(pin, VOLUME, &key::SUBVOLUMES_PREFIX, &mut |key, value| {
        let malformed = |error| malformed(VOLUME, &error);
        let record = SubvolumeRecord::decode(value).map_err(malformed)?;
        if !record.snapshot && !record.read_only {
            let id = key::parse_number(key).map_err(malformed)?;
            let SubvolumeRecord { tree, first_own_ino, index, .. } = record;
            subvolumes.push(Counted { id, tree: TreeId(tree), first_own_ino, index });
        }
        Ok(())
    })?;
    subvolumes.retain(|subvolume| found.domains.is_some() || !subvolume.index);
    for subvolume in &subvolumes {
        let usage = pin.get(VOLUME, &key::usage(subvolume.id)).map_err(from_store)?;
        let usage = usage.and_then(|bytes| UsageRecord::decode(&bytes).ok()).unwrap_or_default();
        counting.expect(usage.files.max(0) as u64);
    }
    for subvolume in subvolumes {
        count(pin, &subvolume, found, counting)?;
    }
    counting.report()
}

fn count(
    pin: &dyn Pinned,
    of: &Counted,
    found: &mut UsageTable,
    counting: &mut Counting<'_>,
) -> FsResult<()> {
    let malformed = |error| malformed(of.tree, &error);
    let mut add = |ino: u64, charge: Option<Charge>, owned: (u32, u32), bytes: u64| {
        let charged = charge.filter(|charge| charge.subvolume == of.id);
        if let (Some(charge), Some(domains)) = (charged, &mut found.domains)
            && charge.domain != Charge::NO_DOMAIN
        {
            account::count(domains.entry((charge.domain, of.id)).or_default(), bytes);
        }
        let nobody = charge.is_some_and(|charge| charge.subvolume == Charge::NOBODY);
        let own = ino >= of.first_own_ino && !nobody || charged.is_some();
        if found.with_owners && own && !of.index {
            for owner in [Owner::User(owned.0), Owner::Group(owned.1)] {
                account::count(found.owners.entry((of.id, owner)).or_default(), bytes);
            }
        }
    };
    visit(pin, of.tree, b"", &mut |key, value| {
        let inode = |ino, inode: &InodeRecord| {
            let (owned, bytes) = share(inode);
            (ino, inode.charge, owned, bytes)
        };
        let (ino, charge, owned, bytes) = match key::parse(key).map_err(malformed)? {
            Parsed::Entry { directory, cookie: 0, part: Part::Attributes } => {
                let record = DirectoryRecord::decode(value).map_err(malformed)?;
                // Also one that a roll-back or a clone inherited, which is charged to no one.
                let damaged =
                    record.charge.and_then(|charge| found.damaged.get_mut(&charge.domain));
                if let Some(directories) = damaged {
                    directories.insert((of.id, directory), record.parent);
                }
                (directory, record.charge, (record.uid, record.gid), 0)
            }
            Parsed::Entry { part: Part::Attributes, .. } => {
                let entry = EntryRecord::decode(value).map_err(malformed)?;
                match entry.target {
                    Target::Embedded(record) => inode(entry.ino, &record),
                    _ => return Ok(()),
                }
            }
            Parsed::Linked { ino, part: Part::Attributes } => {
                inode(ino, &LinkedRecord::decode(value).map_err(malformed)?.inode)
            }
            _ => return Ok(()),
        };
        add(ino, charge, owned, bytes);
        counting.did(1)
    })
}
