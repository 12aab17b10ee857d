//! Header and footer of a data segment, and the header of a rewritten one
//! (`docs/format/segment.md`).
//!
//! A segment is a file of pages of 4 KiB. Page 0 holds the header, and pages from 1 on hold file
//! data. Once the segment is sealed, the footer is in a page of its own at the end. The extents
//! describe the content of the pages; header and footer identify the file. A *rewritten* segment
//! (on a store that cannot punch) keeps only some of the pages, and its header page lists them.

use crate::extent::CHUNK_BYTES;
use crate::layout::{Field, size_of};
use crate::{Malformed, Reader, Writer};

/// Bytes of a page.
pub const PAGE_BYTES: u32 = CHUNK_BYTES;
/// Pages of a full segment, without the footer's.
pub const PAGES_MAX: u32 = 16_384;
/// First page of file data.
pub const FIRST_PAGE: u32 = 1;
/// Bytes of a header or a footer, at the start of its page.
pub const MARK_BYTES: usize = 56;
/// Bytes of a rewritten segment's header: the mark, one bit a page, a checksum of the bits.
pub const MAP_PAGE_BYTES: usize = 4096;
/// Bytes of the bits of a rewritten segment's header.
pub const MAP_BYTES: usize = 2048;
/// Version of the format.
pub const VERSION: u16 = 1;

const _: () = assert!(MAP_BYTES.saturating_mul(8) == 16_384 && PAGES_MAX == 16_384);

const MAGIC: [u8; 8] = *b"PANDOSEG";
const STRUCTURE: &str = "segment";

// DO NOT CHANGE THESE VALUES: they are in the files.
const HEADER: u16 = 1;
const FOOTER: u16 = 2;
const REWRITTEN: u16 = 3;

/// Fields of a header or a footer.
pub const LAYOUT: &[Field] = &[
    Field::fixed("magic", "bytes", 8),
    Field::fixed("version", "u16 LE", 2),
    Field::fixed("kind", "u16 LE", 2),
    Field::fixed("generation", "u32 LE", 4),
    Field::fixed("volume", "bytes", 16),
    Field::fixed("segment", "u64 LE", 8),
    Field::fixed("pages", "u32 LE", 4),
    Field::fixed("reserved", "u64 LE", 8),
    Field::fixed("checksum", "u32 LE", 4),
];
const _: () = assert!(size_of(LAYOUT) == MARK_BYTES);

/// The kind of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkKind {
    /// At the start of a segment.
    Header,
    /// At the end of a sealed one.
    Footer,
    /// At the start of a rewritten one.
    Rewritten,
}

/// A header or a footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Its kind.
    pub kind: MarkKind,
    /// How often the segment was rewritten; 0 for the one first written.
    pub generation: u32,
    /// The volume.
    pub volume: [u8; 16],
    /// The segment's number.
    pub segment: u64,
    /// Pages before the footer, the header's among them; in a header 0, in a rewritten segment
    /// the pages of data that it holds.
    pub pages: u32,
}

impl Mark {
    /// Appends the encoding, [`MARK_BYTES`] long.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.raw(&MAGIC);
        out.put_u16(VERSION);
        out.put_u16(match self.kind {
            MarkKind::Header => HEADER,
            MarkKind::Footer => FOOTER,
            MarkKind::Rewritten => REWRITTEN,
        });
        out.put_u32(self.generation);
        out.raw(&self.volume);
        out.put_u64(self.segment);
        out.put_u32(self.pages);
        out.put_u64(0);
        let checksum = crc32c::crc32c(out.get(start..).unwrap_or_default());
        out.put_u32(checksum);
    }

    /// Decodes and verifies.
    pub fn decode(bytes: &[u8]) -> Result<Mark, Malformed> {
        let mut reader = Reader::new(STRUCTURE, bytes);
        let magic: [u8; 8] = reader.array()?;
        if magic != MAGIC {
            return Err(reader.malformed("the magic of a segment", format!("{magic:02x?}")));
        }
        let version = reader.u16()?;
        if version != VERSION {
            return Err(reader.malformed("version 1", version.to_string()));
        }
        let kind = reader.u16()?;
        let mark = Mark {
            kind: match kind {
                HEADER => MarkKind::Header,
                FOOTER => MarkKind::Footer,
                REWRITTEN => MarkKind::Rewritten,
                other => return Err(reader.malformed("a kind of mark", other.to_string())),
            },
            generation: reader.u32()?,
            volume: reader.array()?,
            segment: reader.u64()?,
            pages: reader.u32()?,
        };
        reader.u64()?;
        let covered = bytes.get(..reader.position()).unwrap_or_default();
        let checksum = reader.u32()?;
        let computed = crc32c::crc32c(covered);
        if checksum != computed {
            let found = format!("{checksum:08x} for {computed:08x}");
            return Err(reader.malformed("the checksum of the mark", found));
        }
        if mark.pages > PAGES_MAX {
            return Err(reader.malformed("at most 16384 pages", mark.pages.to_string()));
        }
        Ok(mark)
    }
}

/// The pages that a rewritten segment kept.
#[derive(Clone, PartialEq, Eq)]
pub struct PageMap {
    bits: Vec<u8>,
    /// Kept pages before each byte of `bits`.
    ranks: Vec<u16>,
}

impl std::fmt::Debug for PageMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageMap of {} pages", self.count())
    }
}

impl PageMap {
    /// A map of the pages for which `kept` returns true.
    pub fn new(kept: &dyn Fn(u32) -> bool) -> PageMap {
        let mut bits = vec![0_u8; MAP_BYTES];
        let mut page = 0_u32;
        for byte in &mut bits {
            for bit in 0..8 {
                if kept(page) {
                    *byte |= 1_u8.checked_shl(bit).unwrap_or(0);
                }
                page = page.saturating_add(1);
            }
        }
        PageMap::from_bits(bits)
    }

    fn from_bits(bits: Vec<u8>) -> PageMap {
        let mut ranks = Vec::with_capacity(bits.len());
        let mut rank = 0_u16;
        for byte in &bits {
            ranks.push(rank);
            rank = rank.saturating_add(u16::try_from(byte.count_ones()).unwrap_or(0));
        }
        PageMap { bits, ranks }
    }

    /// The position of a page of the segment among the kept ones, or `None` when it was not kept.
    pub fn rank(&self, page: u32) -> Option<u32> {
        let at = usize::try_from(page.checked_div(8)?).ok()?;
        let byte = *self.bits.get(at)?;
        let bit = 1_u8.checked_shl(page.checked_rem(8)?)?;
        if byte & bit == 0 {
            return None;
        }
        let before = byte & bit.wrapping_sub(1);
        Some(u32::from(*self.ranks.get(at)?).saturating_add(before.count_ones()))
    }

    /// The number of pages from `page` on, up to `most` (at least one), that are all kept or all
    /// not. Also the rank of the first if they are kept.
    pub fn run(&self, page: u32, most: u32) -> (Option<u32>, u32) {
        let first = self.rank(page);
        let mut count = 1_u32;
        while count < most && self.rank(page.saturating_add(count)).is_some() == first.is_some() {
            count = count.saturating_add(1);
        }
        (first, count)
    }

    /// How many pages were kept.
    pub fn count(&self) -> u32 {
        self.bits.iter().map(|byte| byte.count_ones()).fold(0, u32::saturating_add)
    }

    /// The header page of a rewritten segment.
    pub fn encode(&self, mark: &Mark) -> Vec<u8> {
        let mut out = Vec::with_capacity(MAP_PAGE_BYTES);
        mark.encode(&mut out);
        out.raw(&self.bits);
        out.put_u32(crc32c::crc32c(&self.bits));
        out.resize(MAP_PAGE_BYTES, 0);
        out
    }

    /// Decodes and verifies the header page of a rewritten segment.
    pub fn decode(page: &[u8]) -> Result<(Mark, PageMap), Malformed> {
        let mark = Mark::decode(page)?;
        let mut reader = Reader::new("segment map", page);
        reader.take(MARK_BYTES)?;
        if mark.kind != MarkKind::Rewritten {
            return Err(reader.malformed("a rewritten segment", format!("{:?}", mark.kind)));
        }
        let bits = reader.take(MAP_BYTES)?;
        let checksum = reader.u32()?;
        if checksum != crc32c::crc32c(bits) {
            return Err(reader.malformed("the checksum of the map", format!("{checksum:08x}")));
        }
        let map = PageMap::from_bits(bits.to_vec());
        if map.count() != mark.pages {
            return Err(reader.malformed("as many pages as in the mark", map.count().to_string()));
        }
        Ok((mark, map))
    }
}

#[cfg(test)]
mod tests {
    use super::{MAP_PAGE_BYTES, MARK_BYTES, Mark, MarkKind, PageMap};

    fn example() -> Mark {
        Mark { kind: MarkKind::Rewritten, generation: 3, volume: [9; 16], segment: 77, pages: 3 }
    }

    #[test]
    fn a_mark_round_trips_and_every_flipped_bit_is_detected() {
        let mut bytes = Vec::new();
        example().encode(&mut bytes);
        assert_eq!(bytes.len(), MARK_BYTES);
        assert_eq!(Mark::decode(&bytes), Ok(example()));
        for bit in 0..MARK_BYTES * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Mark::decode(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_page_map_ranks_kept_pages_and_round_trips() {
        let kept = [1_u32, 9, 16_383];
        let map = PageMap::new(&|page| kept.contains(&page));
        assert_eq!(map.count(), 3);
        assert_eq!((map.rank(1), map.rank(9), map.rank(16_383)), (Some(0), Some(1), Some(2)));
        assert_eq!((map.rank(0), map.rank(2), map.rank(20_000)), (None, None, None));
        assert_eq!(
            (map.run(1, 9), map.run(2, 9), map.run(2, 3)),
            ((Some(0), 1), (None, 7), (None, 3))
        );
        let page = map.encode(&example());
        assert_eq!(page.len(), MAP_PAGE_BYTES);
        assert_eq!(PageMap::decode(&page), Ok((example(), map)));
        let mut random = fastrand::Rng::with_seed(2);
        for _ in 0..200 {
            let mut page = page.clone();
            page[random.usize(..MARK_BYTES + 2048 + 4)] ^= 1 << random.u8(..8);
            assert!(PageMap::decode(&page).is_err());
        }
    }
}
