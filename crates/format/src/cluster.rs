//! The head of a cluster of metadata (`docs/format/cluster.md`): the layout of the blob.
//!
//! A blob is `header | columns of the directory | summary | columns`. Everything before the columns
//! is the head, under one checksum. Each column has its own, so that a search reads only the
//! columns that it needs.

use crate::cluster_summary;
use crate::layout::{Field, size_of};
use crate::{Malformed, Reader, Writer};

/// The magic number of a cluster.
pub const MAGIC: [u8; 8] = *b"PANDOCLU";
/// The newest version that this program writes and reads.
pub const VERSION: u32 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 64;
/// Most rows of a cluster.
pub const ROWS_MAX: u32 = 1 << 24;
/// Most rows of a block.
pub const BLOCK_ROWS_MAX: u16 = 512;
/// Longest head, in bytes.
pub const HEAD_BYTES_MAX: usize = 16 << 20;
/// Longest packed column, in bytes.
pub const COLUMN_BYTES_MAX: u64 = 1 << 32;

/// Offset of what follows the checksum.
const AFTER_CHECKSUM: usize = 16;

/// Layout of the header.
pub const LAYOUT: &[Field] = &[
    Field::fixed("magic", "bytes", 8),
    Field::fixed("version", "u32 LE", 4),
    Field::fixed("checksum", "u32 LE", 4),
    Field::fixed("head", "u32 LE", 4),
    Field::fixed("rows", "u32 LE", 4),
    Field::fixed("block_rows", "u16 LE", 2),
    Field::fixed("columns", "u16 LE", 2),
    Field::fixed("summary", "u32 LE", 4),
    Field::fixed("bytes", "u64 LE", 8),
    Field::fixed("reserved", "zeros", 24),
];
const _: () = assert!(size_of(LAYOUT) == HEADER_BYTES);

/// Bytes that describe a column.
pub const COLUMN_BYTES: usize = 24;
/// Layout of a column's description.
pub const COLUMN_LAYOUT: &[Field] = &[
    Field::fixed("column", "u8", 1),
    Field::fixed("stored", "u8", 1),
    Field::fixed("reserved", "zeros", 2),
    Field::fixed("checksum", "u32 LE", 4),
    Field::fixed("place", "u64 LE", 8),
    Field::fixed("length", "u32 LE", 4),
    Field::fixed("raw", "u32 LE", 4),
];
const _: () = assert!(size_of(COLUMN_LAYOUT) == COLUMN_BYTES);

const STRUCTURE: &str = "cluster";

/// A column: one attribute of all rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ColumnId {
    /// Inode of the directory that holds the name.
    Directory,
    /// Cookie, xored with the hash of the name shifted left by 8: the collision index.
    Cookie,
    /// Inode number.
    Ino,
    /// `FileKind::byte`.
    Kind,
    /// Permission bits.
    Mode,
    /// Owner.
    Uid,
    /// Group.
    Gid,
    /// Hard links.
    Links,
    /// Device number.
    Rdev,
    /// Size in bytes.
    Size,
    /// Bytes of space taken.
    Allocated,
    /// Entries of a directory.
    Entries,
    /// Last access. Times are nanoseconds since 1970 plus 2^63.
    Atime,
    /// Last change of contents.
    Mtime,
    /// Last change of attributes.
    Ctime,
    /// Birth.
    Btime,
    /// Subvolume mounted here.
    Subvolume,
    /// Names.
    Names,
    /// Bytes of searchable extended attributes, by row.
    XattrLengths,
    /// Searchable extended attributes.
    Xattrs,
    /// A byte of the hash of each name (`cluster_names::tag`).
    NameTags,
}

/// Number of columns, except those of extended attributes.
pub const COLUMNS: usize = 21;

/// The byte on disk of the first column of extended attributes. DO NOT CHANGE: each attribute has
/// two, by its place among the names of the summary. There are bytes for as many as there can be.
const ATTRIBUTE_FIRST: u8 = 128;
const _: () = assert!(COLUMNS < 128 && cluster_summary::CARRIED_MAX * 2 == 128);

/// The columns of an extended attribute that some row has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttributeColumns {
    /// Place of its name among those that the summary lists, below `CARRIED_MAX`.
    pub place: u8,
    /// For each row the place of its value among the values, counted from 1; 0: it has none.
    pub ranks: Stored,
    /// The values (`cluster_values`).
    pub values: Stored,
}

impl AttributeColumns {
    /// The bytes on disk of its two columns.
    fn bytes(self) -> [u8; 2] {
        let first = ATTRIBUTE_FIRST.saturating_add(self.place.saturating_mul(2));
        [first, first.saturating_add(1)]
    }
}

impl ColumnId {
    // DO NOT CHANGE THE ORDER: places in it are on disk, counted from 1.
    /// All columns.
    pub const ALL: [ColumnId; COLUMNS] = [
        ColumnId::Directory,
        ColumnId::Cookie,
        ColumnId::Ino,
        ColumnId::Kind,
        ColumnId::Mode,
        ColumnId::Uid,
        ColumnId::Gid,
        ColumnId::Links,
        ColumnId::Rdev,
        ColumnId::Size,
        ColumnId::Allocated,
        ColumnId::Entries,
        ColumnId::Atime,
        ColumnId::Mtime,
        ColumnId::Ctime,
        ColumnId::Btime,
        ColumnId::Subvolume,
        ColumnId::Names,
        ColumnId::XattrLengths,
        ColumnId::Xattrs,
        ColumnId::NameTags,
    ];

    /// The byte on disk, from 1.
    pub fn byte(self) -> u8 {
        let place = ColumnId::ALL.iter().position(|&id| id == self).unwrap_or(0);
        u8::try_from(place.saturating_add(1)).unwrap_or(0)
    }

    /// The column of a byte on disk.
    pub fn decode(byte: u8) -> Option<ColumnId> {
        ColumnId::ALL.get(usize::from(byte).checked_sub(1)?).copied()
    }
}

/// How the values of a column are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// All rows have this value; there is nothing to read.
    Constant(u64),
    /// As numbers (`cluster_numbers`) of their own.
    Numbers(Extent),
    /// As numbers: zigzag of the difference from another column, with bounds of the values.
    Difference(Extent),
    /// As numbers: zigzag of the difference from another column's values rounded up to 4096.
    RoundedDifference(Extent),
    /// As bytes that zstd packed.
    Packed(Extent),
    /// As bytes.
    Bytes(Extent),
}

/// Where the bytes of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the blob.
    pub offset: u64,
    /// Bytes there.
    pub length: u32,
    /// Bytes when unpacked.
    pub raw: u32,
    /// crc32c of the bytes in the blob.
    pub checksum: u32,
}

impl Stored {
    /// Where the bytes are, if there are any.
    pub fn extent(&self) -> Option<Extent> {
        match *self {
            Stored::Constant(_) => None,
            Stored::Numbers(extent)
            | Stored::Difference(extent)
            | Stored::RoundedDifference(extent)
            | Stored::Packed(extent)
            | Stored::Bytes(extent) => Some(extent),
        }
    }

    fn byte(&self) -> u8 {
        match self {
            Stored::Constant(_) => 1,
            Stored::Numbers(_) => 2,
            Stored::Difference(_) => 3,
            Stored::RoundedDifference(_) => 4,
            Stored::Packed(_) => 5,
            Stored::Bytes(_) => 6,
        }
    }

    fn decode(byte: u8, extent: Extent) -> Option<Stored> {
        Some(match byte {
            1 => Stored::Constant(extent.offset),
            2 => Stored::Numbers(extent),
            3 => Stored::Difference(extent),
            4 => Stored::RoundedDifference(extent),
            5 => Stored::Packed(extent),
            6 => Stored::Bytes(extent),
            _ => return None,
        })
    }
}

/// The column that the differences of another column refer to.
pub fn difference_from(column: ColumnId) -> Option<ColumnId> {
    match column {
        ColumnId::Atime | ColumnId::Ctime => Some(ColumnId::Mtime),
        ColumnId::Btime => Some(ColumnId::Ctime),
        ColumnId::Allocated => Some(ColumnId::Size),
        _ => None,
    }
}

/// The layout of a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head<'a> {
    /// Rows.
    pub rows: u32,
    /// Rows of every block but the last.
    pub block_rows: u16,
    /// Length of the blob.
    pub bytes: u64,
    /// Columns, ascending. An absent column has the value 0 in all rows.
    pub columns: Vec<(ColumnId, Stored)>,
    /// Columns of extended attributes, ascending. Rows have no value of an absent attribute.
    pub attributes: Vec<AttributeColumns>,
    /// The summary, encoded.
    pub summary: &'a [u8],
}

/// A decoded header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded<T> {
    /// A version that this program reads.
    Known(T),
    /// A newer version: its number.
    Newer(u32),
}

impl<'a> Head<'a> {
    /// Bytes of the head with this many columns and bytes of summary.
    pub fn length(columns: usize, summary: usize) -> usize {
        columns.saturating_mul(COLUMN_BYTES).saturating_add(HEADER_BYTES).saturating_add(summary)
    }

    /// The bytes. Extents must be behind the head, and within `bytes`.
    pub fn encode(&self) -> Vec<u8> {
        let count = self.attributes.len().saturating_mul(2).saturating_add(self.columns.len());
        let length = Head::length(count, self.summary.len());
        let mut rest = Vec::with_capacity(length);
        rest.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
        rest.put_u32(self.rows);
        rest.put_u16(self.block_rows);
        rest.put_u16(u16::try_from(count).unwrap_or(u16::MAX));
        rest.put_u32(u32::try_from(self.summary.len()).unwrap_or(u32::MAX));
        rest.put_u64(self.bytes);
        rest.raw(&[0; 24]);
        for (id, stored) in &self.columns {
            encode_column(&mut rest, id.byte(), stored);
        }
        for attribute in &self.attributes {
            let [ranks, values] = attribute.bytes();
            encode_column(&mut rest, ranks, &attribute.ranks);
            encode_column(&mut rest, values, &attribute.values);
        }
        rest.raw(self.summary);
        let mut out = Vec::with_capacity(length);
        out.raw(&MAGIC);
        out.put_u32(VERSION);
        let sum = crc32c::crc32c_append(crc32c::crc32c(&out), &rest);
        out.put_u32(sum);
        out.raw(&rest);
        out
    }

    /// Length of the head whose first [`HEADER_BYTES`] these are. The length is within bounds but
    /// not verified.
    pub fn claimed_length(bytes: &[u8]) -> Result<Decoded<usize>, Malformed> {
        let mut reader = Reader::new(STRUCTURE, bytes);
        if reader.array::<8>()? != MAGIC {
            return Err(Reader::new(STRUCTURE, bytes).malformed("PANDOCLU", "another magic"));
        }
        let version = reader.u32()?;
        if version > VERSION {
            return Ok(Decoded::Newer(version));
        }
        reader.u32()?;
        let length = usize::try_from(reader.u32()?).unwrap_or(usize::MAX);
        if (HEADER_BYTES..=HEAD_BYTES_MAX).contains(&length) {
            Ok(Decoded::Known(length))
        } else {
            Err(reader.malformed("a head of 64 bytes to 16 MiB", length.to_string()))
        }
    }

    /// Reads and checks a head, which is exactly `bytes`.
    pub fn decode(bytes: &'a [u8]) -> Result<Head<'a>, Malformed> {
        let mut reader = Reader::new(STRUCTURE, bytes);
        reader.take(12)?;
        let checksum = reader.u32()?;
        let before = bytes.get(..12).unwrap_or_default();
        let behind = bytes.get(AFTER_CHECKSUM..).unwrap_or_default();
        let sum = crc32c::crc32c_append(crc32c::crc32c(before), behind);
        if sum != checksum {
            let found = format!("checksum {checksum:08x} over bytes of sum {sum:08x}");
            return Err(Reader::new(STRUCTURE, bytes).malformed("a head with its checksum", found));
        }
        let length = reader.u32()?;
        let rows = reader.u32()?;
        let (block_rows, count) = (reader.u16()?, reader.u16()?);
        let summary = usize::try_from(reader.u32()?).unwrap_or(usize::MAX);
        let total = reader.u64()?;
        reader.take(24)?;
        let expected = Head::length(usize::from(count), summary);
        let whole = usize::try_from(length).ok() == Some(bytes.len()) && expected == bytes.len();
        let bounded = (1..=ROWS_MAX).contains(&rows) && (1..=BLOCK_ROWS_MAX).contains(&block_rows);
        if !whole || !bounded {
            let found = format!("{rows} rows by {block_rows}, {expected} of {length} bytes");
            return Err(reader.malformed("a head within bounds", found));
        }
        let head = u64::from(length);
        let mut described = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            described.push(decode_column(&mut reader, head, total)?);
        }
        if !described.is_sorted_by(|(a, _), (b, _)| a < b) {
            return Err(reader.malformed("columns in ascending order", "others"));
        }
        let behind = described.partition_point(|&(id, _)| id < ATTRIBUTE_FIRST);
        let attributes = attributes_of(&reader, &described.split_off(behind))?;
        let mut columns = Vec::with_capacity(described.len());
        for (id, stored) in described {
            let Some(id) = ColumnId::decode(id) else {
                return Err(reader.malformed("a known column", format!("column {id}")));
            };
            columns.push((id, stored));
        }
        let in_records = columns.iter().any(|(id, _)| *id == ColumnId::Xattrs);
        if in_records && !attributes.is_empty() {
            let expected = "extended attributes in records or in columns";
            return Err(reader.malformed(expected, "both"));
        }
        let summary = reader.take(summary)?;
        Ok(Head { rows, block_rows, bytes: total, columns, attributes, summary })
    }
}

/// Columns of extended attributes: ranks, and behind them their values.
fn attributes_of(
    reader: &Reader<'_>,
    described: &[(u8, Stored)],
) -> Result<Vec<AttributeColumns>, Malformed> {
    let mut attributes = Vec::with_capacity(described.len() / 2);
    for pair in described.chunks(2) {
        let [(first, ranks), (second, values)] = *pair else {
            return Err(reader.malformed("ranks and their values", "one of them"));
        };
        let place = first.saturating_sub(ATTRIBUTE_FIRST) / 2;
        let attribute = AttributeColumns { place, ranks, values };
        if attribute.bytes() != [first, second] || values.extent().is_none() {
            let found = format!("columns {first} and {second} of {values:?}");
            return Err(reader.malformed("ranks and their values", found));
        }
        attributes.push(attribute);
    }
    Ok(attributes)
}

fn encode_column(out: &mut Vec<u8>, id: u8, stored: &Stored) {
    let none = Extent { offset: 0, length: 0, raw: 0, checksum: 0 };
    let extent = match *stored {
        Stored::Constant(value) => Extent { offset: value, ..none },
        _ => stored.extent().unwrap_or(none),
    };
    out.put_u8(id);
    out.put_u8(stored.byte());
    out.put_u16(0);
    out.put_u32(extent.checksum);
    out.put_u64(extent.offset);
    out.put_u32(extent.length);
    out.put_u32(extent.raw);
}

fn decode_column(
    reader: &mut Reader<'_>,
    head: u64,
    total: u64,
) -> Result<(u8, Stored), Malformed> {
    let (id, stored) = (reader.u8()?, reader.u8()?);
    reader.u16()?;
    let checksum = reader.u32()?;
    let offset = reader.u64()?;
    let (length, raw) = (reader.u32()?, reader.u32()?);
    let extent = Extent { offset, length, raw, checksum };
    let Some(stored) = Stored::decode(stored, extent) else {
        return Err(reader.malformed("a known column", format!("column {id} stored as {stored}")));
    };
    if let Some(extent) = stored.extent() {
        let end = extent.offset.checked_add(u64::from(extent.length));
        if extent.offset < head || end.is_none_or(|end| end > total) {
            return Err(reader.malformed("a column within the blob", format!("{extent:?}")));
        }
    }
    Ok((id, stored))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::damaged::every_flipped_bit_and_truncation_is_refused;

    fn extent(offset: u64, length: u32) -> Extent {
        Extent { offset, length, raw: 9, checksum: 4 }
    }

    fn attribute(place: u8) -> AttributeColumns {
        let ranks = Stored::Numbers(extent(300, 10));
        AttributeColumns { place, ranks, values: Stored::Bytes(extent(310, 20)) }
    }

    fn encoded() -> Vec<u8> {
        let head = Head {
            rows: 1000,
            block_rows: 256,
            bytes: 4096,
            columns: vec![
                (ColumnId::Directory, Stored::Numbers(extent(247, 49))),
                (ColumnId::Uid, Stored::Constant(1000)),
                (ColumnId::Names, Stored::Packed(extent(296, 3800))),
            ],
            attributes: vec![attribute(0), attribute(63)],
            summary: b"summary",
        };
        let bytes = head.encode();
        assert_eq!(Head::decode(&bytes), Ok(head));
        bytes
    }

    #[test]
    fn heads_round_trip_and_every_bit_flip_is_detected() {
        let good = encoded();
        assert_eq!(Head::claimed_length(&good), Ok(Decoded::Known(good.len())));
        every_flipped_bit_and_truncation_is_refused(&good, |bad| Head::decode(bad).is_err());
    }

    #[test]
    fn columns_on_disk_are_numbered_from_1() {
        for (place, id) in ColumnId::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(id.byte()), place + 1);
            assert_eq!(ColumnId::decode(id.byte()), Some(id));
        }
        assert_eq!(ColumnId::decode(0), None);
        assert_eq!(ColumnId::decode(22), None);
    }

    #[test]
    fn columns_outside_the_blob_and_newer_versions_are_refused() {
        let head = |offset, length| Head {
            rows: 1,
            block_rows: 1,
            bytes: 200,
            columns: vec![(ColumnId::Size, Stored::Numbers(extent(offset, length)))],
            attributes: Vec::new(),
            summary: b"",
        };
        assert!(Head::decode(&head(88, 112).encode()).is_ok());
        assert!(Head::decode(&head(88, 113).encode()).is_err());
        assert!(Head::decode(&head(87, 1).encode()).is_err());
        assert!(Head::decode(&head(u64::MAX, 1).encode()).is_err());
        let mut newer = head(88, 1).encode();
        newer[8] = 2;
        assert_eq!(Head::claimed_length(&newer), Ok(Decoded::Newer(2)));
    }
    #[test]
    fn columns_of_attributes_come_in_pairs() {
        let head = Head {
            rows: 1000,
            block_rows: 256,
            bytes: 4096,
            columns: Vec::new(),
            attributes: vec![attribute(0), attribute(1)],
            summary: b"",
        };
        let good = head.encode();
        assert_eq!(Head::decode(&good), Ok(head));
        let with_ids = |ids: [u8; 4]| {
            let mut bytes = good.clone();
            for (at, id) in ids.into_iter().enumerate() {
                bytes[HEADER_BYTES + at * COLUMN_BYTES] = id;
            }
            let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..]);
            bytes[12..16].copy_from_slice(&sum.to_le_bytes());
            Head::decode(&bytes).is_ok()
        };
        assert!(with_ids([128, 129, 130, 131]) && with_ids([128, 129, 254, 255]));
        for ids in [[1, 128, 129, 130], [128, 129, 130, 132], [129, 130, 131, 132]] {
            assert!(!with_ids(ids), "{ids:?}");
        }
        assert!(!with_ids([100, 127, 128, 129]), "columns that nobody knows");
        let [lengths, records] = [ColumnId::XattrLengths, ColumnId::Xattrs].map(ColumnId::byte);
        assert!(!with_ids([lengths, records, 128, 129]), "records beside columns");
    }
}
