//! Allocates space. Checkpoints allocate nodes one after the other in the present **run** of free
//! units, so that the nodes that a checkpoint writes are adjacent.
//!
//! The search for a run begins at the front of the file and skips short runs, which would scatter
//! the writes. If there is no run that is long enough, the file grows, as long as at most half of
//! it is free. Beyond that, shorter runs are used. So contiguous space is found, or made at the
//! end, and holes are punched meanwhile. The file may be twice as long as its content, but does not
//! occupy as much. Holes become runs as their neighbours die, or are moved (`clean`). When the disk
//! has hardly any space left, holes of any length are used.

use format::map_directory::Entry;
use format::node::UNIT_BYTES;
use format::space_map::{GROUP_BYTES, GROUP_UNITS, PAGE_BYTES};
use store::{Error, Result};

use super::map::Work;
use super::page::PAGE_UNITS;
use super::search::RUN_UNITS;

/// Minimum number of groups that a file may have.
const GROUPS_MIN: u64 = 2;

/// Units that a disk may lose together: 4 KiB.
pub(crate) const BLOCK_UNITS: u16 = 4;
const _: () = assert!(BLOCK_UNITS as usize * UNIT_BYTES == 4096);
// So each group, and its first unit, begins a block.
const _: () = assert!(GROUP_BYTES.is_multiple_of(4096) && (2 * PAGE_BYTES).is_multiple_of(4096));
const _: () = assert!(GROUP_UNITS.is_multiple_of(BLOCK_UNITS as usize));

impl Work<'_> {
    /// Takes the next `units` free units, and marks them with a count of 1. Units that the durable
    /// state uses, or a pin reads, are never taken.
    pub(crate) fn alloc(&mut self, units: u16) -> Result<u64> {
        let unit = self.take(units)?;
        self.set(unit, units, 1)?;
        Ok(unit)
    }

    /// The same for whole blocks, of [`BLOCK_UNITS`] units, which contain nothing else.
    pub(crate) fn alloc_blocks(&mut self, units: u16) -> Result<u64> {
        assert!(units.is_multiple_of(BLOCK_UNITS), "{units} units are no whole blocks");
        // Units that are skipped before them stay free.
        let unit = self.take(units + BLOCK_UNITS - 1)?.next_multiple_of(u64::from(BLOCK_UNITS));
        self.search.run.0 = unit + u64::from(units);
        self.set(unit, units, 1)?;
        Ok(unit)
    }

    /// Takes the next `units` free units; the caller ensures that nothing else takes them.
    pub(super) fn take(&mut self, units: u16) -> Result<u64> {
        assert!(usize::from(units) <= GROUP_UNITS, "a node of {units} units");
        while self.search.run.1 - self.search.run.0 < u64::from(units) {
            let least = RUN_UNITS[self.search.patience];
            if let Some(run) = self.next_run(units.max(least))? {
                self.search.run = run;
            } else if units > least || least == 1 || self.may_grow() {
                let first = self.groups.len() as u64 * GROUP_UNITS as u64;
                self.groups.push(Entry::empty());
                self.search.run = (first, first + GROUP_UNITS as u64);
                self.search.from = (self.groups.len() as u64, 0);
            } else {
                self.search.patience += 1;
                self.search.from = (0, 0);
            }
        }
        let unit = self.search.run.0;
        self.search.run.0 += u64::from(units);
        Ok(unit)
    }

    /// Whether less than half of the file is free.
    fn may_grow(&self) -> bool {
        let all = self.groups.len() as u64 * GROUP_UNITS as u64;
        let free: u64 = self.groups.iter().map(|entry| u64::from(entry.free)).sum();
        // Ingested units are in use, and not in the map yet; gathered pages never are.
        let free = free.saturating_sub(self.base.uncounted + self.base.page_units);
        (self.groups.len() as u64) < GROUPS_MIN || free < all / 2
    }

    /// Where the present run continues.
    pub(crate) fn place(&self) -> u64 {
        self.search.run.0
    }

    /// Continues where another search stopped. The units that it found may have been taken
    /// meanwhile, so they are checked again.
    pub(crate) fn resume(&mut self, unit: u64) {
        self.search.from = (unit / GROUP_UNITS as u64, (unit % GROUP_UNITS as u64) as usize);
    }

    /// The next run of at least `units` free units, from where the last one ended.
    fn next_run(&mut self, units: u16) -> Result<Option<(u64, u64)>> {
        let (mut group, mut index) = self.search.from;
        while group < self.groups.len() as u64 {
            let entry = self.groups[group as usize];
            if entry.free >= units && self.base.longest(group) >= units {
                let found = match self.find(group, index, usize::from(units)) {
                    Err(Error::Corrupt(damage)) => {
                        // If it is unknown what is free, nothing is taken, and the group is not
                        // searched again before something is freed there.
                        tracing::warn!(%damage, "a page of the space map cannot be read");
                        self.base.set_longest(group, 0);
                        None
                    }
                    found => found?,
                };
                if let Some((start, end)) = found {
                    self.search.from = (group, end);
                    let first = group * GROUP_UNITS as u64;
                    return Ok(Some((first + start as u64, first + end as u64)));
                }
                // The durable map alone decides: units that this checkpoint took are free again if
                // it fails.
                let longest = self.base.longest(group).min(units - 1);
                if index == 0 && !self.changed.contains_key(&group) && !self.reserves_in(group) {
                    self.base.set_longest(group, longest);
                }
            }
            (group, index) = (group + 1, 0);
        }
        self.search.from = (group, index);
        Ok(None)
    }

    /// The first run of at least `units` free units in a group from `index` on: start and end.
    fn find(&mut self, group: u64, index: usize, units: usize) -> Result<Option<(usize, usize)>> {
        let first = group * GROUP_UNITS as u64;
        let page = self.page(group)?;
        let page = page.as_slice();
        let mut start = index;
        while let Some(free) = (start..page.len()).find(|&at| page[at] == 0)
            && free + units <= page.len()
        {
            start = free;
            let mut end = (start..page.len()).find(|&at| page[at] != 0).unwrap_or(page.len());
            let mut next = end;
            // Units that pins read count 0 too, and pages of the map.
            let unit = first + start as u64;
            if let Some(held) = self.base.held_at(unit).or_else(|| self.reserved_at(unit)) {
                start = (held - first) as usize;
                continue;
            }
            let within = first + start as u64..first + end as u64;
            let held = self.base.held.range(within.clone()).next();
            let held = held.map(|(&unit, &(units, _))| (unit, units));
            let reserved = self.reserved.range(within).next().map(|&unit| (unit, PAGE_UNITS));
            if let Some((unit, units)) = held.into_iter().chain(reserved).min() {
                end = (unit - first) as usize;
                next = end + usize::from(units);
            }
            if end - start >= units {
                return Ok(Some((start, end)));
            }
            start = next;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::Nodes;
    use crate::space::Space;
    use format::map_directory::PageCopy;

    #[test]
    fn an_unreadable_map_page_is_not_allocated_from_and_the_rest_works() {
        let device = testing::sim_env(1).env().device;
        let nodes = Nodes::new(device.create("nodes").expect("a file"));
        let mut space = Space::empty();
        // Nothing was written to the place of the first group's page.
        let rotten = Entry { copy: PageCopy::A, ..Entry::empty() };
        space.groups = vec![rotten, Entry::empty()];
        for _ in 0..2 {
            let mut work = Work::new(&nodes, &mut space, 1, false);
            for taken in 0..20 {
                let unit = work.alloc(8).expect("there is space elsewhere");
                assert_eq!(unit, GROUP_UNITS as u64 + taken * 8);
            }
        }
    }
}
