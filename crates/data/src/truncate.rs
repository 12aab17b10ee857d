//! Cutting files: truncate, punch, release. Each in steps of bounded size.
//!
//! A file may have more extents than one batch can remove. A truncate then cuts from the end and
//! returns the size that it reached. The caller sets that size in the same batch, commits, and
//! continues. A crash in between leaves a file of an intermediate size. Bytes beyond the size never
//! have extents, so a file that grows again reads zeros there.

use format::key;
use store::{Batch, Read, Result};

use crate::cut::Edits;
use crate::window::{Record, extents_between, window_to_read};
use crate::write::CHUNK_REACH;
use crate::{Data, ExtentOwner, FileRef, Freed};

/// Extents that one step removes: some 100 KiB of log.
pub(crate) const STEP_EXTENTS: usize = 2048;

/// Result of a step of a truncate.
#[derive(Debug)]
pub struct Truncated {
    /// What it freed.
    pub freed: Freed,
    /// The size that the file has after this batch; above the requested size when more is left.
    pub size: u64,
    /// Extents between that size and here are removed.
    pub end: u64,
}

/// Result of a step of a punch.
#[derive(Debug)]
pub struct Punched {
    /// What it freed.
    pub freed: Freed,
    /// The range is a hole up to here; the end of the range when nothing is left.
    pub done_to: u64,
    /// How many extents it processed.
    pub extents: usize,
}

/// Result of a step of a release.
#[derive(Debug)]
pub struct Released {
    /// What it freed.
    pub freed: Freed,
    /// Whether extents are left.
    pub more: bool,
    /// How many it removed.
    pub extents: usize,
}

impl Data {
    /// Truncates a file from `sizes.0` to `sizes.1` bytes, or to a size between them when that is
    /// too much for one batch. The caller sets the size that it returns. Growing needs no change
    /// here.
    pub fn truncate(
        &self,
        store: &dyn Read,
        file: FileRef,
        sizes: (u64, u64),
        owner: ExtentOwner,
        batch: &mut Batch,
    ) -> Result<Truncated> {
        let (old, new) = sizes;
        if new >= old {
            return Ok(Truncated { freed: Freed::default(), size: new, end: old });
        }
        let mut cursor = extents_between(store, file, new, old)?;
        cursor.seek(&key::extent(file.ino, old))?;
        let mut reached = new;
        let mut count = 0;
        while let Some(item) = cursor.prev()? {
            let record = Record::decode(file, item)?;
            if record.end() <= new {
                break;
            }
            count += 1;
            if count == STEP_EXTENTS {
                reached = record.offset.max(new);
                break;
            }
        }
        drop(cursor);
        // Only in a damaged file do extents start beyond the end. The last step removes them, so
        // that not every step scans what the steps before it removed.
        let (size, end) = if reached > new {
            (reached, old)
        } else {
            match self.end_of_step(store, file, (old, u64::MAX), STEP_EXTENTS - count)?.0 {
                Some(end) => (old, end),
                None => (new, u64::MAX),
            }
        };
        let freed = cut_out(store, file, (size, end), owner, batch)?;
        Ok(Truncated { freed, size, end })
    }

    /// Where this many extents of a range end, if it has as many, and how many were found.
    pub(crate) fn end_of_step(
        &self,
        store: &dyn Read,
        file: FileRef,
        range: (u64, u64),
        extents: usize,
    ) -> Result<(Option<u64>, usize)> {
        let mut cursor = self.extents(store, file, range)?;
        let mut met = 0;
        while let Some(extent) = cursor.next()? {
            met += 1;
            if met == extents {
                return Ok((Some(extent.end()), met));
            }
        }
        Ok((None, met))
    }

    /// Makes `range.0..range.1` a hole, or the first part of it.
    pub fn punch(
        &self,
        store: &dyn Read,
        file: FileRef,
        range: (u64, u64),
        owner: ExtentOwner,
        batch: &mut Batch,
    ) -> Result<Punched> {
        let (from, to) = range;
        let (end, extents) = self.end_of_step(store, file, range, STEP_EXTENTS)?;
        let done_to = end.map_or(to, |end| end.min(to));
        let freed = cut_out(store, file, (from, done_to), owner, batch)?;
        Ok(Punched { freed, done_to, extents })
    }

    /// Removes the extents of a file that has no names and no users any more.
    pub fn release_all(
        &self,
        store: &dyn Read,
        file: FileRef,
        owner: ExtentOwner,
        batch: &mut Batch,
    ) -> Result<Released> {
        self.forget(file);
        let Punched { freed, done_to, extents } =
            self.punch(store, file, (0, u64::MAX), owner, batch)?;
        let more = done_to < u64::MAX;
        if more {
            // As a range, so that the next step does not scan each of these keys.
            let [from, to] = [0, done_to].map(|offset| key::extent(file.ino, offset));
            batch.delete_range(file.tree, &from, &to);
        }
        Ok(Released { freed, more, extents })
    }
}

/// Plans the removal of a range of a file.
fn cut_out(
    store: &dyn Read,
    file: FileRef,
    range: (u64, u64),
    owner: ExtentOwner,
    batch: &mut Batch,
) -> Result<Freed> {
    let (from, to) = range;
    let reach = (from.saturating_sub(CHUNK_REACH), to.saturating_add(CHUNK_REACH));
    let records = window_to_read(store, file, reach.0, reach.1)?;
    let mut edits = Edits::new(file);
    edits.cut(&records, from, to, owner)?;
    Ok(edits.finish(batch))
}
