//! Contents of new files, gathered: many small files are one write.
//!
//! The caller has files that nobody else knows: none has an extent, and no commit names them before
//! [`Data::write_gathered`] has returned. Their contents are put behind one another into a block of
//! pages, in memory, which is written when it is full. What makes a record safe stays as it is:
//! a page is written, and counted as dirty, before a batch that names it is committed.
//!
//! A block is reserved as one run, so its segment is not sealed meanwhile, and marking counts its
//! pages as live. Pages of it that no file got are returned to the segment, or buried.
//!
//! Beside the caller a thread syncs what was written, long before there is too much of it.
//! Otherwise the caller would wait for the disk, and then the disk for the caller.

use std::sync::Arc;

use device::Thread;
use format::extent::{CHUNK_BYTES, STORED_BYTES_MAX};
use store::{Batch, Result};

use crate::alloc::{PageRun, Reservation};
use crate::cut::Edits;
use crate::inline::SMALL_BYTES;
use crate::pages::{byte_offset, bytes_of, pages};
use crate::write::fresh;
use crate::{Data, ExtentOwner, FileRef, Freed};

/// Pages of a block.
const BLOCK_PAGES: u32 = 128;
/// Longer contents are written at once, from where they are.
const GATHERED_BYTES_MAX: usize = STORED_BYTES_MAX as usize;
/// The part of the bytes that may be unsynced from which on a thread syncs, as a divisor.
const EARLY_SHARE: u64 = 4;

/// Contents that are not written yet.
#[derive(Default)]
pub struct Gathered {
    block: Option<Block>,
    /// Blocks that are written: many files are in each.
    written: Freed,
    /// Memory of the last block.
    spare: Vec<u8>,
    /// The last thread that was started to sync.
    syncing: Option<Thread<()>>,
}

impl Drop for Gathered {
    fn drop(&mut self) {
        // It must not outlive what has the volume open.
        if let Some(syncing) = self.syncing.take() {
            syncing.join().unwrap_or_default();
        }
    }
}

struct Block {
    reservation: Reservation,
    /// The contents, each filled up to a whole page.
    bytes: Vec<u8>,
}

impl Block {
    fn used(&self) -> u32 {
        pages(self.bytes.len())
    }

    fn left(&self) -> u32 {
        self.reservation.ticket.run.count - self.used()
    }
}

impl Data {
    /// Whether contents can be gathered: where each sync makes objects, it waits for writes.
    pub fn gathers(&self) -> bool {
        !self.uploads() && self.options.inline_file_bytes == 0
    }

    /// As [`Data::write`], at the end of a file that nobody else knows. Nothing may name the file
    /// before [`Data::write_gathered`] has returned.
    pub fn gather(
        self: &Arc<Self>,
        gathered: &mut Gathered,
        (file, offset, bytes): (FileRef, u64, &[u8]),
        owner: ExtentOwner,
        batch: &mut Batch,
    ) -> Result<Freed> {
        self.check_writable()?;
        let mut edits = Edits::new(file);
        let stored = if bytes.len() < SMALL_BYTES {
            edits.put_inline(offset, bytes);
            Ok(())
        } else if bytes.len() > GATHERED_BYTES_MAX {
            // It reserves more, and nothing is reserved beside what is not written.
            self.write_block(gathered)
                .and_then(|()| self.store_bytes(&mut edits, offset, bytes, owner, None))
        } else {
            self.put_gathered(gathered, &mut edits, (offset, bytes), owner)
        };
        if let Err(error) = stored {
            self.abandon(edits.freed);
            return Err(error);
        }
        self.sync_beside(gathered);
        Ok(edits.finish(batch))
    }

    /// Starts a thread that syncs, if much is not synced and none runs.
    fn sync_beside(self: &Arc<Self>, gathered: &mut Gathered) {
        let many = self.options.unsynced_bytes_max / EARLY_SHARE;
        let runs = gathered.syncing.as_ref().is_some_and(|syncing| !syncing.is_finished());
        if self.unsynced_bytes() < many || runs {
            return;
        }
        let data = Arc::clone(self);
        let started = device::spawn("data-sync", move || {
            // A failure is latched.
            drop(data.sync());
        });
        gathered.syncing = started.ok();
    }

    fn put_gathered(
        &self,
        gathered: &mut Gathered,
        edits: &mut Edits,
        (mut at, mut rest): (u64, &[u8]),
        owner: ExtentOwner,
    ) -> Result<()> {
        let mut placed: Vec<PageRun> = Vec::new();
        while !rest.is_empty() {
            let block = match &mut gathered.block {
                Some(block) if block.left() > 0 => block,
                _ => match self.next_block(gathered) {
                    Ok(block) => block,
                    Err(error) => {
                        // Other files are in these blocks, too. (If these are abandoned as well,
                        // these pages count twice as dead until they are taken.)
                        self.garbage.lock().bury(&placed, self.env.clock.monotonic());
                        return Err(error);
                    }
                },
            };
            let (run, used) = (block.reservation.ticket.run, block.used());
            let (now, later) = rest.split_at(rest.len().min(bytes_of(block.left())));
            let taken = pages(now.len());
            block.bytes.extend_from_slice(now);
            block.bytes.resize(bytes_of(used + taken), 0);
            placed.push(PageRun { page: run.page + used, count: taken, ..run });
            edits.count(run.segment, i64::from(taken));
            edits.put_stored(at, &fresh(run.segment, run.page + used, now, owner));
            at = at.saturating_add(now.len() as u64);
            rest = later;
        }
        Ok(())
    }

    fn next_block<'a>(&self, gathered: &'a mut Gathered) -> Result<&'a mut Block> {
        self.write_block(gathered)?;
        self.make_space_to_write(bytes_of(BLOCK_PAGES) as u64)?;
        let reservation = self.reserve(BLOCK_PAGES)?;
        let mut bytes = std::mem::take(&mut gathered.spare);
        bytes.clear();
        bytes.reserve(bytes_of(BLOCK_PAGES));
        Ok(gathered.block.insert(Block { reservation, bytes }))
    }

    /// Writes what was gathered, and returns what that holds in flight. After an error it is still
    /// there, to be written again or abandoned.
    pub fn write_gathered(&self, gathered: &mut Gathered) -> Result<Freed> {
        self.write_block(gathered)?;
        Ok(std::mem::take(&mut gathered.written))
    }

    fn write_block(&self, gathered: &mut Gathered) -> Result<()> {
        let Some(block) = &gathered.block else { return Ok(()) };
        let (run, used) = (block.reservation.ticket.run, block.used());
        self.write_to(&block.reservation.segment, byte_offset(run.page), &block.bytes)?;
        let Some(Block { reservation, bytes }) = gathered.block.take() else { return Ok(()) };
        gathered.spare = bytes;
        let mut ticket = reservation.ticket;
        if let Some(unused) = self.allocator.return_end(&mut ticket, used) {
            self.garbage.lock().bury(&[unused], self.env.clock.monotonic());
        }
        gathered.written.tickets.push(ticket);
        Ok(())
    }

    /// Takes back what was gathered: no record will ever name it.
    pub fn abandon_gathered(&self, gathered: &mut Gathered) {
        let mut freed = std::mem::take(&mut gathered.written);
        if let Some(Block { reservation, .. }) = gathered.block.take() {
            freed.tickets.push(reservation.ticket);
        }
        self.abandon(freed);
    }
}

const _: () = assert!(bytes_of(BLOCK_PAGES).is_multiple_of(CHUNK_BYTES as usize));
const _: () = assert!(bytes_of(BLOCK_PAGES) >= GATHERED_BYTES_MAX);
