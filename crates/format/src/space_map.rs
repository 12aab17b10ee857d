//! Pages of the free-space map: a reference count for each unit of a group
//! (`docs/format/space-map.md`).
//!
//! The nodes file is a sequence of groups, each `page A | page B | units`. A page is written to the
//! copy that is not current, so a checkpoint that fails or is interrupted leaves the current one
//! whole.

use crate::node::{self, HEADER_BYTES, Kind, UNIT_BYTES};
use crate::{Malformed, Reader, Writer};

/// Bytes of a page, header included.
pub const PAGE_BYTES: usize = 16 << 10;
/// Units of a group: as many as a page has counts.
pub const GROUP_UNITS: usize = (PAGE_BYTES - HEADER_BYTES) / 4;
/// Bytes of a group in the file.
pub const GROUP_BYTES: usize = 2 * PAGE_BYTES + GROUP_UNITS * UNIT_BYTES;
/// Count of a unit that continues the node before it.
pub const CONTINUATION: u32 = u32::MAX;
/// Greatest reference count.
pub const COUNT_MAX: u32 = u32::MAX - 2;

const STRUCTURE: &str = "space map page";

/// Appends a page. It holds [`GROUP_UNITS`] counts. The checksum is what `seal` returns.
pub fn encode(out: &mut Vec<u8>, group: u64, generation: u64, counts: &[u32]) -> u32 {
    let entries = u32::try_from(counts.len()).unwrap_or(0);
    node::begin(out, Kind::MapPage, 0, generation, entries);
    for &count in counts {
        out.put_u32(count);
    }
    node::seal(out, group)
}

/// Reads a page.
pub fn decode(bytes: &[u8], group: u64, checksum: u32) -> Result<Vec<u32>, Malformed> {
    let (header, body) = node::verify(bytes, group, checksum)?;
    let mut reader = Reader::new(STRUCTURE, body);
    if header.kind != Kind::MapPage || body.len() != GROUP_UNITS.saturating_mul(4) {
        return Err(reader.malformed("a page of the space map", format!("{:?}", header.kind)));
    }
    let mut counts = Vec::with_capacity(GROUP_UNITS);
    for _ in 0..GROUP_UNITS {
        counts.push(reader.u32()?);
    }
    Ok(counts)
}
