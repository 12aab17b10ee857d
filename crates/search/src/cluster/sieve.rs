//! Evaluates expressions on the rows of a cluster block by block: each test clears rows of a mask
//! by a column, and operators combine masks. No row is built, and a name is tested alone only if a
//! search of the bytes of all names does not decide.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::Map;
use format::cluster::{BLOCK_ROWS_MAX, COLUMNS, ColumnId};
use format::cluster_names::Names;

use super::Cluster;
use super::column::Column;
use super::column_test::{Mask, Test};
use super::names::NameTest;
use super::scan::{FEW, Scan, bits, is_empty};
use super::values::column_of;
use crate::{Attribute, Condition, Result};

/// An expression of tests on columns.
pub(crate) enum Sieve<'a> {
    /// All of these.
    All(Vec<Sieve<'a>>),
    /// One of these.
    Any(Vec<Sieve<'a>>),
    /// The opposite.
    Not(Box<Sieve<'a>>),
    /// A test on a column of numbers.
    Number(NumberTest),
    /// A predicate that is evaluated once for each value of an attribute.
    Lookup(Attribute, Box<dyn Fn(u64) -> bool + Sync + 'a>),
    /// A test on names.
    Name(Box<NameSieve<'a>>),
}

/// A test on a column of numbers.
pub(crate) struct NumberTest {
    column: ColumnId,
    test: Test,
}

/// A test on names.
pub(crate) struct NameSieve<'a> {
    /// Bytes that a name needs.
    pub(crate) bytes: Option<NameTest>,
    /// The bytes are searched in names with their ASCII letters in lower case.
    pub(crate) folded: bool,
    /// The byte search is valid only if all names are ASCII.
    pub(crate) ascii_only: bool,
    /// Each name that has the bytes matches.
    pub(crate) exact: bool,
    /// Whether a name matches.
    pub(crate) matches: Matches<'a>,
}

/// Whether a name matches.
type Matches<'a> = Box<dyn Fn(&[u8]) -> bool + Sync + 'a>;

impl<'a> Sieve<'a> {
    /// True of every row.
    pub(crate) fn yes() -> Sieve<'a> {
        Sieve::All(Vec::new())
    }

    /// A condition on numbers; others are true.
    pub(crate) fn condition(condition: &Condition) -> Sieve<'a> {
        match Test::new(condition) {
            Some((column, test)) => Sieve::Number(NumberTest { column, test }),
            None => Sieve::yes(),
        }
    }

    /// Exactly the permission bits in `set` are set, of those in `mask`.
    pub(crate) fn mode(mask: u32, set: u32) -> Sieve<'a> {
        let test = Test::Bits(mask.into(), set.into());
        Sieve::Number(NumberTest { column: ColumnId::Mode, test })
    }

    /// At least one of the permission bits in `mask` is set.
    pub(crate) fn some_mode(mask: u32) -> Sieve<'a> {
        Sieve::Number(NumberTest { column: ColumnId::Mode, test: Test::SomeBit(mask.into()) })
    }

    /// A directory without entries; true of anything else.
    pub(crate) fn no_entries() -> Sieve<'a> {
        Sieve::Number(NumberTest { column: ColumnId::Entries, test: Test::Range(0, 0) })
    }

    /// Estimated cost, for evaluating cheap tests first.
    pub(crate) fn cost(&self) -> u32 {
        match self {
            Sieve::All(parts) | Sieve::Any(parts) => {
                parts.iter().map(Sieve::cost).fold(0, u32::max)
            }
            Sieve::Not(part) => part.cost(),
            Sieve::Number(_) => 0,
            Sieve::Lookup(..) => 1,
            Sieve::Name(name) if name.exact => 2,
            Sieve::Name(name) if name.bytes.is_some() => 3,
            Sieve::Name(_) => 4,
        }
    }
}

impl Cluster {
    /// Number of rows that meet all conditions, none of which is on extended attributes, and that
    /// pass a sieve; fewer if the caller cancelled.
    pub(crate) fn count_passing(
        &self,
        narrow: &[Condition],
        sieve: &Sieve<'_>,
        cancel: &AtomicBool,
    ) -> Result<u64> {
        let mut count = 0;
        let _all_or_cancelled = self.each_passing(narrow, sieve, cancel, &mut |_, mask| {
            count += mask.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }

    /// Calls `emit` with the number of every such row, until it breaks or the caller cancelled.
    pub(crate) fn search_passing(
        &self,
        narrow: &[Condition],
        sieve: &Sieve<'_>,
        cancel: &AtomicBool,
        emit: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        self.each_passing(narrow, sieve, cancel, &mut |first, mask| {
            bits(*mask).try_for_each(|row| emit((first + row) as u32))
        })
    }

    /// Passes the masks of blocks that may have such rows, each with its first row. Checks for
    /// cancellation: an expression may have so many tests that a scan of one cluster takes long.
    fn each_passing(
        &self,
        narrow: &[Condition],
        sieve: &Sieve<'_>,
        cancel: &AtomicBool,
        take: &mut dyn FnMut(usize, &Mask) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let Some((scan, blocks)) = Scan::of(self, narrow)? else {
            return Ok(ControlFlow::Continue(()));
        };
        let block_rows = usize::from(scan.shape.block_rows);
        let columns = [const { None }; COLUMNS];
        let mut sifting = Sifting { scan, columns, known: Map::default(), small: Vec::new() };
        for block in blocks {
            if cancel.load(Ordering::Relaxed) {
                return Ok(ControlFlow::Break(()));
            }
            let mask = sifting.scan.mask(block as usize)?;
            let mask = sifting.pass(sieve, block as usize, &mask)?;
            if !is_empty(&mask) && take(block as usize * block_rows, &mask).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// The scan of a cluster.
struct Sifting<'a> {
    scan: Scan<'a>,
    columns: [Option<Arc<Column>>; COLUMNS],
    /// Results of predicates on values, by column.
    known: Map<(usize, u64), bool>,
    /// Names of a block in lower case.
    small: Vec<u8>,
}

impl Sifting<'_> {
    /// The rows of a block that pass.
    fn pass(&mut self, sieve: &Sieve<'_>, block: usize, rows: &Mask) -> Result<Mask> {
        match sieve {
            _ if is_empty(rows) => Ok(*rows),
            Sieve::All(parts) => {
                let mut left = *rows;
                for part in parts {
                    left = self.pass(part, block, &left)?;
                }
                Ok(left)
            }
            Sieve::Any(parts) => {
                let mut left = *rows;
                for part in parts {
                    let passed = self.pass(part, block, &left)?;
                    without(&mut left, &passed);
                }
                Ok(others(rows, &left))
            }
            Sieve::Not(part) => Ok(others(rows, &self.pass(part, block, rows)?)),
            Sieve::Number(number) => self.number(number, block, rows),
            Sieve::Lookup(attribute, asked) => self.lookup((*attribute, asked), block, rows),
            Sieve::Name(name) => self.name(name, block, rows),
        }
    }

    /// A column, held for the lifetime of this value.
    fn column(&mut self, id: ColumnId) -> Result<Arc<Column>> {
        if let Some(column) = &self.columns[id as usize] {
            return Ok(Arc::clone(column));
        }
        let column = self.scan.cluster.column(id)?;
        self.columns[id as usize] = Some(Arc::clone(&column));
        Ok(column)
    }

    // Separate, so that large stack buffers are not repeated for each operator.
    #[inline(never)]
    fn number(&mut self, number: &NumberTest, block: usize, rows: &Mask) -> Result<Mask> {
        let column = self.column(number.column)?;
        let (least, greatest) = column.bounds(block);
        if !number.test.may_meet(least, greatest) {
            return Ok([0; _]);
        }
        if number.test.all_meet(least, greatest) {
            return Ok(*rows);
        }
        let mut values = [0; BLOCK_ROWS_MAX as usize];
        let there = column.values(block, self.scan.shape, &mut values);
        let mut left = *rows;
        number.test.keep(&values[..there], &mut left);
        Ok(left)
    }

    fn lookup(
        &mut self,
        (attribute, asked): (Attribute, &(dyn Fn(u64) -> bool + Sync)),
        block: usize,
        rows: &Mask,
    ) -> Result<Mask> {
        let column = self.column(column_of(attribute))?;
        let first = block * usize::from(self.scan.shape.block_rows);
        let mut left = *rows;
        for row in bits(*rows) {
            let value = column.get(first + row);
            let known = self.known.entry((column_of(attribute) as usize, value));
            if !*known.or_insert_with(|| asked(value)) {
                take_out(&mut left, row);
            }
        }
        Ok(left)
    }

    fn name(&mut self, sieve: &NameSieve<'_>, block: usize, rows: &Mask) -> Result<Mask> {
        let column = self.column(ColumnId::Names)?;
        let Column::Names(names) = &*column else { return Ok(*rows) };
        let mut left = *rows;
        if count(&left) > FEW
            && let Some(has) = self.with_bytes(sieve, names, block)
        {
            left.iter_mut().zip(has).for_each(|(word, has)| *word &= has);
            if sieve.exact {
                return Ok(left);
            }
        }
        let first = block * usize::from(self.scan.shape.block_rows);
        if count(&left) <= FEW {
            for row in bits(left) {
                if !(sieve.matches)(names.get(first + row)) {
                    take_out(&mut left, row);
                }
            }
            return Ok(left);
        }
        let packed = names.packed(block, block + 1);
        let mut ends = memchr::memchr_iter(0, packed);
        let mut start = ends.next().unwrap_or_default();
        for (row, end) in ends.enumerate() {
            if has(&left, row) && !(sieve.matches)(&packed[start + 1..end]) {
                take_out(&mut left, row);
            }
            start = end;
        }
        Ok(left)
    }

    /// The rows of a block whose names have the required bytes; `None`: unknown.
    fn with_bytes(&mut self, sieve: &NameSieve<'_>, names: &Names, block: usize) -> Option<Mask> {
        let bytes = sieve.bytes.as_ref()?;
        let mut packed = names.packed(block, block + 1);
        if sieve.ascii_only && !packed.is_ascii() {
            return None;
        }
        if sieve.folded {
            self.small.clear();
            self.small.extend_from_slice(packed);
            self.small.make_ascii_lowercase();
            packed = &self.small;
        }
        let mut has: Mask = [0; _];
        bytes.find_all(packed, |row| has[row / 64] |= 1 << (row % 64));
        Some(has)
    }
}

fn count(mask: &Mask) -> u32 {
    mask.iter().map(|word| word.count_ones()).sum()
}

fn has(mask: &Mask, row: usize) -> bool {
    mask.get(row / 64).is_some_and(|word| word >> (row % 64) & 1 != 0)
}

fn take_out(mask: &mut Mask, row: usize) {
    mask[row / 64] &= !(1 << (row % 64));
}

fn without(mask: &mut Mask, gone: &Mask) {
    mask.iter_mut().zip(gone).for_each(|(word, gone)| *word &= !gone);
}

fn others(mask: &Mask, gone: &Mask) -> Mask {
    let mut left = *mask;
    without(&mut left, gone);
    left
}
