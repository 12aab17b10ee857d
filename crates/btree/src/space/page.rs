//! A page of the map on disk: the counts of one group.

use std::sync::Arc;

use device::File;
use format::map_directory::{Entry, PageCopy};
use format::node::UNIT_BYTES;
use format::space_map::{self, GROUP_BYTES, PAGE_BYTES};
use store::Result;

use crate::nodes::NODES_FILE;
use crate::units::unit_offset;

/// The counts of a group.
pub(crate) type Page = Arc<Vec<u32>>;

/// Units of a gathered page.
pub(crate) const PAGE_UNITS: u16 = (PAGE_BYTES / UNIT_BYTES) as u16;

const _: () = assert!(PAGE_BYTES.is_multiple_of(UNIT_BYTES));

/// The file offset of the page of a group.
pub(super) fn page_offset(group: u64, copy: PageCopy) -> u64 {
    match copy {
        PageCopy::None | PageCopy::A => group * GROUP_BYTES as u64,
        PageCopy::B => group * GROUP_BYTES as u64 + PAGE_BYTES as u64,
        PageCopy::Gathered(unit) => unit_offset(u64::from(unit)),
    }
}

/// Reads the page of a group.
pub(super) fn read_page(file: &dyn File, group: u64, entry: Entry) -> Result<Vec<u32>> {
    let offset = page_offset(group, entry.copy);
    let mut bytes = vec![0; PAGE_BYTES];
    let read = file.read_at(&mut bytes, offset)?;
    bytes.truncate(read);
    let counts = space_map::decode(&bytes, group, entry.checksum)
        .map_err(|malformed| malformed.located(NODES_FILE, offset))?;
    Ok(counts)
}
