//! Rewriting a segment where the store cannot punch (an object store), or punches slowly.
//!
//! Pages that are dead, or all zeros (an earlier punch leaves such), are omitted. Pages that are
//! not in the map read as zeros, and a checksum verifies whether they should. The other pages are
//! copied into a new blob under the next generation of the segment's name, with the map in front.
//! Extents keep their page numbers, so no tree changes and no clone is affected. Numbered crash
//! argument:
//! 1. the new blob is made by one create: complete and durable, or absent;
//! 2. opening takes the greatest generation and deletes the others if it is intact, so from then on
//!    the new one counts;
//! 3. the old blob is deleted last. A reader that still uses it looks the segment up again.
//!
//! Another process may have taken the volume over. A process that was replaced rewrites nothing: it
//! proves that it was not before it creates and before it deletes. One that pauses after its proof
//! may still do both. It knows all pages that were live when it was replaced, and its successor
//! gives sealed segments no more. So its blob is right for the successor, which looks for it when
//! the old one is gone (`Segments::read`).

use format::extent::CHUNK_BYTES;
use format::segment::{FIRST_PAGE, MAP_PAGE_BYTES, Mark, MarkKind, PAGES_MAX, PageMap};
use store::{Result, Store};

use crate::Data;
use crate::alloc::PageRun;
use crate::pages::Bitmap;
use crate::segments::{SealedSegment, SegmentFile, blob_name};

impl Data {
    /// Rewrites a sealed segment without its dead pages; `false` when that frees none.
    pub(crate) fn rewrite(
        &self,
        store: &dyn Store,
        segment: u64,
        dead: &dyn Fn(u32) -> bool,
    ) -> Result<bool> {
        let Some(SegmentFile::Sealed(old)) = self.segments.get(segment) else { return Ok(false) };
        self.segments.prove(segment)?;
        let blobs = self.segments.blobs();
        let there = self.pages_in(&old)?;
        let mut bytes = vec![0; MAP_PAGE_BYTES];
        let mut kept = Bitmap::new();
        let mut count = 0;
        for page in (FIRST_PAGE..PAGES_MAX).filter(|&page| there.rank(page).is_some()) {
            if dead(page) {
                continue;
            }
            let at = bytes.len();
            bytes.resize(at + CHUNK_BYTES as usize, 0);
            self.segments.read(segment, page, &mut bytes[at..])?;
            if bytes[at..].iter().all(|&byte| byte == 0) {
                bytes.truncate(at);
            } else {
                kept.set(PageRun { segment, page, count: 1 });
                count += 1;
            }
        }
        if count == there.count() {
            return Ok(false);
        }
        store.prove_not_replaced()?;
        let map = PageMap::new(&|page| kept.get(page));
        let mut generation = old.generation;
        loop {
            generation += 1;
            let mark = Mark {
                kind: MarkKind::Rewritten,
                generation,
                volume: self.options.volume,
                segment,
                pages: count,
            };
            bytes[..MAP_PAGE_BYTES].copy_from_slice(&map.encode(&mark));
            if blobs.create(&blob_name(segment, generation), &bytes)? {
                break;
            }
            // The generation exists: made by a sweep whose answer was lost.
        }
        self.segments.insert_sealed(SealedSegment::new(segment, generation, true));
        // If this fails, the next opening deletes it.
        store.prove_not_replaced()?;
        blobs.delete(&old.name)?;
        Ok(true)
    }

    /// The pages of data that a sealed segment holds.
    fn pages_in(&self, sealed: &SealedSegment) -> Result<PageMap> {
        let blobs = self.segments.blobs();
        if sealed.generation > 0 {
            return Ok(sealed.map(blobs)?.clone());
        }
        // The footer's page comes last and is not included. A partial last page is the footer's
        // too.
        let length = blobs.length(&sealed.name)?.unwrap_or(0);
        let pages = (length / u64::from(CHUNK_BYTES)) as u32;
        Ok(PageMap::new(&|page| page >= FIRST_PAGE && page < pages))
    }
}
