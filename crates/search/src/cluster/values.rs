//! Attributes as columns store them: unsigned numbers, in the same order; and the extension of a
//! name, as filters and distances compare it.

use format::cluster::ColumnId;
use format::cluster_filter::hash;

use crate::{Attribute, Row};

/// The column of an attribute.
pub(super) const fn column_of(attribute: Attribute) -> ColumnId {
    match attribute {
        Attribute::Ino => ColumnId::Ino,
        Attribute::Directory => ColumnId::Directory,
        Attribute::Kind => ColumnId::Kind,
        Attribute::Mode => ColumnId::Mode,
        Attribute::Uid => ColumnId::Uid,
        Attribute::Gid => ColumnId::Gid,
        Attribute::Links => ColumnId::Links,
        Attribute::Size => ColumnId::Size,
        Attribute::Allocated => ColumnId::Allocated,
        Attribute::Atime => ColumnId::Atime,
        Attribute::Mtime => ColumnId::Mtime,
        Attribute::Ctime => ColumnId::Ctime,
        Attribute::Btime => ColumnId::Btime,
    }
}

/// Index of an attribute among the bounds of summaries.
pub(super) fn place_of(attribute: Attribute) -> usize {
    Attribute::ALL.iter().position(|&other| other == attribute).expect("all are there")
}

/// Whether the attribute is a time.
pub(super) const fn is_time(attribute: Attribute) -> bool {
    matches!(attribute, Attribute::Atime | Attribute::Mtime | Attribute::Ctime | Attribute::Btime)
}

/// A time as an unsigned number.
pub(super) const fn time_code(time: i64) -> u64 {
    time.cast_unsigned() ^ 1 << 63
}

/// The time of a number.
pub(super) const fn code_time(code: u64) -> i64 {
    (code ^ 1 << 63).cast_signed()
}

/// The stored form of a value. `None`: no row can have it.
pub(super) fn code(attribute: Attribute, value: i128) -> Option<u64> {
    let bias = if is_time(attribute) { 1_i128 << 63 } else { 0 };
    u64::try_from(value.checked_add(bias)?).ok()
}

/// The stored values within bounds. `None`: no row can have one.
pub(super) fn code_range(attribute: Attribute, least: i128, greatest: i128) -> Option<(u64, u64)> {
    let bias = if is_time(attribute) { 1_i128 << 63 } else { 0 };
    let (least, greatest) = (least.saturating_add(bias), greatest.saturating_add(bias));
    let highest = i128::from(u64::MAX);
    if least > greatest || greatest < 0 || least > highest {
        return None;
    }
    Some((least.max(0) as u64, greatest.min(highest) as u64))
}

/// Columns of numbers, in the order of their ids.
pub(super) const NUMBERS: usize = 17;

/// A row as numbers, by column. `hash` is of the name.
pub(super) fn numbers(row: &Row<'_>, hash: u64) -> [u64; NUMBERS] {
    [
        row.directory,
        row.cookie ^ hash << 8,
        row.ino,
        row.kind.byte().into(),
        row.mode.into(),
        row.uid.into(),
        row.gid.into(),
        row.nlink.into(),
        row.rdev.into(),
        row.size,
        row.allocated,
        row.entries,
        time_code(row.atime),
        time_code(row.mtime),
        time_code(row.ctime),
        time_code(row.btime),
        row.subvolume,
    ]
}

/// The last part of a name after a dot, in lower case, as a member of the filter.
pub(super) fn extension_hash(name: &[u8]) -> Option<u64> {
    let dot = memchr::memrchr(b'.', name)?;
    Some(hash(&name[dot + 1..].to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_times_is_kept() {
        let times = [i64::MIN, -1, 0, 1, i64::MAX];
        assert!(times.map(time_code).is_sorted());
        assert_eq!(times.map(|time| code_time(time_code(time))), times);
    }

    #[test]
    fn bounds_are_clamped_to_the_possible() {
        assert_eq!(code_range(Attribute::Size, -5, 7), Some((0, 7)));
        assert_eq!(code_range(Attribute::Size, -5, -1), None);
        assert_eq!(code_range(Attribute::Size, 7, i128::MAX), Some((7, u64::MAX)));
        assert_eq!(code_range(Attribute::Mtime, i128::MIN, 0), Some((0, 1 << 63)));
        assert_eq!(code(Attribute::Mtime, i128::MAX), None);
        assert_eq!(code(Attribute::Mtime, -1), Some((1 << 63) - 1));
    }

    #[test]
    fn positions_and_columns_match() {
        for (place, attribute) in Attribute::ALL.into_iter().enumerate() {
            assert_eq!(place_of(attribute), place);
            assert!((column_of(attribute) as usize) < NUMBERS);
        }
    }
}
