//! The extents of a file around a range, decoded, and what one alone shows: to which bytes may be
//! appended, and which overlap.

use format::extent::{Extent, INLINE_EXTENT_BYTES_MAX, STORED_BYTES_MAX, Stored, decode};
use format::{Corruption, key};
use store::{Cursor, Error, Item, KeyRange, Read, Result};

use crate::{ExtentOwner, FileRef};

/// Maximum bytes of one extent.
const LENGTH_MAX: u64 = STORED_BYTES_MAX as u64;
const _: () = assert!(INLINE_EXTENT_BYTES_MAX as u64 <= LENGTH_MAX);

/// An extent of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// Its offset in the file.
    pub(crate) offset: u64,
    pub(crate) contents: Contents,
}

/// Where the bytes of an extent are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Contents {
    Stored(Stored),
    Inline(Vec<u8>),
}

impl Record {
    /// First byte of the file after the extent. A forged key may have any offset.
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.len())
    }

    pub(crate) fn len(&self) -> u64 {
        match &self.contents {
            Contents::Stored(stored) => u64::from(stored.length),
            Contents::Inline(bytes) => bytes.len() as u64,
        }
    }

    pub(crate) fn decode(file: FileRef, item: Item<'_>) -> Result<Record> {
        let (offset, extent) = parse(file, item)?;
        let contents = match extent {
            Extent::Stored(stored) => Contents::Stored(stored),
            Extent::Inline(bytes) => Contents::Inline(bytes.to_vec()),
        };
        Ok(Record { offset, contents })
    }
}

/// Offset and extent of a record.
pub(crate) fn parse(file: FileRef, item: Item<'_>) -> Result<(u64, Extent<'_>)> {
    let located = |malformed: format::Malformed| {
        let offset = key::parse(item.key).map_or(0, |parsed| match parsed {
            key::Parsed::Extent { offset, .. } => offset,
            _ => 0,
        });
        malformed.located(&format!("extents of inode {} in tree {}", file.ino, file.tree.0), offset)
    };
    let offset = match key::parse(item.key).map_err(located)? {
        key::Parsed::Extent { offset, .. } => offset,
        other => unreachable!("invariant: the range holds extents, found {other:?}"),
    };
    Ok((offset, decode(item.value).map_err(located)?))
}

/// A cursor over the extents of a file that start before `to` and may reach beyond `from`. It is
/// bounded on both sides: a log-structured store scans tombstones beside the range one key at a
/// time.
pub(crate) fn extents_between<'a>(
    store: &'a dyn Read,
    file: FileRef,
    from: u64,
    to: u64,
) -> Result<Box<dyn Cursor + 'a>> {
    let lowest = from.saturating_sub(LENGTH_MAX - 1);
    let range = KeyRange::between(&key::extent(file.ino, lowest), &key::extent(file.ino, to));
    store.scan(file.tree, range)
}

/// The extents that overlap `from..to`, in order.
pub(crate) fn window(store: &dyn Read, file: FileRef, from: u64, to: u64) -> Result<Vec<Record>> {
    window_and_last(store, file, from, to).map(|(records, _)| records)
}

/// As [`window`], for a caller that treats as zeros what none of them covers. In a damaged file
/// extents overlap, and a long one before a short one may reach in. It is included wherever a byte
/// of the range that it covers would otherwise be treated as a hole.
pub(crate) fn window_to_read(
    store: &dyn Read,
    file: FileRef,
    from: u64,
    to: u64,
) -> Result<Vec<Record>> {
    let (records, last) = window_and_last(store, file, from, to)?;
    let mut covered = from;
    for record in &records {
        if record.offset > covered {
            break;
        }
        covered = covered.max(record.end());
    }
    match last {
        Some(last) if covered < to => {
            let mut reaching = reaching(store, file, last, covered)?;
            reaching.extend(records);
            Ok(reaching)
        }
        _ => Ok(records),
    }
}

/// The extents that start before `before` and cover the byte at `at`, which no extent that starts
/// there or later does. Reads only extents that may reach so far.
pub(crate) fn reaching(
    store: &dyn Read,
    file: FileRef,
    before: u64,
    at: u64,
) -> Result<Vec<Record>> {
    let lowest = at.saturating_sub(LENGTH_MAX - 1);
    if lowest >= before {
        return Ok(Vec::new());
    }
    let range = KeyRange::between(&key::extent(file.ino, lowest), &key::extent(file.ino, before));
    let mut cursor = store.scan(file.tree, range)?;
    let mut records = Vec::new();
    while let Some(item) = cursor.next()? {
        let record = Record::decode(file, item)?;
        if record.end() > at {
            records.push(record);
        }
    }
    Ok(records)
}

/// The extents that overlap `from..to`, and the start of the last one that starts before `from`, of
/// those that may reach so far.
fn window_and_last(
    store: &dyn Read,
    file: FileRef,
    from: u64,
    to: u64,
) -> Result<(Vec<Record>, Option<u64>)> {
    let mut cursor = extents_between(store, file, from, to)?;
    cursor.seek(&key::extent(file.ino, from))?;
    let (mut records, mut last) = (Vec::new(), None);
    // Extents do not overlap: of those that start before the range only the last can reach in.
    if let Some(item) = cursor.prev()? {
        let record = Record::decode(file, item)?;
        last = Some(record.offset);
        if record.end() > from {
            records.push(record);
        }
    }
    while let Some(item) = cursor.next()? {
        records.push(Record::decode(file, item)?);
    }
    Ok((records, last))
}

/// The stored extent of a record to which bytes may be appended, as far as the record shows.
pub(crate) fn growable(record: &Record, owner: ExtentOwner) -> Option<&Stored> {
    match &record.contents {
        Contents::Stored(stored)
            if owner.excludes_others(stored)
                && stored.view_end() == stored.stored
                && stored.stored < STORED_BYTES_MAX =>
        {
            Some(stored)
        }
        _ => None,
    }
}

/// The error of extents that overlap.
pub(crate) fn overlap(file: FileRef, found: u64, end: u64) -> Error {
    Corruption {
        file: format!("extents of inode {} in tree {}", file.ino, file.tree.0),
        offset: found,
        structure: "extent",
        expected: format!("an extent at {end} or later"),
        found: format!("one at {found}"),
        unread: false,
    }
    .into()
}
