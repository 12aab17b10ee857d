//! A blob while it is written: to a file of the volume, in large pieces, and made a blob when it
//! is finished. Until then nothing leads to it, and what a crash leaves of it is removed at the
//! next opening.

use std::sync::Arc;

use device::{Device, File, Found, compare};
use format::run_block::pack;
use format::run_index::{BlockPlace, blob_head, checksum};
use format::run_manifest::BlobEntry;
use store::Result;

use crate::core::Core;
use crate::files::{DIRECTORY, Files, blob_name};

/// What names of files begin with that are to become blobs.
pub(crate) const BUILDING_PREFIX: &str = "building-";
/// Bytes of a write.
const WRITE_BYTES: usize = 1 << 20;
/// What a disk reads and loses as one, at most.
const APART_BYTES: u64 = 4096;

/// A blob that is being written.
pub(crate) struct Appender {
    files: Arc<Files>,
    device: Arc<dyn Device>,
    path: String,
    file: Option<Arc<dyn File>>,
    pub(crate) number: u64,
    buffer: Vec<u8>,
    /// Bytes that were written from the buffer.
    flushed: u64,
    pub(crate) writes: u64,
}

impl Appender {
    pub(crate) fn create(
        files: &Arc<Files>,
        device: &Arc<dyn Device>,
        number: u64,
    ) -> Result<Appender> {
        let path = format!("{DIRECTORY}/{BUILDING_PREFIX}{number:016x}");
        let file = Some(device.create(&path)?);
        Ok(Appender {
            files: Arc::clone(files),
            device: Arc::clone(device),
            path,
            file,
            number,
            buffer: blob_head(files.volume, number),
            flushed: 0,
            writes: 0,
        })
    }

    /// Bytes so far: where the next begin.
    pub(crate) fn offset(&self) -> u64 {
        self.flushed + self.buffer.len() as u64
    }

    /// What vouches for bytes that come next.
    pub(crate) fn checksum(&self, bytes: &[u8]) -> u32 {
        checksum(&self.files.volume, self.number, self.offset(), bytes)
    }

    /// Appends a block, packed where zstd at a level (0: not) makes it smaller.
    pub(crate) fn put_block(&mut self, raw: &[u8], level: i32) -> Result<BlockPlace> {
        let packed = if level == 0 { None } else { pack(raw, level) };
        let stored = packed.as_deref().unwrap_or(raw);
        let place = BlockPlace {
            offset: self.offset(),
            stored: stored.len() as u32,
            raw: raw.len() as u32,
            checksum: self.checksum(stored),
        };
        self.put(stored)?;
        Ok(place)
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    /// Has what comes next begin in another block of the disk than what there is ends in.
    pub(crate) fn begin_apart(&mut self) -> Result<()> {
        let bytes = self.offset().next_multiple_of(APART_BYTES) - self.offset();
        self.put(&vec![0; bytes as usize])
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

    /// Makes a blob of what was written, durable on return. Where somebody else's has its name,
    /// the store takes no more commits.
    pub(crate) fn finish(mut self, core: &Core) -> Result<BlobEntry> {
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
                _ => return Err(core.disown(&name)),
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
        Ok(BlobEntry { number, length })
    }

    /// Compares the blob of a name with what was written.
    fn compare(&self, name: &str) -> device::Result<Found> {
        let file = self.device.open(&self.path)?;
        let part = |buffer: &mut [u8], at: u64| file.read_at(buffer, at);
        compare(&*self.files.blobs, name, self.flushed, &part)
    }
}

/// What was not finished goes away again, as far as the disk lets it.
impl Drop for Appender {
    fn drop(&mut self) {
        if self.file.take().is_some()
            && let Err(error) = self.device.remove(&self.path)
            && !error.is_not_found()
        {
            tracing::warn!(path = self.path, %error, "an unfinished blob stays");
        }
    }
}
