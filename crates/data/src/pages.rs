//! Pages of a segment: how many bytes take how many, where one is in the segment's file, and sets
//! of them. Nothing here reads or allocates.

use format::extent::CHUNK_BYTES;
use format::segment::PAGES_MAX;

use crate::alloc::PageRun;

/// Number of pages for this many bytes.
pub(crate) fn pages(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(CHUNK_BYTES as usize)).unwrap_or(u32::MAX)
}

/// Bytes of this many pages.
pub(crate) const fn bytes_of(pages: u32) -> usize {
    pages as usize * CHUNK_BYTES as usize
}

/// Where a page begins in the file of its segment.
pub(crate) fn byte_offset(page: u32) -> u64 {
    u64::from(page) * u64::from(CHUNK_BYTES)
}

/// One bit per page of a segment.
#[derive(Clone)]
pub(crate) struct Bitmap(Box<[u64]>);

impl Bitmap {
    /// No page.
    pub(crate) fn new() -> Bitmap {
        Bitmap(vec![0; PAGES_MAX as usize / 64].into_boxed_slice())
    }

    /// Adds the pages of a run.
    pub(crate) fn set(&mut self, run: PageRun) {
        for page in run.page..(run.page + run.count).min(PAGES_MAX) {
            self.0[page as usize / 64] |= 1 << (page % 64);
        }
    }

    /// Whether it has a page.
    pub(crate) fn get(&self, page: u32) -> bool {
        self.0.get(page as usize / 64).is_some_and(|word| word >> (page % 64) & 1 == 1)
    }

    /// How many pages it has.
    pub(crate) fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}
