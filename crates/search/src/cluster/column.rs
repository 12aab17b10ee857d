//! One column in memory, as stored: numbers stay packed and are unpacked block by block.

use std::sync::Arc;

use format::cluster::{ColumnId, Extent, Stored};
use format::cluster_names::{self, Names};
use format::cluster_numbers::{Numbers, unzigzag};
use format::cluster_values::{self, Values};
use format::{Malformed, Reader};

/// Base of the differences for allocated space: the size in whole pages.
pub(super) const ROUNDED_TO: u64 = 4096;

/// Rows of a cluster, and of its blocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub rows: u32,
    pub block_rows: u16,
}

impl Shape {
    pub(super) fn blocks(self) -> usize {
        (self.rows as usize).div_ceil(usize::from(self.block_rows))
    }
}

/// A column that was read and checked.
pub(super) enum Column {
    /// The same value in all rows.
    Constant(u64),
    /// Values of their own.
    Numbers(Numbers),
    /// Values as differences from another column.
    Difference(Difference),
    /// Names.
    Names(Names),
    /// A byte for each row.
    Tags(Box<[u8]>),
    /// The distinct values of an extended attribute.
    Values(Values),
    /// Bytes of varying length, with the offset at which each block begins.
    Bytes { bytes: Box<[u8]>, lengths: Arc<Column>, starts: Box<[u32]> },
}

pub(super) struct Difference {
    numbers: Numbers,
    base: Arc<Column>,
    rounded: bool,
    /// Least and greatest value of each block.
    bounds: Box<[(u64, u64)]>,
}

/// The base value of such a difference.
pub(super) fn rounded_up(size: u64) -> u64 {
    size.checked_next_multiple_of(ROUNDED_TO).unwrap_or(size)
}

impl Difference {
    fn value(&self, base: u64, difference: u64) -> u64 {
        let base = if self.rounded { rounded_up(base) } else { base };
        base.wrapping_add_signed(unzigzag(difference))
    }
}

impl Column {
    /// Reads numbers. `base` is the column that they may be differences from.
    pub(super) fn numbers(
        stored: Stored,
        bytes: &[u8],
        shape: Shape,
        base: Option<Arc<Column>>,
    ) -> Result<Column, Malformed> {
        let mut reader = Reader::new("cluster column", bytes);
        let numbers = Numbers::decode(&mut reader, shape.rows, shape.block_rows)?;
        let rounded = match stored {
            Stored::Numbers(_) => {
                reader.end()?;
                return Ok(Column::Numbers(numbers));
            }
            Stored::Difference(_) => false,
            Stored::RoundedDifference(_) => true,
            _ => return Err(reader.malformed("numbers", "other bytes")),
        };
        let Some(base) = base else {
            return Err(reader.malformed("numbers", "differences from no column"));
        };
        let mut bounds = Vec::with_capacity(shape.blocks());
        for _ in 0..shape.blocks() {
            let (least, span) = (reader.varint()?, reader.varint()?);
            bounds.push((least, least.saturating_add(span)));
        }
        reader.end()?;
        let bounds = bounds.into();
        Ok(Column::Difference(Difference { numbers, base, rounded, bounds }))
    }

    /// Reads names.
    pub(super) fn names(stored: Stored, bytes: Vec<u8>, shape: Shape) -> Result<Column, Malformed> {
        let most = cluster_names::bytes_max(shape.rows);
        let bytes = unpacked(stored, bytes, most)?;
        Ok(Column::Names(Names::decode(bytes, shape.rows, shape.block_rows)?))
    }

    /// Reads a byte for each row.
    pub(super) fn tags(stored: Stored, bytes: Vec<u8>, shape: Shape) -> Result<Column, Malformed> {
        let bytes = unpacked(stored, bytes, shape.rows as usize)?;
        if bytes.len() != shape.rows as usize {
            let reader = Reader::new("cluster column", &bytes);
            return Err(reader.malformed("a byte for each row", bytes.len().to_string()));
        }
        Ok(Column::Tags(bytes.into()))
    }

    /// Reads the distinct values of an extended attribute.
    pub(super) fn values_of(
        stored: Stored,
        bytes: Vec<u8>,
        shape: Shape,
    ) -> Result<Column, Malformed> {
        let bytes = unpacked(stored, bytes, cluster_values::bytes_max(shape.rows))?;
        Ok(Column::Values(Values::decode(&bytes, shape.rows)?))
    }

    /// Reads bytes whose lengths are another column.
    pub(super) fn bytes(
        stored: Stored,
        bytes: Vec<u8>,
        shape: Shape,
        lengths: Arc<Column>,
    ) -> Result<Column, Malformed> {
        let bytes = unpacked(stored, bytes, u32::MAX as usize)?;
        let mut starts = Vec::with_capacity(shape.blocks());
        let mut start = 0_u64;
        let mut values = vec![0; usize::from(shape.block_rows)];
        for block in 0..shape.blocks() {
            starts.push(u32::try_from(start).unwrap_or(u32::MAX));
            let rows = lengths.values(block, shape, &mut values);
            let here = values[..rows].iter().fold(0_u64, |sum, &n| sum.saturating_add(n));
            start = start.saturating_add(here);
        }
        if start != bytes.len() as u64 {
            let reader = Reader::new("cluster column", &bytes);
            return Err(reader.malformed("bytes of the lengths listed", start.to_string()));
        }
        Ok(Column::Bytes { bytes: bytes.into(), lengths, starts: starts.into() })
    }

    /// Least and greatest value of a block.
    pub(super) fn bounds(&self, block: usize) -> (u64, u64) {
        match self {
            Column::Constant(value) => (*value, *value),
            Column::Numbers(numbers) => {
                let (least, greatest) = numbers.code_bounds(block);
                match numbers.dictionary() {
                    None => (least, greatest),
                    Some(values) => {
                        let value = |code: u64| values.get(code as usize).copied();
                        (value(least).unwrap_or(0), value(greatest).unwrap_or(u64::MAX))
                    }
                }
            }
            Column::Difference(difference) => {
                difference.bounds.get(block).copied().unwrap_or((0, u64::MAX))
            }
            Column::Names(_) | Column::Tags(_) | Column::Values(_) | Column::Bytes { .. } => {
                (0, u64::MAX)
            }
        }
    }

    /// The values of a block. Returns how many.
    pub(super) fn values(&self, block: usize, shape: Shape, out: &mut [u64]) -> usize {
        match self {
            Column::Constant(value) => {
                let first = block * usize::from(shape.block_rows);
                let rows = (shape.rows as usize).saturating_sub(first);
                let rows = rows.min(usize::from(shape.block_rows));
                out[..rows].fill(*value);
                rows
            }
            Column::Numbers(numbers) => numbers.values(block, out),
            Column::Difference(difference) => {
                let mut differences = [0; format::cluster::BLOCK_ROWS_MAX as usize];
                let rows = difference.base.values(block, shape, out);
                difference.numbers.values(block, &mut differences);
                for (slot, &delta) in out[..rows].iter_mut().zip(&differences) {
                    *slot = difference.value(*slot, delta);
                }
                rows
            }
            Column::Names(_) | Column::Tags(_) | Column::Values(_) | Column::Bytes { .. } => 0,
        }
    }

    /// The value of a row.
    pub(super) fn get(&self, row: usize) -> u64 {
        match self {
            Column::Constant(value) => *value,
            Column::Numbers(numbers) => numbers.get(row),
            Column::Difference(difference) => {
                difference.value(difference.base.get(row), difference.numbers.get(row))
            }
            Column::Names(_) | Column::Tags(_) | Column::Values(_) | Column::Bytes { .. } => 0,
        }
    }

    /// The bytes of a row.
    pub(super) fn get_bytes(&self, row: usize, shape: Shape) -> &[u8] {
        match self {
            Column::Names(names) => names.get(row),
            Column::Bytes { bytes, lengths, starts } => {
                let block = row / usize::from(shape.block_rows);
                let first = block * usize::from(shape.block_rows);
                let start = starts.get(block).map_or(usize::MAX, |&start| start as usize);
                let before: u64 = (first..row).map(|row| lengths.get(row)).sum();
                let start = start.saturating_add(before as usize);
                let end = start.saturating_add(lengths.get(row) as usize);
                bytes.get(start..end).unwrap_or_default()
            }
            _ => &[],
        }
    }

    /// The rank of a value among those of an extended attribute.
    pub(super) fn place_of(&self, value: &[u8]) -> Option<u64> {
        let Column::Values(values) = self else { return None };
        values.find(value)
    }

    /// How many values of an extended attribute there are.
    pub(super) fn distinct(&self) -> u64 {
        let Column::Values(values) = self else { return 0 };
        values.len() as u64
    }

    /// Bytes that this takes in memory, without the columns that it refers to.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Column>()
            + match self {
                Column::Constant(_) => 0,
                Column::Numbers(numbers) => numbers.memory_bytes(),
                Column::Difference(difference) => {
                    difference.numbers.memory_bytes() + size_of_val(&*difference.bounds)
                }
                Column::Names(names) => names.memory_bytes(),
                Column::Tags(tags) => tags.len(),
                Column::Values(values) => values.memory_bytes(),
                Column::Bytes { bytes, starts, .. } => bytes.len() + size_of_val(&**starts),
            }
    }
}

fn unpacked(stored: Stored, bytes: Vec<u8>, most: usize) -> Result<Vec<u8>, Malformed> {
    let refuse = |found: String| {
        Err(Reader::new("cluster column", &[]).malformed("bytes of a bounded length", found))
    };
    match stored {
        Stored::Bytes(_) => Ok(bytes),
        Stored::Packed(Extent { raw, .. }) if raw as usize <= most => {
            cluster_names::unpack(&bytes, raw as usize)
        }
        other => refuse(format!("{other:?}")),
    }
}

/// The column that this one depends on: the base of its differences, or its lengths.
pub(super) fn needed_for(column: ColumnId, stored: Stored) -> Option<ColumnId> {
    match stored {
        Stored::Difference(_) | Stored::RoundedDifference(_) => {
            format::cluster::difference_from(column)
        }
        _ if column == ColumnId::Xattrs => Some(ColumnId::XattrLengths),
        _ => None,
    }
}
