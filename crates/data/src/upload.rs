//! Segments where only objects are durable: the files of open segments are a host's own, and may be
//! lost with it.
//!
//! A sync makes an object of each segment that was written, and later writes begin another segment.
//! Numbered argument, which replaces that of `barrier`:
//! 1. a page is written, and its segment counts the write as ended, before the batch that names the
//!    page is committed;
//! 2. the sync first takes the current segment from the allocator, so that no write to it begins,
//!    then waits for the writes under way, and then makes the object of everything that was
//!    written;
//! 3. the log writes the batch after that. So a record that survives names pages of an object.
//!
//! A segment's number is used by one opening, so an object under its name is this opening's own, or
//! another program's. A failed creation changes nothing: the file is still there, and the next sync
//! tries again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use device::{Device, Found, compare};
use format::Corruption;
use format::segment::{Mark, MarkKind};
use store::{Error, Result};

use crate::Data;
use crate::segments::{OPEN_DIRECTORY, OpenSegment, SealedSegment, blob_name, open_path};
use crate::write::{byte_offset, room};

/// Pause before a footer is tried again on a full disk.
const FULL_PAUSE: Duration = Duration::from_secs(1);

impl Data {
    /// Whether segments are durable only as blobs.
    pub(crate) fn uploads(&self) -> bool {
        self.options.upload_from.is_some()
    }

    /// Makes a blob of each segment that was written before the call.
    pub(crate) fn upload_all(&self) -> Result<()> {
        self.allocator.close_current();
        for segment in self.segments.open() {
            // One that is current now was empty when the call began.
            if !self.allocator.is_current(segment.id) {
                self.upload(&segment)?;
            }
        }
        Ok(())
    }

    /// Makes a blob of a segment that accepts no more data, or waits for the thread that does.
    fn upload(&self, segment: &Arc<OpenSegment>) -> Result<()> {
        let _one_at_a_time = segment.uploading.lock();
        let Some(pages) = self.allocator.take_closed(segment.id) else { return Ok(()) };
        segment.wait_for_writes();
        if let Err(error) = self.make_object(segment, pages) {
            self.allocator.put_back(Arc::clone(segment), pages);
            return Err(error);
        }
        self.unsynced.fetch_sub(segment.note_synced(), Ordering::AcqRel);
        self.allocator.sealed(segment.id);
        self.garbage.lock().examine(segment.id, self.env.clock.monotonic());
        Ok(())
    }

    /// Makes a blob of one segment that accepts no more data; `false` when there is none.
    pub(crate) fn upload_one(&self) -> Result<bool> {
        let Some(segment) = self.allocator.closed() else { return Ok(false) };
        self.upload(&segment)?;
        Ok(true)
    }

    fn make_object(&self, segment: &Arc<OpenSegment>, pages: u32) -> Result<()> {
        let mut footer = Vec::new();
        let mark = Mark {
            kind: MarkKind::Footer,
            generation: 0,
            volume: self.options.volume,
            segment: segment.id,
            pages,
        };
        mark.encode(&mut footer);
        self.write_footer(segment, &footer, byte_offset(pages))?;
        // Otherwise the kernel may drop pages whose write-back failed, and the object would be made
        // of what the disk had there before.
        segment.file.sync_data().map_err(|error| self.latch(error))?;
        let (name, path) = (blob_name(segment.id, 0), open_path(segment.id));
        let (device, blobs) = (self.env.device.as_ref(), self.segments.blobs());
        if !blobs.adopt(&name, device, &path)? {
            let file = &segment.file;
            let part = |buffer: &mut [u8], at: u64| file.read_at(buffer, at);
            if compare(blobs, &name, file.len()?, &part)? != Found::Same {
                let expected = "no object, or the segment of this opening".to_owned();
                let found = "other bytes: another program writes here".to_owned();
                let (file, structure) = (name, "data segment");
                return Err(Corruption { file, offset: 0, structure, expected, found }.into());
            }
            // The answer to an earlier attempt was lost.
            device.remove(&path)?;
        }
        self.segments.insert_sealed(SealedSegment::new(segment.id, 0, true));
        Ok(())
    }

    /// Writes the footer. What the segment holds was acknowledged, so a full disk of the host is
    /// waited for: contents of files leave it space, but other programs may not.
    fn write_footer(&self, segment: &OpenSegment, footer: &[u8], offset: u64) -> Result<()> {
        loop {
            let written = self.with_relief(|| segment.file.write_at(footer, offset).map_err(room));
            match written {
                Err(error) if error.is_no_space() => {
                    tracing::warn!(%error, "waiting for space on the host's disk");
                    self.env.clock.sleep(FULL_PAUSE);
                }
                written => return written,
            }
        }
    }

    /// Removes files of open segments: what a log record names of them, an object has.
    pub(crate) fn drop_open(&self) -> Result<()> {
        let device: &dyn Device = self.env.device.as_ref();
        for directory in ["data", OPEN_DIRECTORY] {
            if device.metadata(directory)?.is_none() {
                device.create_dir(directory)?;
            }
        }
        for name in device.list(OPEN_DIRECTORY)? {
            device.remove(&format!("{OPEN_DIRECTORY}/{name}")).map_err(Error::from)?;
        }
        Ok(())
    }
}
