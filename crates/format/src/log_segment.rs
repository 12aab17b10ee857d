//! The header of a log segment (`docs/format/log.md`). Records begin at [`RECORDS_START`].
//!
//! It is written and synced before the file gets its name, so a segment with a name has a whole
//! header, or is damaged.

use crate::layout::{Field, size_of};
use crate::{Malformed, Reader, Writer};

/// What every log segment starts with.
pub const MAGIC: [u8; 8] = *b"PANDOLOG";
/// The newest version that this program writes and reads.
pub const VERSION: u32 = 2;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 64;
/// Offset of the first record: the header has a page of its own, so that it is never written again.
pub const RECORDS_START: u64 = 4096;
/// Longest segment, in bytes.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// Offset of `checksum`, which covers what stands before and behind it.
const CHECKSUM: usize = 12;
/// Offset of what follows the checksum.
const VOLUME: usize = CHECKSUM + 4;

/// Where the fields lie.
pub const LAYOUT: &[Field] = &[
    Field::fixed("magic", "bytes", 8),
    Field::fixed("version", "u32 LE", 4),
    Field::fixed("checksum", "u32 LE", 4),
    Field::fixed("volume", "bytes", 16),
    Field::fixed("first", "u64 LE", 8),
    Field::fixed("bytes", "u64 LE", 8),
    Field::fixed("reserved", "zeros", 16),
];
const _: () = assert!(size_of(LAYOUT) == HEADER_BYTES);

const STRUCTURE: &str = "log segment header";

/// What a segment says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The volume's id.
    pub volume: [u8; 16],
    /// Number of its first record.
    pub first: u64,
    /// Length of the file.
    pub bytes: u64,
}

/// What a header turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded {
    /// One that this program reads.
    Header(SegmentHeader),
    /// One of a newer format, of this version.
    Newer(u32),
}

impl SegmentHeader {
    /// The header's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut rest = Vec::with_capacity(HEADER_BYTES);
        rest.raw(&self.volume);
        rest.put_u64(self.first);
        rest.put_u64(self.bytes);
        rest.raw(&[0; 16]);
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.raw(&MAGIC);
        out.put_u32(VERSION);
        let sum = crc32c::crc32c_append(crc32c::crc32c(&out), &rest);
        out.put_u32(sum);
        out.raw(&rest);
        out
    }

    /// Reads and checks a header. One of a newer version is recognised by magic and version only.
    pub fn decode(bytes: &[u8]) -> Result<Decoded, Malformed> {
        let mut reader = Reader::new(STRUCTURE, bytes);
        if reader.array::<8>()? != MAGIC {
            return Err(Reader::new(STRUCTURE, bytes).malformed("PANDOLOG", "another magic"));
        }
        let version = reader.u32()?;
        let checksum = reader.u32()?;
        let rest = reader.take(HEADER_BYTES - VOLUME)?;
        let head = bytes.get(..CHECKSUM).unwrap_or_default();
        let sum = crc32c::crc32c_append(crc32c::crc32c(head), rest);
        if sum != checksum {
            let found = format!("checksum {checksum:08x} over bytes of sum {sum:08x}");
            return Err(
                Reader::new(STRUCTURE, bytes).malformed("a header with its checksum", found)
            );
        }
        if version > VERSION {
            return Ok(Decoded::Newer(version));
        }
        if version < VERSION {
            // The checksums of its records begin elsewhere, so none of them would be found.
            let found = format!("version {version}, of before the first release");
            return Err(Reader::new(STRUCTURE, bytes).malformed("version 2", found));
        }
        let mut reader = Reader::new(STRUCTURE, rest);
        let volume = reader.array()?;
        let (first, bytes) = (reader.u64()?, reader.u64()?);
        if bytes > RECORDS_START && bytes <= SEGMENT_BYTES_MAX && first > 0 {
            Ok(Decoded::Header(SegmentHeader { volume, first, bytes }))
        } else {
            Err(reader.malformed("a segment within bounds", format!("{bytes} bytes from {first}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: SegmentHeader = SegmentHeader { volume: [3; 16], first: 77, bytes: 1 << 24 };

    #[test]
    fn header_comes_back() {
        let bytes = HEADER.encode();
        assert_eq!(bytes.len(), HEADER_BYTES);
        assert_eq!(SegmentHeader::decode(&bytes), Ok(Decoded::Header(HEADER)));
    }

    #[test]
    fn every_single_bit_flip_is_seen() {
        let good = HEADER.encode();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn other_versions_are_told_apart() {
        let of = |version: u32| {
            let mut bytes = HEADER.encode();
            bytes[8..12].copy_from_slice(&version.to_le_bytes());
            let rest = bytes[16..].to_vec();
            let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &rest);
            bytes[12..16].copy_from_slice(&sum.to_le_bytes());
            SegmentHeader::decode(&bytes)
        };
        assert_eq!(of(VERSION + 1), Ok(Decoded::Newer(VERSION + 1)));
        assert!(of(VERSION - 1).is_err());
    }

    #[test]
    fn short_bytes_are_refused() {
        let bytes = HEADER.encode();
        for length in 0..bytes.len() {
            assert!(SegmentHeader::decode(&bytes[..length]).is_err());
        }
    }
}
