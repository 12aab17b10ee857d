//! Names and other bytes of a cluster (`docs/format/cluster.md`).
//!
//! Names are stored in the order of rows with a zero byte before, between and behind them. So one
//! search of all the bytes finds what a name is, starts with, ends in or contains, and never across
//! two names.

use crate::{Malformed, Reader};

const STRUCTURE: &str = "cluster names";

/// Longest name.
const NAME_BYTES_MAX: usize = 255;

fn narrow(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// The tag of a name: names with different tags differ. DO NOT CHANGE: it is on disk.
#[inline]
pub fn tag(name: &[u8]) -> u8 {
    let [tag, ..] = crate::cluster_filter::hash(name).to_le_bytes();
    tag
}

/// Packs bytes with zstd; `None` if that would not make them smaller.
pub fn pack(bytes: &[u8], level: i32) -> Option<Vec<u8>> {
    let packed = zstd::bulk::compress(bytes, level).ok()?;
    (packed.len() < bytes.len()).then_some(packed)
}

/// Unpacks `raw` bytes. The caller has bounded `raw`.
pub fn unpack(packed: &[u8], raw: usize) -> Result<Vec<u8>, Malformed> {
    let refused = |found: String| Reader::new(STRUCTURE, packed).malformed("packed bytes", found);
    let bytes = zstd::bulk::decompress(packed, raw).map_err(|error| refused(error.to_string()))?;
    if bytes.len() == raw {
        Ok(bytes)
    } else {
        Err(refused(format!("{} of {raw} bytes", bytes.len())))
    }
}

/// Upper bound of the bytes of the names of `rows` rows.
pub fn bytes_max(rows: u32) -> usize {
    narrow(rows).saturating_mul(NAME_BYTES_MAX.saturating_add(1)).saturating_add(1)
}

/// Names that were read and checked.
#[derive(Debug, Clone)]
pub struct Names {
    bytes: Box<[u8]>,
    /// Offset of the zero byte before the first name of each block, and of the last byte.
    starts: Box<[u32]>,
    /// Offset of the zero byte before every [`MARK_ROWS`]th name.
    marks: Box<[u32]>,
}

/// Distance of names whose offset is kept: small, so that a lookup of one name reads few others.
const MARK_ROWS: usize = 16;

impl Names {
    /// Checks unpacked names.
    pub fn decode(bytes: Vec<u8>, rows: u32, block_rows: u16) -> Result<Names, Malformed> {
        let block_rows = usize::from(block_rows.max(1));
        let rows = narrow(rows);
        let mut starts = Vec::with_capacity(rows.div_ceil(block_rows).saturating_add(1));
        let mut marks = Vec::with_capacity(rows.div_ceil(MARK_ROWS));
        let refused = |at: usize, found: String| {
            let mut reader = Reader::new(STRUCTURE, &bytes);
            drop(reader.take(at));
            reader.malformed("a name of 1 to 255 bytes for each row", found)
        };
        let mut ends = memchr::memchr_iter(0, &bytes);
        let mut before = ends.next();
        if before != Some(0) {
            return Err(refused(0, "no zero byte".to_owned()));
        }
        let mut row = 0_usize;
        for end in ends {
            let start = before.unwrap_or(0);
            let length = end.saturating_sub(start).saturating_sub(1);
            if !(1..=NAME_BYTES_MAX).contains(&length) {
                return Err(refused(start, format!("{length} bytes")));
            }
            let place = u32::try_from(start).unwrap_or(u32::MAX);
            if row.checked_rem(block_rows) == Some(0) {
                starts.push(place);
            }
            if row.checked_rem(MARK_ROWS) == Some(0) {
                marks.push(place);
            }
            row = row.saturating_add(1);
            before = Some(end);
        }
        let last = before.unwrap_or(0);
        if row != rows || last.checked_add(1) != Some(bytes.len()) {
            return Err(refused(last, format!("{row} names for {rows} rows")));
        }
        starts.push(u32::try_from(last).unwrap_or(u32::MAX));
        Ok(Names { bytes: bytes.into(), starts: starts.into(), marks: marks.into() })
    }

    /// The names of blocks from `first` up to but excluding `end`, with zero bytes around each.
    #[inline]
    pub fn packed(&self, first: usize, end: usize) -> &[u8] {
        let start = self.starts.get(first).copied().map_or(usize::MAX, narrow);
        let last = self.starts.get(end).copied().map_or(0, narrow);
        self.bytes.get(start..=last).unwrap_or_default()
    }

    /// The name of a row; empty if there is no such row.
    #[inline]
    pub fn get(&self, row: usize) -> &[u8] {
        let mark = self.marks.get(row.wrapping_div(MARK_ROWS)).copied();
        let bytes = self.bytes.get(mark.map_or(usize::MAX, narrow)..).unwrap_or_default();
        let mut zeros = memchr::memchr_iter(0, bytes).skip(row.wrapping_rem(MARK_ROWS));
        let start = zeros.next().map_or(usize::MAX, |zero| zero.saturating_add(1));
        let end = zeros.next().unwrap_or(0);
        bytes.get(start..end).unwrap_or_default()
    }

    /// Memory that it takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Names>()
            .saturating_add(self.bytes.len())
            .saturating_add(size_of_val(&*self.starts))
            .saturating_add(size_of_val(&*self.marks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(names: &[&str]) -> Vec<u8> {
        let mut bytes = vec![0];
        for name in names {
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(0);
        }
        bytes
    }

    #[test]
    fn names_are_found_by_row_and_block() {
        let all = ["a", "bb", "ccc", "dddd", "e"];
        let names = Names::decode(joined(&all), 5, 2).unwrap();
        for (row, name) in all.iter().enumerate() {
            assert_eq!(names.get(row), name.as_bytes());
        }
        assert_eq!(names.get(5), b"");
        assert_eq!(names.get(5000), b"");
        assert_eq!(names.packed(1, 3), b"\0ccc\0dddd\0e\0");
        assert_eq!(names.packed(0, 1), b"\0a\0bb\0");
        assert_eq!(names.packed(3, 4), b"");
    }

    #[test]
    fn names_after_a_restart_point_are_found() {
        let all: Vec<String> = (0..1000).map(|n| format!("{n}")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let names = Names::decode(joined(&all), 1000, 100).unwrap();
        for (row, name) in all.iter().enumerate() {
            assert_eq!(names.get(row), name.as_bytes());
        }
    }

    #[test]
    fn name_columns_without_one_name_per_row_are_refused() {
        assert!(Names::decode(joined(&["a", "", "b"]), 3, 2).is_err());
        assert!(Names::decode(joined(&["a", "b"]), 3, 2).is_err());
        assert!(Names::decode(joined(&["a", "b", "c", "d"]), 3, 2).is_err());
        assert!(Names::decode(joined(&[&"x".repeat(256)]), 1, 2).is_err());
        assert!(Names::decode(b"a\0".to_vec(), 1, 2).is_err());
        assert!(Names::decode(b"\0a".to_vec(), 1, 2).is_err());
        assert!(Names::decode(Vec::new(), 0, 2).is_err());
    }

    #[test]
    fn packed_bytes_round_trip_at_their_length_only() {
        let bytes = joined(&["abc"; 500]);
        let packed = pack(&bytes, 3).unwrap();
        assert!(packed.len() < 60);
        assert_eq!(unpack(&packed, bytes.len()).unwrap(), bytes);
        assert!(unpack(&packed, bytes.len() - 1).is_err());
        assert!(unpack(&packed, bytes.len() + 1).is_err());
        assert_eq!(pack(b"xyz", 3), None);
    }
}
