//! Checks what a run points to. Every pointer must reach a block with a matching checksum, and in
//! it a row under the entry's key that has the pointer's length. A run must have as many rows of
//! each value log as the manifest counts. Over all runs, the blocks reached in a value log must
//! have no more rows than the manifest counts. If they are the whole log, they must have exactly as
//! many.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{Map, Set};
use format::row_pointer::RowPointer;
use format::run_block::{Block, Stored};
use format::run_index::BLOB_HEAD_BYTES;
use format::run_manifest::{LogRows, RunEntry};
use store::{CheckReport, Finding, FindingKind, Result};

use crate::files::{Files, blob_name, located, path};
use crate::rows::{Row, Uses, row_bytes};

/// What runs point to in value logs.
#[derive(Default)]
pub(crate) struct LogCheck {
    logs: Map<u64, RowsRead>,
}

/// What was found of a value log.
#[derive(Default)]
struct RowsRead {
    /// Offsets of the blocks that were read.
    blocks: Set<u64>,
    /// Their bytes, their rows, and the bytes of the rows.
    stored: u64,
    rows: u64,
    bytes: u64,
    /// Whether a block could not be read, which was reported.
    damaged: bool,
}

impl LogCheck {
    /// Counts a block the first time it is read.
    fn add(&mut self, pointer: &RowPointer, block: &Block) {
        let found = self.logs.entry(pointer.log).or_default();
        if !found.blocks.insert(pointer.place.offset) {
            return;
        }
        found.stored += u64::from(pointer.place.stored);
        for at in 0..block.len() {
            if let Stored::Value(value) = block.stored(at) {
                found.rows += 1;
                found.bytes +=
                    row_bytes(block.prefix().len() + block.suffix(at).len(), value.len());
            }
        }
    }

    fn cannot_be_read(&mut self, log: u64) {
        self.logs.entry(log).or_default().damaged = true;
    }

    /// Compares what was found with what is stated of value logs, once all runs were read. Blocks
    /// that no pointer reaches are not found; each has at least one row.
    pub(crate) fn end<'a>(
        &self,
        stated: impl Iterator<Item = &'a LogRows>,
        lengths: &BTreeMap<u64, u64>,
        report: &mut CheckReport,
    ) {
        let nothing = RowsRead::default();
        for stated in stated {
            let found = self.logs.get(&stated.log).unwrap_or(&nothing);
            let length = lengths.get(&stated.log).map_or(0, |length| *length);
            let is_all = found.stored + BLOB_HEAD_BYTES as u64 >= length;
            let holds = if is_all {
                (found.rows, found.bytes) == (stated.rows, stated.bytes)
            } else {
                found.rows < stated.rows && found.bytes < stated.bytes
            };
            if !holds && !found.damaged {
                let of = if is_all { "its blocks" } else { "a part of its blocks" };
                let (rows, bytes) = (stated.rows, stated.bytes);
                let what = format!(
                    "{of} have {} rows of {} bytes, and {rows} of {bytes} are stated of all",
                    found.rows, found.bytes
                );
                let file = path(&blob_name(stated.log));
                report.add(Finding::new(FindingKind::Count, file, 0, what));
            }
        }
    }
}

/// The rows of one run.
pub(crate) struct RowCheck<'a> {
    files: &'a Files,
    entry: &'a RunEntry,
    /// The last block of each log, by its offset; none if it cannot be read, which was reported.
    blocks: Map<u64, (u64, Option<Arc<Block>>)>,
    uses: Uses,
    logs: &'a mut LogCheck,
}

impl<'a> RowCheck<'a> {
    pub(crate) fn new(
        files: &'a Files,
        entry: &'a RunEntry,
        logs: &'a mut LogCheck,
    ) -> RowCheck<'a> {
        RowCheck { files, entry, blocks: Map::default(), uses: Uses::default(), logs }
    }

    /// Checks the pointer of an entry, in a block of the run at an offset.
    pub(crate) fn check(
        &mut self,
        key: &[u8],
        bytes: &[u8],
        offset: u64,
        report: &mut CheckReport,
    ) -> Result<()> {
        let pointer = match RowPointer::decode(bytes) {
            Ok(pointer) => pointer,
            Err(bad) => {
                report.add(Finding::of_error("", located(bad, self.entry.blob, offset))?);
                return Ok(());
            }
        };
        self.uses.add(key, &pointer);
        if let Some(block) = self.block(&pointer, report)?
            && let Err(error) = Row::of(block, key, &pointer)
        {
            report.add(Finding::of_error("", error)?);
        }
        Ok(())
    }

    fn block(
        &mut self,
        pointer: &RowPointer,
        report: &mut CheckReport,
    ) -> Result<Option<Arc<Block>>> {
        if let Some((offset, block)) = self.blocks.get(&pointer.log)
            && *offset == pointer.place.offset
        {
            return Ok(block.clone());
        }
        let block = match self.files.load(pointer.log, &pointer.place) {
            Ok(block) => {
                report.leaves += 1;
                self.logs.add(pointer, &block);
                Some(Arc::new(block))
            }
            Err(error) => {
                self.logs.cannot_be_read(pointer.log);
                report.add(Finding::of_error("", error)?);
                None
            }
        };
        self.blocks.insert(pointer.log, (pointer.place.offset, block.clone()));
        Ok(block)
    }

    /// Compares what was found with what is stated, once all entries were read.
    pub(crate) fn end(self, stated: &[LogRows], report: &mut CheckReport) {
        let found = self.uses.list();
        if *found != *stated {
            let show = |all: &[LogRows]| {
                let rows = all.iter().map(|rows| {
                    let log = blob_name(rows.log);
                    format!("{} rows of {} bytes in {log}", rows.rows, rows.bytes)
                });
                rows.collect::<Vec<_>>().join(", ")
            };
            let number = self.entry.number;
            let what = format!("run {number}: points to {}, not {}", show(&found), show(stated));
            let file = path(&blob_name(self.entry.blob));
            report.add(Finding::new(FindingKind::Count, file, self.entry.index, what));
        }
    }
}
