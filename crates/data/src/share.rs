//! Reflinks: a range of one file shows the extents of another, byte for byte, and copies nothing.
//!
//! 1. The extents of the source's range become views of the same stored bytes at the target's
//!    offset, flagged `reflinked`. Inline bytes, which are few, are copied; holes stay holes.
//! 2. The target's old extents are cut out, as a write cuts them.
//! 3. The source's own records are flagged as well. From now on no change of either file frees the
//!    pages at once; garbage collection finds out when the last view is gone. Neighbours of the
//!    range within a chunk are flagged too. An adjacent view of the same stored range may name the
//!    page with the last shared byte.
//!
//! All of it is one batch, so at no moment does only one side record the sharing.

use store::{Batch, Read, Result};

use crate::cut::Edits;
use crate::truncate::STEP_EXTENTS;
use crate::window::{Contents, Record, overlap, window_to_read};
use crate::write::CHUNK_REACH;
use crate::{Data, ExtentOwner, FileRef, Freed};

/// One side of a reflink.
#[derive(Debug, Clone, Copy)]
pub struct Side {
    /// The file.
    pub file: FileRef,
    /// Where the range starts in it.
    pub offset: u64,
}

/// Result of a step of a reflink.
#[derive(Debug)]
pub struct Shared {
    /// What the target freed.
    pub freed: Freed,
    /// Bytes done; less than requested when more is left.
    pub length: u64,
    /// Those of them that are not holes.
    pub data: u64,
}

impl Data {
    /// Makes `length` bytes of the target show those of the source, or the first part of them.
    /// `owners` are those of the source, `None` where it never changes (a snapshot), and of the
    /// target. Both files are held exclusively, and the ranges do not overlap. The range ends
    /// within the source; the caller raises size and times of the target.
    pub fn share(
        &self,
        store: &dyn Read,
        (from, to): (Side, Side),
        length: u64,
        owners: (Option<ExtentOwner>, ExtentOwner),
        batch: &mut Batch,
    ) -> Result<Shared> {
        self.check_writable()?;
        let length = self.share_step(store, from, length)?;
        let length = self.share_step(store, to, length)?;
        let end = from.offset + length;
        let mut sources = around(store, from, length)?;
        check_apart(from.file, &sources, (from.offset, end))?;
        let mut flagged = Vec::new();
        if let Some(owner) = owners.0 {
            for record in &mut sources {
                if let Contents::Stored(stored) = &mut record.contents
                    && owner.excludes_others(stored)
                {
                    stored.reflinked = true;
                    flagged.push(record.clone());
                }
            }
        }
        let mut edits = Edits::new(to.file);
        let mut targets = around(store, to, length)?;
        if from.file == to.file {
            for target in &mut targets {
                if let Some(flagged) = flagged.iter().find(|other| other.offset == target.offset) {
                    *target = flagged.clone();
                }
            }
            let target_end = to.offset + length;
            flagged.retain(|record| record.end() <= to.offset || record.offset >= target_end);
            for record in &flagged {
                put(&mut edits, record);
            }
        } else {
            let mut source_edits = Edits::new(from.file);
            for record in &flagged {
                put(&mut source_edits, record);
            }
            let nothing = source_edits.finish(batch);
            debug_assert!(nothing.pages.is_empty(), "flagging frees nothing");
        }
        edits.cut(&targets, to.offset, to.offset + length, owners.1)?;
        let mut data = 0;
        for record in &sources {
            let (start, stop) = (record.offset.max(from.offset), record.end().min(end));
            if start >= stop {
                continue;
            }
            data += stop - start;
            let part = part(record, start, stop);
            put(&mut edits, &Record { offset: to.offset + (start - from.offset), ..part });
        }
        Ok(Shared { freed: edits.finish(batch), length, data })
    }

    /// The part of a range that has few enough extents for one batch.
    fn share_step(&self, store: &dyn Read, side: Side, length: u64) -> Result<u64> {
        let range = (side.offset, side.offset + length);
        let (end, _) = self.end_of_step(store, side.file, range, STEP_EXTENTS)?;
        Ok(end.map_or(length, |end| (end - side.offset).min(length)))
    }
}

/// The extents of a range and a chunk around it.
fn around(store: &dyn Read, side: Side, length: u64) -> Result<Vec<Record>> {
    let from = side.offset.saturating_sub(CHUNK_REACH);
    window_to_read(store, side.file, from, (side.offset + length).saturating_add(CHUNK_REACH))
}

/// Unreadable data is not copied either: it is unknown which of two overlapping extents is right.
fn check_apart(file: FileRef, records: &[Record], (from, to): (u64, u64)) -> Result<()> {
    let mut at = from;
    for record in records {
        let (start, end) = (record.offset.max(from), record.end().min(to));
        if start >= end {
            continue;
        }
        if start < at {
            return Err(overlap(file, record.offset, at));
        }
        at = end;
    }
    Ok(())
}

/// The part of a record that the target gets.
fn part(record: &Record, start: u64, stop: u64) -> Record {
    let (skip, length) = (start - record.offset, stop - start);
    let contents = match &record.contents {
        Contents::Stored(stored) => {
            let mut part = stored.part(skip as u32, length as u32);
            part.reflinked = true;
            Contents::Stored(part)
        }
        Contents::Inline(bytes) => {
            Contents::Inline(bytes[skip as usize..(skip + length) as usize].to_vec())
        }
    };
    Record { offset: start, contents }
}

fn put(edits: &mut Edits, record: &Record) {
    match &record.contents {
        Contents::Stored(stored) => edits.put_stored(record.offset, stored),
        Contents::Inline(bytes) => edits.put_inline(record.offset, bytes),
    }
}
