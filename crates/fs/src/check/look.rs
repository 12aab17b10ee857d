//! Reads records past damage. What cannot be read is unknown, which differs from proven absent.

use std::sync::Arc;

use format::directory_record::DirectoryRecord;
use format::entry_record::EntryRecord;
use format::key::{self, Part};
use format::{Corruption, Malformed};
use store::{Cursor, Error, KeyRange, LostRange, Pinned, TreeId, prefix_end};

use crate::FsResult;
use crate::error::from_store;
use crate::own::COPY;
use crate::subvol::VOLUME;

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

/// Iterates over the keys that start with a prefix, past what cannot be read.
pub(crate) struct Scan<'a> {
    pin: &'a dyn Pinned,
    tree: TreeId,
    cursor: Option<Box<dyn Cursor + 'a>>,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    begun: bool,
    start: Vec<u8>,
    /// What could not be read so far.
    pub(crate) lost: Vec<LostRange>,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(pin: &'a dyn Pinned, tree: TreeId, prefix: &[u8]) -> FsResult<Scan<'a>> {
        let range = KeyRange { from: prefix.to_vec(), to: prefix_end(prefix) };
        let mut lost = Vec::new();
        let cursor = match pin.scan(tree, range) {
            Ok(cursor) => Some(cursor),
            Err(Error::Corrupt(damage)) => {
                // The start of the tree is not known: none of it can be read.
                lost.push(LostRange { from: prefix.to_vec(), to: None, damage });
                None
            }
            // One of the two exists, or the volume would not be open: a repair was interrupted.
            Err(Error::NoTree(tree)) if [VOLUME, COPY].contains(&tree) => {
                let missing = Corruption {
                    file: String::new(),
                    offset: 0,
                    structure: "tree of the volume's records",
                    expected: format!("tree {}", tree.0),
                    found: "none".to_owned(),
                };
                let damage = Arc::new(missing);
                lost.push(LostRange { from: prefix.to_vec(), to: None, damage });
                None
            }
            Err(error) => return Err(from_store(error)),
        };
        let (key, value, start) = (Vec::new(), Vec::new(), prefix.to_vec());
        Ok(Scan { pin, tree, cursor, key, value, begun: false, start, lost })
    }

    /// Moves to the next key that can be read; `false` at the end.
    pub(crate) fn advance(&mut self) -> FsResult<bool> {
        loop {
            let Some(cursor) = &mut self.cursor else { return Ok(false) };
            match cursor.next() {
                Ok(None) => return Ok(false),
                Ok(Some(item)) => {
                    self.key.clear();
                    self.key.extend_from_slice(item.key);
                    self.value.clear();
                    self.value.extend_from_slice(item.value);
                    self.begun = true;
                    return Ok(true);
                }
                Err(Error::Corrupt(damage)) => self.pass(damage)?,
                Err(error) => return Err(from_store(error)),
            }
        }
    }

    /// Continues behind what cannot be read.
    fn pass(&mut self, damage: Arc<Corruption>) -> FsResult<()> {
        let mut from = self.start.clone();
        if self.begun {
            from.clone_from(&self.key);
            from.push(0);
        }
        let behind = self.lost.last().and_then(|lost| lost.to.clone());
        let from = from.max(behind.unwrap_or_default());
        let lost = match self.pin.lost_from(self.tree, &from) {
            Ok(lost) => lost,
            Err(Error::Corrupt(_)) => None,
            Err(error) => return Err(from_store(error)),
        };
        let lost = lost.filter(|lost| lost.to.as_ref().is_none_or(|to| *to > from));
        let lost = lost.unwrap_or(LostRange { from, to: None, damage });
        match (&lost.to, &mut self.cursor) {
            (Some(to), Some(cursor)) => cursor.seek(to).map_err(from_store)?,
            _ => self.cursor = None,
        }
        self.lost.push(lost);
        Ok(())
    }
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
