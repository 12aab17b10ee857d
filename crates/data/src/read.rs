//! Reading: records of the range, then their chunks, each verified against its checksum.
//!
//! The caller holds the file shared, or reads a snapshot: then no page that the records name can be
//! freed meanwhile. Without that, a reader may see some records before and some after a change.
//! Most such reads show as damage: a checksum fails, a segment is missing, extents overlap. So
//! before reporting damage, the read looks the records up again, and starts over if they changed.

use format::Corruption;
use format::extent::{CHUNK_BYTES, Stored};
use store::{Error, Read, Result};

use crate::pages::byte_offset;
use crate::window::{Contents, Record, overlap, window_to_read};
use crate::{Data, FileRef};

/// Maximum restarts of a read before its error is returned, even if the file keeps changing.
const ATTEMPTS: usize = 16;

impl Data {
    /// Reads at `offset` until `buffer` is full or the file, of `file_size` bytes, ends; returns
    /// the bytes read. Holes are zeros. The caller holds the file at least shared.
    pub fn read(
        &self,
        store: &dyn Read,
        file: FileRef,
        file_size: u64,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let left = file_size.saturating_sub(offset);
        let wanted = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(0);
        }
        let buffer = &mut buffer[..wanted];
        let end = offset + wanted as u64;
        let mut records = window_to_read(store, file, offset, end)?;
        let mut attempts = 0;
        loop {
            let Err(error) = self.read_records(file, &records, offset, buffer) else {
                return Ok(wanted);
            };
            attempts += 1;
            if attempts == ATTEMPTS || !matches!(error, Error::Corrupt(_) | Error::Missing { .. }) {
                return Err(error);
            }
            let now = window_to_read(store, file, offset, end)?;
            if now == records {
                return Err(error);
            }
            records = now;
        }
    }

    /// Fills `buffer`, which starts at `offset` of the file.
    fn read_records(
        &self,
        file: FileRef,
        records: &[Record],
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<()> {
        let end = offset + buffer.len() as u64;
        let mut at = offset;
        for record in records {
            let (from, to) = (record.offset.max(offset), record.end().min(end));
            if from < at {
                return Err(overlap(file, record.offset, at));
            }
            buffer[(at - offset) as usize..(from - offset) as usize].fill(0);
            let part = &mut buffer[(from - offset) as usize..(to - offset) as usize];
            let skip = (from - record.offset) as usize;
            match &record.contents {
                Contents::Inline(bytes) => part.copy_from_slice(&bytes[skip..skip + part.len()]),
                Contents::Stored(stored) => {
                    self.read_stored(&stored.part(skip as u32, part.len() as u32), part)?;
                }
            }
            at = to;
        }
        buffer[(at - offset) as usize..].fill(0);
        Ok(())
    }

    /// Reads a whole view and verifies the chunks that it touches.
    pub(crate) fn read_stored(&self, view: &Stored, out: &mut [u8]) -> Result<()> {
        let first = view.first_chunk();
        let page = u32::from(view.page) + first;
        let start = first * CHUNK_BYTES;
        let end = (view.first_chunk() + view.chunk_count()) * CHUNK_BYTES;
        let end = end.min(view.stored);
        if view.skip == start && view.view_end() == end {
            self.segments.read(view.segment, page, out)?;
            return self.verify(view, page, out);
        }
        let mut chunks = vec![0; (end - start) as usize];
        self.segments.read(view.segment, page, &mut chunks)?;
        self.verify(view, page, &chunks)?;
        let skip = (view.skip - start) as usize;
        out.copy_from_slice(&chunks[skip..skip + out.len()]);
        Ok(())
    }

    fn verify(&self, view: &Stored, page: u32, bytes: &[u8]) -> Result<()> {
        let checksums = view.checksums.as_slice();
        for (index, chunk) in bytes.chunks(CHUNK_BYTES as usize).enumerate() {
            let found = crc32c::crc32c(chunk);
            let expected = checksums.get(index).copied();
            if expected != Some(found) {
                return Err(Corruption {
                    file: self.segments.path(view.segment),
                    offset: byte_offset(page + index as u32),
                    structure: "chunk",
                    expected: expected
                        .map_or("a checksum".into(), |sum| format!("crc32c {sum:08x}")),
                    found: format!("crc32c {found:08x} of {} bytes", chunk.len()),
                    unread: false,
                }
                .into());
            }
        }
        Ok(())
    }
}
