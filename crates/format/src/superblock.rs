//! The superblock: the root of a checkpoint's state (`docs/format/superblock.md`).
//!
//! Two files hold one each, and a state is written into both before anything of the previous state
//! is freed. Programs that wrote version 1 may have written them alternately, so a version 1
//! superblock guarantees less. Beside a damaged one it may point to a state whose space was reused.

use crate::layout::{Field, size_of};
use crate::sealed::{Covers, Opened, Seal};
use crate::{Malformed, Pointer, Writer};

/// The magic number of a superblock.
pub const MAGIC: [u8; 8] = *b"PANDOSUP";
/// The newest version that this program writes and reads.
pub const VERSION: u32 = 2;
/// The version of superblocks that may have been written alternately.
const IN_TURNS: u32 = 1;
/// Bytes of a superblock: less than a sector, but nothing relies on that.
pub const SUPERBLOCK_BYTES: usize = 128;

/// Layout of a superblock.
pub const LAYOUT: &[Field] = &[
    Field::fixed("magic", "bytes", 8),
    Field::fixed("version", "u32 LE", 4),
    Field::fixed("checksum", "u32 LE", 4),
    Field::fixed("volume", "bytes", 16),
    Field::fixed("generation", "u64 LE", 8),
    Field::fixed("lsn", "u64 LE", 8),
    Field::fixed("groups", "u64 LE", 8),
    Field::fixed("next_trash", "u64 LE", 8),
    Field::fixed("time", "i64 LE", 8),
    Field::fixed("directory", "pointer", 12),
    Field::fixed("catalog", "pointer", 12),
    Field::fixed("catalog_level", "u8", 1),
    Field::fixed("reserved", "zeros", 31),
];

const _: () = assert!(size_of(LAYOUT) == SUPERBLOCK_BYTES);

const RESERVED_BYTES: usize = 31;

const SEAL: Seal =
    Seal { structure: "superblock", magic: MAGIC, version: VERSION, covers: Covers::All };

/// The root of a checkpoint's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// The volume's id.
    pub volume: [u8; 16],
    /// Number of the checkpoint, from 1.
    pub generation: u64,
    /// The last log record that the state contains.
    pub lsn: u64,
    /// Groups of the nodes file.
    pub groups: u64,
    /// Number of the next trash record.
    pub next_trash: u64,
    /// Wall-clock time, in nanoseconds since 1970.
    pub time: i64,
    /// The directory of the free-space map.
    pub directory: Pointer,
    /// Root of the catalog.
    pub catalog: Pointer,
    /// Its level.
    pub catalog_level: u8,
}

/// A decoded superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded {
    /// This version: the other superblock is equal, or is not needed.
    Superblock(Superblock),
    /// A version that may have been written alternately. If the other superblock cannot be read,
    /// that one may be of a later state, for which space of this one's state was freed.
    InTurns(Superblock),
    /// A newer version: its number.
    Newer(u32),
}

impl Superblock {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut rest = Vec::with_capacity(SUPERBLOCK_BYTES);
        rest.raw(&self.volume);
        rest.put_u64(self.generation);
        rest.put_u64(self.lsn);
        rest.put_u64(self.groups);
        rest.put_u64(self.next_trash);
        rest.put_i64(self.time);
        self.directory.encode(&mut rest);
        self.catalog.encode(&mut rest);
        rest.put_u8(self.catalog_level);
        rest.raw(&[0; RESERVED_BYTES]);
        SEAL.seal(&rest)
    }

    /// Reads and checks. A newer version is recognised by magic and version only.
    pub fn decode(bytes: &[u8]) -> Result<Decoded, Malformed> {
        let (version, mut reader) =
            match SEAL.open(bytes.get(..SUPERBLOCK_BYTES).unwrap_or(bytes))? {
                Opened::Body(version, reader) => (version, reader),
                Opened::Newer(version) => return Ok(Decoded::Newer(version)),
            };
        let superblock = Superblock {
            volume: reader.array()?,
            generation: reader.counted()?,
            lsn: reader.counted()?,
            groups: reader.counted()?,
            next_trash: reader.counted()?,
            time: reader.i64()?,
            directory: Pointer::decode(&mut reader)?,
            catalog: Pointer::decode(&mut reader)?,
            catalog_level: reader.u8()?,
        };
        if superblock.catalog_level > crate::node::LEVEL_MAX {
            return Err(reader.malformed("a level", superblock.catalog_level.to_string()));
        }
        Ok(match version {
            IN_TURNS => Decoded::InTurns(superblock),
            _ => Decoded::Superblock(superblock),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::COUNTED_MAX;
    use crate::damaged::every_flipped_bit_and_truncation_is_refused;

    fn sample() -> Superblock {
        let at = |unit| Pointer { unit, units: 2, overflows: false, checksum: 3 };
        Superblock {
            volume: [7; 16],
            generation: 4,
            lsn: 99,
            groups: 1,
            next_trash: 6,
            time: -5,
            directory: at(1),
            catalog: at(8),
            catalog_level: 2,
        }
    }

    /// A valid checksum does not make it right: opening the state counts on from these.
    #[test]
    fn unreachable_numbers_are_refused() {
        let with = |number: usize, value| {
            let mut numbers = [4, 99, 1, 6];
            numbers[number] = value;
            let [generation, lsn, groups, next_trash] = numbers;
            let superblock = Superblock { generation, lsn, groups, next_trash, ..sample() };
            Superblock::decode(&superblock.encode())
        };
        for number in 0..4 {
            assert!(with(number, COUNTED_MAX).is_ok(), "{number}");
            for value in [COUNTED_MAX + 1, u64::MAX - 1, u64::MAX] {
                assert!(with(number, value).is_err(), "{number}: {value}");
            }
        }
    }

    #[test]
    fn a_superblock_that_may_have_been_written_alternately_is_recognized() {
        let superblock = sample();
        let bytes = superblock.encode();
        let older = Seal { version: IN_TURNS, ..SEAL }.seal(&bytes[16..]);
        assert_eq!(Superblock::decode(&older), Ok(Decoded::InTurns(superblock)));
        assert_eq!(Superblock::decode(&bytes), Ok(Decoded::Superblock(superblock)));
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let superblock = sample();
        let bytes = superblock.encode();
        assert_eq!(bytes.len(), SUPERBLOCK_BYTES);
        assert_eq!(Superblock::decode(&bytes), Ok(Decoded::Superblock(superblock)));
        every_flipped_bit_and_truncation_is_refused(&bytes, |bad| Superblock::decode(bad).is_err());
    }
}
