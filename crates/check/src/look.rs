//! Reads records past damage. What cannot be read is unknown, which differs from proven absent.

use std::sync::Arc;

use format::Malformed;
use format::directory_record::DirectoryRecord;
use format::entry_record::EntryRecord;
use format::key::{self, Part};
use store::{Error, LostRange, Pinned, TreeId, prefix_end};
use vfs::FsResult;
use volume::error::from_store;

/// The result of looking for a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Look<T> {
    /// It is there.
    Found(T),
    /// It is proven absent.
    Absent,
    /// What is stored where it would be cannot be read.
    Unknown,
}

impl<T> Look<T> {
    /// What was found.
    pub(super) fn found(self) -> Option<T> {
        match self {
            Look::Found(value) => Some(value),
            Look::Absent | Look::Unknown => None,
        }
    }
}

/// A record of a pinned state.
pub(super) fn get<T>(
    pin: &dyn Pinned,
    tree: TreeId,
    key: &[u8],
    mut decode: impl FnMut(&[u8]) -> Result<T, Malformed>,
) -> FsResult<Look<T>> {
    let mut value = None;
    let there = pin.get_with(tree, key, &mut |bytes| value = Some(decode(bytes)));
    match (there, value) {
        (Ok(_), Some(Ok(value))) => Ok(Look::Found(value)),
        (Ok(_), None) | (Err(Error::NoTree(_)), _) => Ok(Look::Absent),
        // What does not decode is reported when the walk reaches its key.
        (Ok(_), Some(Err(_))) | (Err(Error::Corrupt(_)), _) => Ok(Look::Unknown),
        (Err(error), _) => Err(from_store(error)),
    }
}

/// Whether a key is there.
pub(super) fn exists(pin: &dyn Pinned, tree: TreeId, key: &[u8]) -> FsResult<Look<()>> {
    get(pin, tree, key, |_| Ok(()))
}

/// The record of a directory.
pub(super) fn directory(
    pin: &dyn Pinned,
    tree: TreeId,
    ino: u64,
) -> FsResult<Look<DirectoryRecord>> {
    get(pin, tree, &key::directory(ino, Part::Attributes), DirectoryRecord::decode)
}

/// An entry with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) ino: u64,
    pub(super) chained: bool,
    pub(super) name: Vec<u8>,
    pub(super) target: format::entry_record::Target,
}

impl Named {
    pub(super) fn of(entry: &EntryRecord<'_>) -> Named {
        let EntryRecord { chained, ino, name, target } = *entry;
        Named { ino, chained, name: name.to_vec(), target }
    }

    pub(super) fn record(&self) -> EntryRecord<'_> {
        let Named { ino, chained, target, .. } = *self;
        EntryRecord { chained, ino, name: &self.name, target }
    }

    /// Its bytes on disk.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.record().encode(&mut bytes);
        bytes
    }
}

/// The entry at a cookie, which may be a tombstone.
pub(super) fn entry(
    pin: &dyn Pinned,
    tree: TreeId,
    dir: u64,
    cookie: u64,
) -> FsResult<Look<Named>> {
    let key = key::entry(dir, cookie, Part::Attributes);
    get(pin, tree, &key, |bytes| EntryRecord::decode(bytes).map(|entry| Named::of(&entry)))
}

/// A record that does not decode is as unknown as one that cannot be read.
pub(super) fn not_decoded(tree: TreeId, key: &[u8], malformed: Malformed) -> LostRange {
    let file = format!("record {key:02x?} of tree {}", tree.0);
    let mut to = key.to_vec();
    to.push(0);
    LostRange { from: key.to_vec(), to: Some(to), damage: Arc::new(malformed.located(&file, 0)) }
}

/// Whether one of the ranges may hold keys that start with a prefix.
pub(super) fn touches(lost: &[LostRange], prefix: &[u8]) -> bool {
    let end = prefix_end(prefix);
    lost.iter().any(|lost| {
        end.as_ref().is_none_or(|end| lost.from < *end)
            && lost.to.as_ref().is_none_or(|to| to.as_slice() > prefix)
    })
}
