//! A sorted run on disk: look-ups of a key, and iteration in both directions.
//!
//! The index holds first keys of blocks, filters and deleted ranges. It is kept when the run is
//! written, or read when it is first used, and stays in memory. So a look-up reads at most one
//! block, and for an absent key mostly none.

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use format::cluster_filter::hash;
use format::run_block::Block;
use format::run_index::{RunIndex, checksum};
use format::run_manifest::{LogRows, RunEntry};
use store::Result;

use crate::files::{Files, located, out_of_order, wrong_sum};
use crate::key::Direction;
use crate::mem::Known;
use crate::ranges::Ranges;
use crate::rows::Content;

/// A key, and its hash once it was needed.
pub(crate) struct Hashed<'k> {
    pub(crate) bytes: &'k [u8],
    hash: Option<u64>,
}

impl<'k> Hashed<'k> {
    pub(crate) fn new(bytes: &'k [u8]) -> Hashed<'k> {
        Hashed { bytes, hash: None }
    }

    fn hash(&mut self) -> u64 {
        *self.hash.get_or_insert_with(|| hash(self.bytes))
    }
}

/// What a run that is skipped counts as (`quarantine`): more bytes than any disk has.
const SKIPPED_BYTES: u64 = 1 << 56;

/// A run.
pub(crate) struct Run {
    pub(crate) entry: RunEntry,
    /// What it points to in value logs.
    pub(crate) uses: Arc<[LogRows]>,
    files: Arc<Files>,
    index: OnceLock<Index>,
    /// Whether merges pass it over.
    skipped: AtomicBool,
}

/// A run that was written, its index, which readers need at once, and the rows it points to.
pub(crate) struct Written {
    pub(crate) entry: RunEntry,
    pub(crate) index: RunIndex,
    pub(crate) uses: Arc<[LogRows]>,
}

/// The part of a run that stays in memory.
pub(crate) struct Index {
    pub(crate) blocks: RunIndex,
    pub(crate) ranges: Ranges,
}

impl Index {
    fn memory_bytes(&self) -> u64 {
        (self.blocks.memory_bytes() + self.ranges.memory_bytes()) as u64
    }
}

impl Run {
    pub(crate) fn new(files: &Arc<Files>, entry: RunEntry, uses: Arc<[LogRows]>) -> Run {
        let (index, skipped) = (OnceLock::new(), AtomicBool::new(false));
        Run { entry, uses, files: Arc::clone(files), index, skipped }
    }

    /// A run that was just written.
    pub(crate) fn written(files: &Arc<Files>, written: Written) -> Run {
        let run = Run::new(files, written.entry, written.uses);
        run.keep(written.index);
        run
    }

    /// The same run under a number of this process.
    pub(crate) fn numbered(mut self, number: u64) -> Run {
        self.entry.number = number;
        self
    }

    /// Keeps the index in memory.
    fn keep(&self, blocks: RunIndex) {
        let mut ranges = Ranges::default();
        for (from, to) in blocks.ranges() {
            ranges.add(from, to.as_deref());
        }
        let index = Index { blocks, ranges };
        let memory = index.memory_bytes();
        if self.index.set(index).is_ok() {
            self.files.index_bytes.fetch_add(memory, Ordering::Relaxed);
        }
    }

    /// Bytes of its blocks and its index.
    pub(crate) fn bytes(&self) -> u64 {
        self.entry.index - self.entry.start + u64::from(self.entry.index_bytes)
    }

    /// The same, as merges count it (`quarantine`).
    pub(crate) fn bytes_to_merge(&self) -> u64 {
        if self.is_skipped() { SKIPPED_BYTES } else { self.bytes() }
    }

    pub(crate) fn is_skipped(&self) -> bool {
        self.skipped.load(Ordering::Relaxed)
    }

    /// Makes merges pass it over; returns whether they did not before.
    pub(crate) fn pass_over(&self) -> bool {
        !self.skipped.swap(true, Ordering::Relaxed)
    }

    /// Whether it includes this position of a blob.
    pub(crate) fn is_at(&self, blob: u64, offset: u64) -> bool {
        let end = self.entry.index + u64::from(self.entry.index_bytes);
        self.entry.blob == blob && (self.entry.start..end).contains(&offset)
    }

    /// Bytes of the rows that it points to.
    pub(crate) fn far_bytes(&self) -> u64 {
        self.uses.iter().map(|rows| rows.bytes).sum()
    }

    pub(crate) fn index(&self) -> Result<&Index> {
        if let Some(index) = self.index.get() {
            return Ok(index);
        }
        self.keep(self.read_index()?);
        Ok(self.index.get().expect("invariant: it was set by this thread or another"))
    }

    /// Reads and verifies the index.
    pub(crate) fn read_index(&self) -> Result<RunIndex> {
        const WHAT: &str = "index of a run";
        let RunEntry { blob, index: offset, index_bytes, checksum: expected, .. } = self.entry;
        let bytes = self.files.read(blob, offset, index_bytes as usize, WHAT)?;
        let sum = checksum(&self.files.volume, blob, offset, &bytes);
        if sum != expected {
            return Err(wrong_sum(blob, offset, WHAT, expected, sum));
        }
        RunIndex::decode(&bytes).map_err(|bad| located(bad, blob, offset))
    }

    /// One of its blocks. It fails if the keys of the block are not between those of the index
    /// around it. Everything that reads entries of a run uses this. A walk over other keys would
    /// not ascend, and a look-up would not find keys that a walk shows.
    pub(crate) fn block(&self, at: usize, caching: Caching) -> Result<Arc<Block>> {
        let index = &self.index()?.blocks;
        let (blob, place) = (self.entry.blob, &index.blocks()[at]);
        let block = match caching {
            Caching::Keep => self.files.block(blob, place)?,
            Caching::Bypass => Arc::new(self.files.load(blob, place)?),
        };
        let last = block.len() - 1;
        let ends = if at + 1 == index.blocks().len() {
            compare(&block, last, index.last_key()).is_le()
        } else {
            compare(&block, last, index.first_key(at + 1)).is_lt()
        };
        if ends && compare(&block, 0, index.first_key(at)).is_eq() {
            return Ok(block);
        }
        Err(out_of_order(blob, place.offset, format!("block {at} has others")))
    }

    pub(crate) fn ranges(&self) -> Result<&Ranges> {
        Ok(&self.index()?.ranges)
    }

    /// What it knows of a key; `found` receives the value.
    pub(crate) fn get(
        &self,
        key: &mut Hashed<'_>,
        found: &mut dyn FnMut(&[u8]),
    ) -> Result<Known<()>> {
        let index = self.index()?;
        if index.blocks.may_have_anywhere(key.hash())
            && let Some(at) = index.blocks.find(key.bytes)
            && index.blocks.may_have(at, key.hash())
        {
            let block = self.block(at, Caching::Keep)?;
            if let Ok(place) = block.search(key.bytes) {
                let at = (self.entry.blob, index.blocks.blocks()[at].offset);
                let content = Content::of(block.stored(place), &self.files, at);
                let there = content.read(key.bytes, found)?;
                return Ok(if there { Known::Value(()) } else { Known::Deleted });
            }
        }
        match index.ranges.covering(key.bytes) {
            Some(_) => Ok(Known::Deleted),
            None => Ok(Known::Nothing),
        }
    }

    /// Whether it may have keys whose prefix has the hash `member`, or deletes any.
    pub(crate) fn may_have_prefix(&self, prefix: &[u8], member: u64) -> Result<bool> {
        let index = self.index()?;
        let end = store::prefix_end(prefix);
        if let Some((from, _)) = index.ranges.reaching_above(prefix)
            && end.as_deref().is_none_or(|end| from < end)
        {
            return Ok(true);
        }
        let blocks = &index.blocks;
        let first = blocks.last_not_above(prefix).unwrap_or(0);
        let last = match &end {
            Some(end) => blocks.last_not_above(end),
            None => blocks.blocks().len().checked_sub(1),
        };
        let Some(last) = last else { return Ok(false) };
        Ok((first..=last).any(|block| blocks.may_have(block, member)))
    }
}

/// Subtracts the memory of the run from the accounting, and reports that nothing holds it any more.
impl Drop for Run {
    fn drop(&mut self) {
        self.files.let_go(self.entry.number);
        if let Some(index) = self.index.get() {
            self.files.index_bytes.fetch_sub(index.memory_bytes(), Ordering::Relaxed);
        }
    }
}

/// How a key of a block compares with another one.
#[inline]
fn compare(block: &Block, at: usize, other: &[u8]) -> std::cmp::Ordering {
    let prefix = block.prefix();
    match other.strip_prefix(prefix) {
        Some(rest) => block.suffix(at).cmp(rest),
        // A proper prefix of the block's prefix is below it.
        None => prefix.cmp(other),
    }
}

/// Whether blocks that are read stay in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caching {
    Keep,
    Bypass,
}

/// A walk over a run.
pub(crate) struct RunIter<'a> {
    run: &'a Run,
    index: &'a RunIndex,
    direction: Direction,
    caching: Caching,
    block: usize,
    /// The block, while there is a current entry.
    content: Option<Arc<Block>>,
    at: usize,
    key: Vec<u8>,
    /// Bytes of the blocks that were reached, unpacked.
    pub(crate) loaded: u64,
}

impl<'a> RunIter<'a> {
    /// At the first entry within a bound, in the direction.
    pub(crate) fn open(
        run: &'a Run,
        direction: Direction,
        bound: Bound<&[u8]>,
        caching: Caching,
    ) -> Result<RunIter<'a>> {
        let index = &run.index()?.blocks;
        let (content, key) = (None, Vec::new());
        let (block, at, loaded) = (0, 0, 0);
        let mut iter = RunIter { run, index, direction, caching, block, content, at, key, loaded };
        iter.seek(bound)?;
        Ok(iter)
    }

    /// The current entry.
    pub(crate) fn current(&self) -> Option<(&[u8], Content<'_>)> {
        let block = self.content.as_ref()?;
        let offset = self.index.blocks().get(self.block).map_or(0, |place| place.offset);
        let at = (self.run.entry.blob, offset);
        let content = Content::of(block.stored(self.at), &self.run.files, at);
        Some((self.key.as_slice(), content))
    }

    /// The current key.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.content.as_ref().map(|_| self.key.as_slice())
    }

    fn load(&mut self, block: usize) -> Result<Option<Arc<Block>>> {
        let Some(place) = self.index.blocks().get(block) else { return Ok(None) };
        self.loaded += u64::from(place.raw);
        self.run.block(block, self.caching).map(Some)
    }

    fn move_to(&mut self, content: Option<Arc<Block>>, at: usize) {
        self.key.clear();
        if let Some(block) = &content {
            block.key_to(at, &mut self.key);
        }
        self.at = at;
        self.content = content;
    }

    /// Moves to the first entry within a bound, in the direction.
    pub(crate) fn seek(&mut self, bound: Bound<&[u8]>) -> Result<()> {
        let count = self.index.blocks().len();
        let key = match bound {
            Bound::Included(key) | Bound::Excluded(key) => Some(key),
            Bound::Unbounded => None,
        };
        if let (Some(key), Direction::Forward) = (key, self.direction)
            && key > self.index.last_key()
        {
            // No block has anything there, not even a damaged one.
            self.move_to(None, 0);
            return Ok(());
        }
        self.block = match (key, self.direction) {
            (Some(key), _) => self.index.last_not_above(key).unwrap_or(0),
            (None, Direction::Forward) => 0,
            (None, Direction::Backward) => count.saturating_sub(1),
        };
        let Some(content) = self.load(self.block)? else {
            self.move_to(None, 0);
            return Ok(());
        };
        // How many entries of the block are before the position.
        let included = matches!(bound, Bound::Included(_));
        let before = match (key.map(|key| content.search(key)), self.direction) {
            (None, Direction::Forward) => 0,
            (None, Direction::Backward) => content.len(),
            (Some(Err(at)), _) => at,
            (Some(Ok(at)), Direction::Forward) => at + usize::from(!included),
            (Some(Ok(at)), Direction::Backward) => at + usize::from(included),
        };
        match self.direction {
            Direction::Forward if before < content.len() => self.move_to(Some(content), before),
            Direction::Backward if before > 0 => self.move_to(Some(content), before - 1),
            _ => self.next_block()?,
        }
        Ok(())
    }

    /// Moves behind the last entry.
    pub(crate) fn end(&mut self) {
        self.move_to(None, 0);
    }

    fn next_block(&mut self) -> Result<()> {
        let next = match self.direction {
            Direction::Forward => Some(self.block + 1),
            Direction::Backward => self.block.checked_sub(1),
        };
        let content = next.map_or(Ok(None), |next| self.load(next))?;
        if let Some(next) = next {
            self.block = next;
        }
        let at = match (&content, self.direction) {
            (Some(content), Direction::Backward) => content.len() - 1,
            _ => 0,
        };
        self.move_to(content, at);
        Ok(())
    }

    /// Moves on by one.
    pub(crate) fn step(&mut self) -> Result<()> {
        let Some(content) = self.content.take() else { return Ok(()) };
        let next = match self.direction {
            Direction::Forward => Some(self.at + 1).filter(|&next| next < content.len()),
            Direction::Backward => self.at.checked_sub(1),
        };
        match next {
            Some(next) => {
                self.move_to(Some(content), next);
                Ok(())
            }
            None => self.next_block(),
        }
    }
}
