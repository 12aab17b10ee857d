//! Reading the records of one subvolume's tree.

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryHead, Target};
use format::inode_record::{InodeRecord, LinkedRecord};
use format::key::{self, Part};
use format::xattr_record::XattrRecord;
use inode::{FsError, NAME_BYTES_MAX};
use store::{Read, TreeId};
use vfs::FsResult;

use crate::error::{from_store, inconsistent, malformed};

/// The error for one more name of a hash than there are indexes.
pub const NAMES_OF_A_HASH: FsError =
    FsError::LimitReached("too many names of one hash; choose another name");

/// A tree to read records from.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// Where the trees are: nothing is changed through a view.
    pub store: &'a dyn Read,
    /// The tree.
    pub tree: TreeId,
}

/// An entry of a directory, but its name.
#[derive(Debug, Clone, Copy)]
pub struct FoundEntry {
    /// Where it is.
    pub cookie: u64,
    /// Whether a name with the same hash may follow.
    pub chained: bool,
    /// The inode.
    pub ino: u64,
    /// What it points to; never a tombstone.
    pub target: Target,
}

impl FoundEntry {
    /// Whether it points to a directory, of this subvolume or another.
    pub fn is_directory(&self) -> bool {
        matches!(self.target, Target::Directory | Target::Subvolume(_))
    }
}

/// The place for a new name.
#[derive(Debug, Clone, Copy)]
pub struct Vacancy {
    /// Where the name goes.
    pub cookie: u64,
    /// Whether names with the same hash may follow there.
    pub chained: bool,
    /// The entry that must be flagged as followed, and its inode (0: a tombstone).
    pub predecessor: Option<(u64, u64)>,
}

/// The result of a search for a name.
#[derive(Debug, Clone, Copy)]
pub enum Search {
    /// The name is there.
    Found(FoundEntry),
    /// It is not.
    Vacant(Vacancy),
}

/// A name, held without allocation.
#[derive(Clone, Copy)]
pub struct NameBuf {
    length: u8,
    bytes: [u8; NAME_BYTES_MAX],
}

impl NameBuf {
    /// No name.
    pub fn empty() -> NameBuf {
        NameBuf { length: 0, bytes: [0; NAME_BYTES_MAX] }
    }

    /// Takes a name of at most 255 bytes.
    pub fn set(&mut self, name: &[u8]) {
        self.length = name.len() as u8;
        self.bytes[..name.len()].copy_from_slice(name);
    }

    /// The name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

enum Slot {
    Found(FoundEntry),
    Other { chained: bool, ino: u64 },
    Damaged(FsError),
}

impl<'a> View<'a> {
    /// A view of a tree.
    #[inline]
    pub fn new(store: &'a dyn Read, tree: TreeId) -> View<'a> {
        View { store, tree }
    }

    /// Reads a key's value in place.
    #[inline]
    pub fn read<T>(
        &self,
        key: &[u8],
        mut decode: impl FnMut(&[u8]) -> Result<T, format::Malformed>,
    ) -> FsResult<Option<T>> {
        let mut value = None;
        self.store
            .get_with(self.tree, key, &mut |bytes| value = Some(decode(bytes)))
            .map_err(from_store)?;
        match value {
            None => Ok(None),
            Some(Ok(value)) => Ok(Some(value)),
            Some(Err(error)) => Err(malformed(self.tree, &error)),
        }
    }

    /// The inode of a directory.
    #[inline]
    pub fn directory(&self, ino: u64) -> FsResult<Option<DirectoryRecord>> {
        self.read(&key::directory(ino, Part::Attributes), DirectoryRecord::decode)
    }

    /// An inode with several names, or none.
    pub fn linked(&self, ino: u64) -> FsResult<Option<LinkedRecord>> {
        self.read(&key::linked(ino, Part::Attributes), LinkedRecord::decode)
    }

    /// Searches a directory for a name.
    #[inline]
    pub fn find(&self, dir: u64, hash: u64, name: &[u8]) -> FsResult<Search> {
        let cookie = key::cookie(hash, 0);
        match self.slot(dir, cookie, name)? {
            None => {
                let vacancy = Vacancy { cookie, chained: false, predecessor: None };
                Ok(Search::Vacant(vacancy))
            }
            Some(Slot::Found(found)) => Ok(Search::Found(found)),
            Some(slot) => self.find_in_chain(dir, hash, name, slot),
        }
    }

    /// Like `find`, for callers that do not need the place of a new name.
    #[inline]
    pub fn find_entry(&self, dir: u64, hash: u64, name: &[u8]) -> FsResult<Option<FoundEntry>> {
        match self.find(dir, hash, name)? {
            Search::Found(found) => Ok(Some(found)),
            Search::Vacant(_) => Ok(None),
        }
    }

    #[cold]
    fn find_in_chain(&self, dir: u64, hash: u64, name: &[u8], first: Slot) -> FsResult<Search> {
        let mut tombstone = None;
        let mut slot = first;
        let mut collision = 0_u8;
        loop {
            let cookie = key::cookie(hash, collision);
            let (chained, ino) = match slot {
                Slot::Found(found) => return Ok(Search::Found(found)),
                Slot::Other { chained, ino } => (chained, ino),
                Slot::Damaged(error) => return Err(error),
            };
            if ino == 0 && tombstone.is_none() {
                tombstone = Some(Vacancy { cookie, chained, predecessor: None });
            }
            // More names of one hash than there are indexes: with 55 bits of keyed hash this
            // does not happen to anybody.
            let next = collision.checked_add(1).ok_or(NAMES_OF_A_HASH);
            let followed = if chained {
                self.slot(dir, key::cookie(hash, next.clone()?), name)?
            } else {
                None
            };
            let Some(found) = followed else {
                if let Some(vacancy) = tombstone {
                    return Ok(Search::Vacant(vacancy));
                }
                let vacancy = Vacancy {
                    cookie: key::cookie(hash, next?),
                    chained: false,
                    predecessor: (!chained).then_some((cookie, ino)),
                };
                return Ok(Search::Vacant(vacancy));
            };
            slot = found;
            collision = next?;
        }
    }

    #[inline]
    fn slot(&self, dir: u64, cookie: u64, name: &[u8]) -> FsResult<Option<Slot>> {
        let key = key::entry(dir, cookie, Part::Attributes);
        let mut slot = None;
        self.store
            .get_with(self.tree, &key, &mut |bytes| {
                slot = Some(match compare(bytes, cookie, name) {
                    Ok(slot) => slot,
                    Err(error) => Slot::Damaged(malformed(self.tree, &error)),
                });
            })
            .map_err(from_store)?;
        match slot {
            Some(Slot::Damaged(error)) => Err(error),
            slot => Ok(slot),
        }
    }

    /// The entry at a cookie, and its name; `None` for a tombstone.
    pub fn entry_at(
        &self,
        dir: u64,
        cookie: u64,
        name: &mut NameBuf,
    ) -> FsResult<Option<FoundEntry>> {
        self.entry_with(dir, cookie, |found| name.set(found))
    }

    /// The entry at a cookie, whose name is passed on; `None` for a tombstone.
    #[inline]
    pub(crate) fn entry_with(
        &self,
        dir: u64,
        cookie: u64,
        mut name: impl FnMut(&[u8]),
    ) -> FsResult<Option<FoundEntry>> {
        let found = self.read(&key::entry(dir, cookie, Part::Attributes), |bytes| {
            let head = EntryHead::decode(bytes)?;
            name(head.name);
            let (chained, ino) = (head.chained, head.ino);
            Ok(FoundEntry { cookie, chained, ino, target: head.target()? })
        })?;
        Ok(found.filter(|found| found.target != Target::Tombstone))
    }

    /// The attributes of what an entry points to that is not a directory, and how many names it
    /// has.
    pub fn inode_of(&self, found: &FoundEntry) -> FsResult<(InodeRecord, u32)> {
        match &found.target {
            Target::Embedded(inode) => Ok((*inode, 1)),
            Target::Linked(_) => {
                let record = self.linked(found.ino)?;
                let damage = || inconsistent(self.tree, "a name points to nothing", found.ino);
                record.ok_or_else(damage).map(|record| (record.inode, record.nlink))
            }
            _ => Err(FsError::IsDirectory),
        }
    }

    /// Target of a symbolic link or contents of a small file; empty when there is no record.
    pub fn bulk(&self, key: &[u8]) -> FsResult<Vec<u8>> {
        Ok(self.store.get(self.tree, key).map_err(from_store)?.unwrap_or_default())
    }

    /// Extended attributes; none when there is no record.
    pub fn xattrs(&self, key: &[u8]) -> FsResult<XattrRecord> {
        Ok(self.read(key, XattrRecord::decode)?.unwrap_or_default())
    }
}

#[inline]
fn compare(bytes: &[u8], cookie: u64, name: &[u8]) -> Result<Slot, format::Malformed> {
    let head = EntryHead::decode(bytes)?;
    let (chained, ino) = (head.chained, head.ino);
    if head.name == name {
        Ok(Slot::Found(FoundEntry { cookie, chained, ino, target: head.target()? }))
    } else {
        Ok(Slot::Other { chained, ino: if head.kind.is_none() { 0 } else { ino } })
    }
}
