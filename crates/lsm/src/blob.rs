//! Writes a blob of runs: takes entries, writes blocks, and writes the index of each run behind its
//! blocks.
//!
//! If long values go to a value log (`rows`), the writer writes that beside the blob. A pointer to
//! a row is known only when the row's block is written; entries wait for that, so that they stay in
//! order (`waiting`).

use std::collections::BTreeSet;
use std::sync::Arc;

use device::Device;
use format::cluster_filter::{Filter, hash};
use format::run_block::{BlockBuilder, Stored};
use format::run_index::RunIndex;
use format::run_manifest::{BlobEntry, RunEntry};
use store::{Error, Journal, Result};

use crate::appender::Appender;
use crate::files::{Files, blob_name};
use crate::options::Options;
use crate::rows::{Content, LogWriter, RowReader, Uses, WrittenLog};
use crate::run::Written;
use crate::waiting::{Waited, Waiting};

/// Members of one filter, so that the filter of a large run is read and built in parts.
const FILTER_MEMBERS: usize = 100_000;
/// Bits of a filter for each member: one in a hundred look-ups of an absent key reads in vain.
const FILTER_BITS: u32 = 10;
/// Longest filter: larger than that many members need, because the last block adds some.
const FILTER_BYTES_MAX: usize = 1 << 20;

/// Longest index of a run in memory, which is longer than on disk: its length, and places in
/// its keys, have 32 bits.
const INDEX_BYTES_MAX: usize = u32::MAX as usize - (64 << 20);

/// A blob that is being written.
pub(crate) struct BlobWriter {
    files: Arc<Files>,
    device: Arc<dyn Device>,
    options: Options,
    out: Appender,
    run: RunBuilder,
    /// The value log beside it, if there may be one.
    log: Option<LogWriter>,
    waiting: Waiting,
    /// Value logs whose rows are rewritten when they are met, until the value log beside has that
    /// many bytes.
    clean: (BTreeSet<u64>, u64),
    rows: RowReader,
}

/// A blob that was written, and the value log beside it.
pub(crate) struct Finished {
    pub(crate) blob: BlobEntry,
    pub(crate) log: Option<WrittenLog>,
    pub(crate) writes: u64,
}

impl Finished {
    /// Bytes of both.
    pub(crate) fn bytes(&self) -> u64 {
        self.blob.length + self.log.as_ref().map_or(0, |log| log.blob.length)
    }
}

/// The numbers of a new blob, and of the value log beside it, if there may be one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbers {
    pub(crate) blob: u64,
    pub(crate) log: Option<u64>,
}

/// The run that is being written.
#[derive(Default)]
struct RunBuilder {
    number: u64,
    start: u64,
    block: BlockBuilder,
    index: RunIndex,
    members: Vec<u64>,
    /// The hash of the directory of the last member.
    directory: Vec<u8>,
    entries: u64,
    tombstones: u64,
    uses: Uses,
}

impl BlobWriter {
    pub(crate) fn create(
        files: &Arc<Files>,
        device: &Arc<dyn Device>,
        options: &Options,
        numbers: Numbers,
    ) -> Result<BlobWriter> {
        Ok(BlobWriter {
            files: Arc::clone(files),
            device: Arc::clone(device),
            options: options.clone(),
            out: Appender::create(files, device, numbers.blob)?,
            run: RunBuilder::default(),
            log: numbers.log.map(LogWriter::new),
            waiting: Waiting::default(),
            clean: (BTreeSet::new(), 0),
            rows: RowReader::default(),
        })
    }

    /// Rewrites the rows of these value logs, until the new log has that many bytes of packed rows.
    pub(crate) fn clean(&mut self, logs: BTreeSet<u64>, most: u64) {
        assert!(self.log.is_some() || logs.is_empty(), "rows need a value log to go to");
        self.clean = (logs, most);
    }

    /// Whether rows of this value log are rewritten.
    fn is_taken(&self, log: u64) -> bool {
        let (logs, most) = &self.clean;
        logs.contains(&log) && self.log.as_ref().is_some_and(|log| log.bytes() < *most)
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        let log = self.log.as_ref().map_or(0, LogWriter::bytes);
        self.out.offset() + self.run.block.bytes() as u64 + log
    }

    /// Bytes so far of the longer of the two blobs.
    pub(crate) fn longest_bytes(&self) -> u64 {
        let log = self.log.as_ref().map_or(0, LogWriter::bytes);
        log.max(self.bytes() - log)
    }

    /// Keeps the next run from sharing a disk block with the run before.
    pub(crate) fn begin_isolated(&mut self) -> Result<()> {
        self.out.begin_isolated()
    }

    /// Begins a run; the one before was ended.
    pub(crate) fn begin(&mut self, number: u64) {
        self.run = RunBuilder { number, start: self.out.offset(), ..RunBuilder::default() };
    }

    /// Adds an entry to the run, above the last.
    pub(crate) fn push(&mut self, key: &[u8], content: Content<'_>) -> Result<()> {
        match content {
            Content::Deleted => self.push_or_wait(key, Stored::Tombstone),
            Content::Value(value) if self.is_far(value) => self.push_row(key, value),
            Content::Value(value) => self.push_or_wait(key, Stored::Value(value)),
            Content::Unknown(why) => Err(why.clone()),
            Content::Far(far) => {
                let pointer = far.pointer()?;
                if self.is_taken(pointer.log) {
                    let row = self.rows.row(far.files, &pointer, key)?;
                    return self.push_row(key, row.value());
                }
                self.run.uses.add(key, &pointer);
                self.push_or_wait(key, Stored::Far(far.bytes))
            }
        }
    }

    /// Whether a value goes to the value log.
    fn is_far(&self, value: &[u8]) -> bool {
        self.log.is_some() && value.len() as u64 >= self.options.values_from
    }

    fn push_or_wait(&mut self, key: &[u8], stored: Stored<'_>) -> Result<()> {
        if self.waiting.is_empty() {
            return self.push_stored(key, stored);
        }
        self.waiting.push(key, stored);
        if self.waiting.is_long() { self.end_rows() } else { Ok(()) }
    }

    fn push_row(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let log = self.log.as_ref().expect("invariant: only then a value is far");
        if log.is_full_for(key, value, &self.options) {
            self.end_rows()?;
        }
        if let Some(log) = &mut self.log {
            log.push(key, value);
        }
        self.waiting.push_row(key, value.len() as u32);
        Ok(())
    }

    /// Writes the block of the value log, and the entries that waited for it.
    fn end_rows(&mut self) -> Result<()> {
        let Some(log) = &mut self.log else { return Ok(()) };
        let level = self.options.compression;
        let Some(mut pointer) = log.end_block(&self.files, &self.device, level)? else {
            return Ok(());
        };
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut bytes = Vec::new();
        waiting.drain(|key, waited| match waited {
            Waited::Stored(stored) => self.push_stored(key, stored),
            Waited::Row(length) => {
                pointer.length = length;
                bytes.clear();
                pointer.encode(&mut bytes);
                self.run.uses.add(key, &pointer);
                self.push_stored(key, Stored::Far(&bytes))
            }
        })?;
        // Reuses its memory.
        self.waiting = waiting;
        Ok(())
    }

    fn push_stored(&mut self, key: &[u8], stored: Stored<'_>) -> Result<()> {
        let value = match stored {
            Stored::Tombstone => 0,
            Stored::Value(bytes) | Stored::Far(bytes) => bytes.len(),
        };
        let full = self.run.block.bytes() + key.len() + value > self.options.block_bytes;
        if full && !self.run.block.is_empty() {
            self.end_block()?;
        }
        let run = &mut self.run;
        run.block.push(key, stored);
        run.entries += 1;
        run.tombstones += u64::from(stored == Stored::Tombstone);
        run.members.push(hash(key));
        let directory = self.options.prefix_bytes;
        if let Some(prefix) = key.get(..directory).filter(|prefix| !prefix.is_empty())
            && run.directory != prefix
        {
            run.directory.clear();
            run.directory.extend_from_slice(prefix);
            run.members.push(hash(prefix));
        }
        Ok(())
    }

    /// Adds a range that the run deletes from what is below it.
    pub(crate) fn push_range(&mut self, from: &[u8], to: Option<&[u8]>) {
        self.run.index.push_range(from, to);
    }

    fn end_block(&mut self) -> Result<()> {
        let run = &mut self.run;
        let (first, last) = (run.block.first_key().to_vec(), run.block.last_key().to_vec());
        let place = self.out.put_block(&run.block.finish(), self.options.compression)?;
        run.index.push(&first, &last, place);
        if run.members.len() >= FILTER_MEMBERS {
            run.end_filter();
            if run.index.memory_bytes() > INDEX_BYTES_MAX {
                return Err(Error::RunTooLong);
            }
        }
        Ok(())
    }

    /// Ends the run. Returns none if the run is empty.
    pub(crate) fn end(&mut self) -> Result<Option<Written>> {
        self.end_rows()?;
        if !self.run.block.is_empty() {
            self.end_block()?;
        }
        self.run.end_filter();
        let run = std::mem::take(&mut self.run);
        if run.entries == 0 && run.index.ranges().is_empty() {
            return Ok(None);
        }
        let bytes = run.index.encode();
        let index_bytes = u32::try_from(bytes.len()).map_err(|_| Error::RunTooLong)?;
        let entry = RunEntry {
            number: run.number,
            blob: self.out.number,
            start: run.start,
            index: self.out.offset(),
            index_bytes,
            ranges: run.index.ranges().len() as u32,
            checksum: self.out.checksum(&bytes),
            entries: run.entries,
            tombstones: run.tombstones,
        };
        self.out.put(&bytes)?;
        Ok(Some(Written { entry, index: run.index, uses: run.uses.list() }))
    }

    /// Makes blobs of what was written, durable on return.
    pub(crate) fn finish(self, journal: &Journal) -> Result<Finished> {
        let log = self.log.map(|log| log.finish(journal)).transpose()?.flatten();
        let writes = self.out.writes + 1 + log.as_ref().map_or(0, |log| log.writes);
        match self.out.finish(journal) {
            Ok(blob) => Ok(Finished { blob, log, writes }),
            Err(error) => {
                if let Some(log) = log {
                    let name = blob_name(log.blob.number);
                    if let Err(error) = self.files.blobs.delete(&name) {
                        tracing::warn!(name, %error, "cannot delete an unreferenced value log");
                    }
                }
                Err(error)
            }
        }
    }
}

impl RunBuilder {
    fn end_filter(&mut self) {
        if !self.members.is_empty() {
            let members = std::mem::take(&mut self.members);
            self.index.push_filter(Filter::build(&members, FILTER_BITS, FILTER_BYTES_MAX));
            // The next filter must contain the directory too.
            self.directory.clear();
        }
    }
}
