//! Writing: bytes go to the open segment, or into the record itself when they are few (`inline`),
//! and the plan goes into the caller's batch.
//!
//! Bytes that follow one of this file's own extents grow it in place. They go into the rest of its
//! last page, and into the segment's next pages while they are free. The old record stays valid,
//! because its last checksum covers only its own bytes. The rest gets pages of its own, contiguous
//! as far as the segment allows. It is written with one call, and is cut into extents of 128 KiB.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use format::extent::{CHUNK_BYTES, Checksums, INLINE_EXTENT_BYTES_MAX, STORED_BYTES_MAX, Stored};
use store::{Batch, Error, Read, Result};

use crate::alloc::PageRun;
use crate::cut::{Edits, pages_of};
use crate::inline::{Home, InlineRun};
use crate::pages::{byte_offset, bytes_of, pages};
use crate::segments::OpenSegment;
use crate::window::{Contents, Record, growable, window};
use crate::{Data, ExtentOwner, FileRef, Freed};

/// How far a chunk may reach beyond a byte that it holds.
pub(crate) const CHUNK_REACH: u64 = CHUNK_BYTES as u64 - 1;
/// With less space than this in its last page, an extent is not grown unless everything fits. The
/// second write call costs more than the space is worth.
const GROW_BYTES_MIN: usize = 512;
/// Number of unsealed segments at which writers seal one themselves. So a volume whose cleaner does
/// not run keeps a bounded number of files open.
const BACKLOG_MAX: usize = 8;

impl Data {
    /// Writes `bytes` at `offset` and plans the tree's changes into `batch`. The bytes are written
    /// when this returns and durable after [`Data::sync`] (the barrier). The caller raises the
    /// file's size and times, and holds the file exclusively until the commit returns.
    pub fn write(
        &self,
        store: &dyn Read,
        file: FileRef,
        offset: u64,
        bytes: &[u8],
        owner: ExtentOwner,
        batch: &mut Batch,
    ) -> Result<Freed> {
        debug_assert!(owner.birth >= owner.last_clone, "extents are born after the last clone");
        if bytes.is_empty() {
            return Ok(Freed::default());
        }
        let end = offset.checked_add(bytes.len() as u64).expect("invariant: offsets are bounded");
        self.check_writable()?;
        let mut records = window(
            store,
            file,
            offset.saturating_sub(CHUNK_REACH),
            end.saturating_add(CHUNK_REACH),
        )?;
        let mut edits = Edits::new(file);
        edits.freed.replaced_bytes = covered(&records, offset, end);
        if patch_inline(&mut edits, &records, offset, bytes) {
            return Ok(edits.finish(batch));
        }
        let run = InlineRun::before(store, file, &records, offset, self.run_bytes_max())?;
        match self.home(file, &records, offset, bytes.len(), &run, owner) {
            Home::Inline => inline(&mut edits, &records, &run, offset, bytes, owner)?,
            Home::Segment => {
                let start = run.start().unwrap_or(offset);
                let mut before = None;
                if run.start().is_some() {
                    // The inline records before the write move along with it.
                    run.offsets().for_each(|offset| edits.delete(offset));
                    records.retain(|record| !run.offsets().any(|o| o == record.offset));
                    before = window(store, file, start.saturating_sub(1), start)?.pop();
                }
                edits.cut(&records, offset, end, owner)?;
                let before = before.as_ref().or_else(|| ending_at(&records, start));
                let all = run.followed_by(store, file, bytes)?;
                if let Err(error) = self.store_bytes(&mut edits, start, &all, owner, before) {
                    self.abandon(edits.freed);
                    return Err(error);
                }
                if run.bytes() > 0 {
                    edits.freed.moved.push((file, run.bytes()));
                }
            }
        }
        if self.allocator.backlog() > BACKLOG_MAX {
            self.seal_one()?;
        }
        Ok(edits.finish(batch))
    }

    /// Stores bytes of a file in segments, and puts the records into `edits`. The range must hold
    /// no extents. Extends `before` where it can.
    pub(crate) fn store_bytes(
        &self,
        edits: &mut Edits,
        start: u64,
        bytes: &[u8],
        owner: ExtentOwner,
        before: Option<&Record>,
    ) -> Result<()> {
        let mut at = start;
        let mut rest = bytes;
        if let Some(record) = before.filter(|record| record.end() == start) {
            let taken = self.grow(edits, record, rest, owner)?;
            at += taken as u64;
            rest = &rest[taken..];
        }
        while !rest.is_empty() {
            self.make_space_to_write(rest.len() as u64)?;
            let wanted = pages(rest.len());
            let reservation = self.reserve(wanted)?;
            let run = reservation.ticket.run;
            edits.freed.tickets.push(reservation.ticket);
            let (now, later) = rest.split_at(rest.len().min(bytes_of(run.count)));
            self.write_to(&reservation.segment, byte_offset(run.page), now)?;
            edits.count(run.segment, i64::from(run.count));
            let mut page = run.page;
            for piece in now.chunks(STORED_BYTES_MAX as usize) {
                edits.put_stored(at, &fresh(run.segment, page, piece, owner));
                at = at.saturating_add(piece.len() as u64);
                page += pages(piece.len());
            }
            rest = later;
        }
        Ok(())
    }

    /// Appends as much of `bytes` to an extent as fits there; returns how much.
    fn grow(
        &self,
        edits: &mut Edits,
        record: &Record,
        bytes: &[u8],
        owner: ExtentOwner,
    ) -> Result<usize> {
        let Some(stored) = growable(record, owner) else { return Ok(0) };
        let own = pages_of(stored);
        let end_page = own.page + own.count;
        let slack = bytes_of(stored.stored.div_ceil(CHUNK_BYTES)) - stored.stored as usize;
        let wanted = bytes.len().min((STORED_BYTES_MAX - stored.stored) as usize);
        let beyond = pages(wanted.saturating_sub(slack));
        let from = PageRun { segment: stored.segment, page: end_page, count: beyond };
        self.make_space_to_write(wanted as u64)?;
        let Some(reservation) = self.allocator.grow(from) else { return Ok(0) };
        let added = reservation.ticket.run;
        edits.freed.tickets.push(reservation.ticket);
        let taken = wanted.min(slack + bytes_of(added.count));
        if taken == 0 || (taken < bytes.len() && taken < GROW_BYTES_MIN) {
            return Ok(0);
        }
        let now = &bytes[..taken];
        let offset = byte_offset(u32::from(stored.page)) + u64::from(stored.stored);
        self.write_to(&reservation.segment, offset, now)?;
        let mut grown = *stored;
        let (first, more) = now.split_at(slack.min(taken));
        if let (Some(&last), false) = (grown.checksums.as_slice().last(), first.is_empty()) {
            grown.checksums.set_last(crc32c::crc32c_append(last, first));
        }
        for &checksum in Checksums::of(more).as_slice() {
            grown.checksums.push(checksum);
        }
        grown.stored += taken as u32;
        grown.length += taken as u32;
        edits.count(added.segment, i64::from(added.count));
        edits.put_stored(record.offset, &grown);
        Ok(taken)
    }

    /// Writes to an open segment. The caller has checked the bound of unsynced bytes.
    pub(crate) fn write_to(&self, segment: &OpenSegment, offset: u64, bytes: &[u8]) -> Result<()> {
        let length = bytes.len() as u64;
        self.with_relief(|| segment.file.write_at(bytes, offset).map_err(name_space))?;
        // Counted here first: a barrier that sees the segment dirty subtracts from this.
        self.unsynced.fetch_add(length, Ordering::AcqRel);
        segment.wrote(length);
        if !self.uploads() {
            segment.start_write(offset + length);
        }
        Ok(())
    }
}

/// Converts a device's error, to one of lacking space where it is that.
pub(crate) fn name_space(error: device::Error) -> Error {
    if error.is_no_space() { Error::NoSpace("file data") } else { Error::Device(error) }
}

/// Bytes of a range that extents cover, each once: in a damaged file they may overlap.
fn covered(records: &[Record], from: u64, to: u64) -> u64 {
    let (mut covered, mut at) = (0, from);
    for record in records {
        let end = record.end().min(to);
        covered += end.saturating_sub(record.offset.max(at));
        at = at.max(end);
    }
    covered
}

/// Changes bytes of an inline extent in place, if all of them are in one.
fn patch_inline(edits: &mut Edits, records: &[Record], offset: u64, bytes: &[u8]) -> bool {
    let end = offset + bytes.len() as u64;
    let covering = records.iter().find(|record| record.offset <= offset && end <= record.end());
    let Some(Record { offset: start, contents: Contents::Inline(old) }) = covering else {
        return false;
    };
    let mut new = old.clone();
    let at = (offset - start) as usize;
    new[at..at + bytes.len()].copy_from_slice(bytes);
    edits.put_inline(*start, &new);
    true
}

/// Stores bytes inline, in records of at most [`INLINE_EXTENT_BYTES_MAX`], the first together with
/// the inline record before them if both fit in one.
fn inline(
    edits: &mut Edits,
    records: &[Record],
    run: &InlineRun,
    offset: u64,
    bytes: &[u8],
    owner: ExtentOwner,
) -> Result<()> {
    let end = offset + bytes.len() as u64;
    let (start, merged) = match run.last_with_space_for(bytes.len()) {
        Some((start, before)) => (start, Cow::Owned([before, bytes].concat())),
        None => (offset, Cow::Borrowed(bytes)),
    };
    edits.cut(records, start, end, owner)?;
    for (at, piece) in merged.chunks(INLINE_EXTENT_BYTES_MAX).enumerate() {
        edits.put_inline(start + (at * INLINE_EXTENT_BYTES_MAX) as u64, piece);
    }
    Ok(())
}

/// The record that ends where a write starts.
fn ending_at(records: &[Record], start: u64) -> Option<&Record> {
    records.iter().find(|record| record.end() == start)
}

/// The record of bytes that were just stored at a page.
pub(crate) fn fresh(segment: u64, page: u32, bytes: &[u8], owner: ExtentOwner) -> Stored {
    Stored {
        segment,
        page: u16::try_from(page).expect("invariant: a segment has at most 16384 pages"),
        stored: bytes.len() as u32,
        skip: 0,
        length: bytes.len() as u32,
        birth: owner.birth,
        reflinked: false,
        checksums: Checksums::of(bytes),
    }
}
