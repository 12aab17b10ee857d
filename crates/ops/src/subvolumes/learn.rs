//! What the ledger keeps in memory of all subvolumes, as it is read from their records. It has
//! where each is mounted, what copies inherit, and who made how many. Records are read in parts;
//! those that change meanwhile are read again (`know`).

use std::collections::{BTreeMap, BTreeSet};

use format::inherited_record::{self, Home, INHERITED_PREFIX, InheritedRecord};
use format::key;
use format::subvolume_record::SubvolumeRecord;
use inode::SubvolId;
use store::KeyRange;
use vfs::FsResult;
use volume::Core;
use volume::error::{from_store, malformed};
use volume::subvol::{VOLUME, read_record};

use super::mounts::Mounts;

/// Records that are read at a time.
const PART: usize = 1024;

/// What was read.
#[derive(Default)]
pub(super) struct Learned {
    pub(super) mounts: Mounts,
    /// Subvolumes that were copied from others.
    copies: BTreeSet<u64>,
    /// The maker of each subvolume.
    pub(super) makers: BTreeMap<u64, u32>,
}

impl Learned {
    /// Reads all.
    pub(super) fn read(fs: &Core) -> FsResult<Learned> {
        let mut learned = Learned::default();
        each(fs, &key::SUBVOLUMES_PREFIX, &mut |id, value| {
            let record = SubvolumeRecord::decode(value);
            learned.set(id, Some(&record.map_err(|error| malformed(VOLUME, &error))?));
            Ok(())
        })?;
        each(fs, &INHERITED_PREFIX, &mut |id, value| {
            let record = InheritedRecord::decode(value);
            let record = record.map_err(|error| malformed(VOLUME, &error))?;
            learned.mounts.inherit(id, record.homes);
            Ok(())
        })?;
        let Learned { mounts, copies, .. } = &mut learned;
        mounts.doubt_all(&|id| copies.contains(&id));
        Ok(learned)
    }

    /// Reads some subvolumes again, the oldest first: homes before their heirs.
    pub(super) fn read_again(&mut self, fs: &Core, ids: &BTreeSet<u64>) -> FsResult<()> {
        for &id in ids {
            self.set(id, read_record(&*fs.store, SubvolId(id))?.as_ref());
            let homes = homes(fs, id)?;
            if self.mounts.homes.get(&id).is_some_and(|known| *known != homes)
                || !self.mounts.homes.contains_key(&id) && !homes.is_empty()
            {
                self.mounts.inherit(id, homes);
            }
            // The entry may not point to it: nobody noted whether it does.
            if let Some(place) = self.mounts.places.get(&id).copied()
                && self.mounts.homes.contains_key(&place.0)
            {
                self.mounts.doubted.insert(place);
            }
        }
        Ok(())
    }

    /// What a record has of a subvolume; `None`: there is none.
    fn set(&mut self, id: u64, record: Option<&SubvolumeRecord>) {
        let Some(record) = record else {
            self.copies.remove(&id);
            self.makers.remove(&id);
            return self.mounts.set(id, None);
        };
        if record.source.0 != 0 {
            self.copies.insert(id);
        }
        self.makers.insert(id, record.maker);
        self.mounts.set(id, (record.parent.0 != 0).then_some(record.parent));
    }
}

/// What a subvolume inherits now.
fn homes(fs: &Core, id: u64) -> FsResult<Vec<Home>> {
    let bytes = fs.store.get(VOLUME, &inherited_record::inherited(id)).map_err(from_store)?;
    let record = bytes.map(|bytes| InheritedRecord::decode(&bytes)).transpose();
    let record = record.map_err(|error| malformed(VOLUME, &error))?;
    Ok(record.map(|record| record.homes).unwrap_or_default())
}

/// Visits the records of subvolumes of one kind, in parts.
fn each(
    fs: &Core,
    prefix: &[u8],
    visit: &mut dyn FnMut(u64, &[u8]) -> FsResult<()>,
) -> FsResult<()> {
    let mut range = KeyRange::prefix(prefix);
    loop {
        let mut cursor = fs.store.scan(VOLUME, range.clone()).map_err(from_store)?;
        let mut count = 0;
        while count < PART
            && let Some(item) = cursor.next().map_err(from_store)?
        {
            let id = key::parse_number(item.key).map_err(|error| malformed(VOLUME, &error))?;
            visit(id, item.value)?;
            range.from = [item.key, &[0][..]].concat();
            count += 1;
        }
        if count < PART {
            return Ok(());
        }
    }
}
