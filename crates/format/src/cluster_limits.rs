//! Limits of the size of index clusters (`docs/format/cluster-limits.md`): a setting of the volume.
//!
//! Key in the volume's tree: `I` alone. Without the record the program uses its own limits.

use crate::layout::{Field, size_of};
use crate::{Malformed, Reader, Writer};

/// Layout of the record.
pub const LAYOUT: &[Field] = &[
    Field::fixed("directories", "u32 LE", 4),
    Field::fixed("rows", "u32 LE", 4),
    Field::fixed("since", "u64 LE", 8),
];
const _: () = assert!(size_of(LAYOUT) == 16);

/// The setting of directories of a cluster is at least one, and at most this.
pub const DIRECTORIES_MAX: u32 = 1_000_000;
/// The setting of rows of a cluster is at least this: below it more files cost more than they help.
pub const ROWS_MIN: u32 = 10;
/// And at most this: a cluster is built in memory.
pub const ROWS_MAX: u32 = 1_000_000;

/// The setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterLimitsRecord {
    /// Most directories of a cluster.
    pub directories: u32,
    /// Most rows.
    pub rows: u32,
    /// Bases whose trees have lower numbers were built with other limits.
    pub since: u64,
}

impl ClusterLimitsRecord {
    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(self.directories);
        out.put_u32(self.rows);
        out.put_u64(self.since);
        out
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<ClusterLimitsRecord, Malformed> {
        let mut reader = Reader::new("limits of clusters", bytes);
        let (directories, rows) = (reader.u32()?, reader.u32()?);
        let since = reader.u64()?;
        reader.end()?;
        let possible =
            (1..=DIRECTORIES_MAX).contains(&directories) && (ROWS_MIN..=ROWS_MAX).contains(&rows);
        if !possible {
            return Err(reader.malformed("limits", format!("{directories} and {rows}")));
        }
        Ok(ClusterLimitsRecord { directories, rows, since })
    }
}

#[cfg(test)]
mod tests {
    use super::{ClusterLimitsRecord, DIRECTORIES_MAX, ROWS_MAX, ROWS_MIN};

    #[test]
    fn records_round_trip_and_partial_ones_are_refused() {
        let record = ClusterLimitsRecord { directories: 2000, rows: 20_000, since: 1 << 40 };
        let bytes = record.encode();
        assert_eq!(ClusterLimitsRecord::decode(&bytes), Ok(record));
        for length in 0..bytes.len() {
            assert!(ClusterLimitsRecord::decode(&bytes[..length]).is_err());
        }
    }

    #[test]
    fn impossible_limits_are_damage() {
        let decoded = |directories, rows| {
            let bytes = ClusterLimitsRecord { directories, rows, since: 40 }.encode();
            ClusterLimitsRecord::decode(&bytes).is_ok()
        };
        for (directories, rows) in [(1, ROWS_MIN), (DIRECTORIES_MAX, ROWS_MAX)] {
            assert!(decoded(directories, rows), "{directories} {rows}");
        }
        for (directories, rows) in
            [(0, 100), (DIRECTORIES_MAX + 1, 100), (5, ROWS_MIN - 1), (5, ROWS_MAX + 1)]
        {
            assert!(!decoded(directories, rows), "{directories} {rows}");
        }
    }
}
