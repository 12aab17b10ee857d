//! A block of a sorted run: a header, a mini-page of keys and a mini-page of values, after PAX and
//! BabuDB's Fig. 2 (`docs/format/run-block.md`).
//!
//! Keys are stored without the common prefix of the block. So a binary search reads only the
//! mini-page of keys, and compares the prefix once.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::io;

use zstd::bulk::{Compressor, Decompressor};

use crate::layout::{Field, size_of};
use crate::{Malformed, Reader, Writer};

/// Layout of the header.
pub const LAYOUT: &[Field] = &[
    Field::fixed("entries", "u32 LE", 4),
    Field::fixed("prefix", "u16 LE", 2),
    Field::fixed("reserved", "zeros", 2),
    Field::fixed("keys", "u32 LE", 4),
    Field::fixed("values", "u32 LE", 4),
];
const HEADER_BYTES: usize = 16;
const _: () = assert!(size_of(LAYOUT) == HEADER_BYTES);

const STRUCTURE: &str = "block of a run";

/// Most bytes of a block that is not packed: one entry of the greatest length fits.
pub const BLOCK_BYTES_MAX: usize = 2 << 20;
/// Bytes of an entry's pointer in the mini-page of keys.
const KEY_POINTER_BYTES: usize = 4;
/// Bytes of an entry's pointer in the mini-page of values.
const VALUE_POINTER_BYTES: usize = 4;
/// In the pointer of a value: the entry is a tombstone.
const TOMBSTONE: u32 = 1 << 31;
/// In the pointer of a value: its bytes are a pointer to a row of a value log.
const FAR: u32 = 1 << 30;
/// The remaining bits of the pointer of a value.
const END: u32 = !(TOMBSTONE | FAR);

/// The entry of a block for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored<'a> {
    /// The key is deleted.
    Tombstone,
    /// Its value.
    Value(&'a [u8]),
    /// The bytes of a [`crate::row_pointer::RowPointer`]: the value is in a value log.
    Far(&'a [u8]),
}

/// Collects the entries of one block, in ascending order of their keys.
#[derive(Debug, Default)]
pub struct BlockBuilder {
    keys: Vec<u8>,
    key_ends: Vec<u32>,
    values: Vec<u8>,
    value_ends: Vec<u32>,
}

impl BlockBuilder {
    /// Adds an entry.
    pub fn push(&mut self, key: &[u8], stored: Stored<'_>) {
        let end = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.keys.extend_from_slice(key);
        self.key_ends.push(end(&self.keys));
        let (bytes, kind): (&[u8], u32) = match stored {
            Stored::Tombstone => (&[], TOMBSTONE),
            Stored::Value(value) => (value, 0),
            Stored::Far(pointer) => (pointer, FAR),
        };
        self.values.extend_from_slice(bytes);
        self.value_ends.push(end(&self.values) | kind);
    }

    /// How many entries it has.
    pub fn len(&self) -> usize {
        self.key_ends.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.key_ends.is_empty()
    }

    /// Bytes of the block, without the savings of the common prefix.
    pub fn bytes(&self) -> usize {
        let pointers = self.len().saturating_mul(KEY_POINTER_BYTES + VALUE_POINTER_BYTES);
        self.keys.len().saturating_add(self.values.len()).saturating_add(pointers)
    }

    fn key(&self, at: usize) -> &[u8] {
        let end = |at: usize| self.key_ends.get(at).map_or(0, |&end| usize_of(end));
        let start = at.checked_sub(1).map_or(0, end);
        self.keys.get(start..end(at)).unwrap_or_default()
    }

    /// The first key.
    pub fn first_key(&self) -> &[u8] {
        self.key(0)
    }

    /// The last key.
    pub fn last_key(&self) -> &[u8] {
        self.key(self.len().saturating_sub(1))
    }

    /// The bytes of the block; the builder is empty afterwards and keeps its memory.
    pub fn finish(&mut self) -> Vec<u8> {
        let (first, last) = (self.first_key(), self.last_key());
        let prefix = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let suffixes = self.keys.len().saturating_sub(prefix.saturating_mul(self.len()));
        let keys = suffixes.saturating_add(self.len().saturating_mul(KEY_POINTER_BYTES));
        let pointers = self.len().saturating_mul(VALUE_POINTER_BYTES);
        let values = self.values.len().saturating_add(pointers);
        let total = HEADER_BYTES.saturating_add(prefix).saturating_add(keys);
        let mut out = Vec::with_capacity(total.saturating_add(values));
        let size = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        out.put_u32(size(self.len()));
        out.put_u16(u16::try_from(prefix).unwrap_or(u16::MAX));
        out.put_u16(0);
        out.put_u32(size(keys));
        out.put_u32(size(values));
        out.raw(first.get(..prefix).unwrap_or_default());
        for at in 0..self.len() {
            out.raw(self.key(at).get(prefix..).unwrap_or_default());
        }
        let mut less = 0_u32;
        for end in &self.key_ends {
            less = less.saturating_add(size(prefix));
            out.put_u32(end.saturating_sub(less));
        }
        out.raw(&self.values);
        for end in &self.value_ends {
            out.put_u32(*end);
        }
        self.keys.clear();
        self.key_ends.clear();
        self.values.clear();
        self.value_ends.clear();
        out
    }
}

fn usize_of(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// A block. It was checked that nothing in it points outside it. The order of its keys is only
/// covered by its checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    bytes: Box<[u8]>,
    entries: usize,
    /// Where the suffixes of the keys begin.
    keys: usize,
    key_pointers: usize,
    values: usize,
    value_pointers: usize,
}

impl Block {
    /// Reads a block.
    pub fn decode(bytes: Vec<u8>) -> Result<Block, Malformed> {
        let mut reader = Reader::new(STRUCTURE, &bytes);
        let entries = usize_of(reader.u32()?);
        let prefix = usize::from(reader.u16()?);
        let reserved = reader.u16()?;
        let (key_bytes, value_bytes) = (usize_of(reader.u32()?), usize_of(reader.u32()?));
        reader.take(prefix)?;
        let keys = reader.position();
        reader.take(key_bytes)?;
        let values = reader.position();
        reader.take(value_bytes)?;
        let suffixes = key_bytes.checked_sub(entries.saturating_mul(KEY_POINTER_BYTES));
        let bodies = value_bytes.checked_sub(entries.saturating_mul(VALUE_POINTER_BYTES));
        let (Some(suffixes), Some(bodies), 0) = (suffixes, bodies, reserved) else {
            return Err(reader.malformed("pointers within their pages", entries.to_string()));
        };
        reader.end()?;
        let block = Block {
            entries,
            keys,
            key_pointers: keys.saturating_add(suffixes),
            values,
            value_pointers: values.saturating_add(bodies),
            bytes: Box::default(),
        };
        let ends = |start: usize, count: usize, mask: u32, whole: usize| {
            let pointers = bytes.get(start..start.saturating_add(count.saturating_mul(4)));
            let (pointers, _) = pointers.unwrap_or_default().as_chunks::<4>();
            let mut last = 0;
            let ascend = pointers.iter().all(|pointer| {
                let pointer = u32::from_le_bytes(*pointer);
                let end = usize_of(pointer & mask);
                end >= std::mem::replace(&mut last, end) && pointer & !mask != !END
            });
            ascend && last == whole
        };
        if entries > 0
            && ends(block.key_pointers, entries, u32::MAX, suffixes)
            && ends(block.value_pointers, entries, END, bodies)
        {
            return Ok(Block { bytes: bytes.into(), ..block });
        }
        Err(Reader::new(STRUCTURE, &bytes)
            .malformed("entries whose pointers ascend to the end", format!("{entries} entries")))
    }

    /// The number of entries; never 0.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether it has no entries: never true.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        std::mem::size_of::<Block>().saturating_add(self.bytes.len())
    }

    /// The common prefix of all keys.
    pub fn prefix(&self) -> &[u8] {
        self.bytes.get(HEADER_BYTES..self.keys).unwrap_or_default()
    }

    #[inline]
    fn pointer(&self, base: usize, at: usize) -> u32 {
        let start = base.saturating_add(at.saturating_mul(4));
        let chunk = self.bytes.get(start..).and_then(|rest| rest.first_chunk::<4>());
        chunk.map_or(0, |chunk| u32::from_le_bytes(*chunk))
    }

    /// A key without the prefix; `None` behind the last.
    #[inline]
    pub fn suffix(&self, at: usize) -> &[u8] {
        let end = |at: usize| usize_of(self.pointer(self.key_pointers, at));
        let start = at.checked_sub(1).map_or(0, end);
        let (start, end) = (self.keys.saturating_add(start), self.keys.saturating_add(end(at)));
        self.bytes.get(start..end).unwrap_or_default()
    }

    /// Appends a key.
    pub fn key_to(&self, at: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(self.prefix());
        out.extend_from_slice(self.suffix(at));
    }

    /// The content of an entry.
    #[inline]
    pub fn stored(&self, at: usize) -> Stored<'_> {
        let end = |at: usize| usize_of(self.pointer(self.value_pointers, at) & END);
        let kind = self.pointer(self.value_pointers, at) & !END;
        if kind == TOMBSTONE {
            return Stored::Tombstone;
        }
        let start = self.values.saturating_add(at.checked_sub(1).map_or(0, end));
        let bytes = self.bytes.get(start..self.values.saturating_add(end(at)));
        let bytes = bytes.unwrap_or_default();
        if kind == FAR { Stored::Far(bytes) } else { Stored::Value(bytes) }
    }

    /// The position of a key, or where it would be.
    #[inline]
    pub fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let prefix = self.prefix();
        let Some(suffix) = key.strip_prefix(prefix) else {
            return Err(if key < prefix { 0 } else { self.entries });
        };
        let (mut low, mut high) = (0, self.entries);
        while low < high {
            let middle = low.midpoint(high);
            match self.suffix(middle).cmp(suffix) {
                Ordering::Less => low = middle.saturating_add(1),
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }
}

thread_local! {
    // Creating one takes longer than packing a block.
    static PACKER: RefCell<Option<(i32, Compressor<'static>)>> = const { RefCell::new(None) };
    static UNPACKER: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

fn compress(bytes: &[u8], level: i32) -> io::Result<Vec<u8>> {
    PACKER.with_borrow_mut(|packer| {
        let kept = packer.take().filter(|(made, _)| *made == level);
        let (_, compressor) = match kept {
            Some(kept) => packer.insert(kept),
            None => packer.insert((level, Compressor::new(level)?)),
        };
        compressor.compress(bytes)
    })
}

fn decompress(packed: &[u8], raw: usize) -> io::Result<Vec<u8>> {
    UNPACKER.with_borrow_mut(|unpacker| {
        let decompressor = match unpacker {
            Some(made) => made,
            None => unpacker.insert(Decompressor::new()?),
        };
        decompressor.decompress(packed, raw)
    })
}

/// Packs a block with zstd; `None` if that would not save an eighth.
pub fn pack(block: &[u8], level: i32) -> Option<Vec<u8>> {
    let packed = compress(block, level).ok()?;
    (packed.len() < block.len().saturating_sub(block.len().wrapping_shr(3))).then_some(packed)
}

/// Unpacks a block of `raw` bytes.
pub fn unpack(packed: &[u8], raw: usize) -> Result<Vec<u8>, Malformed> {
    let reader = Reader::new(STRUCTURE, packed);
    if raw > BLOCK_BYTES_MAX {
        return Err(reader.malformed("a block within bounds", raw.to_string()));
    }
    let bytes = decompress(packed, raw)
        .map_err(|error| reader.malformed("what zstd packed", error.to_string()))?;
    if bytes.len() != raw {
        return Err(reader.malformed("as many bytes as were packed", bytes.len().to_string()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Entries = Vec<(Vec<u8>, Option<Vec<u8>>)>;

    /// Every third value is a pointer.
    fn stored(at: usize, value: Option<&[u8]>) -> Stored<'_> {
        match value {
            None => Stored::Tombstone,
            Some(value) if at % 3 == 2 => Stored::Far(value),
            Some(value) => Stored::Value(value),
        }
    }

    fn entries(random: &mut fastrand::Rng) -> Entries {
        let prefix: Vec<u8> = (0..random.usize(0..20)).map(|_| random.u8(..)).collect();
        let count = random.usize(1..60);
        let mut keys: Vec<Vec<u8>> = (0..count)
            .map(|_| {
                let length = random.usize(0..12);
                prefix.iter().copied().chain((0..length).map(|_| random.u8(0..4))).collect()
            })
            .collect();
        keys.sort();
        keys.dedup();
        keys.into_iter()
            .map(|key| (key, random.bool().then(|| vec![random.u8(..); random.usize(0..30)])))
            .collect()
    }

    fn build(entries: &Entries) -> Vec<u8> {
        let mut builder = BlockBuilder::default();
        for (at, (key, value)) in entries.iter().enumerate() {
            builder.push(key, stored(at, value.as_deref()));
        }
        builder.finish()
    }

    #[test]
    fn entries_round_trip_and_are_found() {
        for seed in 0..500 {
            let mut random = fastrand::Rng::with_seed(seed);
            let entries = entries(&mut random);
            let block = Block::decode(build(&entries)).unwrap();
            assert_eq!(block.len(), entries.len());
            for (at, (key, value)) in entries.iter().enumerate() {
                let mut found = Vec::new();
                block.key_to(at, &mut found);
                let expected = stored(at, value.as_deref());
                assert_eq!((&found, block.stored(at)), (key, expected), "seed {seed}");
                assert_eq!(block.search(key), Ok(at));
            }
            for _ in 0..50 {
                let key: Vec<u8> = (0..random.usize(0..24)).map(|_| random.u8(0..5)).collect();
                let expected = entries.binary_search_by(|(other, _)| other.cmp(&key));
                assert_eq!(block.search(&key), expected, "seed {seed}");
            }
        }
    }

    #[test]
    fn encoded_bytes_are_fixed() {
        let block = build(&vec![(b"ka".to_vec(), Some(b"v".to_vec())), (b"kb".to_vec(), None)]);
        let hex = block.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        let header = "02000000".to_owned() + "0100" + "0000" + "0a000000" + "09000000";
        assert_eq!(hex, header + "6b" + "6162" + "0100000002000000" + "76" + "0100000001000080");
        let mut builder = BlockBuilder::default();
        builder.push(b"k", Stored::Far(b"ptr"));
        let block = builder.finish();
        assert!(block.ends_with(b"ptr\x03\x00\x00\x40"), "{block:02x?}");
        // An entry cannot be both.
        let mut both = block;
        *both.last_mut().unwrap() |= 0x80;
        assert!(Block::decode(both).is_err());
    }

    #[test]
    fn packed_blocks_round_trip() {
        let entries = (0..200_u32).map(|n| (n.to_be_bytes().to_vec(), Some(vec![7; 30]))).collect();
        let block = build(&entries);
        let packed = pack(&block, 1).unwrap();
        assert_eq!(unpack(&packed, block.len()), Ok(block.clone()));
        assert!(unpack(&packed, block.len() - 1).is_err());
        assert!(unpack(&packed, block.len() + 1).is_err());
        assert_eq!(pack(&[1, 2, 3], 1), None);
    }

    #[test]
    fn any_bytes_decode_or_fail_without_panic() {
        let mut random = fastrand::Rng::with_seed(1);
        let good = build(&entries(&mut random));
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(0..bytes.len().min(40));
                bytes[at] = random.u8(..);
            }
            bytes.truncate(random.usize(0..=bytes.len()));
            if let Ok(block) = Block::decode(bytes) {
                for at in 0..block.len().min(100) {
                    block.key_to(at, &mut Vec::new());
                    block.stored(at);
                }
                assert!(block.search(b"key").unwrap_or_else(|at| at) <= block.len());
            }
        }
    }
}
