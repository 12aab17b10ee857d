//! The index of a sorted run: where its blocks are, and which keys they may hold
//! (`docs/format/run.md`).
//!
//! A blob holds runs: for each its blocks, adjacent, and behind them its index. The manifest
//! locates indexes and has their checksums; an index has those of its blocks.

use crate::cluster_filter::Filter;
use crate::layout::{Field, size_of};
use crate::sealed::{Covers, Opened, Seal};
use crate::{Malformed, Reader, Writer};

/// Layout of the head of a blob.
pub const BLOB_LAYOUT: &[Field] = &[
    Field::fixed("magic", "8 bytes", 8),
    Field::fixed("version", "u32 LE", 4),
    Field::fixed("checksum", "u32 LE", 4),
    Field::fixed("volume", "16 bytes", 16),
    Field::fixed("blob", "u64 LE", 8),
];
/// Bytes of the head of a blob.
pub const BLOB_HEAD_BYTES: usize = 40;
const _: () = assert!(size_of(BLOB_LAYOUT) == BLOB_HEAD_BYTES);

/// Layout of the head of an index.
pub const LAYOUT: &[Field] = &[
    Field::fixed("magic", "4 bytes", 4),
    Field::fixed("blocks", "u32 LE", 4),
    Field::fixed("filters", "u32 LE", 4),
    Field::fixed("ranges", "u32 LE", 4),
    Field::fixed("start", "u64 LE", 8),
    Field::variable("last_length", "varint"),
    Field::variable("last", "bytes"),
];

/// Layout of the description of a block in an index.
pub const BLOCK_LAYOUT: &[Field] = &[
    Field::fixed("checksum", "u32 LE", 4),
    Field::variable("shared", "varint"),
    Field::variable("rest", "varint"),
    Field::variable("key", "bytes"),
    Field::variable("stored", "varint"),
    Field::variable("raw", "varint"),
];

// DO NOT CHANGE THESE VALUES: they are on disk.
const BLOB_SEAL: Seal =
    Seal { structure: "blob of runs", magic: *b"PANDORUN", version: 1, covers: Covers::Body };
const MAGIC: [u8; 4] = *b"PRIX";

const STRUCTURE: &str = "index of a run";

/// The head of a blob of runs.
pub fn blob_head(volume: [u8; 16], blob: u64) -> Vec<u8> {
    let mut body = Vec::new();
    body.raw(&volume);
    body.put_u64(blob);
    BLOB_SEAL.seal(&body)
}

/// Checks that a blob is the one of this number, of this volume. `Err(Ok(version))`: it is of a
/// newer version.
pub fn check_blob_head(
    bytes: &[u8],
    volume: [u8; 16],
    blob: u64,
) -> Result<(), Result<u32, Malformed>> {
    let mut reader = match BLOB_SEAL.open(bytes) {
        Ok(Opened::Body(_, reader)) => reader,
        Ok(Opened::Newer(version)) => return Err(Ok(version)),
        Err(bad) => return Err(Err(bad)),
    };
    match (reader.array(), reader.u64()) {
        (Ok(found), Ok(number)) if (found, number) == (volume, blob) => Ok(()),
        (Err(short), _) | (_, Err(short)) => Err(Err(short)),
        found => Err(Err(reader.malformed("this volume's blob", format!("{found:?}")))),
    }
}

/// The place of a block and its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockPlace {
    /// Offset in the blob.
    pub offset: u64,
    /// Bytes there.
    pub stored: u32,
    /// Bytes when unpacked; as many as are stored when it is not packed.
    pub raw: u32,
    /// CRC32C of the stored bytes, begun with that of their place.
    pub checksum: u32,
}

/// The checksum of bytes stored at a place: seeded with the place, so that bytes of another place,
/// or of another blob, do not match.
pub fn checksum(volume: &[u8; 16], blob: u64, offset: u64, stored: &[u8]) -> u32 {
    let sum = crc32c::crc32c(volume);
    let sum = crc32c::crc32c_append(sum, &blob.to_le_bytes());
    let sum = crc32c::crc32c_append(sum, &offset.to_le_bytes());
    crc32c::crc32c_append(sum, stored)
}

/// A range that a run deletes from the runs below it: its first key, and the first behind it.
pub type DeletedRange = (Vec<u8>, Option<Vec<u8>>);

/// The index of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunIndex {
    /// The last key; empty if there are no blocks.
    last: Vec<u8>,
    keys: Vec<u8>,
    key_ends: Vec<u32>,
    blocks: Vec<BlockPlace>,
    /// Filters, each with the first block behind those that it covers.
    filters: Vec<(u32, Filter)>,
    ranges: Vec<DeletedRange>,
}

impl RunIndex {
    /// Adds a block, which begins with `first` and ends with `last`.
    pub fn push(&mut self, first: &[u8], last: &[u8], place: BlockPlace) {
        self.keys.extend_from_slice(first);
        self.key_ends.push(u32::try_from(self.keys.len()).unwrap_or(u32::MAX));
        self.blocks.push(place);
        self.last.clear();
        self.last.extend_from_slice(last);
    }

    /// Adds a filter for all blocks that were added since the last.
    pub fn push_filter(&mut self, filter: Filter) {
        let end = u32::try_from(self.blocks.len()).unwrap_or(u32::MAX);
        self.filters.push((end, filter));
    }

    /// Adds a range that is deleted below.
    pub fn push_range(&mut self, from: &[u8], to: Option<&[u8]>) {
        self.ranges.push((from.to_vec(), to.map(<[u8]>::to_vec)));
    }

    /// The blocks, ascending.
    pub fn blocks(&self) -> &[BlockPlace] {
        &self.blocks
    }

    /// The ranges that are deleted below, ascending.
    pub fn ranges(&self) -> &[DeletedRange] {
        &self.ranges
    }

    /// The last key; empty if there are no blocks.
    pub fn last_key(&self) -> &[u8] {
        &self.last
    }

    /// The first key of a block.
    #[inline]
    pub fn first_key(&self, block: usize) -> &[u8] {
        let end = |at: usize| {
            self.key_ends.get(at).map_or(0, |&end| usize::try_from(end).unwrap_or(usize::MAX))
        };
        let start = block.checked_sub(1).map_or(0, end);
        self.keys.get(start..end(block)).unwrap_or_default()
    }

    /// The only block that may hold a key: the last that does not begin above it.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        if key > self.last.as_slice() {
            return None;
        }
        self.last_not_above(key)
    }

    /// The last block that does not begin above a key.
    pub fn last_not_above(&self, key: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (0, self.blocks.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.first_key(middle) <= key {
                low = middle.saturating_add(1);
            } else {
                high = middle;
            }
        }
        low.checked_sub(1)
    }

    /// Whether a block may have a member with the hash `member`.
    #[inline]
    pub fn may_have(&self, block: usize, member: u64) -> bool {
        let at = self
            .filters
            .partition_point(|(end, _)| usize::try_from(*end).is_ok_and(|end| end <= block));
        self.filters.get(at).is_none_or(|(_, filter)| filter.may_have(member))
    }

    /// Whether any block may have a member with the hash `member`; cheap, and `true` if there are
    /// several filters.
    #[inline]
    pub fn may_have_anywhere(&self, member: u64) -> bool {
        match self.filters.as_slice() {
            [(_, filter)] => filter.may_have(member),
            _ => true,
        }
    }

    /// Memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        let filters: usize = self.filters.iter().map(|(_, filter)| filter.memory_bytes()).sum();
        let bytes = |(from, to): &DeletedRange| {
            let keys = from.len().saturating_add(to.as_ref().map_or(0, Vec::len));
            keys.saturating_add(std::mem::size_of::<DeletedRange>())
        };
        let ranges = self.ranges.iter().map(bytes).fold(0, usize::saturating_add);
        std::mem::size_of::<RunIndex>()
            .saturating_add(self.keys.len())
            .saturating_add(self.blocks.len().saturating_mul(28))
            .saturating_add(filters)
            .saturating_add(ranges)
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        out.raw(&MAGIC);
        out.put_u32(count(self.blocks.len()));
        out.put_u32(count(self.filters.len()));
        out.put_u32(count(self.ranges.len()));
        out.put_u64(self.blocks.first().map_or(0, |block| block.offset));
        out.put_bytes(&self.last);
        let mut before: &[u8] = &[];
        for (at, block) in self.blocks.iter().enumerate() {
            let key = self.first_key(at);
            let shared = before.iter().zip(key).take_while(|(a, b)| a == b).count();
            out.put_u32(block.checksum);
            out.put_varint(u64::try_from(shared).unwrap_or(0));
            out.put_bytes(key.get(shared..).unwrap_or_default());
            out.put_varint(u64::from(block.stored));
            out.put_varint(u64::from(block.raw));
            before = key;
        }
        for (end, filter) in &self.filters {
            out.put_u32(*end);
            filter.encode(&mut out);
        }
        for (from, to) in &self.ranges {
            out.put_bytes(from);
            out.put_u8(u8::from(to.is_some()));
            out.put_bytes(to.as_deref().unwrap_or_default());
        }
        out
    }

    /// Reads an index.
    pub fn decode(bytes: &[u8]) -> Result<RunIndex, Malformed> {
        let mut reader = Reader::new(STRUCTURE, bytes);
        let magic = reader.array::<4>()?;
        if magic != MAGIC {
            return Err(reader.malformed("the index of a run", format!("{magic:?}")));
        }
        let (blocks, filters, ranges) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let mut offset = reader.u64()?;
        let mut index = RunIndex { last: read_key(&mut reader)?.to_vec(), ..RunIndex::default() };
        let mut key: Vec<u8> = Vec::new();
        for at in 0..blocks {
            let checksum = reader.u32()?;
            let shared = reader.length(key.len())?;
            let rest = read_key(&mut reader)?;
            let (stored, raw) = (read_size(&mut reader)?, read_size(&mut reader)?);
            let ascends = key.get(shared..).is_some_and(|old| old < rest);
            if at > 0 && !ascends || stored > raw {
                return Err(reader.malformed("blocks that ascend", format!("block {at}")));
            }
            key.truncate(shared);
            key.extend_from_slice(rest);
            if key.len() > crate::batch::KEY_BYTES_MAX {
                return Err(reader.malformed("a key within bounds", key.len().to_string()));
            }
            let last = std::mem::take(&mut index.last);
            index.push(&key, &last, BlockPlace { offset, stored, raw, checksum });
            offset = offset.saturating_add(u64::from(stored));
        }
        for _ in 0..filters {
            let end = reader.u32()?;
            index.filters.push((end, Filter::decode(&mut reader)?));
        }
        for _ in 0..ranges {
            let from = read_key(&mut reader)?.to_vec();
            let bounded = reader.u8()?;
            let to = read_key(&mut reader)?.to_vec();
            if bounded > 1 {
                return Err(reader.malformed("0 or 1", bounded.to_string()));
            }
            index.ranges.push((from, (bounded == 1).then_some(to)));
        }
        reader.end()?;
        if index.blocks.is_empty() && !index.last.is_empty() || key > index.last {
            return Err(reader.malformed("a last key above all blocks", format!("{key:02x?}")));
        }
        Ok(index)
    }
}

fn read_key<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let length = reader.length(crate::batch::KEY_BYTES_MAX)?;
    reader.take(length)
}

fn read_size(reader: &mut Reader<'_>) -> Result<u32, Malformed> {
    let size = reader.length(crate::run_block::BLOCK_BYTES_MAX)?;
    Ok(u32::try_from(size).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster_filter::hash;

    fn sample(blocks: u32) -> RunIndex {
        let mut index = RunIndex::default();
        let mut offset = 40;
        let mut members = Vec::new();
        for n in 0..blocks {
            let (first, last) = (format!("key{n:05}"), format!("key{n:05}z"));
            let place = BlockPlace { offset, stored: 100, raw: 200, checksum: n };
            offset = offset.saturating_add(100);
            index.push(first.as_bytes(), last.as_bytes(), place);
            members.push(hash(first.as_bytes()));
            if n % 10 == 9 || n.saturating_add(1) == blocks {
                index.push_filter(Filter::build(&std::mem::take(&mut members), 10, 1 << 20));
            }
        }
        index.push_range(b"a", Some(b"b"));
        index.push_range(b"x", None);
        index
    }

    #[test]
    fn an_index_round_trips_and_finds_blocks() {
        for blocks in [0, 1, 10, 57] {
            let index = sample(blocks);
            assert_eq!(RunIndex::decode(&index.encode()), Ok(index.clone()));
            for n in 0..blocks {
                let key = format!("key{n:05}");
                let at = index.find(key.as_bytes());
                assert_eq!(at, usize::try_from(n).ok());
                assert!(index.may_have(at.unwrap(), hash(key.as_bytes())));
            }
            assert_eq!(index.find(b"key99999"), None);
            assert_eq!(index.find(b"a"), None);
        }
    }

    #[test]
    fn ranges_are_memory_that_counts() {
        let mut index = sample(1);
        let before = index.memory_bytes();
        index.push_range(&[b'y'; 100], Some(&[b'z'; 100]));
        assert!(index.memory_bytes() >= before.saturating_add(200));
    }

    #[test]
    fn every_truncation_is_detected_and_any_bytes_fail_without_panic() {
        let bytes = sample(12).encode();
        for length in 0..bytes.len() {
            assert!(RunIndex::decode(&bytes[..length]).is_err(), "{length}");
        }
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let mut bad = bytes.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(0..bad.len());
                bad[at] = random.u8(..);
            }
            if let Ok(index) = RunIndex::decode(&bad) {
                index.find(b"key00003");
                index.may_have(3, 7);
            }
        }
    }

    #[test]
    fn a_blob_head_of_another_blob_is_refused() {
        let head = blob_head([1; 16], 7);
        assert_eq!(check_blob_head(&head, [1; 16], 7), Ok(()));
        assert!(matches!(check_blob_head(&head, [1; 16], 8), Err(Err(_))));
        assert!(matches!(check_blob_head(&head, [2; 16], 7), Err(Err(_))));
        assert!(matches!(check_blob_head(&head[..30], [1; 16], 7), Err(Err(_))));
        let mut newer = head;
        newer[8] = 2;
        assert_eq!(check_blob_head(&newer, [1; 16], 7), Err(Ok(2)));
    }

    #[test]
    fn a_checksum_depends_on_the_offset() {
        let sum = checksum(&[1; 16], 2, 3, b"bytes");
        assert_ne!(sum, checksum(&[1; 16], 2, 4, b"bytes"));
        assert_ne!(sum, checksum(&[1; 16], 3, 3, b"bytes"));
        assert_ne!(sum, checksum(&[2; 16], 2, 3, b"bytes"));
    }
}
