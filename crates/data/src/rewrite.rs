//! Rewriting a segment where the store cannot punch (an object store).
//!
//! The pages that are kept are copied into a new blob under the next generation of the segment's
//! name, with a map in front; extents keep their page numbers, so that no tree is touched and no
//! clone disturbed. Numbered crash argument:
//! 1. the new blob is made by one create: whole and durable, or absent;
//! 2. opening takes the greatest generation and deletes the others, so that from then on the new
//!    one counts;
//! 3. the old blob is deleted last. A reader that still asks for it looks the segment up again.

use format::extent::CHUNK_BYTES;
use format::segment::{FIRST_PAGE, MAP_PAGE_BYTES, Mark, MarkKind, PAGES_MAX, PageMap};
use store::Result;

use crate::Data;
use crate::segments::{Place, SealedSegment, blob_name};

impl Data {
    /// Rewrites a sealed segment without its dead pages, when they are worth it; `false` when
    /// not.
    pub(crate) fn rewrite(&self, segment: u64, dead: &dyn Fn(u32) -> bool) -> Result<bool> {
        let Some(Place::Sealed(old)) = self.segments.get(segment) else { return Ok(false) };
        let blobs = self.segments.blobs();
        let there = self.pages_in(&old)?;
        let kept = PageMap::new(&|page| there.rank(page).is_some() && !dead(page));
        let (before, after) = (there.count(), kept.count());
        let gone = u64::from(before - after) * 100;
        if before == after
            || gone < u64::from(before) * u64::from(self.options.rewrite_dead_percent)
        {
            return Ok(false);
        }
        let mut generation = old.generation;
        loop {
            generation += 1;
            let mark = Mark {
                kind: MarkKind::Rewritten,
                generation,
                volume: self.options.volume,
                segment,
                pages: after,
            };
            let mut bytes = kept.encode(&mark);
            bytes.reserve_exact(after as usize * CHUNK_BYTES as usize);
            debug_assert_eq!(bytes.len(), MAP_PAGE_BYTES);
            for page in (FIRST_PAGE..PAGES_MAX).filter(|&page| kept.rank(page).is_some()) {
                let at = bytes.len();
                bytes.resize(at + CHUNK_BYTES as usize, 0);
                self.segments.read(segment, page, &mut bytes[at..])?;
            }
            if blobs.create(&blob_name(segment, generation), &bytes)? {
                break;
            }
            // Taken: made by a sweep that was not told so.
        }
        self.segments.insert_sealed(SealedSegment::new(segment, generation));
        blobs.delete(&old.name)?;
        Ok(true)
    }

    /// The pages of data that a sealed segment holds.
    fn pages_in(&self, sealed: &SealedSegment) -> Result<PageMap> {
        let blobs = self.segments.blobs();
        if sealed.generation > 0 {
            return Ok(sealed.map(blobs)?.clone());
        }
        // The footer's page comes last and is none of them. A page that the length cuts short
        // is the footer's too.
        let length = blobs.length(&sealed.name)?.unwrap_or(0);
        let pages = (length / u64::from(CHUNK_BYTES)) as u32;
        Ok(PageMap::new(&|page| page >= FIRST_PAGE && page < pages))
    }
}
