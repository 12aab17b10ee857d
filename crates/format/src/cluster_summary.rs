//! The summary of a cluster (`docs/format/cluster.md`): lets a query skip the cluster unread.

use crate::cluster_filter::Filter;
use crate::xattr_record::NAME_BYTES_MAX;
use crate::{Malformed, Reader, Writer};

const STRUCTURE: &str = "cluster summary";

/// The newest version that this program writes and reads. Version 1 ends before the names of
/// extended attributes.
pub const VERSION: u8 = 2;
/// Attributes with bounds, in the order of `search::Attribute`. DO NOT CHANGE: it is on disk.
pub const ATTRIBUTES: usize = 13;
/// Most filters of a summary.
const FILTERS_MAX: usize = 64;
/// Most names of extended attributes of a summary.
pub const CARRIED_MAX: usize = 64;

/// Summary data of a cluster's rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SummaryRecord {
    /// Rows.
    pub rows: u64,
    /// Rows that are directories.
    pub directories: u64,
    /// Sum of sizes, or the greatest number if that is exceeded.
    pub size: u64,
    /// Sum of space taken.
    pub allocated: u64,
    /// Least and greatest value of each attribute, as columns store them.
    pub bounds: [(u64, u64); ATTRIBUTES],
    /// Filters: the attribute (a number of `search`), the shift of its ranges, and the filter.
    pub filters: Vec<(u8, u8, Filter)>,
    /// Extended attributes whose values its rows carry: names, ascending.
    pub carried: Vec<Vec<u8>>,
}

impl SummaryRecord {
    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u8(VERSION);
        for count in [self.rows, self.directories, self.size, self.allocated] {
            out.put_varint(count);
        }
        for (least, greatest) in self.bounds {
            out.put_varint(least);
            out.put_varint(greatest.wrapping_sub(least));
        }
        out.put_varint(u64::try_from(self.filters.len()).unwrap_or(0));
        for (of, shift, filter) in &self.filters {
            out.put_u8(*of);
            out.put_u8(*shift);
            filter.encode(&mut out);
        }
        out.put_varint(u64::try_from(self.carried.len()).unwrap_or(0));
        for name in &self.carried {
            out.put_bytes(name);
        }
        out
    }

    /// Reads a summary, which is exactly `bytes`. They are under a checksum.
    pub fn decode(bytes: &[u8]) -> Result<SummaryRecord, Malformed> {
        let mut reader = Reader::new(STRUCTURE, bytes);
        let version = reader.u8()?;
        if !(1..=VERSION).contains(&version) {
            return Err(reader.malformed("version 1 or 2", version.to_string()));
        }
        let mut record = SummaryRecord {
            rows: reader.varint()?,
            directories: reader.varint()?,
            size: reader.varint()?,
            allocated: reader.varint()?,
            ..SummaryRecord::default()
        };
        for bounds in &mut record.bounds {
            let least = reader.varint()?;
            let span = reader.varint()?;
            let Some(greatest) = least.checked_add(span) else {
                return Err(reader.malformed("bounds", format!("{least} and {span} more")));
            };
            *bounds = (least, greatest);
        }
        for _ in 0..reader.length(FILTERS_MAX)? {
            let (of, shift) = (reader.u8()?, reader.u8()?);
            if shift >= 64 {
                return Err(reader.malformed("a shift below 64", shift.to_string()));
            }
            record.filters.push((of, shift, Filter::decode(&mut reader)?));
        }
        let carried = if version == 1 { 0 } else { reader.length(CARRIED_MAX)? };
        for _ in 0..carried {
            let length = reader.length(NAME_BYTES_MAX)?;
            let name = reader.take(length)?;
            if record.carried.last().is_some_and(|last| last.as_slice() >= name) {
                return Err(reader.malformed("names in order", "a smaller one"));
            }
            record.carried.push(name.to_vec());
        }
        reader.end()?;
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_round_trip_and_partial_ones_are_refused() {
        let record = SummaryRecord {
            rows: 20_000,
            directories: 77,
            size: u64::MAX,
            allocated: 1 << 40,
            bounds: [(7, u64::MAX); ATTRIBUTES],
            filters: vec![
                (1, 0, Filter::build(&[1, 2, 3], 8, 64)),
                (9, 41, Filter::build(&[], 8, 64)),
            ],
            carried: vec![b"user.a".to_vec(), b"user.b".to_vec()],
        };
        let bytes = record.encode();
        assert_eq!(SummaryRecord::decode(&bytes), Ok(record));
        for length in 0..bytes.len() {
            assert!(SummaryRecord::decode(&bytes[..length]).is_err());
        }
    }

    #[test]
    fn summaries_of_version_1_list_no_attributes() {
        let record = SummaryRecord { rows: 7, ..SummaryRecord::default() };
        let mut bytes = record.encode();
        assert_eq!(bytes.pop(), Some(0));
        bytes[0] = 1;
        assert_eq!(SummaryRecord::decode(&bytes), Ok(record));
    }

    #[test]
    fn any_bytes_decode_or_fail_without_panic() {
        let mut random = fastrand::Rng::with_seed(5);
        let good = SummaryRecord::default().encode();
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..random.usize(1..5) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            drop(SummaryRecord::decode(&bytes));
        }
    }
}
