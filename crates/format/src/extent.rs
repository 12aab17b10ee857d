//! The record of an extent (`docs/format/extent.md`): where bytes of a file are stored.
//!
//! Key: `X | inode | file offset`. There are two kinds: *stored* bytes are in a data segment,
//! *inline* bytes are in the record itself. A stored extent is a view (`skip`, `length`) of a
//! stored range that starts at a page of a segment. An overwrite in the middle leaves two views of
//! one range. The checksums are those of the range's 4 KiB chunks that the view touches.

use crate::layout::{Field, size_of};
use crate::{Malformed, Reader, Writer};

/// Bytes of a chunk (one checksum), and of a page of a segment.
pub const CHUNK_BYTES: u32 = 4096;
/// Most bytes of one stored range.
pub const STORED_BYTES_MAX: u32 = 128 << 10;
/// Most checksums of one record.
pub const CHUNKS_MAX: usize = 32;
/// Most bytes of one inline extent.
pub const INLINE_EXTENT_BYTES_MAX: usize = 4096;

const _: () = assert!(CHUNKS_MAX == 32 && CHUNK_BYTES.saturating_mul(32) == STORED_BYTES_MAX);

// DO NOT CHANGE THESE VALUES: they are in the records.
const STORED: u8 = 1;
const INLINE: u8 = 2;

/// Flag: several files refer to the stored range, so that only marking may free it.
const REFLINKED: u8 = 1;

/// Bytes of a stored extent's record before its checksums.
pub const STORED_HEADER_BYTES: usize = 32;
/// Bytes of an inline extent's record before its contents.
pub const INLINE_HEADER_BYTES: usize = 1;

/// Fields of a stored extent's record; the checksums follow, four bytes each.
pub const LAYOUT: &[Field] = &[
    Field::fixed("kind", "u8", 1),
    Field::fixed("flags", "u8", 1),
    Field::fixed("page", "u16 LE", 2),
    Field::fixed("segment", "u64 LE", 8),
    Field::fixed("birth", "u64 LE", 8),
    Field::fixed("stored", "u32 LE", 4),
    Field::fixed("skip", "u32 LE", 4),
    Field::fixed("length", "u32 LE", 4),
];
const _: () = assert!(size_of(LAYOUT) == STORED_HEADER_BYTES);

const STRUCTURE: &str = "extent";

/// The checksums of the chunks that a view touches, held without allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Checksums {
    values: [u32; CHUNKS_MAX],
    count: usize,
}

impl std::fmt::Debug for Checksums {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

impl Checksums {
    /// No checksums.
    pub const fn empty() -> Checksums {
        Checksums { values: [0; CHUNKS_MAX], count: 0 }
    }

    /// The checksums of the chunks of `bytes`, the first byte of which starts a chunk.
    pub fn of(bytes: &[u8]) -> Checksums {
        let mut all = Checksums::empty();
        for chunk in bytes.chunks(4096) {
            all.push(crc32c::crc32c(chunk));
        }
        all
    }

    /// Appends one. More than [`CHUNKS_MAX`] are not kept, and fail the record's check.
    pub fn push(&mut self, checksum: u32) {
        if let Some(slot) = self.values.get_mut(self.count) {
            *slot = checksum;
        }
        self.count = self.count.saturating_add(1);
    }

    /// Replaces the last one.
    pub fn set_last(&mut self, checksum: u32) {
        if let Some(slot) = self.count.checked_sub(1).and_then(|at| self.values.get_mut(at)) {
            *slot = checksum;
        }
    }

    /// Removes those before the `first`-th and keeps `count` of the rest.
    #[must_use]
    pub fn slice(&self, first: usize, count: usize) -> Checksums {
        let mut some = Checksums::empty();
        for &value in self.as_slice().iter().skip(first).take(count) {
            some.push(value);
        }
        some
    }

    /// As a slice.
    pub fn as_slice(&self) -> &[u32] {
        self.values.get(..self.count).unwrap_or(&self.values)
    }
}

/// A view of a range stored in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// The segment.
    pub segment: u64,
    /// First page of the range in the segment, in units of [`CHUNK_BYTES`].
    pub page: u16,
    /// Bytes of the stored range. Its last chunk's checksum covers the bytes up to here.
    pub stored: u32,
    /// Bytes of the range before the view.
    pub skip: u32,
    /// Bytes of the view, which are bytes of the file.
    pub length: u32,
    /// Epoch in which the range was written.
    pub birth: u64,
    /// Whether other files refer to the range too.
    pub reflinked: bool,
    /// Checksums of the chunks that the view touches.
    pub checksums: Checksums,
}

impl Stored {
    /// First byte of the range after the view.
    pub fn view_end(&self) -> u32 {
        self.skip.saturating_add(self.length)
    }

    /// Index in the range of the first chunk that the view touches.
    pub fn first_chunk(&self) -> u32 {
        self.skip.checked_div(CHUNK_BYTES).unwrap_or(0)
    }

    /// Number of chunks that the view touches.
    pub fn chunk_count(&self) -> u32 {
        self.view_end().div_ceil(CHUNK_BYTES).saturating_sub(self.first_chunk())
    }

    /// The part of the view of `length` bytes from `from` on, as a view of its own.
    #[must_use]
    pub fn part(&self, from: u32, length: u32) -> Stored {
        let mut part = *self;
        part.skip = self.skip.saturating_add(from);
        part.length = length;
        let first = part.first_chunk().saturating_sub(self.first_chunk());
        part.checksums = self.checksums.slice(
            usize::try_from(first).unwrap_or(usize::MAX),
            usize::try_from(part.chunk_count()).unwrap_or(0),
        );
        part
    }
}

/// A decoded record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent<'a> {
    /// In a segment.
    Stored(Stored),
    /// In the record.
    Inline(&'a [u8]),
}

/// Encodes a stored extent.
pub fn encode_stored(out: &mut Vec<u8>, extent: &Stored) {
    out.put_u8(STORED);
    out.put_u8(if extent.reflinked { REFLINKED } else { 0 });
    out.put_u16(extent.page);
    out.put_u64(extent.segment);
    out.put_u64(extent.birth);
    out.put_u32(extent.stored);
    out.put_u32(extent.skip);
    out.put_u32(extent.length);
    for &checksum in extent.checksums.as_slice() {
        out.put_u32(checksum);
    }
}

/// Encodes an inline extent of at most [`INLINE_EXTENT_BYTES_MAX`] bytes.
pub fn encode_inline(out: &mut Vec<u8>, bytes: &[u8]) {
    out.put_u8(INLINE);
    out.raw(bytes);
}

/// Decodes a record and checks that a writer could have made it.
pub fn decode(bytes: &[u8]) -> Result<Extent<'_>, Malformed> {
    let mut reader = Reader::new(STRUCTURE, bytes);
    match reader.u8()? {
        STORED => stored(&mut reader).map(Extent::Stored),
        INLINE => {
            let rest = reader.remaining();
            if rest == 0 || rest > INLINE_EXTENT_BYTES_MAX {
                return Err(reader.malformed("1 to 4096 inline bytes", rest.to_string()));
            }
            Ok(Extent::Inline(reader.take(rest)?))
        }
        other => Err(reader.malformed("a kind of extent", other.to_string())),
    }
}

fn stored(reader: &mut Reader<'_>) -> Result<Stored, Malformed> {
    let flags = reader.u8()?;
    if flags & !REFLINKED != 0 {
        return Err(reader.malformed("known flags", flags.to_string()));
    }
    let page = reader.u16()?;
    let mut extent = Stored {
        segment: reader.u64()?,
        page,
        birth: reader.u64()?,
        stored: reader.u32()?,
        skip: reader.u32()?,
        length: reader.u32()?,
        reflinked: flags & REFLINKED != 0,
        checksums: Checksums::empty(),
    };
    if extent.stored == 0 || extent.stored > STORED_BYTES_MAX {
        return Err(reader.malformed("at most 128 KiB stored", extent.stored.to_string()));
    }
    let end = extent.skip.checked_add(extent.length);
    if extent.length == 0 || end.is_none_or(|end| end > extent.stored) {
        return Err(reader.malformed("a view inside the range", format!("{extent:?}")));
    }
    for _ in 0..extent.chunk_count() {
        let checksum = reader.u32()?;
        extent.checksums.push(checksum);
    }
    reader.end()?;
    Ok(extent)
}

#[cfg(test)]
mod tests {
    use super::{
        Checksums, Extent, STORED_HEADER_BYTES, Stored, decode, encode_inline, encode_stored,
    };

    fn example() -> Stored {
        Stored {
            segment: 0x0102_0304_0506_0708,
            page: 0x1112,
            stored: 9000,
            skip: 5000,
            length: 3500,
            birth: 0x2122_2324_2526_2728,
            reflinked: true,
            checksums: Checksums::of(&[7; 9000]).slice(1, 2),
        }
    }

    #[test]
    fn records_round_trip_and_have_these_bytes() {
        let extent = example();
        let mut bytes = Vec::new();
        encode_stored(&mut bytes, &extent);
        assert_eq!(decode(&bytes), Ok(Extent::Stored(extent)));
        let golden = [
            0x01, 0x01, 0x12, 0x11, 8, 7, 6, 5, 4, 3, 2, 1, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23,
            0x22, 0x21, 0x28, 0x23, 0, 0, 0x88, 0x13, 0, 0, 0xac, 0x0d, 0, 0,
        ];
        assert_eq!(bytes[..STORED_HEADER_BYTES], golden);
        assert_eq!(bytes.len(), STORED_HEADER_BYTES + 2 * 4);
        let mut bytes = Vec::new();
        encode_inline(&mut bytes, b"abc");
        assert_eq!(bytes, b"\x02abc");
        assert_eq!(decode(&bytes), Ok(Extent::Inline(b"abc")));
    }

    #[test]
    fn a_part_of_a_view_keeps_the_checksums_that_it_touches() {
        let whole =
            Stored { skip: 0, length: 9000, checksums: Checksums::of(&[7; 9000]), ..example() };
        let part = whole.part(4096, 4096);
        assert_eq!((part.first_chunk(), part.chunk_count()), (1, 1));
        assert_eq!(part.checksums.as_slice(), &whole.checksums.as_slice()[1..2]);
        let straddling = whole.part(4095, 2);
        assert_eq!(straddling.checksums.as_slice(), &whole.checksums.as_slice()[..2]);
        assert_eq!(whole.part(0, 9000), whole);
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let mut bytes: Vec<u8> = (0..random.usize(..80)).map(|_| random.u8(..)).collect();
            if let Some(first) = bytes.first_mut() {
                *first %= 4;
            }
            let _decoded = decode(&bytes);
        }
        let mut bytes = Vec::new();
        encode_stored(&mut bytes, &example());
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).is_err());
        }
    }
}
