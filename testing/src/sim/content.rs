//! The bytes of a file: sparse blocks, copied on write, so that copying a disk costs little.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::ranges::Ranges;

/// Unit of accounting, in bytes.
pub(super) const BLOCK: u64 = 4096;

type Block = [u8; BLOCK as usize];

/// One change of a file's bytes.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// Bytes written at an offset.
    Write {
        /// Where.
        offset: u64,
        /// What.
        bytes: Arc<[u8]>,
    },
    /// A new length.
    SetLen(u64),
    /// Reserved space.
    Allocate(Range<u64>),
    /// Freed space.
    Punch(Range<u64>),
}

/// Bytes, length and the allocated blocks. Invariant: a block in `blocks` is also in `reserved`; no
/// byte beyond `length` is other than zero.
#[derive(Debug, Clone, Default)]
pub(super) struct Content {
    length: u64,
    blocks: Arc<BTreeMap<u64, Arc<Block>>>,
    reserved: Arc<Ranges>,
}

/// The blocks that a range of bytes touches.
fn touched(offset: u64, length: u64) -> Range<u64> {
    if length == 0 { 0..0 } else { offset / BLOCK..(offset + length).div_ceil(BLOCK) }
}

impl Content {
    /// Length in bytes.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Number of allocated blocks.
    pub(super) fn blocks_reserved(&self) -> u64 {
        self.reserved.total()
    }

    /// Number of allocated blocks in a range.
    pub(super) fn blocks_in(&self, offset: u64, length: u64) -> u64 {
        let range = touched(offset, length);
        range.end - range.start - self.reserved.missing(&range)
    }

    /// The runs of blocks that a write or reservation there would allocate, in order.
    pub(super) fn lacking(&self, offset: u64, length: u64) -> Vec<Range<u64>> {
        self.reserved.gaps(&touched(offset, length))
    }

    /// Reads at `offset` until `buffer` is full or the file ends.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let wanted = (self.length.saturating_sub(offset)).min(buffer.len() as u64) as usize;
        let buffer = &mut buffer[..wanted];
        let range = touched(offset, wanted as u64);
        // Only what no block has is filled with zeros.
        let mut done = 0;
        for (&number, block) in self.blocks.range(range) {
            let start = number * BLOCK;
            let from = offset.max(start);
            let to = (offset + wanted as u64).min(start + BLOCK);
            let (begin, end) = ((from - offset) as usize, (to - offset) as usize);
            buffer[done..begin].fill(0);
            buffer[begin..end]
                .copy_from_slice(&block[(from - start) as usize..(to - start) as usize]);
            done = end;
        }
        buffer[done..].fill(0);
        wanted
    }

    /// The whole file.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length as usize];
        self.read(&mut bytes, 0);
        bytes
    }

    /// Applies a change.
    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { offset, bytes } => self.write(bytes, *offset),
            Change::SetLen(length) => self.set_len(*length),
            Change::Allocate(range) => self.allocate(range),
            Change::Punch(range) => self.punch(range),
        }
    }

    /// Writes, growing the file where needed.
    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len() as u64;
        let range = touched(offset, bytes.len() as u64);
        if self.reserved.missing(&range) > 0 {
            Arc::make_mut(&mut self.reserved).insert(&range);
        }
        let blocks = Arc::make_mut(&mut self.blocks);
        for number in range {
            let start = number * BLOCK;
            let from = offset.max(start);
            let to = end.min(start + BLOCK);
            let block = blocks.entry(number).or_insert_with(|| Arc::new([0; BLOCK as usize]));
            Arc::make_mut(block)[(from - start) as usize..(to - start) as usize]
                .copy_from_slice(&bytes[(from - offset) as usize..(to - offset) as usize]);
        }
        self.length = self.length.max(end);
    }

    /// Grows the length only.
    pub(super) fn grow(&mut self, length: u64) {
        self.length = self.length.max(length);
    }

    fn set_len(&mut self, length: u64) {
        if length < self.length {
            self.zero(&(length..self.length));
            let gone = length.div_ceil(BLOCK)..u64::MAX;
            Arc::make_mut(&mut self.reserved).remove(&gone);
        }
        self.length = length;
    }

    fn allocate(&mut self, range: &Range<u64>) {
        let touched = touched(range.start, range.end - range.start);
        Arc::make_mut(&mut self.reserved).insert(&touched);
        self.length = self.length.max(range.end);
    }

    fn punch(&mut self, range: &Range<u64>) {
        self.zero(range);
        let whole = range.start.div_ceil(BLOCK)..range.end / BLOCK;
        if whole.start < whole.end {
            Arc::make_mut(&mut self.reserved).remove(&whole);
        }
    }

    /// Makes a range read as zero: whole blocks are dropped, others overwritten.
    fn zero(&mut self, range: &Range<u64>) {
        let touched = touched(range.start, range.end.saturating_sub(range.start));
        let present: Vec<u64> = self.blocks.range(touched).map(|(&number, _)| number).collect();
        if present.is_empty() {
            return;
        }
        let blocks = Arc::make_mut(&mut self.blocks);
        for number in present {
            let start = number * BLOCK;
            if range.start <= start && start + BLOCK <= range.end {
                blocks.remove(&number);
            } else if let Some(block) = blocks.get_mut(&number) {
                let from = range.start.max(start) - start;
                let to = range.end.min(start + BLOCK) - start;
                Arc::make_mut(block)[from as usize..to as usize].fill(0);
            }
        }
    }
}
