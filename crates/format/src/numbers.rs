//! The record of reserved numbers (`docs/format/numbers.md`), for object stores: a request of a
//! process may be carried out after the process is gone.
//!
//! One file has two places for it, which are written alternately: a crash tears one, and the other
//! has the previous content.

use crate::layout::{Field, size_of};
use crate::sealed::{Covers, Opened, Seal};
use crate::{Malformed, Writer};

/// The magic number of a record.
pub const MAGIC: [u8; 8] = *b"PANDONUM";
/// The newest version that this program writes and reads.
pub const VERSION: u32 = 1;
/// Bytes of a record: less than a sector.
pub const NUMBERS_BYTES: usize = 40;
/// Offsets of the two places in the file: never in one sector, nor in one block of a disk that has
/// blocks of 4 KiB.
pub const PLACES: [u64; 2] = [0, 4096];

/// Layout of a record.
pub const LAYOUT: &[Field] = &[
    Field::fixed("magic", "bytes", 8),
    Field::fixed("version", "u32 LE", 4),
    Field::fixed("checksum", "u32 LE", 4),
    Field::fixed("volume", "bytes", 16),
    Field::fixed("below", "u64 LE", 8),
];

const _: () = assert!(size_of(LAYOUT) == NUMBERS_BYTES);

const SEAL: Seal =
    Seal { structure: "note of numbers", magic: MAGIC, version: VERSION, covers: Covers::All };

/// The numbers of manifests and blobs that may have been used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// The volume's id.
    pub volume: [u8; 16],
    /// All of them are below this.
    pub below: u64,
}

/// A decoded record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded {
    /// One of this version.
    Numbers(Numbers),
    /// A newer version: its number.
    Newer(u32),
}

impl Numbers {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut rest = Vec::with_capacity(NUMBERS_BYTES);
        rest.raw(&self.volume);
        rest.put_u64(self.below);
        SEAL.seal(&rest)
    }

    /// Reads and checks the content of one of the places.
    pub fn decode(bytes: &[u8]) -> Result<Decoded, Malformed> {
        match SEAL.open(bytes.get(..NUMBERS_BYTES).unwrap_or(bytes))? {
            Opened::Body(_, mut reader) => {
                let (volume, below) = (reader.array()?, reader.counted()?);
                Ok(Decoded::Numbers(Numbers { volume, below }))
            }
            Opened::Newer(version) => Ok(Decoded::Newer(version)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::COUNTED_MAX;
    use crate::damaged::every_flipped_bit_and_truncation_is_refused;

    #[test]
    fn every_flipped_bit_and_truncation_is_detected() {
        let numbers = Numbers { volume: [7; 16], below: 1 << 40 };
        let bytes = numbers.encode();
        assert_eq!(bytes.len(), NUMBERS_BYTES);
        let mut longer = bytes.clone();
        longer.extend_from_slice(b"what is behind it in the file");
        assert_eq!(Numbers::decode(&longer), Ok(Decoded::Numbers(numbers)));
        every_flipped_bit_and_truncation_is_refused(&bytes, |bad| Numbers::decode(bad).is_err());
    }

    #[test]
    fn a_newer_version_is_reported_and_unreachable_numbers_are_refused() {
        let with = |below| Numbers { volume: [7; 16], below }.encode();
        assert!(Numbers::decode(&with(COUNTED_MAX)).is_ok());
        assert!(Numbers::decode(&with(COUNTED_MAX + 1)).is_err());
        let newer = Seal { version: 2, ..SEAL }.seal(&[1; 24]);
        assert_eq!(Numbers::decode(&newer), Ok(Decoded::Newer(2)));
    }
}
