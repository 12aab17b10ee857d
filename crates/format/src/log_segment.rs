//! The header of a log segment (`docs/format/log.md`). Records begin at [`RECORDS_START`].
//!
//! It is written and synced before the file gets its name. So a segment with a name has a whole
//! header, or is damaged.

use crate::layout::{Field, size_of};
use crate::sealed::{Covers, Opened, Seal};
use crate::{Malformed, Reader, Writer};

/// The magic number of a log segment.
pub const MAGIC: [u8; 8] = *b"PANDOLOG";
/// The newest version that this program writes and reads.
pub const VERSION: u32 = 2;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 64;
/// Offset of the first record: the header has a page of its own, so that it is never rewritten.
pub const RECORDS_START: u64 = 4096;
/// Longest segment, in bytes.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// Bytes behind the last field.
const RESERVED_BYTES: usize = 16;

/// Layout of the header.
pub const LAYOUT: &[Field] = &[
    Field::fixed("magic", "bytes", 8),
    Field::fixed("version", "u32 LE", 4),
    Field::fixed("checksum", "u32 LE", 4),
    Field::fixed("volume", "bytes", 16),
    Field::fixed("first", "u64 LE", 8),
    Field::fixed("bytes", "u64 LE", 8),
    Field::fixed("reserved", "zeros", RESERVED_BYTES),
];
const _: () = assert!(size_of(LAYOUT) == HEADER_BYTES);

const SEAL: Seal =
    Seal { structure: "log segment header", magic: MAGIC, version: VERSION, covers: Covers::All };

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The volume's id.
    pub volume: [u8; 16],
    /// Number of its first record.
    pub first: u64,
    /// Length of the file.
    pub bytes: u64,
}

/// A decoded header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded {
    /// A version that this program reads.
    Header(SegmentHeader),
    /// A newer version: its number.
    Newer(u32),
}

impl SegmentHeader {
    /// The header's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut rest = Vec::with_capacity(HEADER_BYTES);
        rest.raw(&self.volume);
        rest.put_u64(self.first);
        rest.put_u64(self.bytes);
        rest.raw(&[0; RESERVED_BYTES]);
        SEAL.seal(&rest)
    }

    /// Reads and checks a header. A newer version is recognised by magic and version only.
    pub fn decode(bytes: &[u8]) -> Result<Decoded, Malformed> {
        let header = bytes.get(..HEADER_BYTES).unwrap_or(bytes);
        let mut reader = match SEAL.open(header)? {
            Opened::Newer(version) => return Ok(Decoded::Newer(version)),
            Opened::Body(version, reader) if version < VERSION => {
                // The checksums of its records have another seed, so none of them would be found.
                let found = format!("version {version}, from before the first release");
                return Err(reader.malformed("version 2", found));
            }
            Opened::Body(_, reader) => reader,
        };
        let volume = reader.array()?;
        let (first, bytes) = (reader.counted()?, reader.u64()?);
        if bytes > RECORDS_START && bytes <= SEGMENT_BYTES_MAX && first > 0 {
            Ok(Decoded::Header(SegmentHeader { volume, first, bytes }))
        } else {
            Err(reader.malformed("a segment within bounds", format!("{bytes} bytes from {first}")))
        }
    }

    /// The length of the file that a damaged header states, if that field is readable.
    pub fn stated_bytes(bytes: &[u8]) -> Option<u64> {
        let at = HEADER_BYTES.checked_sub(RESERVED_BYTES.saturating_add(8))?;
        let mut reader = Reader::new(SEAL.structure, bytes.get(at..HEADER_BYTES)?);
        reader.u64().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::damaged::every_flipped_bit_is_refused;

    const HEADER: SegmentHeader = SegmentHeader { volume: [3; 16], first: 77, bytes: 1 << 24 };

    #[test]
    fn header_round_trips() {
        let bytes = HEADER.encode();
        assert_eq!(bytes.len(), HEADER_BYTES);
        assert_eq!(SegmentHeader::decode(&bytes), Ok(Decoded::Header(HEADER)));
    }

    #[test]
    fn an_unreachable_record_number_is_refused() {
        let of = |first| SegmentHeader::decode(&SegmentHeader { first, ..HEADER }.encode());
        assert!(of(crate::COUNTED_MAX).is_ok());
        for first in [0, crate::COUNTED_MAX + 1, u64::MAX - 1, u64::MAX] {
            assert!(of(first).is_err(), "{first}");
        }
    }

    #[test]
    fn every_single_bit_flip_is_detected() {
        let good = HEADER.encode();
        every_flipped_bit_is_refused(&good, |bad| SegmentHeader::decode(bad).is_err());
    }

    #[test]
    fn other_versions_are_distinguished() {
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
    fn a_partly_damaged_header_still_states_the_file_length() {
        let mut bytes = HEADER.encode();
        bytes[..HEADER_BYTES - RESERVED_BYTES - 8].fill(0);
        assert!(SegmentHeader::decode(&bytes).is_err());
        assert_eq!(SegmentHeader::stated_bytes(&bytes), Some(HEADER.bytes));
        assert_eq!(SegmentHeader::stated_bytes(&bytes[..HEADER_BYTES - 1]), None);
    }

    #[test]
    fn short_bytes_are_refused() {
        let bytes = HEADER.encode();
        for length in 0..bytes.len() {
            assert!(SegmentHeader::decode(&bytes[..length]).is_err());
        }
    }
}
