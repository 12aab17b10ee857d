//! The extents of a file: for holes, reflinks and counts.

use std::collections::VecDeque;

use store::{Cursor, Read, Result};

use crate::window::{Contents, Record, extents_between, reaching};
use crate::{Data, FileRef};

/// One extent of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentInfo {
    /// Its offset in the file.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Whether the bytes are in the record.
    pub inline: bool,
}

impl ExtentInfo {
    /// First byte of the file after it. A forged key may have any offset.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// The extents of a file, in order.
pub struct ExtentCursor<'a> {
    file: FileRef,
    cursor: Box<dyn Cursor + 'a>,
    /// Extents that start before the requested offset, and are returned first.
    first: VecDeque<ExtentInfo>,
}

impl ExtentCursor<'_> {
    /// The next extent.
    #[expect(clippy::should_implement_trait, reason = "it may fail, as the store's cursors do")]
    pub fn next(&mut self) -> Result<Option<ExtentInfo>> {
        if let Some(first) = self.first.pop_front() {
            return Ok(Some(first));
        }
        match self.cursor.next()? {
            None => Ok(None),
            Some(item) => Record::decode(self.file, item).map(|record| Some(info(&record))),
        }
    }
}

fn info(record: &Record) -> ExtentInfo {
    ExtentInfo {
        offset: record.offset,
        length: record.len(),
        inline: matches!(record.contents, Contents::Inline(_)),
    }
}

impl Data {
    /// The extents of a file that end after `from` and start before `to`. Between them are holes.
    pub fn extents<'a>(
        &self,
        store: &'a dyn Read,
        file: FileRef,
        (from, to): (u64, u64),
    ) -> Result<ExtentCursor<'a>> {
        let mut cursor = extents_between(store, file, from, to)?;
        cursor.seek(&format::key::extent(file.ino, from))?;
        let mut first = VecDeque::new();
        if let Some(item) = cursor.prev()? {
            let record = Record::decode(file, item)?;
            if record.end() > from {
                first.push_back(info(&record));
            }
        }
        Ok(ExtentCursor { file, cursor, first })
    }

    /// As [`Data::extents`], for a caller that treats as a hole what none of them covers. In a
    /// damaged file with overlapping extents, it includes all that reach beyond `from`.
    pub fn extents_to_read<'a>(
        &self,
        store: &'a dyn Read,
        file: FileRef,
        (from, to): (u64, u64),
    ) -> Result<ExtentCursor<'a>> {
        let mut cursor = extents_between(store, file, from, to)?;
        cursor.seek(&format::key::extent(file.ino, from))?;
        let first = reaching(store, file, from, from)?.iter().map(info).collect();
        Ok(ExtentCursor { file, cursor, first })
    }

    /// Bytes of the file that are not holes. Visits every extent.
    pub fn allocated_bytes(&self, store: &dyn Read, file: FileRef) -> Result<u64> {
        let mut extents = self.extents(store, file, (0, u64::MAX))?;
        let mut total = 0;
        while let Some(extent) = extents.next()? {
            total += extent.length;
        }
        Ok(total)
    }
}
