//! The directory of the free-space map: for each group, where its current page is
//! (`docs/format/space-map.md`).

use crate::layout::{Field, size_of};
use crate::node::{self, Kind};
use crate::space_map::GROUP_UNITS;
use crate::{Malformed, Reader, Writer};

/// Bytes of one entry.
pub const ENTRY_BYTES: usize = 8;
/// Bytes behind all entries for each page that is in units: the number of its first unit.
pub const PLACE_BYTES: usize = 4;

/// Layout of an entry.
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
    /// One in units of the file, the first of which is this: written together with others.
    Gathered(u32),
}

/// The entry of a group.
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
    /// The entry of a group in which nothing is used.
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
            PageCopy::Gathered(_) => 3,
        });
        out.put_u8(0);
    }
    for group in groups {
        if let PageCopy::Gathered(unit) = group.copy {
            out.put_u32(unit);
        }
    }
}

/// Reads the directory from a node that was verified.
pub fn decode(header: &node::Header, body: &[u8]) -> Result<Vec<Entry>, Malformed> {
    let mut reader = Reader::new(STRUCTURE, body);
    let count = usize::try_from(header.entries).unwrap_or(usize::MAX);
    if header.kind != Kind::MapDirectory || count > body.len() / ENTRY_BYTES {
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
            // Its place follows.
            3 => PageCopy::Gathered(0),
            other => return Err(reader.malformed("a copy of a page", other.to_string())),
        };
        reader.u8()?;
        groups.push(Entry { checksum, free, copy });
    }
    for group in &mut groups {
        if let PageCopy::Gathered(unit) = &mut group.copy {
            *unit = reader.u32()?;
        }
    }
    reader.end()?;
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: u64 = 77;

    fn written(groups: &[Entry]) -> (Vec<u8>, u32) {
        let mut out = Vec::new();
        encode(&mut out, 3, groups);
        let checksum = node::seal(&mut out, UNIT);
        (out, checksum)
    }

    fn read(bytes: &[u8], checksum: u32) -> Result<Vec<Entry>, Malformed> {
        let (header, body) = node::verify(bytes, UNIT, checksum)?;
        decode(&header, body)
    }

    #[test]
    fn gathered_page_positions_round_trip_and_cost_nothing_if_absent() {
        let entry = |copy| Entry { checksum: 5, free: 9, copy };
        let own = [PageCopy::None, PageCopy::A, PageCopy::B].map(entry).to_vec();
        let (bytes, checksum) = written(&own);
        assert_eq!(bytes.len(), node::HEADER_BYTES + 3 * ENTRY_BYTES, "as in version 1");
        assert_eq!(read(&bytes, checksum), Ok(own.clone()));
        let mut gathered = own;
        gathered.insert(1, entry(PageCopy::Gathered(7)));
        gathered.push(entry(PageCopy::Gathered(u32::MAX)));
        let (bytes, checksum) = written(&gathered);
        let size = node::HEADER_BYTES + 5 * ENTRY_BYTES + 2 * PLACE_BYTES;
        assert_eq!(bytes.len(), size);
        assert_eq!(read(&bytes, checksum), Ok(gathered));
    }

    #[test]
    fn a_directory_with_a_missing_or_extra_position_is_damage() {
        let entry = |copy| Entry { checksum: 5, free: 9, copy };
        let groups = [PageCopy::A, PageCopy::Gathered(7)].map(entry);
        for (drop, add) in [(4, 0), (1, 0), (0, 4)] {
            let mut out = Vec::new();
            encode(&mut out, 3, &groups);
            out.truncate(out.len().saturating_sub(drop));
            out.resize(out.len().saturating_add(add), 0);
            let checksum = node::seal(&mut out, UNIT);
            assert!(read(&out, checksum).is_err(), "{drop} bytes less, {add} more");
        }
    }
}
