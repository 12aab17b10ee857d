//! Segments where only objects are durable: the files of open segments are a host's own, and may be
//! lost with it.
//!
//! A sync makes an object of each segment that was written, and later writes begin another segment.
//! Numbered argument, which replaces that of `barrier`:
//! 1. a page is written, and its segment counts the write as ended, before the batch that names the
//!    page is committed;
//! 2. the sync first takes the current segment from the allocator, so that no write to it begins.
//!    Then it waits for the writes under way, and makes the object of everything that was written;
//! 3. the log writes the batch after that. So a record that survives names pages of an object.
//!
//! A segment's number is used by one opening, so an object under its name is this opening's own, or
//! another program's. A failed creation changes nothing: the file is still there, and the next sync
//! tries again. If the host's file cannot be read by its path, what is open still may be. If that
//! cannot be read either, what was written is lost, and a later sync must not pretend otherwise.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{Compared, Device, File, compare};
use format::Corruption;
use store::{Error, Result};

use crate::Data;
use crate::pages::byte_offset;
use crate::segments::{OPEN_DIRECTORY, OpenSegment, SealedSegment, blob_name, open_path};
use crate::write::name_space;

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
        let _one_at_a_time = loop {
            if let Some(turn) = segment.uploading.try_lock_for(device::LOOK_EVERY) {
                break turn;
            }
            if device::is_interrupted() {
                let error = std::io::Error::from(std::io::ErrorKind::Interrupted);
                return Err(device::Error::new("create", &blob_name(segment.id, 0), error).into());
            }
        };
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
        let footer = self.footer(segment.id, pages);
        let at = byte_offset(pages);
        let written = self.with_relief(|| segment.file.write_at(&footer, at).map_err(name_space));
        if let Err(error) = &written {
            tracing::debug!(%error, segment = segment.id, "a segment has no footer in its file");
        }
        // Otherwise the kernel may drop pages whose write-back failed, and the object would be made
        // of what the disk had there before.
        segment.file.sync_data().map_err(|error| self.latch(error))?;
        let (name, path) = (blob_name(segment.id, 0), open_path(segment.id));
        let (device, blobs) = (self.env.device.as_ref(), self.segments.blobs());
        let adopted = match written {
            Ok(()) => blobs.adopt(&name, device, &path),
            Err(_) => Err(device::Error::new("write", &path, std::io::ErrorKind::Other.into())),
        };
        let made = match adopted {
            Err(error) if error.is_of(&path) => self.make_from_memory(segment, &footer, at)?,
            adopted => adopted?,
        };
        if !made {
            // Unless another program made it, the answer to an earlier attempt was lost.
            self.check_made(segment, &footer, at)?;
        }
        device::remove_adopted(device, &path);
        self.segments.insert_sealed(SealedSegment::new(segment.id, 0, true));
        Ok(())
    }

    /// Makes the object of a segment whose file cannot become it. Its footer does not fit on the
    /// host's disk, which other programs may have filled. Or the file is gone from its directory.
    /// What the segment holds was acknowledged, and the store has space.
    fn make_from_memory(&self, segment: &OpenSegment, footer: &[u8], data: u64) -> Result<bool> {
        let mut bytes = vec![0; data as usize + footer.len()];
        let read = part_with(&*segment.file, footer, data, &mut bytes, 0)
            .map_err(|error| self.lost(segment, error))?;
        bytes.truncate(read);
        Ok(self.segments.blobs().create(&blob_name(segment.id, 0), &bytes)?)
    }

    /// Fails if the object of a segment that exists is not made of the segment.
    fn check_made(&self, segment: &OpenSegment, footer: &[u8], data: u64) -> Result<()> {
        let part = |buffer: &mut [u8], at: u64| part_with(&*segment.file, footer, data, buffer, at);
        let name = blob_name(segment.id, 0);
        let compared = compare(self.segments.blobs(), &name, data + footer.len() as u64, &part);
        if compared.map_err(|error| self.lost(segment, error))? == Compared::Same {
            return Ok(());
        }
        let expected = "no object, or the segment of this opening".to_owned();
        let found = "other bytes: another program writes here".to_owned();
        let (file, structure) = (name, "data segment");
        Err(Corruption { file, offset: 0, structure, expected, found, unread: false }.into())
    }

    /// The error of a read of a segment or of its object. If the segment itself cannot be read,
    /// what was written is lost.
    fn lost(&self, segment: &OpenSegment, error: device::Error) -> device::Error {
        let is_lost = error.is_of(&open_path(segment.id)) && !error.is_shortage();
        if is_lost { self.latch(error) } else { error }
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

/// Reads a part of a segment's file up to where its data end, followed by the footer. What the file
/// has behind its data does not matter: a footer may have been written in part.
fn part_with(
    file: &dyn File,
    footer: &[u8],
    data: u64,
    buffer: &mut [u8],
    at: u64,
) -> device::Result<usize> {
    let from_file = (data.saturating_sub(at) as usize).min(buffer.len());
    let (first, last) = buffer.split_at_mut(from_file);
    // Pages that were reserved and not written are a hole, also behind the end of the file.
    let read = file.read_at(first, at)?;
    first[read..].fill(0);
    let part = footer.get(at.saturating_sub(data) as usize..).unwrap_or_default();
    let part = &part[..part.len().min(last.len())];
    last[..part.len()].copy_from_slice(part);
    Ok(from_file + part.len())
}
