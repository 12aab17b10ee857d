//! Places and writes the pages of the map.
//!
//! A checkpoint writes the pages that it changes adjacent to each other, into units like those of
//! nodes, and the directory behind them. That takes one write or a few, however far apart the
//! groups are. The space is found before anything is freed. Units of **gathered** pages count 0 in
//! the map. The directory marks them as used, and the search for space skips them like units that a
//! pin reads ([`Space::held`]). So moving a page changes no page.
//!
//! Each group also has two fixed places for its page. Those are used when the disk has little
//! space, because they take no new space. They are also used for pages that would keep groups at
//! the end of the file in use that contain nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use device::File;
use format::map_directory::{self, Entry, PageCopy};
use format::node::{self, UNIT_BYTES};
use format::space_map::{self, GROUP_UNITS, PAGE_BYTES};
use format::{Corruption, Pointer};
use store::{Error, Result};

use super::ingested_leaf::FOREVER;
use super::map::{Space, Work};
use super::page::{PAGE_UNITS, Page, page_offset};
use crate::nodes::NODES_FILE;
use crate::units::unit_offset;

/// Bytes that are gathered before they are written.
const RUN_BYTES: usize = 1 << 20;

/// Units of a directory of so many groups, so many of them with gathered pages. It is within one
/// group; fails if there are too many of them for that.
pub(crate) fn directory_units(groups: usize, gathered: usize) -> Result<u16> {
    let bytes = node::HEADER_BYTES
        + groups * map_directory::ENTRY_BYTES
        + gathered * map_directory::PLACE_BYTES;
    let units = bytes.div_ceil(UNIT_BYTES);
    let units = u16::try_from(units).ok().filter(|&units| usize::from(units) <= GROUP_UNITS);
    units.ok_or(Error::NoSpace("the directory of the space map"))
}

/// The first unit of a gathered page.
fn gathered(entry: Entry) -> Option<u64> {
    match entry.copy {
        PageCopy::Gathered(unit) => Some(u64::from(unit)),
        _ => None,
    }
}

impl Space {
    /// First units of the gathered pages.
    pub(crate) fn gathered(&self) -> BTreeSet<u64> {
        self.groups.iter().copied().filter_map(gathered).collect()
    }

    /// Holds the space of gathered pages, so that nothing else takes it. Fails if two of them share
    /// it, or it is outside the file.
    pub(super) fn hold_pages(&mut self) -> Result<()> {
        for (group, entry) in self.groups.iter().enumerate() {
            let Some(unit) = gathered(*entry) else { continue };
            let end = unit + u64::from(PAGE_UNITS);
            let within = unit / GROUP_UNITS as u64 == (end - 1) / GROUP_UNITS as u64
                && end <= self.groups.len() as u64 * GROUP_UNITS as u64;
            let met = self.held_at(unit).is_some() || self.held.range(unit..end).next().is_some();
            if !within || met {
                let damage = Corruption {
                    file: NODES_FILE.to_owned(),
                    offset: unit_offset(unit),
                    structure: "space map directory",
                    expected: format!("a separate page for group {group}"),
                    found: format!("unit {unit}"),
                    unread: false,
                };
                return Err(damage.into());
            }
            self.held.insert(unit, (PAGE_UNITS, FOREVER));
            self.page_units += u64::from(PAGE_UNITS);
        }
        Ok(())
    }

    /// Takes over the map that a checkpoint made durable. Returns the space of pages that were
    /// replaced.
    pub(crate) fn adopt(
        &mut self,
        directory: Pointer,
        groups: Vec<Entry>,
        changed: BTreeMap<u64, Page>,
    ) -> Vec<(u64, u16)> {
        let now: BTreeSet<u64> = groups.iter().copied().filter_map(gathered).collect();
        let before = self.gathered();
        let mut left = Vec::new();
        for &unit in before.difference(&now) {
            self.held.remove(&unit);
            self.forget_longest(unit / GROUP_UNITS as u64);
            left.push((unit, PAGE_UNITS));
        }
        for &unit in now.difference(&before) {
            let other = self.held.insert(unit, (PAGE_UNITS, FOREVER));
            assert!(other.is_none(), "unit {unit} was given away twice");
        }
        self.page_units = now.len() as u64 * u64::from(PAGE_UNITS);
        self.directory = Some(directory);
        self.pages.split_off(&(groups.len() as u64));
        for (group, page) in changed {
            if group < groups.len() as u64 {
                self.forget_longest(group);
                self.pages.insert(group, page);
            }
        }
        self.groups = groups;
        self.shrink();
        left
    }
}

/// Space for the map that a checkpoint makes.
pub(crate) struct MapSpace {
    /// First unit and number.
    pub(crate) directory: (u64, u16),
    /// First units for gathered pages, ascending; if there are none, or too few, pages are written
    /// to their fixed places.
    pub(crate) pages: Vec<u64>,
}

impl Work<'_> {
    /// Finds space for the map, in which the pages of `groups` may still change. Called after all
    /// other space was found, because the directory describes all groups. Called before anything is
    /// freed, because freed units still belong to the durable state.
    pub(crate) fn reserve_map(&mut self, mut groups: BTreeSet<u64>) -> Result<MapSpace> {
        let mut pages = Vec::new();
        groups.extend(self.changed.keys());
        groups.extend(self.base.directory.map(|old| old.unit / GROUP_UNITS as u64));
        // And the group in which the directory will be.
        let wanted = groups.len() + 1;
        let gathered = self.groups.iter().filter(|entry| gathered(**entry).is_some()).count();
        // Finding space may add a group each time. Fixed places take none in the directory.
        let most = self.groups.len() + wanted + 1;
        if self.gathers && directory_units(most, gathered + wanted).is_ok() {
            for _ in 0..wanted {
                let unit = self.take(PAGE_UNITS)?;
                self.reserved.insert(unit);
                pages.push(unit);
            }
            pages.sort_unstable();
        }
        // Finding space may add a group.
        let most = self.groups.len() + 1;
        let units = directory_units(most, gathered + pages.len())?;
        Ok(MapSpace { directory: (self.alloc(units)?, units), pages })
    }

    /// Whether space for pages was found in a group.
    pub(super) fn reserves_in(&self, group: u64) -> bool {
        let first = group * GROUP_UNITS as u64;
        self.reserved.range(first..first + GROUP_UNITS as u64).next().is_some()
    }

    /// The end of the reserved page that contains a unit.
    pub(super) fn reserved_at(&self, unit: u64) -> Option<u64> {
        let first = self.reserved.range(..=unit).next_back()?;
        let end = first + u64::from(PAGE_UNITS);
        (unit < end).then_some(end)
    }

    /// Writes the pages that changed, never over a current one, and the directory. Drops unused
    /// groups at the end. Returns the directory's pointer, the number of bytes written, and the
    /// number of writes.
    pub(crate) fn write(&mut self, space: &MapSpace) -> Result<(Pointer, u64, u64)> {
        if let Some(old) = self.base.directory {
            self.set(old.unit, old.units, 0)?;
        }
        self.give_up_groups();
        let file = Arc::clone(&self.nodes.file);
        let mut runs = Runs { file: file.as_ref(), at: 0, run: Vec::new(), bytes: 0, writes: 0 };
        let mut places = space.pages.iter();
        let at_the_end = self.pages_at_the_end();
        for group in &at_the_end {
            match self.page(*group) {
                Ok(page) => drop(self.changed.insert(*group, page)),
                // It did not change, and stays where it is.
                Err(Error::Corrupt(damage)) => {
                    tracing::warn!(%damage, "a page of the space map cannot be read");
                }
                Err(error) => return Err(error),
            }
        }
        let mut out = Vec::with_capacity(PAGE_BYTES);
        for (&group, page) in &self.changed {
            let Some(entry) = self.groups.get_mut(group as usize) else { continue };
            let place = if at_the_end.contains(&group) { None } else { places.next() };
            entry.copy = match (place, entry.copy) {
                (Some(&unit), _) => PageCopy::Gathered(
                    u32::try_from(unit).expect("invariant: a file has less than 2^32 units"),
                ),
                (None, PageCopy::A) => PageCopy::B,
                (None, _) => PageCopy::A,
            };
            out.clear();
            entry.checksum = space_map::encode(&mut out, group, self.generation, page);
            runs.put(page_offset(group, entry.copy), &out)?;
        }
        let (unit, units) = space.directory;
        out.clear();
        map_directory::encode(&mut out, self.generation, &self.groups);
        let checksum = node::seal(&mut out, unit);
        runs.put(unit_offset(unit), &out)?;
        runs.flush()?;
        let pointer = Pointer { unit, units, overflows: false, checksum };
        Ok((pointer, runs.bytes, runs.writes))
    }

    /// Groups whose pages did not change, and are where nothing else is at the end of the file.
    fn pages_at_the_end(&self) -> BTreeSet<u64> {
        let used = |entry: &Entry| usize::from(entry.free) != GROUP_UNITS;
        let end = self.groups.iter().rposition(used).map_or(0, |last| last as u64 + 1);
        let beyond =
            |entry: &Entry| gathered(*entry).is_some_and(|unit| unit / GROUP_UNITS as u64 >= end);
        let groups = (0_u64..).zip(&self.groups).filter(|(_, entry)| beyond(entry));
        groups.map(|(group, _)| group).filter(|group| !self.changed.contains_key(group)).collect()
    }
}

/// Writes adjacent blocks as one.
struct Runs<'a> {
    file: &'a dyn File,
    /// Where the run begins.
    at: u64,
    run: Vec<u8>,
    bytes: u64,
    writes: u64,
}

impl Runs<'_> {
    fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        if self.at + self.run.len() as u64 != offset || self.run.len() >= RUN_BYTES {
            self.flush()?;
            self.at = offset;
        }
        self.run.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if !self.run.is_empty() {
            self.file.write_at(&self.run, self.at)?;
            self.bytes += self.run.len() as u64;
            self.writes += 1;
            self.run.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A map of some groups, with pages that begin at these units.
    fn space(units: &[u32]) -> Space {
        let gathered = units.iter().map(|&unit| PageCopy::Gathered(unit));
        let own = [PageCopy::None, PageCopy::A, PageCopy::B];
        let entry = |copy| Entry { copy, ..Entry::empty() };
        let mut space = Space::empty();
        space.groups = own.into_iter().chain(gathered).map(entry).collect();
        space
    }

    #[test]
    fn overlapping_or_empty_pages_are_damage() {
        let group = GROUP_UNITS as u32;
        let mut whole = space(&[0, 16, group - 16, 5 * group - 16, group]);
        whole.hold_pages().expect("each has space of its own");
        assert_eq!((whole.page_units, whole.held.len()), (5 * 16, 5));
        for twice in [[40, 40], [40, 55], [55, 40]] {
            let error = space(&twice).hold_pages().expect_err("two have it");
            assert!(matches!(error, Error::Corrupt(_)), "{twice:?}: {error:?}");
        }
        // Across the end of a group, and behind the end of the file.
        for unit in [group - 15, 4 * group - 1, 4 * group, u32::MAX] {
            let error = space(&[unit]).hold_pages().expect_err("no space of the file");
            assert!(matches!(error, Error::Corrupt(_)), "{unit}: {error:?}");
        }
    }

    #[test]
    fn a_directory_lists_more_groups_with_fewer_gathered_pages() {
        assert_eq!(directory_units(1, 1).expect("it fits"), 1);
        assert!(directory_units(340_000, 340_000).is_ok());
        for groups in [350_000, 500_000, 520_000] {
            directory_units(groups, 1000).expect("it fits");
            let error = directory_units(groups, groups).expect_err("too many");
            assert!(matches!(error, Error::NoSpace(_)), "{error:?}");
        }
        for groups in [530_000, 8_400_000, 1 << 40] {
            let error = directory_units(groups, 0).expect_err("too many");
            assert!(matches!(error, Error::NoSpace(_)), "{groups}: {error:?}");
        }
    }

    #[test]
    fn adjacent_pages_are_one_write() {
        let device = testing::sim_env(1).env().device;
        let file = device.create("file").expect("a file");
        let mut runs = Runs { file: file.as_ref(), at: 0, run: Vec::new(), bytes: 0, writes: 0 };
        for (offset, byte) in [(0, 1_u8), (10, 2), (30, 3), (40, 4)] {
            runs.put(offset, &[byte; 10]).expect("there is space");
        }
        runs.flush().expect("there is space");
        assert_eq!((runs.writes, runs.bytes), (2, 40));
        let mut all = [9; 50];
        assert_eq!(file.read_at(&mut all, 0).expect("it is read"), 50);
        let expected = [[1; 10], [2; 10], [0; 10], [3; 10], [4; 10]].concat();
        assert_eq!(all.as_slice(), expected.as_slice());
    }
}
