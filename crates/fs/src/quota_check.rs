//! Counting quotas anew: what the inodes of all subvolumes say that they are charged, beside what
//! the records of charges say, in one state of the store.

use std::collections::BTreeMap;

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::inode_record::{InodeRecord, LinkedRecord};
use format::key::{self, Parsed, Part};
use format::quota::{Charge, Charged};
use format::subvolume_record::SubvolumeRecord;
use store::{KeyRange, Pinned, TreeId};

use crate::error::{from_store, malformed};
use crate::subvol::VOLUME;
use crate::{Fs, FsResult, QuotaDifference};

type Charges = BTreeMap<(u64, u64), Charged>;

impl Fs {
    /// Counts anew what is charged to every quota, and tells where the records differ from it:
    /// a walk over all that is stored, over one state, while the volume is in use.
    pub fn quota_check(&self) -> FsResult<Vec<QuotaDifference>> {
        let pin = self.store.pin().map_err(from_store)?;
        self.quota_differences(&*pin)
    }

    /// The same in a state of the store.
    pub(crate) fn quota_differences(&self, pin: &dyn Pinned) -> FsResult<Vec<QuotaDifference>> {
        let (recorded, trees) = table(pin)?;
        let mut found = Charges::new();
        if !recorded.is_empty() || !self.quotas.is_empty() {
            for (subvolume, tree) in trees {
                count(pin, subvolume, tree, &mut found)?;
            }
        }
        let keys: std::collections::BTreeSet<_> = recorded.keys().chain(found.keys()).collect();
        let of = |charges: &Charges, key| charges.get(key).copied().unwrap_or_default();
        Ok(keys
            .into_iter()
            .filter(|key| of(&recorded, *key) != of(&found, *key))
            .map(|key| {
                let (recorded, found) = (of(&recorded, key), of(&found, key));
                QuotaDifference {
                    id: key.0,
                    subvolume: key.1,
                    recorded: (recorded.files, recorded.bytes),
                    found: (found.files, found.bytes),
                }
            })
            .collect())
    }
}

/// The records of charges, and the subvolumes that can have any.
fn table(pin: &dyn Pinned) -> FsResult<(Charges, Vec<(u64, TreeId)>)> {
    let mut recorded = Charges::new();
    let mut trees = Vec::new();
    let mut cursor = pin.scan(VOLUME, KeyRange::prefix(b"")).map_err(from_store)?;
    while let Some(item) = cursor.next().map_err(from_store)? {
        let malformed = |error| malformed(VOLUME, &error);
        if item.key.starts_with(&key::QUOTAS_PREFIX) {
            if let (domain, Some(subvolume)) = key::parse_quota(item.key).map_err(malformed)? {
                // A damaged count is one that differs.
                let damaged = Charged { files: -1, bytes: -1 };
                let charged = Charged::decode(item.value).unwrap_or(damaged);
                recorded.insert((domain, subvolume), charged);
            }
        } else if item.key.starts_with(&key::SUBVOLUMES_PREFIX) {
            let record = SubvolumeRecord::decode(item.value).map_err(malformed)?;
            if !record.snapshot && !record.read_only {
                let id = key::parse_number(item.key).map_err(malformed)?;
                trees.push((id, TreeId(record.tree)));
            }
        }
    }
    Ok((recorded, trees))
}

fn count(pin: &dyn Pinned, subvolume: u64, tree: TreeId, found: &mut Charges) -> FsResult<()> {
    let malformed = |error| malformed(tree, &error);
    let mut add = |charge: Option<Charge>, bytes: u64| {
        if let Some(charge) = charge.filter(|charge| charge.subvolume == subvolume) {
            let charged = found.entry((charge.domain, subvolume)).or_default();
            charged.files += 1;
            charged.bytes = charged.bytes.saturating_add_unsigned(bytes);
        }
    };
    let mut cursor = pin.scan(tree, KeyRange::prefix(b"")).map_err(from_store)?;
    while let Some(item) = cursor.next().map_err(from_store)? {
        let stored = |inode: &InodeRecord| (inode.charge, inode.stored());
        let (charge, bytes) = match key::parse(item.key).map_err(malformed)? {
            Parsed::Entry { cookie: 0, part: Part::Attributes, .. } => {
                (DirectoryRecord::decode(item.value).map_err(malformed)?.charge, 0)
            }
            Parsed::Entry { part: Part::Attributes, .. } => {
                match EntryRecord::decode(item.value).map_err(malformed)?.target {
                    Target::Embedded(inode) => stored(&inode),
                    _ => continue,
                }
            }
            Parsed::Linked { part: Part::Attributes, .. } => {
                stored(&LinkedRecord::decode(item.value).map_err(malformed)?.inode)
            }
            _ => continue,
        };
        add(charge, bytes);
    }
    Ok(())
}
