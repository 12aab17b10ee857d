//! Checking what a run points to: every pointer leads to a block that its checksum vouches for,
//! with a row under the entry's key, as long as the pointer says; and as many rows of each value
//! log as the manifest says.

use std::sync::Arc;

use device::Map;
use format::row_pointer::RowPointer;
use format::run_block::Block;
use format::run_manifest::{LogRows, RunEntry};
use store::{CheckReport, Finding, FindingKind, Result};

use crate::check::finding;
use crate::files::{Files, blob_name, located, path};
use crate::rows::{Row, Uses};

/// The rows of one run.
pub(crate) struct RowCheck<'a> {
    files: &'a Files,
    entry: &'a RunEntry,
    /// Of each log the last block, by its offset; none where it cannot be read, which was told.
    blocks: Map<u64, (u64, Option<Arc<Block>>)>,
    uses: Uses,
}

impl<'a> RowCheck<'a> {
    pub(crate) fn new(files: &'a Files, entry: &'a RunEntry) -> RowCheck<'a> {
        RowCheck { files, entry, blocks: Map::default(), uses: Uses::default() }
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
                report.add(finding(located(bad, self.entry.blob, offset))?);
                return Ok(());
            }
        };
        self.uses.add(key, &pointer);
        if let Some(block) = self.block(&pointer, report)?
            && let Err(error) = Row::of(block, key, &pointer)
        {
            report.add(finding(error)?);
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
                Some(Arc::new(block))
            }
            Err(error) => {
                report.add(finding(error)?);
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
            report.add(Finding {
                kind: FindingKind::Count,
                file: path(&blob_name(self.entry.blob)),
                offset: self.entry.index,
                what: format!("run {number}: points to {}, not {}", show(&found), show(stated)),
            });
        }
    }
}
