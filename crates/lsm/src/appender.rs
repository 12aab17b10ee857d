//! Writes a blob: the data goes to a file of the volume in large pieces, and the file becomes a
//! blob when it is finished. Until then nothing points to it; the next opening removes what a crash
//! leaves of it.

use std::sync::Arc;

use device::{Compared, Device, File, compare};
use format::run_block::pack;
use format::run_index::{BlockPlace, blob_head, checksum};
use format::run_manifest::BlobEntry;
use store::{Error, Journal, Result};

use crate::files::{DIRECTORY, Files, blob_name, path};

/// Prefix of the names of files that are to become blobs.
pub(crate) const BUILDING_PREFIX: &str = "building-";
/// Bytes of one write.
const WRITE_BYTES: usize = 1 << 20;
/// Largest unit that a disk reads and loses as a whole.
const APART_BYTES: u64 = 4096;

/// A blob that is being written.
pub(crate) struct Appender {
    files: Arc<Files>,
    device: Arc<dyn Device>,
    path: String,
    file: Option<Arc<dyn File>>,
    pub(crate) number: u64,
    buffer: Vec<u8>,
    /// Bytes already written out of the buffer.
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

    /// Bytes so far: the offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.flushed + self.buffer.len() as u64
    }

    /// The checksum base of the bytes that come next.
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

    /// Starts the next data in a different disk block from the one in which the present data ends.
    pub(crate) fn begin_isolated(&mut self) -> Result<()> {
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

    /// Makes a blob of what was written, durable on return. If a foreign blob has its name, the
    /// store takes no more commits.
    pub(crate) fn finish(mut self, journal: &Journal) -> Result<BlobEntry> {
        self.flush()?;
        let (number, length) = (self.number, self.flushed);
        let name = blob_name(number);
        let blobs = &self.files.blobs;
        match blobs.adopt(&name, self.device.as_ref(), &self.path) {
            // The file is gone.
            Ok(true) => self.file = None,
            // Numbers are never used twice. So either the answer to this very request was lost and
            // the request was repeated, or another process assigns numbers here.
            Ok(false) => match self.compare(&name)? {
                Compared::Same => {}
                _ => return Err(disown(journal, &name)),
            },
            Err(error) => {
                // It may have its new name already, and nothing will point to it.
                let own = !blobs.answers_may_be_lost()
                    || self.compare(&name).is_ok_and(|found| found == Compared::Same);
                if own && let Err(error) = blobs.delete(&name) {
                    tracing::warn!(name, %error, "cannot delete an unfinished blob");
                }
                return Err(error.into());
            }
        }
        Ok(BlobEntry { number, length })
    }

    /// Compares the blob of that name with what was written.
    fn compare(&self, name: &str) -> device::Result<Compared> {
        let file = self.device.open(&self.path)?;
        let part = |buffer: &mut [u8], at: u64| file.read_at(buffer, at);
        compare(&*self.files.blobs, name, self.flushed, &part)
    }
}

/// Takes no more commits, and writes nothing more, not even to the log. A file that this store
/// did not make has a name that only this store assigns, so another process works in the same
/// place. What is there is left as it is.
pub(crate) fn disown(journal: &Journal, name: &str) -> Error {
    if journal.opening().is_some() {
        let why = format!("another process opened the volume and made {}", path(name));
        return journal.log().replaced(&why);
    }
    let why = format!("{} is another's: two stores are in one place", path(name));
    journal.log().abandon(&why);
    Error::ReadOnly(Arc::from(why))
}

/// Removes an unfinished file, as far as the disk allows.
impl Drop for Appender {
    fn drop(&mut self) {
        if self.file.take().is_some()
            && let Err(error) = self.device.remove(&self.path)
            && !error.is_not_found()
        {
            tracing::warn!(path = self.path, %error, "cannot delete an unfinished blob");
        }
    }
}
