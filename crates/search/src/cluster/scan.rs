//! Searching a cluster: blocks are dropped by their bounds, which are the inner nodes of the K-D
//! tree, and the columns of the rest are tested a block at a time.
//!
//! Columns are read in the order of the conditions, and only while blocks are left.

use std::ops::ControlFlow;
use std::sync::Arc;

use format::cluster::{BLOCK_ROWS_MAX, ColumnId};
use format::cluster_names::Names;
use format::xattr_record::XattrRecord;

use super::Cluster;
use super::column::{Column, Shape};
use super::names::NameTest;
use super::values::{code, code_range, column_of};
use crate::{Condition, Result};

/// Rows of a block, a bit each.
type Mask = [u64; BLOCK_ROWS_MAX as usize / 64];

/// Fewer rows than this are tested name by name.
const FEW: u32 = 12;

/// What values of a column are tested for.
enum Test {
    /// Least and greatest.
    Range(u64, u64),
    /// One of these, ascending.
    Set(Vec<u64>),
}

impl Test {
    /// The test of a condition, if it is one on numbers. One that nothing meets is an empty set.
    fn new(condition: &Condition) -> Option<(ColumnId, Test)> {
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

    /// Whether a value between two may meet it.
    fn may_meet(&self, least: u64, greatest: u64) -> bool {
        match self {
            Test::Range(from, to) => *from <= greatest && *to >= least,
            Test::Set(values) => {
                let next = values.partition_point(|&value| value < least);
                values.get(next).is_some_and(|&value| value <= greatest)
            }
        }
    }

    /// Whether all values between two meet it.
    fn all_meet(&self, least: u64, greatest: u64) -> bool {
        match self {
            Test::Range(from, to) => *from <= least && greatest <= *to,
            Test::Set(values) => least == greatest && values.binary_search(&least).is_ok(),
        }
    }

    /// Takes the bits of rows that do not meet it out of the mask.
    fn keep(&self, values: &[u64], mask: &mut Mask) {
        match self {
            Test::Range(from, to) => {
                let span = to - from;
                for (word, values) in mask.iter_mut().zip(values.chunks(64)) {
                    let mut met = 0;
                    for (bit, &value) in values.iter().enumerate() {
                        met |= u64::from(value.wrapping_sub(*from) <= span) << bit;
                    }
                    *word &= met;
                }
            }
            Test::Set(wanted) => {
                for (word, values) in mask.iter_mut().zip(values.chunks(64)) {
                    let mut met = 0;
                    for (bit, value) in values.iter().enumerate() {
                        met |= u64::from(wanted.binary_search(value).is_ok()) << bit;
                    }
                    *word &= met;
                }
            }
        }
    }
}

/// A condition on extended attributes.
struct XattrTest<'a> {
    column: Arc<Column>,
    name: &'a [u8],
    value: Option<&'a [u8]>,
}

impl XattrTest<'_> {
    fn meets(&self, row: usize, shape: Shape) -> bool {
        let bytes = self.column.get_bytes(row, shape);
        if bytes.is_empty() {
            return false;
        }
        // What is no such record is put to the whole query, which tells.
        let Ok(record) = XattrRecord::decode(bytes) else { return true };
        let value = record.get(self.name);
        value.is_some() && self.value.is_none_or(|wanted| value == Some(wanted))
    }
}

impl Cluster {
    /// Calls `emit` with the number of every row that meets all conditions, until it breaks.
    /// Exact: what is emitted meets them.
    pub fn search(
        &self,
        narrow: &[Condition],
        emit: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        if !self.summary().may_match(narrow) {
            return Ok(ControlFlow::Continue(()));
        }
        let shape = self.shape();
        let mut blocks: Vec<u32> = (0..shape.blocks() as u32).collect();
        let mut tests: Vec<(Arc<Column>, Test)> = Vec::new();
        for (id, test) in narrow.iter().filter_map(Test::new) {
            let column = self.column(id)?;
            blocks.retain(|&block| {
                let (least, greatest) = column.bounds(block as usize);
                test.may_meet(least, greatest)
            });
            if blocks.is_empty() {
                return Ok(ControlFlow::Continue(()));
            }
            tests.push((column, test));
        }
        let mut scan = Scan { shape, tests, names: Vec::new(), strings: None, xattrs: Vec::new() };
        scan.names = narrow.iter().filter_map(NameTest::new).collect();
        if !scan.names.is_empty() {
            scan.strings = Some(self.column(ColumnId::Names)?);
        }
        for condition in narrow {
            if let Condition::Xattr(name, value) = condition {
                let column = self.column(ColumnId::Xattrs)?;
                scan.xattrs.push(XattrTest { column, name, value: value.as_deref() });
            }
        }
        for block in blocks {
            if scan.block(block as usize, emit).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

struct Scan<'a> {
    shape: Shape,
    tests: Vec<(Arc<Column>, Test)>,
    names: Vec<NameTest>,
    strings: Option<Arc<Column>>,
    xattrs: Vec<XattrTest<'a>>,
}

impl Scan<'_> {
    fn block(&self, block: usize, emit: &mut dyn FnMut(u32) -> ControlFlow<()>) -> ControlFlow<()> {
        let block_rows = usize::from(self.shape.block_rows);
        let first = block * block_rows;
        let rows = (self.shape.rows as usize - first).min(block_rows);
        let mut mask: Mask = std::array::from_fn(|word| match rows.saturating_sub(word * 64) {
            0 => 0,
            left @ 1..64 => (1 << left) - 1,
            _ => u64::MAX,
        });
        let mut values = [0; BLOCK_ROWS_MAX as usize];
        for (column, test) in &self.tests {
            let (least, greatest) = column.bounds(block);
            if test.all_meet(least, greatest) {
                continue;
            }
            column.values(block, self.shape, &mut values);
            test.keep(&values[..rows], &mut mask);
            if mask.iter().all(|&word| word == 0) {
                return ControlFlow::Continue(());
            }
        }
        if let Some(Column::Names(names)) = self.strings.as_deref() {
            self.keep_names(names, block, first, &mut mask);
        }
        for row in bits(mask) {
            let row = first + row;
            if self.xattrs.iter().all(|test| test.meets(row, self.shape)) {
                emit(row as u32)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn keep_names(&self, names: &Names, block: usize, first: usize, mask: &mut Mask) {
        let few = mask.iter().map(|word| word.count_ones()).sum::<u32>() <= FEW;
        for test in &self.names {
            let mut met: Mask = [0; _];
            if few {
                for row in bits(*mask).filter(|row| test.meets(names.get(first + row))) {
                    met[row / 64] |= 1 << (row % 64);
                }
            } else {
                test.find_all(names.packed(block, block + 1), |row| {
                    met[row / 64] |= 1 << (row % 64);
                });
            }
            for (word, met) in mask.iter_mut().zip(met) {
                *word &= met;
            }
        }
    }
}

/// Places of the bits that are set.
fn bits(mask: Mask) -> impl Iterator<Item = usize> {
    mask.into_iter().enumerate().flat_map(|(place, mut word)| {
        std::iter::from_fn(move || {
            let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
            word &= word - 1;
            Some(place * 64 + bit)
        })
    })
}
