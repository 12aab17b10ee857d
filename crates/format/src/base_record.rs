//! A base of the index: an immutable tree, with a manifest and clusters that describe it
//! (`docs/format/base-record.md`).

use crate::layout::{Field, size_of};
use crate::{Malformed, Reader, Writer};

/// Layout of the record.
pub const LAYOUT: &[Field] = &[
    Field::fixed("state", "u8", 1),
    Field::fixed("subvolume", "u64 LE", 8),
    Field::fixed("root", "u64 LE", 8),
    Field::fixed("commit", "u64 LE", 8),
    Field::fixed("created", "i64 LE", 8),
    Field::fixed("rows", "u64 LE", 8),
];
/// Bytes of the record.
pub const BYTES: usize = 41;
const _: () = assert!(size_of(LAYOUT) == BYTES);

// DO NOT CHANGE THESE VALUES: they are on disk.
const BUILDING: u8 = 1;
const COMPLETE: u8 = 2;

/// A base of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaseRecord {
    /// Whether its manifest and clusters are written; until then no subvolume names it.
    pub complete: bool,
    /// The subvolume that its tree was cloned from.
    pub subvolume: u64,
    /// The root directory of that subvolume.
    pub root: u64,
    /// A commit that its tree contains, with all earlier ones.
    pub commit: u64,
    /// When the tree was cloned, in nanoseconds since 1970.
    pub created: i64,
    /// Rows of its clusters; 0 while it is not complete.
    pub rows: u64,
}

impl BaseRecord {
    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BYTES);
        out.put_u8(if self.complete { COMPLETE } else { BUILDING });
        out.put_u64(self.subvolume);
        out.put_u64(self.root);
        out.put_u64(self.commit);
        out.put_i64(self.created);
        out.put_u64(self.rows);
        out
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<BaseRecord, Malformed> {
        let mut reader = Reader::new("base record", bytes);
        let state = reader.u8()?;
        if !matches!(state, BUILDING | COMPLETE) {
            return Err(reader.malformed("a known state", state.to_string()));
        }
        let record = BaseRecord {
            complete: state == COMPLETE,
            subvolume: reader.u64()?,
            root: reader.u64()?,
            commit: reader.u64()?,
            created: reader.i64()?,
            rows: reader.u64()?,
        };
        reader.end()?;
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::BaseRecord;

    #[test]
    fn records_round_trip_and_unknown_ones_are_refused() {
        for complete in [false, true] {
            let record =
                BaseRecord { complete, subvolume: 1, root: 2, commit: 3, created: -4, rows: 5 };
            let bytes = record.encode();
            assert_eq!(BaseRecord::decode(&bytes), Ok(record));
            for length in 0..bytes.len() {
                assert!(BaseRecord::decode(&bytes[..length]).is_err());
            }
            let mut strange = bytes;
            strange[0] = 9;
            assert!(BaseRecord::decode(&strange).is_err());
        }
    }
}
