//! Tests on the values of a column, for conditions on numbers: of bounds, and of the rows of a
//! block.

use format::cluster::{BLOCK_ROWS_MAX, ColumnId};

use super::values::{code, code_range, column_of};
use crate::Condition;

/// Rows of a block, a bit each.
pub(super) type Mask = [u64; BLOCK_ROWS_MAX as usize / 64];

/// A test on the values of a column.
#[derive(Debug)]
pub(super) enum Test {
    /// Least and greatest.
    Range(u64, u64),
    /// One of these, ascending.
    Set(Vec<u64>),
    /// A mask, and those of its bits that are set; the others of it are clear.
    Bits(u64, u64),
    /// One of these bits is set.
    SomeBit(u64),
}

impl Test {
    /// The test for a condition, if it is one on numbers. An unsatisfiable one is an empty set.
    pub(super) fn new(condition: &Condition) -> Option<(ColumnId, Test)> {
        match condition {
            Condition::Within(attribute, least, greatest) => {
                let range = code_range(*attribute, *least, *greatest);
                let test = range.map_or(Test::Set(Vec::new()), |(l, g)| Test::Range(l, g));
                Some((column_of(*attribute), test))
            }
            Condition::OneOf(attribute, values) => {
                let mut codes: Vec<u64> =
                    values.iter().filter_map(|&value| code(*attribute, value)).collect();
                codes.sort_unstable();
                codes.dedup();
                let test = match codes[..] {
                    [one] => Test::Range(one, one),
                    _ => Test::Set(codes),
                };
                Some((column_of(*attribute), test))
            }
            _ => None,
        }
    }

    /// Whether a value between two bounds may meet it.
    pub(super) fn may_meet(&self, least: u64, greatest: u64) -> bool {
        match self {
            Test::Bits(mask, set) => least != greatest || least & mask == *set,
            Test::SomeBit(mask) => least != greatest || least & mask != 0,
            Test::Range(from, to) => *from <= greatest && *to >= least,
            Test::Set(values) => {
                let next = values.partition_point(|&value| value < least);
                values.get(next).is_some_and(|&value| value <= greatest)
            }
        }
    }

    /// Whether all values between two bounds meet it.
    pub(super) fn all_meet(&self, least: u64, greatest: u64) -> bool {
        match self {
            Test::Bits(mask, set) => least == greatest && least & mask == *set,
            Test::SomeBit(mask) => least == greatest && least & mask != 0,
            Test::Range(from, to) => *from <= least && greatest <= *to,
            Test::Set(values) => least == greatest && values.binary_search(&least).is_ok(),
        }
    }

    /// Clears the bits of rows that do not meet it.
    pub(super) fn keep(&self, values: &[u64], mask: &mut Mask) {
        match self {
            Test::Range(from, to) => {
                let span = to - from;
                keep(values, mask, |value| value.wrapping_sub(*from) <= span);
            }
            Test::Set(wanted) => keep(values, mask, |value| wanted.binary_search(&value).is_ok()),
            Test::Bits(bits, set) => keep(values, mask, |value| value & bits == *set),
            Test::SomeBit(bits) => keep(values, mask, |value| value & bits != 0),
        }
    }
}

/// Clears the bits of rows whose values fail a predicate.
#[inline]
fn keep(values: &[u64], mask: &mut Mask, meets: impl Fn(u64) -> bool) {
    for (word, values) in mask.iter_mut().zip(values.chunks(64)) {
        let mut met = 0;
        for (bit, &value) in values.iter().enumerate() {
            met |= u64::from(meets(value)) << bit;
        }
        *word &= met;
    }
}
