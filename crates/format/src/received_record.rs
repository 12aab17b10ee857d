//! Where a subvolume was received from (`docs/format/received-record.md`): the snapshot that a
//! received one equals, and how far a stream that is not complete was applied.
//!
//! It is stored as `J | subvolume` in the volume's tree, and goes with the subvolume.

use crate::key::tagged;
use crate::layout::Field;
use crate::stream::{ORIGINS_MAX, Origin};
use crate::{Malformed, Reader, Writer};

// DO NOT CHANGE THIS VALUE: it is on disk.
const RECEIVED: u8 = b'J';

/// Layout of the record.
pub const LAYOUT: &[Field] = &[
    Field::fixed("state", "u8", 1),
    Field::fixed("applied", "u64 LE", 8),
    Field::variable("origins", "varint, origins"),
];

/// Key of the record of a subvolume.
pub fn received(subvolume: u64) -> [u8; 9] {
    tagged(RECEIVED, subvolume)
}

/// Prefix of the keys of all of them.
pub const RECEIVED_PREFIX: [u8; 1] = [RECEIVED];

/// Where a subvolume was received from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedRecord {
    /// Whether the stream ended, and was verified.
    pub is_complete: bool,
    /// How many records of the stream were applied, if it is not complete.
    pub applied: u64,
    /// The identities of the snapshot that was sent.
    pub origins: Vec<Origin>,
}

impl ReceivedRecord {
    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u8(u8::from(self.is_complete));
        out.put_u64(self.applied);
        out.put_varint(u64::try_from(self.origins.len()).unwrap_or(0));
        for origin in &self.origins {
            out.raw(&origin.volume);
            out.put_u64(origin.snapshot);
        }
        out
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<ReceivedRecord, Malformed> {
        let mut reader = Reader::new("record of a received subvolume", bytes);
        let is_complete = match reader.u8()? {
            0 => false,
            1 => true,
            other => return Err(reader.malformed("0 or 1", other.to_string())),
        };
        let applied = reader.u64()?;
        let count = reader.length(ORIGINS_MAX)?;
        let mut origins = Vec::new();
        for _ in 0..count {
            origins.push(Origin { volume: reader.array()?, snapshot: reader.u64()? });
        }
        reader.end()?;
        Ok(ReceivedRecord { is_complete, applied, origins })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_round_trips_and_no_part_of_it_is_one() {
        let origin = Origin { volume: [1; 16], snapshot: 2 };
        for is_complete in [false, true] {
            let record = ReceivedRecord { is_complete, applied: 3, origins: vec![origin; 2] };
            let bytes = record.encode();
            assert_eq!(ReceivedRecord::decode(&bytes), Ok(record));
            for length in 0..bytes.len() {
                assert!(ReceivedRecord::decode(&bytes[..length]).is_err(), "{length} bytes");
            }
        }
    }
}
