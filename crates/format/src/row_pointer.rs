//! The place of a row in a value log (`docs/format/value-log.md`): a run stores it instead of a
//! value.
//!
//! Rows are in blocks like those of runs. A pointer names the blob and the block, with the block's
//! checksum, and the row is found in the block by its key.

use crate::batch::VALUE_BYTES_MAX;
use crate::layout::Field;
use crate::run_block::BLOCK_BYTES_MAX;
use crate::run_index::BlockPlace;
use crate::{Malformed, Reader, Writer};

/// Layout of a pointer.
pub const LAYOUT: &[Field] = &[
    Field::variable("log", "varint"),
    Field::variable("offset", "varint"),
    Field::variable("stored", "varint"),
    Field::variable("raw", "varint"),
    Field::fixed("checksum", "u32 LE", 4),
    Field::variable("length", "varint"),
];

const STRUCTURE: &str = "pointer to a row";

/// A pointer to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowPointer {
    /// The blob that is the value log.
    pub log: u64,
    /// The row's block in it.
    pub place: BlockPlace,
    /// Bytes of the value.
    pub length: u32,
}

impl RowPointer {
    /// Appends the pointer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.log);
        out.put_varint(self.place.offset);
        out.put_varint(u64::from(self.place.stored));
        out.put_varint(u64::from(self.place.raw));
        out.put_u32(self.place.checksum);
        out.put_varint(u64::from(self.length));
    }

    /// Reads a pointer, which is exactly `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<RowPointer, Malformed> {
        let mut reader = Reader::new(STRUCTURE, bytes);
        let (log, offset) = (reader.varint()?, reader.varint()?);
        let mut size = |most| -> Result<u32, Malformed> {
            Ok(u32::try_from(reader.length(most)?).unwrap_or(u32::MAX))
        };
        let (stored, raw) = (size(BLOCK_BYTES_MAX)?, size(BLOCK_BYTES_MAX)?);
        let checksum = reader.u32()?;
        let length = u32::try_from(reader.length(VALUE_BYTES_MAX)?).unwrap_or(u32::MAX);
        reader.end()?;
        if stored > raw || length > raw {
            let found = format!("{length} bytes in a block of {stored}, {raw} unpacked");
            return Err(reader.malformed("a row within its block", found));
        }
        let place = BlockPlace { offset, stored, raw, checksum };
        Ok(RowPointer { log, place, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> RowPointer {
        let place = BlockPlace { offset: 1 << 30, stored: 900, raw: 4000, checksum: 0x0403_0201 };
        RowPointer { log: 300, place, length: 320 }
    }

    #[test]
    fn encoded_bytes_are_fixed() {
        let mut bytes = Vec::new();
        sample().encode(&mut bytes);
        let hex = bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        assert_eq!(hex, "ac02".to_owned() + "8080808004" + "8407" + "a01f" + "01020304" + "c002");
    }

    #[test]
    fn a_pointer_round_trips_and_other_lengths_are_refused() {
        let mut bytes = Vec::new();
        sample().encode(&mut bytes);
        assert_eq!(RowPointer::decode(&bytes), Ok(sample()));
        for length in 0..bytes.len() {
            assert!(RowPointer::decode(&bytes[..length]).is_err(), "{length}");
        }
        bytes.push(0);
        assert!(RowPointer::decode(&bytes).is_err());
    }

    #[test]
    fn a_row_too_large_for_its_block_is_refused() {
        let breaks: [fn(&mut RowPointer); 3] = [
            |pointer| pointer.length = 4001,
            |pointer| pointer.place.stored = 4001,
            |pointer| pointer.place.raw = u32::MAX,
        ];
        for (number, apply) in breaks.iter().enumerate() {
            let (mut pointer, mut bytes) = (sample(), Vec::new());
            apply(&mut pointer);
            pointer.encode(&mut bytes);
            assert!(RowPointer::decode(&bytes).is_err(), "{number}");
        }
    }
}
