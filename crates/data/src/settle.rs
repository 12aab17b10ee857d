//! Moving a file's inline bytes to segments, once its fsyncs have stopped or they have grown too
//! many.

use format::extent::STORED_BYTES_MAX;
use format::key;
use store::{Batch, Read, Result};

use crate::cut::Edits;
use crate::window::{Contents, Record, extents_between};
use crate::{Data, ExtentOwner, FileRef, Freed};

/// Maximum inline bytes that one step moves, give or take one extent.
const STEP_BYTES: usize = 1 << 20;
/// Maximum extents that one step examines.
const STEP_EXTENTS: usize = 4096;

/// Result of a step of a settle.
#[derive(Debug)]
pub struct Settled {
    /// What it holds in flight.
    pub freed: Freed,
    /// Where the next step starts; `None` when the file is done.
    pub next: Option<u64>,
}

impl Data {
    /// Moves inline extents from offset `from` on into segments, a bounded part of them. The caller
    /// holds the file exclusively until the commit returns.
    pub fn settle(
        &self,
        store: &dyn Read,
        file: FileRef,
        from: u64,
        owner: ExtentOwner,
        batch: &mut Batch,
    ) -> Result<Settled> {
        self.check_writable()?;
        let mut cursor = extents_between(store, file, from, u64::MAX)?;
        cursor.seek(&key::extent(file.ino, from))?;
        let mut edits = Edits::new(file);
        let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
        let (mut bytes, mut extents, mut next) = (0, 0, None);
        while let Some(item) = cursor.next()? {
            let record = Record::decode(file, item)?;
            if bytes >= STEP_BYTES || extents >= STEP_EXTENTS {
                next = Some(record.offset);
                break;
            }
            extents += 1;
            let Contents::Inline(piece) = record.contents else { continue };
            bytes += piece.len();
            edits.delete(record.offset);
            match runs.last_mut() {
                Some((start, run))
                    if start.saturating_add(run.len() as u64) == record.offset
                        && run.len() + piece.len() <= STORED_BYTES_MAX as usize =>
                {
                    run.extend_from_slice(&piece);
                }
                _ => runs.push((record.offset, piece)),
            }
        }
        drop(cursor);
        for (start, run) in &runs {
            if let Err(error) = self.store_bytes(&mut edits, *start, run, owner, None) {
                self.abandon(edits.freed);
                return Err(error);
            }
        }
        if next.is_none() && runs.is_empty() {
            // There is nothing to commit in this step; what went before is committed.
            self.hot.moved_along(file, u64::MAX);
        } else if next.is_none() {
            edits.freed.moved.push((file, u64::MAX));
        }
        Ok(Settled { freed: edits.finish(batch), next })
    }
}
