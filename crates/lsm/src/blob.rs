//! Writing a blob of runs: entries in, blocks out, and behind the blocks of each run its index.
//!
//! Written to a file of the volume first, in large pieces, and made a blob when it is finished;
//! until then nothing leads to it, and what a crash leaves of it is removed at the next opening.

use std::sync::Arc;

use device::{Device, File, Found, compare};
use format::cluster_filter::{Filter, hash};
use format::run_block::{BlockBuilder, pack};
use format::run_index::{BlockPlace, RunIndex, blob_head, checksum};
use format::run_manifest::{BlobEntry, RunEntry};
use store::{Error, Result};

use crate::core::Core;
use crate::files::{DIRECTORY, Files, blob_name};
use crate::options::Options;

/// What names of files begin with that are to become blobs.
pub(crate) const BUILDING_PREFIX: &str = "building-";
/// Bytes of a write.
const WRITE_BYTES: usize = 1 << 20;
/// Members of one filter, so that one of a large run is read and built in parts.
const FILTER_MEMBERS: usize = 100_000;
/// Bits of a filter for each member: one look-up in a hundred of what is not there is in vain.
const FILTER_BITS: u32 = 10;
/// Longest filter: more than as many members need, with those that the last block adds.
const FILTER_BYTES_MAX: usize = 1 << 20;

/// Longest index of a run in memory, which is longer than on the medium: its length, and places in
/// its keys, have 32 bits.
const INDEX_BYTES_MAX: usize = u32::MAX as usize - (64 << 20);

/// A blob that is being written.
pub(crate) struct BlobWriter {
    files: Arc<Files>,
    device: Arc<dyn Device>,
    options: Options,
    path: String,
    file: Option<Arc<dyn File>>,
    number: u64,
    buffer: Vec<u8>,
    /// Bytes that were written from the buffer.
    flushed: u64,
    run: RunBuilder,
    pub(crate) writes: u64,
}

/// A run that was written, and its index, which readers need at once.
pub(crate) struct Written {
    pub(crate) entry: RunEntry,
    pub(crate) index: RunIndex,
}

/// The run that is being written.
#[derive(Default)]
struct RunBuilder {
    number: u64,
    start: u64,
    block: BlockBuilder,
    index: RunIndex,
    members: Vec<u64>,
    /// What the last member of a directory hashes to.
    directory: Vec<u8>,
    entries: u64,
    tombstones: u64,
}

impl BlobWriter {
    pub(crate) fn create(
        files: &Arc<Files>,
        device: &Arc<dyn Device>,
        options: &Options,
        number: u64,
    ) -> Result<BlobWriter> {
        let path = format!("{DIRECTORY}/{BUILDING_PREFIX}{number:016x}");
        let file = Some(device.create(&path)?);
        Ok(BlobWriter {
            files: Arc::clone(files),
            device: Arc::clone(device),
            options: options.clone(),
            path,
            file,
            number,
            buffer: blob_head(files.volume, number),
            flushed: 0,
            run: RunBuilder::default(),
            writes: 0,
        })
    }

    fn offset(&self) -> u64 {
        self.flushed + self.buffer.len() as u64
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.offset() + self.run.block.bytes() as u64
    }

    /// Begins a run; the one before was ended.
    pub(crate) fn begin(&mut self, number: u64) {
        self.run = RunBuilder { number, start: self.offset(), ..RunBuilder::default() };
    }

    /// Adds an entry to the run, above the last; without a value it is a tombstone.
    pub(crate) fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let entry = key.len() + value.map_or(0, <[u8]>::len);
        let full = self.run.block.bytes() + entry > self.options.block_bytes;
        if full && !self.run.block.is_empty() {
            self.end_block()?;
        }
        let run = &mut self.run;
        run.block.push(key, value);
        run.entries += 1;
        run.tombstones += u64::from(value.is_none());
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
        let offset = self.offset();
        let run = &mut self.run;
        let (first, last) = (run.block.first_key().to_vec(), run.block.last_key().to_vec());
        let raw = run.block.finish();
        let packed = match self.options.compression {
            0 => None,
            level => pack(&raw, level),
        };
        let stored = packed.as_ref().unwrap_or(&raw);
        let place = BlockPlace {
            offset,
            stored: stored.len() as u32,
            raw: raw.len() as u32,
            checksum: checksum(&self.files.volume, self.number, offset, stored),
        };
        run.index.push(&first, &last, place);
        if run.members.len() >= FILTER_MEMBERS {
            run.end_filter();
            if run.index.memory_bytes() > INDEX_BYTES_MAX {
                return Err(Error::RunTooLong);
            }
        }
        self.put(&packed.unwrap_or(raw))
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| !self.buffer.is_empty()) else {
            return Ok(());
        };
        file.write_at(&self.buffer, self.flushed)?;
        self.flushed += self.buffer.len() as u64;
        self.writes += 1;
        self.buffer.clear();
        Ok(())
    }

    /// Ends the run. None, if there is nothing in it.
    pub(crate) fn end(&mut self) -> Result<Option<Written>> {
        if !self.run.block.is_empty() {
            self.end_block()?;
        }
        self.run.end_filter();
        let run = std::mem::take(&mut self.run);
        if run.entries == 0 && run.index.ranges().is_empty() {
            return Ok(None);
        }
        let bytes = run.index.encode();
        let index = self.offset();
        self.put(&bytes)?;
        let entry = RunEntry {
            number: run.number,
            blob: self.number,
            start: run.start,
            index,
            index_bytes: bytes.len() as u32,
            ranges: run.index.ranges().len() as u32,
            checksum: checksum(&self.files.volume, self.number, index, &bytes),
            entries: run.entries,
            tombstones: run.tombstones,
        };
        Ok(Some(Written { entry, index: run.index }))
    }

    /// Makes a blob of what was written, durable on return.
    fn finish(mut self) -> Result<Finished> {
        self.flush()?;
        let (number, length) = (self.number, self.flushed);
        let name = blob_name(number);
        let blobs = &self.files.blobs;
        match blobs.adopt(&name, self.device.as_ref(), &self.path) {
            // The file is gone.
            Ok(true) => self.file = None,
            // Numbers are never used twice: either the answer to this very request was lost on the
            // way, and it was asked again, or somebody else gives numbers here.
            Ok(false) => match self.compare(&name)? {
                Found::Same => {}
                _ => return Ok(Finished::Taken(name)),
            },
            Err(error) => {
                // It may have its new name already, and nothing will lead to it.
                let own = !blobs.answers_may_be_lost()
                    || self.compare(&name).is_ok_and(|found| found == Found::Same);
                if own && let Err(error) = blobs.delete(&name) {
                    tracing::warn!(name, %error, "an unfinished blob stays");
                }
                return Err(error.into());
            }
        }
        Ok(Finished::Made(BlobEntry { number, length }))
    }

    /// Compares the blob of a name with what was written.
    fn compare(&self, name: &str) -> device::Result<Found> {
        let file = self.device.open(&self.path)?;
        let part = |buffer: &mut [u8], at: u64| file.read_at(buffer, at);
        compare(&*self.files.blobs, name, self.flushed, &part)
    }
}

/// What became of a blob that was finished.
pub(crate) enum Finished {
    Made(BlobEntry),
    /// Somebody else's has its name.
    Taken(String),
}

impl Core {
    /// Makes a blob of what was written, durable on return.
    pub(crate) fn finish(&self, blob: BlobWriter) -> Result<BlobEntry> {
        match blob.finish()? {
            Finished::Made(blob) => Ok(blob),
            Finished::Taken(name) => Err(self.disown(&name)),
        }
    }
}

/// What was not finished goes away again, as far as the medium lets it.
impl Drop for BlobWriter {
    fn drop(&mut self) {
        if self.file.take().is_some()
            && let Err(error) = self.device.remove(&self.path)
            && !error.is_not_found()
        {
            tracing::warn!(path = self.path, %error, "an unfinished blob stays");
        }
    }
}

impl RunBuilder {
    fn end_filter(&mut self) {
        if !self.members.is_empty() {
            let members = std::mem::take(&mut self.members);
            self.index.push_filter(Filter::build(&members, FILTER_BITS, FILTER_BYTES_MAX));
            // The next filter has to say so too.
            self.directory.clear();
        }
    }
}
