//! Finds rows of a cluster by place. Bounds determine the blocks that may have rows of a directory;
//! only for those rows are cookies computed from names.

use format::cluster::{BLOCK_ROWS_MAX, ColumnId};

use super::Cluster;
use super::column::Column;
use super::scan::FEW;
use crate::Result;

/// A directory and a cookie.
type EntryKey = (u64, u64);

impl Cluster {
    /// Calls `found` with the number of every row at one of the given places, which are in order.
    pub(crate) fn find_places(
        &self,
        places: &[EntryKey],
        found: &mut dyn FnMut(u32),
    ) -> Result<()> {
        debug_assert!(places.is_sorted(), "places in order");
        let (directories, cookies) =
            (self.column(ColumnId::Directory)?, self.column(ColumnId::Cookie)?);
        let names = self.column(ColumnId::Names)?;
        let Column::Names(names) = &*names else { return Ok(()) };
        let (shape, hash) = (self.shape(), self.hash());
        let mut values = [0; BLOCK_ROWS_MAX as usize];
        // Rows of a block in directories that have requested places, with those places.
        let mut rows: Vec<(usize, &[EntryKey])> = Vec::with_capacity(values.len());
        for block in 0..shape.blocks() {
            let (least, greatest) = directories.bounds(block);
            let within = &places[places.partition_point(|place| place.0 < least)..];
            if within.first().is_none_or(|place| place.0 > greatest) {
                continue;
            }
            let there = directories.values(block, shape, &mut values);
            rows.clear();
            let mut last = (values[0], in_directory(within, values[0]));
            for (row, &directory) in values[..there].iter().enumerate() {
                // Consecutive rows mostly share a directory.
                if directory != last.0 {
                    last = (directory, in_directory(within, directory));
                }
                if !last.1.is_empty() {
                    rows.push((row, last.1));
                }
            }
            let first = block * usize::from(shape.block_rows);
            let mut put = |(row, places): (usize, &[EntryKey]), name: &[u8]| {
                let cookie = cookies.get(first + row) ^ hash.hash(name) << 8;
                if places.binary_search_by_key(&cookie, |place| place.1).is_ok() {
                    found((first + row) as u32);
                }
            };
            if rows.len() <= FEW as usize {
                for row in &rows {
                    put(*row, names.get(first + row.0));
                }
                continue;
            }
            let packed = names.packed(block, block + 1);
            let mut zeros = memchr::memchr_iter(0, packed);
            let (mut start, mut left) = (zeros.next().unwrap_or_default(), &rows[..]);
            for (row, end) in zeros.enumerate() {
                let Some((next, behind)) = left.split_first() else { break };
                if next.0 == row {
                    put(*next, &packed[start + 1..end]);
                    left = behind;
                }
                start = end;
            }
        }
        Ok(())
    }
}

/// The places in a directory.
fn in_directory(places: &[EntryKey], directory: u64) -> &[EntryKey] {
    let from = places.partition_point(|place| place.0 < directory);
    let places = &places[from..];
    &places[..places.partition_point(|place| place.0 == directory)]
}
