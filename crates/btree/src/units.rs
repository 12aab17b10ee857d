//! Where the units of nodes are in their file: each group begins with two pages of the space map.

use format::node::UNIT_BYTES;
use format::space_map::{GROUP_BYTES, GROUP_UNITS, PAGE_BYTES};

/// The file offset of a unit.
pub(crate) fn unit_offset(unit: u64) -> u64 {
    let (group, index) = (unit / GROUP_UNITS as u64, unit % GROUP_UNITS as u64);
    group * GROUP_BYTES as u64 + 2 * PAGE_BYTES as u64 + index * UNIT_BYTES as u64
}

/// The unit at a file offset.
pub(crate) fn unit_at(offset: u64) -> u64 {
    let (group, within) = (offset / GROUP_BYTES as u64, offset % GROUP_BYTES as u64);
    let index = within.saturating_sub(2 * PAGE_BYTES as u64) / UNIT_BYTES as u64;
    group * GROUP_UNITS as u64 + index
}
