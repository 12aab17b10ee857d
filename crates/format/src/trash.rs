//! The setting of a trash (`docs/format/trash.md`): a directory that keeps removed files.
//!
//! Key in the volume's tree: `K | lineage | directory`. Removed files are kept in the subvolume, in
//! ordinary directories.

use crate::layout::{Field, size_of};
use crate::{Malformed, Reader, Writer};

/// Layout of the record.
pub const LAYOUT: &[Field] = &[Field::fixed("keep_seconds", "u64 LE", 8)];
const _: () = assert!(size_of(LAYOUT) == 8);

/// The setting of a trash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrashRecord {
    /// How long removed files are kept, in seconds.
    pub keep_seconds: u64,
}

impl TrashRecord {
    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u64(self.keep_seconds);
        out
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<TrashRecord, Malformed> {
        let mut reader = Reader::new("trash", bytes);
        let keep_seconds = reader.u64()?;
        reader.end()?;
        Ok(TrashRecord { keep_seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::TrashRecord;

    #[test]
    fn records_round_trip_and_partial_ones_are_refused() {
        let record = TrashRecord { keep_seconds: 7 * 86_400 };
        let bytes = record.encode();
        assert_eq!(TrashRecord::decode(&bytes), Ok(record));
        for length in 0..bytes.len() {
            assert!(TrashRecord::decode(&bytes[..length]).is_err());
        }
    }
}
