//! Builds a cluster: rows in, bytes and summary out.

use format::cluster::{
    AttributeColumns, BLOCK_ROWS_MAX, ColumnId, Extent, Head, ROWS_MAX, Stored, difference_from,
};
use format::cluster_summary::CARRIED_MAX;
use format::{Writer as _, cluster_names, cluster_numbers, cluster_values};
use inode::NameHash;

use super::Summary;
use super::attributes::{self, Attribute};
use super::column::rounded_up;
use super::order::{self, Dimensions};
use super::values::{NUMBERS, numbers};
use crate::{Row, Searchable};

/// Options for building clusters.
#[derive(Debug, Clone, Copy)]
pub struct ClusterOptions {
    /// Rows of a block, the leaf of the K-D tree; 16 to 512.
    pub block_rows: u16,
    /// Rows are split by a declared extended attribute first, and again after so many splits by
    /// other attributes; 0: never.
    pub attribute_turn: u8,
    /// Level of zstd for names, 1 to 19.
    pub level: i32,
    /// The volume's hash of names.
    pub hash: NameHash,
}

impl ClusterOptions {
    /// The best measured options (decisions 0021 and 0095).
    pub fn new(hash: NameHash) -> ClusterOptions {
        ClusterOptions { block_rows: 256, attribute_turn: 3, level: 3, hash }
    }
}

/// A finished cluster.
pub struct Built {
    /// The blob.
    pub bytes: Vec<u8>,
    /// Its summary, as opening the blob gives it.
    pub summary: Summary,
}

/// Bytes of varying length, one after the other.
#[derive(Default)]
struct Strings {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Strings {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
    }

    fn get(&self, row: u32) -> &[u8] {
        let row = row as usize;
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.bytes[start..self.ends[row]]
    }
}

/// Collects the rows of a cluster.
pub struct ClusterBuilder {
    options: ClusterOptions,
    columns: [Vec<u64>; NUMBERS],
    names: Strings,
    xattrs: Strings,
    carried: Vec<Vec<u8>>,
}

/// Attributes that rows are split by besides extended ones, those of likelier queries first. These
/// are owner, times and size (the paper's query sets), the directory, and the rest of its Table 1.
/// The name is not possible.
const DIMENSIONS: [ColumnId; 10] = [
    ColumnId::Uid,
    ColumnId::Mtime,
    ColumnId::Size,
    ColumnId::Directory,
    ColumnId::Gid,
    ColumnId::Kind,
    ColumnId::Atime,
    ColumnId::Mode,
    ColumnId::Ctime,
    ColumnId::Ino,
];

impl ClusterBuilder {
    /// No rows yet.
    pub fn new(options: ClusterOptions) -> ClusterBuilder {
        assert!((16..=BLOCK_ROWS_MAX).contains(&options.block_rows), "{}", options.block_rows);
        ClusterBuilder {
            options,
            columns: [const { Vec::new() }; NUMBERS],
            names: Strings::default(),
            xattrs: Strings::default(),
            carried: Vec::new(),
        }
    }

    /// Sets the extended attributes that rows carry, at most `CARRIED_MAX`. Queries for these need
    /// no other source; a row's other attributes are not written.
    #[must_use]
    pub fn carrying(self, searchable: &Searchable) -> ClusterBuilder {
        assert!(searchable.names().len() <= CARRIED_MAX, "too many extended attributes");
        ClusterBuilder { carried: searchable.names().to_vec(), ..self }
    }

    /// Adds a row. At most `format::cluster::ROWS_MAX`.
    pub fn push(&mut self, row: &Row<'_>) {
        assert!(self.len() < ROWS_MAX, "too many rows");
        assert!((1..=255).contains(&row.name.len()), "a name of {} bytes", row.name.len());
        assert!(!row.name.contains(&0), "a name with a zero byte");
        let values = numbers(row, self.options.hash.hash(row.name));
        for (column, value) in self.columns.iter_mut().zip(values) {
            column.push(value);
        }
        self.names.push(row.name);
        self.xattrs.push(row.xattrs);
    }

    /// Rows so far.
    pub fn len(&self) -> u32 {
        self.names.ends.len() as u32
    }

    /// Whether there are no rows; an empty cluster cannot be finished.
    pub fn is_empty(&self) -> bool {
        self.names.ends.is_empty()
    }

    /// Bytes in memory.
    pub fn memory_bytes(&self) -> usize {
        let strings = |s: &Strings| s.bytes.capacity() + s.ends.capacity() * size_of::<usize>();
        let columns: usize = self.columns.iter().map(|c| c.capacity() * size_of::<u64>()).sum();
        columns + strings(&self.names) + strings(&self.xattrs)
    }

    /// Puts the rows into K-D order and encodes them. There must be rows.
    pub fn finish(self) -> Built {
        assert!(!self.is_empty(), "a cluster has rows");
        let attributes = self.attributes();
        let order = self.order(&attributes);
        let record = Summary::build(&self.columns, &self.carried, |visit| {
            for row in 0..self.len() {
                visit(self.names.get(row), self.xattrs.get(row));
            }
        });
        let mut parts = self.number_parts(&order);
        parts.extend(self.string_parts(&order));
        let attribute_parts = self.attribute_parts(&attributes, &order);
        let summary = record.encode();
        let head_bytes = Head::length(parts.len() + 2 * attribute_parts.len(), summary.len());
        let mut body = Vec::new();
        let columns =
            parts.into_iter().map(|(id, part)| (id, part.place(&mut body, head_bytes))).collect();
        let attributes = attribute_parts.into_iter().map(|(place, ranks, values)| {
            let (ranks, values) =
                (ranks.place(&mut body, head_bytes), values.place(&mut body, head_bytes));
            AttributeColumns { place, ranks, values }
        });
        let attributes = attributes.collect();
        let head = Head {
            rows: self.len(),
            block_rows: self.options.block_rows,
            bytes: (head_bytes + body.len()) as u64,
            columns,
            attributes,
            summary: &summary,
        };
        let mut bytes = head.encode();
        assert_eq!(bytes.len(), head_bytes, "the head is as long as foreseen");
        bytes.extend_from_slice(&body);
        Built { bytes, summary: record }
    }

    /// The order in which [`finish`](Self::finish) writes rows: blocks in K-D order; within a
    /// block, by directory and name, which compresses better.
    pub fn balanced(&self) -> Vec<u32> {
        self.order(&self.attributes())
    }

    fn attributes(&self) -> Vec<Attribute<'_>> {
        attributes::columns(&self.carried, self.len(), |row| self.xattrs.get(row))
    }

    fn order(&self, attributes: &[Attribute<'_>]) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.len()).collect();
        let block_rows = usize::from(self.options.block_rows);
        let numbers = DIMENSIONS.map(|id| self.columns[id as usize].as_slice());
        let attributes: Vec<&[u64]> =
            attributes.iter().map(|attribute| attribute.ranks.as_slice()).collect();
        let turn = self.options.attribute_turn;
        let dimensions = Dimensions { numbers: &numbers, attributes: &attributes, turn };
        order::balance(&mut order, &dimensions, block_rows);
        let directories = &self.columns[ColumnId::Directory as usize];
        for block in order.chunks_mut(block_rows) {
            block.sort_unstable_by(|&a, &b| {
                let key = |row: u32| (directories[row as usize], self.names.get(row));
                key(a).cmp(&key(b)).then(a.cmp(&b))
            });
        }
        order
    }

    fn number_parts(&self, order: &[u32]) -> Vec<(ColumnId, EncodedColumn)> {
        let ordered: Vec<Vec<u64>> = self
            .columns
            .iter()
            .map(|values| order.iter().map(|&row| values[row as usize]).collect())
            .collect();
        let mut parts = Vec::new();
        for (values, id) in ordered.iter().zip(ColumnId::ALL) {
            let base = difference_from(id).map(|base| ordered[base as usize].as_slice());
            let part = EncodedColumn::numbers(values, base, self.options.block_rows);
            if !matches!(part, EncodedColumn::Constant(0)) {
                parts.push((id, part));
            }
        }
        parts
    }

    fn string_parts(&self, order: &[u32]) -> Vec<(ColumnId, EncodedColumn)> {
        let mut names = Vec::with_capacity(self.names.bytes.len() + order.len() + 1);
        names.push(0);
        for &row in order {
            names.extend_from_slice(self.names.get(row));
            names.push(0);
        }
        let mut parts = vec![(ColumnId::Names, EncodedColumn::strings(names, self.options.level))];
        let tags = order.iter().map(|&row| cluster_names::tag(self.names.get(row))).collect();
        parts.push((ColumnId::NameTags, EncodedColumn::Bytes(tags)));
        parts
    }

    /// Columns of attributes: ranks and values.
    fn attribute_parts(
        &self,
        attributes: &[Attribute<'_>],
        order: &[u32],
    ) -> Vec<(u8, EncodedColumn, EncodedColumn)> {
        let parts = attributes.iter().map(|Attribute { place, ranks, values }| {
            let ordered: Vec<u64> = order.iter().map(|&row| ranks[row as usize]).collect();
            let ranks = EncodedColumn::numbers(&ordered, None, self.options.block_rows);
            let mut bytes = Vec::new();
            cluster_values::encode(values, &mut bytes);
            (*place, ranks, EncodedColumn::strings(bytes, self.options.level))
        });
        parts.collect()
    }
}

/// A column as it will be stored.
enum EncodedColumn {
    Constant(u64),
    Numbers(Vec<u8>),
    Difference(Vec<u8>),
    RoundedDifference(Vec<u8>),
    Packed(Vec<u8>, usize),
    Bytes(Vec<u8>),
}

impl EncodedColumn {
    /// The shortest of: one value, values, differences from `base` or from `base` in pages.
    fn numbers(values: &[u64], base: Option<&[u64]>, block_rows: u16) -> EncodedColumn {
        let first = values[0];
        if values.iter().all(|&value| value == first) {
            return EncodedColumn::Constant(first);
        }
        let mut own = Vec::new();
        cluster_numbers::encode(&mut own, values, block_rows);
        let mut best = EncodedColumn::Numbers(own);
        let Some(base) = base else { return best };
        for rounded in [false, true] {
            let differences: Vec<u64> = values
                .iter()
                .zip(base)
                .map(|(&value, &base)| {
                    let base = if rounded { rounded_up(base) } else { base };
                    cluster_numbers::zigzag(value.wrapping_sub(base).cast_signed())
                })
                .collect();
            let mut bytes = Vec::new();
            cluster_numbers::encode(&mut bytes, &differences, block_rows);
            for block in values.chunks(usize::from(block_rows)) {
                let least = block.iter().copied().min().unwrap_or(0);
                let greatest = block.iter().copied().max().unwrap_or(0);
                bytes.put_varint(least);
                bytes.put_varint(greatest - least);
            }
            if bytes.len() < best.len() {
                best = if rounded {
                    EncodedColumn::RoundedDifference(bytes)
                } else {
                    EncodedColumn::Difference(bytes)
                };
            }
        }
        best
    }

    fn strings(bytes: Vec<u8>, level: i32) -> EncodedColumn {
        match cluster_names::pack(&bytes, level) {
            Some(packed) => EncodedColumn::Packed(packed, bytes.len()),
            None => EncodedColumn::Bytes(bytes),
        }
    }

    fn len(&self) -> usize {
        match self {
            EncodedColumn::Constant(_) => 0,
            EncodedColumn::Numbers(bytes)
            | EncodedColumn::Difference(bytes)
            | EncodedColumn::RoundedDifference(bytes)
            | EncodedColumn::Packed(bytes, _)
            | EncodedColumn::Bytes(bytes) => bytes.len(),
        }
    }

    /// Appends the bytes to `body`, which starts at offset `start` of the blob.
    fn place(self, body: &mut Vec<u8>, start: usize) -> Stored {
        let mut put = |bytes: &[u8], raw: usize| {
            let offset = (start + body.len()) as u64;
            body.extend_from_slice(bytes);
            let (length, raw) = (u32::try_from(bytes.len()), u32::try_from(raw));
            let (Ok(length), Ok(raw)) = (length, raw) else {
                panic!("a column of {} bytes", bytes.len());
            };
            Extent { offset, length, raw, checksum: crc32c::crc32c(bytes) }
        };
        match self {
            EncodedColumn::Constant(value) => Stored::Constant(value),
            EncodedColumn::Numbers(bytes) => Stored::Numbers(put(&bytes, 0)),
            EncodedColumn::Difference(bytes) => Stored::Difference(put(&bytes, 0)),
            EncodedColumn::RoundedDifference(bytes) => Stored::RoundedDifference(put(&bytes, 0)),
            EncodedColumn::Packed(bytes, raw) => Stored::Packed(put(&bytes, raw)),
            EncodedColumn::Bytes(bytes) => Stored::Bytes(put(&bytes, bytes.len())),
        }
    }
}
