//! B-tree nodes on disk: a fixed header, then a body by kind (`docs/format/node.md`).
//!
//! A node is encoded before it has a place. [`seal`] then writes the place into the header and
//! yields the checksum that goes into the pointer.

use crate::layout::{Field, size_of};
use crate::{Malformed, POINTER_BYTES, Pointer, Reader, Writer};

/// The magic number of a node.
pub const MAGIC: [u8; 4] = *b"PNOD";
/// The newest version that this program writes and reads.
pub const VERSION: u16 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 32;
/// Space in the nodes file is allocated in units of this many bytes.
pub const UNIT_BYTES: usize = 1024;
/// Highest level of a node; leaves are on level 0. A tree of that height has more entries than any
/// disk can store.
pub const LEVEL_MAX: u8 = 24;
/// Longest encoded leaf or interior node.
pub const NODE_BYTES_MAX: usize = 64 << 10;
/// Longest value that is stored in a leaf. A longer one has an overflow node of its own.
pub const INLINE_VALUE_BYTES_MAX: usize = 2048;

/// Layout of the header.
pub const LAYOUT: &[Field] = &[
    Field::fixed("magic", "bytes", 4),
    Field::fixed("version", "u16 LE", 2),
    Field::fixed("kind", "u8", 1),
    Field::fixed("level", "u8", 1),
    Field::fixed("address", "u64 LE", 8),
    Field::fixed("generation", "u64 LE", 8),
    Field::fixed("entries", "u32 LE", 4),
    Field::fixed("body", "u32 LE", 4),
];

const _: () = assert!(size_of(LAYOUT) == HEADER_BYTES);

/// Offsets of the address, and of the length of the body, in the header.
const ADDRESS: std::ops::Range<usize> = 8..16;
const BODY: std::ops::Range<usize> = 28..32;

const STRUCTURE: &str = "node";

/// The kind of a node. DO NOT CHANGE THESE VALUES: they are on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Keys with values.
    Leaf = 1,
    /// Separators between children.
    Interior = 2,
    /// One long value.
    Overflow = 3,
    /// Where the current pages of the free-space map are.
    MapDirectory = 4,
    /// One page of the free-space map.
    MapPage = 5,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Kind::Leaf => 1,
            Kind::Interior => 2,
            Kind::Overflow => 3,
            Kind::MapDirectory => 4,
            Kind::MapPage => 5,
        }
    }

    fn from_code(code: u8) -> Option<Kind> {
        match code {
            1 => Some(Kind::Leaf),
            2 => Some(Kind::Interior),
            3 => Some(Kind::Overflow),
            4 => Some(Kind::MapDirectory),
            5 => Some(Kind::MapPage),
            _ => None,
        }
    }
}

/// The header of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Its kind.
    pub kind: Kind,
    /// Distance from the leaves.
    pub level: u8,
    /// Number of its first unit (of its group, for a map page).
    pub address: u64,
    /// The checkpoint that wrote it.
    pub generation: u64,
    /// Entries of a leaf, children of an interior node; for other kinds see there.
    pub entries: u32,
    /// Bytes after the header.
    pub body: u32,
}

/// Begins a node in an empty buffer. The body is appended, then [`seal`] is called.
pub fn begin(out: &mut Vec<u8>, kind: Kind, level: u8, generation: u64, entries: u32) {
    out.raw(&MAGIC);
    out.put_u16(VERSION);
    out.put_u8(kind.code());
    out.put_u8(level);
    out.put_u64(0);
    out.put_u64(generation);
    out.put_u32(entries);
    out.put_u32(0);
}

/// Completes a node that is to be stored at `address`; returns its checksum.
pub fn seal(node: &mut [u8], address: u64) -> u32 {
    let body = u32::try_from(node.len().saturating_sub(HEADER_BYTES)).unwrap_or(u32::MAX);
    if let Some(slot) = node.get_mut(ADDRESS) {
        slot.copy_from_slice(&address.to_le_bytes());
    }
    if let Some(slot) = node.get_mut(BODY) {
        slot.copy_from_slice(&body.to_le_bytes());
    }
    crc32c::crc32c(node)
}

/// Checks a node that was read from the place in a pointer, and splits it into header and body.
/// `bytes` may end in padding.
pub fn verify(bytes: &[u8], address: u64, checksum: u32) -> Result<(Header, &[u8]), Malformed> {
    let mut reader = Reader::new(STRUCTURE, bytes);
    let magic: [u8; 4] = reader.array()?;
    if magic != MAGIC {
        return Err(Reader::new(STRUCTURE, bytes).malformed("PNOD", format!("{magic:02x?}")));
    }
    let version = reader.u16()?;
    let kind = reader.u8()?;
    let level = reader.u8()?;
    let found = reader.u64()?;
    let generation = reader.u64()?;
    let entries = reader.u32()?;
    let body = reader.u32()?;
    let length = usize::try_from(body).unwrap_or(usize::MAX).saturating_add(HEADER_BYTES);
    let Some(whole) = bytes.get(..length) else {
        return Err(reader.malformed("a body that fits", body.to_string()));
    };
    let sum = crc32c::crc32c(whole);
    if sum != checksum {
        let found = format!("a node that sums to {sum:08x}, not {checksum:08x}");
        return Err(Reader::new(STRUCTURE, bytes).malformed("the pointer's checksum", found));
    }
    if version != VERSION {
        return Err(reader.malformed("node version 1", version.to_string()));
    }
    if found != address {
        return Err(reader.malformed("the node's own address", found.to_string()));
    }
    if level > LEVEL_MAX {
        return Err(reader.malformed("a level within bounds", level.to_string()));
    }
    let Some(kind) = Kind::from_code(kind) else {
        return Err(reader.malformed("a kind of node", kind.to_string()));
    };
    let header = Header { kind, level, address, generation, entries, body };
    Ok((header, whole.get(HEADER_BYTES..).unwrap_or_default()))
}

/// Appends the common prefix of the keys of a leaf or interior node.
pub fn put_prefix(out: &mut Vec<u8>, prefix: &[u8]) {
    out.put_bytes(prefix);
}

/// Appends an entry of a leaf, its key without the prefix.
pub fn put_inline(out: &mut Vec<u8>, suffix: &[u8], value: &[u8]) {
    out.put_bytes(suffix);
    out.put_varint(u64::try_from(value.len()).unwrap_or(0) << 1);
    out.raw(value);
}

/// Appends an entry whose value of `length` bytes is in an overflow node.
pub fn put_overflow(out: &mut Vec<u8>, suffix: &[u8], length: u32, pointer: &Pointer) {
    out.put_bytes(suffix);
    out.put_varint(u64::from(length) << 1 | 1);
    pointer.encode(out);
}

/// Appends the first child of an interior node.
pub fn put_first_child(out: &mut Vec<u8>, pointer: &Pointer) {
    pointer.encode(out);
}

/// Appends a further child; its keys are not less than the separator.
pub fn put_child(out: &mut Vec<u8>, suffix: &[u8], pointer: &Pointer) {
    out.put_bytes(suffix);
    pointer.encode(out);
}

/// A value in a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeafValue<'a> {
    /// The value is stored in the leaf.
    Inline(&'a [u8]),
    /// It has a node of its own.
    Overflow {
        /// The node.
        pointer: Pointer,
        /// Bytes of the value.
        length: u32,
    },
}

/// The body of a leaf, entry by entry. After an error there are no more.
#[derive(Debug, Clone)]
pub struct LeafBody<'a> {
    reader: Reader<'a>,
    prefix: &'a [u8],
    left: u32,
}

impl<'a> LeafBody<'a> {
    /// Reads the prefix.
    pub fn new(header: &Header, body: &'a [u8]) -> Result<LeafBody<'a>, Malformed> {
        let mut reader = Reader::new(STRUCTURE, body);
        expect_kind(&reader, header, Kind::Leaf)?;
        let prefix = prefix(&mut reader)?;
        Ok(LeafBody { reader, prefix, left: header.entries })
    }

    /// The common prefix of all keys.
    pub fn prefix(&self) -> &'a [u8] {
        self.prefix
    }

    fn entry(&mut self) -> Result<(&'a [u8], LeafValue<'a>), Malformed> {
        let length = self.reader.length(crate::batch::KEY_BYTES_MAX)?;
        let suffix = self.reader.take(length)?;
        let coded = self.reader.length(crate::batch::VALUE_BYTES_MAX.saturating_mul(2) | 1)?;
        let length = coded >> 1;
        let value = if coded & 1 == 0 {
            if length > INLINE_VALUE_BYTES_MAX {
                return Err(self.reader.malformed("a short value", length.to_string()));
            }
            LeafValue::Inline(self.reader.take(length)?)
        } else {
            let pointer = Pointer::decode(&mut self.reader)?;
            LeafValue::Overflow { pointer, length: u32::try_from(length).unwrap_or(u32::MAX) }
        };
        Ok((suffix, value))
    }

    /// The next entry: its key without the prefix, and its value.
    pub fn next_entry(&mut self) -> Result<Option<(&'a [u8], LeafValue<'a>)>, Malformed> {
        if self.left == 0 {
            self.reader.end()?;
            return Ok(None);
        }
        self.left = self.left.saturating_sub(1);
        self.entry().map(Some)
    }
}

/// The body of an interior node, child by child.
#[derive(Debug, Clone)]
pub struct InteriorBody<'a> {
    reader: Reader<'a>,
    prefix: &'a [u8],
    first: Pointer,
    left: u32,
}

impl<'a> InteriorBody<'a> {
    /// Reads the prefix and the first child.
    pub fn new(header: &Header, body: &'a [u8]) -> Result<InteriorBody<'a>, Malformed> {
        let mut reader = Reader::new(STRUCTURE, body);
        expect_kind(&reader, header, Kind::Interior)?;
        if header.level == 0 || header.entries == 0 {
            return Err(reader.malformed("an interior node with children", "none"));
        }
        let prefix = prefix(&mut reader)?;
        let first = Pointer::decode(&mut reader)?;
        Ok(InteriorBody { reader, prefix, first, left: header.entries.saturating_sub(1) })
    }

    /// The common prefix of all separators.
    pub fn prefix(&self) -> &'a [u8] {
        self.prefix
    }

    /// The first child.
    pub fn first(&self) -> Pointer {
        self.first
    }

    /// The next separator, without the prefix, and the child behind it.
    pub fn next_child(&mut self) -> Result<Option<(&'a [u8], Pointer)>, Malformed> {
        if self.left == 0 {
            self.reader.end()?;
            return Ok(None);
        }
        self.left = self.left.saturating_sub(1);
        let length = self.reader.length(crate::batch::KEY_BYTES_MAX)?;
        let suffix = self.reader.take(length)?;
        Ok(Some((suffix, Pointer::decode(&mut self.reader)?)))
    }
}

fn prefix<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let length = reader.length(crate::batch::KEY_BYTES_MAX)?;
    reader.take(length)
}

fn expect_kind(reader: &Reader<'_>, header: &Header, kind: Kind) -> Result<(), Malformed> {
    if header.kind == kind {
        Ok(())
    } else {
        Err(reader.malformed("another kind of node", format!("{:?}", header.kind)))
    }
}

const _: () = assert!(POINTER_BYTES == 12, "an entry with an overflow node weighs 12 bytes");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::damaged::every_flipped_bit_is_refused;

    #[test]
    fn a_leaf_round_trips_and_every_flipped_bit_is_detected() {
        let far = Pointer { unit: 77, units: 3, overflows: false, checksum: 5 };
        let mut node = Vec::new();
        begin(&mut node, Kind::Leaf, 0, 9, 2);
        put_prefix(&mut node, b"common");
        put_inline(&mut node, b"a", b"value");
        put_overflow(&mut node, b"b", 5000, &far);
        let sum = seal(&mut node, 42);
        let (header, body) = verify(&node, 42, sum).unwrap();
        assert_eq!((header.generation, header.entries), (9, 2));
        let mut leaf = LeafBody::new(&header, body).unwrap();
        assert_eq!(leaf.prefix(), b"common");
        let first = leaf.next_entry().unwrap().unwrap();
        assert_eq!(first, (&b"a"[..], LeafValue::Inline(b"value")));
        let second = leaf.next_entry().unwrap().unwrap();
        assert_eq!(second, (&b"b"[..], LeafValue::Overflow { pointer: far, length: 5000 }));
        assert!(leaf.next_entry().unwrap().is_none());
        every_flipped_bit_is_refused(&node, |bad| verify(bad, 42, sum).is_err());
        assert!(verify(&node, 43, sum).is_err(), "a misdirected node");
    }

    #[test]
    fn an_interior_node_round_trips() {
        let at = |unit| Pointer { unit, units: 1, overflows: true, checksum: 7 };
        let mut node = Vec::new();
        begin(&mut node, Kind::Interior, 3, 1, 2);
        put_prefix(&mut node, b"");
        put_first_child(&mut node, &at(1));
        put_child(&mut node, b"m", &at(UNITS_END_LESS));
        let sum = seal(&mut node, 8);
        let (header, body) = verify(&node, 8, sum).unwrap();
        let mut interior = InteriorBody::new(&header, body).unwrap();
        assert_eq!(interior.first(), at(1));
        assert_eq!(interior.next_child().unwrap(), Some((&b"m"[..], at(UNITS_END_LESS))));
        assert_eq!(interior.next_child().unwrap(), None);
    }

    const UNITS_END_LESS: u64 = crate::UNITS_END - 1;

    #[test]
    fn any_bytes_are_refused_without_panic() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let body: Vec<u8> = (0..random.usize(0..80)).map(|_| random.u8(..)).collect();
            let entries = random.u32(0..9);
            let kind = if random.bool() { Kind::Leaf } else { Kind::Interior };
            let header = Header {
                kind,
                level: random.u8(0..3),
                address: 0,
                generation: 0,
                entries,
                body: 0,
            };
            if let Ok(mut leaf) = LeafBody::new(&header, &body) {
                while let Ok(Some(_)) = leaf.next_entry() {}
            }
            if let Ok(mut interior) = InteriorBody::new(&header, &body) {
                while let Ok(Some(_)) = interior.next_child() {}
            }
        }
    }
}
