//! A pointer to a node on disk: its place, its length, and the checksum of its bytes.
//!
//! The checksum is in the pointer, not beside the data. So a reader recognises a block that is
//! whole but stale, or another node's (`docs/format/node.md`).

use crate::layout::{Field, size_of};
use crate::{Malformed, Reader, Writer};

/// Bytes of an encoded pointer.
pub const POINTER_BYTES: usize = 12;
/// First unit number that does not fit.
pub const UNITS_END: u64 = 1 << 48;
/// Most units of one node.
pub const POINTER_UNITS_MAX: u16 = 0x7fff;

/// Layout of a pointer.
pub const LAYOUT: &[Field] = &[
    Field::fixed("unit", "u48 LE", 6),
    Field::fixed("units", "u16 LE", 2),
    Field::fixed("checksum", "u32 LE", 4),
];

const _: () = assert!(size_of(LAYOUT) == POINTER_BYTES);

/// Set in `units` when the node is a leaf that points to overflow nodes.
const OVERFLOWS: u16 = 0x8000;

/// The place of a node, and the checksum of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pointer {
    /// Number of the first unit.
    pub unit: u64,
    /// How many units it takes.
    pub units: u16,
    /// Whether it is a leaf that points to overflow nodes. A leaf that does not is freed unread.
    pub overflows: bool,
    /// CRC32C of the node's bytes, header included, without padding.
    pub checksum: u32,
}

impl Pointer {
    /// Appends the pointer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let [a, b, c, d, e, f, ..] = self.unit.to_le_bytes();
        out.raw(&[a, b, c, d, e, f]);
        out.put_u16(if self.overflows { self.units | OVERFLOWS } else { self.units });
        out.put_u32(self.checksum);
    }

    /// Reads a pointer.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Pointer, Malformed> {
        let [a, b, c, d, e, f] = reader.array()?;
        let unit = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
        let units = reader.u16()?;
        let pointer = Pointer {
            unit,
            units: units & !OVERFLOWS,
            overflows: units & OVERFLOWS != 0,
            checksum: reader.u32()?,
        };
        if pointer.units == 0 {
            return Err(reader.malformed("a pointer to at least one unit", "0 units"));
        }
        Ok(pointer)
    }
}
