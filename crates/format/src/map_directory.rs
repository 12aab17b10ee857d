//! The directory of the free-space map: for each group, which copy of its page is current
//! (`docs/format/space-map.md`).

use crate::layout::{Field, size_of};
use crate::node::{self, Kind};
use crate::space_map::GROUP_UNITS;
use crate::{Malformed, Reader, Writer};

/// Bytes of one entry.
pub const ENTRY_BYTES: usize = 8;

/// Where the fields of an entry lie.
pub const LAYOUT: &[Field] = &[
    Field::fixed("checksum", "u32 LE", 4),
    Field::fixed("free", "u16 LE", 2),
    Field::fixed("copy", "u8", 1),
    Field::fixed("reserved", "zeros", 1),
];

const _: () = assert!(size_of(LAYOUT) == ENTRY_BYTES);

const STRUCTURE: &str = "space map directory";

/// Which copy of a page is current. DO NOT CHANGE THE CODES: they are on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageCopy {
    /// None was written: all units are free.
    None,
    /// The first.
    A,
    /// The second.
    B,
}

/// What is known of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// CRC32C of the current page.
    pub checksum: u32,
    /// Units whose count is zero.
    pub free: u16,
    /// Which page is current.
    pub copy: PageCopy,
}

impl Entry {
    /// A group of which nothing is used.
    pub fn empty() -> Entry {
        let free = u16::try_from(GROUP_UNITS).unwrap_or(u16::MAX);
        Entry { checksum: 0, free, copy: PageCopy::None }
    }
}

/// Appends the node that holds the directory, for `seal`.
pub fn encode(out: &mut Vec<u8>, generation: u64, groups: &[Entry]) {
    let count = u32::try_from(groups.len()).unwrap_or(u32::MAX);
    node::begin(out, Kind::MapDirectory, 0, generation, count);
    for group in groups {
        out.put_u32(group.checksum);
        out.put_u16(group.free);
        out.put_u8(match group.copy {
            PageCopy::None => 0,
            PageCopy::A => 1,
            PageCopy::B => 2,
        });
        out.put_u8(0);
    }
}

/// Reads the directory from a node that was verified.
pub fn decode(header: &node::Header, body: &[u8]) -> Result<Vec<Entry>, Malformed> {
    let mut reader = Reader::new(STRUCTURE, body);
    let count = body.len() / ENTRY_BYTES;
    if header.kind != Kind::MapDirectory || usize::try_from(header.entries) != Ok(count) {
        return Err(reader.malformed("a directory of the space map", format!("{header:?}")));
    }
    let mut groups = Vec::with_capacity(count);
    for _ in 0..count {
        let checksum = reader.u32()?;
        let free = reader.u16()?;
        if usize::from(free) > GROUP_UNITS {
            return Err(reader.malformed("no more free units than there are", free.to_string()));
        }
        let copy = match reader.u8()? {
            0 => PageCopy::None,
            1 => PageCopy::A,
            2 => PageCopy::B,
            other => return Err(reader.malformed("a copy of a page", other.to_string())),
        };
        reader.u8()?;
        groups.push(Entry { checksum, free, copy });
    }
    reader.end()?;
    Ok(groups)
}
