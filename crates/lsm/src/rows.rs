//! Value logs: rows - keys with values too long to be stored in a run - in blobs that are not
//! merged (IndexFS II.C, "column-style").
//!
//! A value log is written together with the runs of one checkpoint or one merge, which have
//! pointers to its rows. It is a blob of the same format as those of runs, of blocks like theirs,
//! without an index. A pointer names the block and has its checksum; the reader finds the row in
//! the block by its key. Later merges copy pointers. A log is deleted when no run has a pointer
//! into it (`collect`); a mostly dead log is emptied first (`clean`).

use std::sync::Arc;

use device::{Device, Map};
use format::Corruption;
use format::row_pointer::RowPointer;
use format::run_block::{Block, BlockBuilder, Stored};
use format::run_manifest::{BlobEntry, LogRows};
use store::{Error, Journal, Result};

use crate::appender::Appender;
use crate::files::{Files, blob_name, located, path};
use crate::options::Options;

/// What a layer has under a key.
#[derive(Clone, Copy)]
pub(crate) enum Content<'a> {
    Deleted,
    Value(&'a [u8]),
    Far(Far<'a>),
    /// A value, and why it is unknown (`mem`).
    Unknown(&'a Error),
}

/// A pointer in a block of a run.
#[derive(Clone, Copy)]
pub(crate) struct Far<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) files: &'a Files,
    /// The blob and offset of the block that contains it.
    pub(crate) at: (u64, u64),
}

/// A row of a value log.
pub(crate) struct Row {
    block: Arc<Block>,
    at: usize,
}

impl<'a> Content<'a> {
    /// What a block has.
    pub(crate) fn of(stored: Stored<'a>, files: &'a Files, at: (u64, u64)) -> Content<'a> {
        match stored {
            Stored::Tombstone => Content::Deleted,
            Stored::Value(value) => Content::Value(value),
            Stored::Far(bytes) => Content::Far(Far { bytes, files, at }),
        }
    }

    pub(crate) fn is_deleted(&self) -> bool {
        matches!(self, Content::Deleted)
    }

    /// Passes the value under a key to `found`; `false` if the key is deleted.
    pub(crate) fn read(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        match self {
            Content::Deleted => return Ok(false),
            Content::Value(value) => found(value),
            Content::Far(far) => found(far.row(key)?.value()),
            Content::Unknown(why) => return Err((*why).clone()),
        }
        Ok(true)
    }
}

impl Far<'_> {
    pub(crate) fn pointer(&self) -> Result<RowPointer> {
        RowPointer::decode(self.bytes).map_err(|bad| located(bad, self.at.0, self.at.1))
    }

    /// The row of a key, through the cache.
    fn row(&self, key: &[u8]) -> Result<Row> {
        let pointer = self.pointer()?;
        Row::of(self.files.block(pointer.log, &pointer.place)?, key, &pointer)
    }
}

impl Row {
    /// The row of a key in its block.
    pub(crate) fn of(block: Arc<Block>, key: &[u8], pointer: &RowPointer) -> Result<Row> {
        let at = block.search(key).ok();
        let length = at.and_then(|at| match block.stored(at) {
            Stored::Value(value) => Some(value.len()),
            Stored::Tombstone | Stored::Far(_) => None,
        });
        match (at, length) {
            (Some(at), Some(length)) if length == pointer.length as usize => Ok(Row { block, at }),
            (_, length) => Err(no_row(pointer, length)),
        }
    }

    pub(crate) fn value(&self) -> &[u8] {
        match self.block.stored(self.at) {
            Stored::Value(value) => value,
            Stored::Tombstone | Stored::Far(_) => unreachable!("a row has a value"),
        }
    }
}

/// An error: a pointer to a row that its block does not have.
fn no_row(pointer: &RowPointer, found: Option<usize>) -> Error {
    Corruption {
        file: path(&blob_name(pointer.log)),
        offset: pointer.place.offset,
        structure: "row of a value log",
        expected: format!("a value of {} bytes", pointer.length),
        found: found.map_or_else(|| "no such row".to_owned(), |length| format!("{length} bytes")),
        unread: false,
    }
    .into()
}

/// Reads rows in the order of keys, bypassing the cache: keeps the last block of each log.
#[derive(Default)]
pub(crate) struct RowReader {
    blocks: Map<u64, (u64, Arc<Block>)>,
}

impl RowReader {
    pub(crate) fn row(&mut self, files: &Files, pointer: &RowPointer, key: &[u8]) -> Result<Row> {
        let block = match self.blocks.get(&pointer.log) {
            Some((offset, block)) if *offset == pointer.place.offset => Arc::clone(block),
            _ => {
                let block = Arc::new(files.load(pointer.log, &pointer.place)?);
                self.blocks.insert(pointer.log, (pointer.place.offset, Arc::clone(&block)));
                block
            }
        };
        Row::of(block, key, pointer)
    }
}

/// Rows that runs point to, by log.
#[derive(Debug, Default, Clone)]
pub(crate) struct Uses(Map<u64, (u64, u64)>);

impl Uses {
    pub(crate) fn add(&mut self, key: &[u8], pointer: &RowPointer) {
        let (rows, bytes) = self.0.entry(pointer.log).or_default();
        *rows += 1;
        *bytes += row_bytes(key.len(), pointer.length as usize);
    }

    /// Ascending.
    pub(crate) fn list(&self) -> Arc<[LogRows]> {
        let rows = self.0.iter().map(|(&log, &(rows, bytes))| LogRows { log, rows, bytes });
        let mut rows: Vec<LogRows> = rows.collect();
        rows.sort_unstable_by_key(|rows| rows.log);
        Arc::from(rows)
    }
}

/// The bytes that a row counts for.
pub(crate) fn row_bytes(key: usize, value: usize) -> u64 {
    (key + value) as u64
}

/// A value log that is being written. The file is created with the first row.
pub(crate) struct LogWriter {
    number: u64,
    out: Option<Appender>,
    block: BlockBuilder,
    rows: u64,
    bytes: u64,
}

/// A value log that was written.
pub(crate) struct WrittenLog {
    pub(crate) blob: BlobEntry,
    pub(crate) rows: LogRows,
    pub(crate) writes: u64,
}

impl LogWriter {
    pub(crate) fn new(number: u64) -> LogWriter {
        LogWriter { number, out: None, block: BlockBuilder::default(), rows: 0, bytes: 0 }
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.out.as_ref().map_or(0, Appender::offset) + self.block.bytes() as u64
    }

    /// Whether a row has to begin a block of its own.
    pub(crate) fn is_full_for(&self, key: &[u8], value: &[u8], options: &Options) -> bool {
        !self.block.is_empty() && self.block.bytes() + key.len() + value.len() > options.block_bytes
    }

    /// Adds a row to the block that [`LogWriter::end_block`] writes.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) {
        self.block.push(key, Stored::Value(value));
        self.rows += 1;
        self.bytes += row_bytes(key.len(), value.len());
    }

    /// Writes the block; returns a pointer to its rows, without their length. None if the block is
    /// empty.
    pub(crate) fn end_block(
        &mut self,
        files: &Arc<Files>,
        device: &Arc<dyn Device>,
        level: i32,
    ) -> Result<Option<RowPointer>> {
        if self.block.is_empty() {
            return Ok(None);
        }
        let out = match &mut self.out {
            Some(out) => out,
            None => self.out.insert(Appender::create(files, device, self.number)?),
        };
        let place = out.put_block(&self.block.finish(), level)?;
        Ok(Some(RowPointer { log: self.number, place, length: 0 }))
    }

    /// Makes a blob of it, durable on return, if there are rows. All blocks must be ended.
    pub(crate) fn finish(self, journal: &Journal) -> Result<Option<WrittenLog>> {
        assert!(self.block.is_empty(), "a row without a pointer");
        let Some(out) = self.out else { return Ok(None) };
        let rows = LogRows { log: self.number, rows: self.rows, bytes: self.bytes };
        let writes = out.writes + 1;
        Ok(Some(WrittenLog { blob: out.finish(journal)?, rows, writes }))
    }
}
