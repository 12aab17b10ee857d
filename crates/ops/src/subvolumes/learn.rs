//! What the ledger keeps in memory of all subvolumes, as it is read from their records. It has
//! where each is mounted, what copies inherit, and who made how many. Records are read in parts;
//! those that change meanwhile are read again (`know`).

use std::collections::{BTreeMap, BTreeSet};

use format::Malformed;
use format::inherited_record::{self, Home, INHERITED_PREFIX, InheritedRecord};
use format::key;
use format::subvolume_record::SubvolumeRecord;
use inode::{FsError, SubvolId};
use store::KeyRange;
use vfs::FsResult;
use volume::Core;
use volume::error::{from_store, malformed};
use volume::subvol::{VOLUME, read_record};

use super::mounts::Mounts;

/// Records that are read at a time.
const PART: usize = 1024;

/// The first record that could not be read. While it cannot, nothing else is.
#[derive(Debug, Clone)]
pub(super) struct Unreadable {
    /// Where reading continues: at the record.
    from: Vec<u8>,
    /// Why.
    pub(super) error: FsError,
}

impl Unreadable {
    /// Reads the record again, or the next one if it is gone.
    fn read(&self, fs: &Core) -> FsResult<()> {
        let to = store::prefix_end(&self.from[..1]);
        let range = KeyRange { from: self.from.clone(), to };
        let mut cursor = fs.store.scan(VOLUME, range).map_err(from_store)?;
        let Some(item) = cursor.next().map_err(from_store)? else { return Ok(()) };
        let id = key::parse_number(item.key).map_err(|error| malformed(VOLUME, &error))?;
        if item.key.starts_with(&INHERITED_PREFIX) {
            inherited_of(id, item.value).map(drop)
        } else {
            subvolume_of(id, item.value).map(drop)
        }
    }
}

fn subvolume_of(id: u64, value: &[u8]) -> FsResult<SubvolumeRecord> {
    SubvolumeRecord::decode(value).map_err(|error| damaged("record of subvolume", id, &error))
}

fn inherited_of(id: u64, value: &[u8]) -> FsResult<InheritedRecord> {
    let what = "record of what is inherited by subvolume";
    InheritedRecord::decode(value).map_err(|error| damaged(what, id, &error))
}

/// The error of a record that does not decode, with its number: it stops what concerns others.
fn damaged(what: &str, id: u64, error: &Malformed) -> FsError {
    FsError::Io(format!("{what} {id}: tree {}: {error}", VOLUME.0).into())
}

/// What was read.
#[derive(Default)]
pub(super) struct Learned {
    pub(super) mounts: Mounts,
    /// Subvolumes that were copied from others, with what they were copied from.
    copies: BTreeMap<u64, u64>,
    /// The maker of each subvolume.
    pub(super) makers: BTreeMap<u64, u32>,
}

impl Learned {
    /// Reads all, unless a record that could not be read still cannot: that is read first. Notes
    /// one that cannot.
    pub(super) fn read_unless(fs: &Core, unreadable: &mut Option<Unreadable>) -> FsResult<Learned> {
        if let Some(record) = unreadable {
            record.read(fs)?;
        }
        *unreadable = None;
        Learned::read(fs).map_err(|record| {
            let error = record.error.clone();
            *unreadable = Some(record);
            error
        })
    }

    /// Reads all.
    pub(super) fn read(fs: &Core) -> Result<Learned, Unreadable> {
        let mut learned = Learned::default();
        each(fs, &key::SUBVOLUMES_PREFIX, &mut |id, value| {
            learned.set(id, Some(&subvolume_of(id, value)?));
            Ok(())
        })?;
        each(fs, &INHERITED_PREFIX, &mut |id, value| {
            let user = learned.counts_with(id);
            learned.mounts.inherit(id, inherited_of(id, value)?.homes, user);
            Ok(())
        })?;
        let Learned { mounts, copies, .. } = &mut learned;
        mounts.doubt_all(&|id| copies.contains_key(&id));
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
                let user = self.counts_with(id);
                self.mounts.inherit(id, homes, user);
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

    /// With whose copies a copy counts that inherits: those of the user who made the heir that got
    /// it, or of its own maker. The maker in its record is who pays for it.
    fn counts_with(&self, copy: u64) -> u32 {
        let heirs = std::iter::successors(Some(copy), |at| self.heir_with(*at));
        // Damaged records may form a circle.
        let user = heirs.take(self.makers.len() + 1).last();
        user.and_then(|at| self.makers.get(&at)).copied().unwrap_or_default()
    }

    /// The heir that got a copy before something changed. What the copy was taken from is mounted
    /// at the same entry of what the heir was copied from. Where that is gone, or moved since, it
    /// is not known.
    fn heir_with(&self, copy: u64) -> Option<u64> {
        let &(heir, directory, cookie) = self.mounts.places.get(&copy)?;
        let &(home, ..) = self
            .mounts
            .places
            .get(self.copies.get(&copy)?)
            .filter(|at| (at.1, at.2) == (directory, cookie))?;
        let mut at = heir;
        while at != home {
            // A copy is made after what it was copied from.
            at = self.copies.get(&at).copied().filter(|source| *source < at)?;
        }
        (heir != home).then_some(heir)
    }

    /// What a record has of a subvolume; `None`: there is none.
    fn set(&mut self, id: u64, record: Option<&SubvolumeRecord>) {
        let Some(record) = record else {
            self.copies.remove(&id);
            self.makers.remove(&id);
            return self.mounts.set(id, None);
        };
        if record.source.0 != 0 {
            self.copies.insert(id, record.source.0);
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
) -> Result<(), Unreadable> {
    let mut range = KeyRange::prefix(prefix);
    loop {
        match part(fs, &mut range, visit) {
            Ok(PART) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(Unreadable { from: range.from, error }),
        }
    }
}

/// Visits some records of a range, which begins behind the last one then; returns how many.
fn part(
    fs: &Core,
    range: &mut KeyRange,
    visit: &mut dyn FnMut(u64, &[u8]) -> FsResult<()>,
) -> FsResult<usize> {
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
    Ok(count)
}
