//! The free-space map: the durable one, and the copy that a checkpoint works on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use device::{File, Map};
use format::map_directory::{Entry, PageCopy};
use format::space_map::{CONTINUATION, GROUP_UNITS};
use format::{Corruption, Pointer, map_directory};
use store::Result;

use super::freed::Freed;
use super::ingested_leaf::Ingested;
use super::page::{Page, read_page};
use super::search::Search;
use crate::nodes::{NODES_FILE, Nodes};
use crate::units::unit_offset;

/// Pages kept in memory between checkpoints; each is 16 KiB for 4 MiB of nodes.
const PAGES_KEPT: usize = 1024;

/// The durable map.
#[derive(Debug, Clone)]
pub(crate) struct Space {
    /// The directory on disk; none before the first checkpoint.
    pub(crate) directory: Option<Pointer>,
    pub(crate) groups: Vec<Entry>,
    /// Some current pages.
    pub(super) pages: BTreeMap<u64, Page>,
    /// The page of each group that has none on disk, in which nothing is used. It is shared: a
    /// falsified directory has 8 bytes for each of very many such groups.
    free_page: Page,
    /// Number of pages that are kept between checkpoints.
    pub(super) pages_kept: usize,
    /// Units that count 0 in the durable state and are not free: pinned states still read them, or
    /// they contain pages of the map. Each has the first unit, the number, and the last pin that
    /// may read them.
    pub(crate) held: BTreeMap<u64, (u16, u64)>,
    /// Bounds of the longest free runs of groups that were searched and have not changed since.
    longest: Map<u64, u16>,
    /// Leaves that are in trees, and that no checkpoint has counted.
    pub(crate) ingested: Vec<Ingested>,
    /// Units that were written outside of a checkpoint, and that no checkpoint has counted.
    pub(super) uncounted: u64,
    /// Units that contain pages of the map.
    pub(super) page_units: u64,
    /// Free units that may still occupy disk space.
    pub(crate) freed: Freed,
}

impl Space {
    /// The map of a new store.
    pub(crate) fn empty() -> Space {
        Space {
            directory: None,
            groups: Vec::new(),
            pages: BTreeMap::new(),
            free_page: Arc::new(vec![0; GROUP_UNITS]),
            pages_kept: PAGES_KEPT,
            held: BTreeMap::new(),
            longest: Map::default(),
            ingested: Vec::new(),
            uncounted: 0,
            page_units: 0,
            freed: Freed::default(),
        }
    }

    /// Reads the directory.
    pub(crate) fn open(nodes: &Nodes, directory: Pointer) -> Result<Space> {
        let groups = nodes.read(directory, map_directory::decode)?;
        let mut space = Space { directory: Some(directory), groups, ..Space::empty() };
        space.hold_pages()?;
        Ok(space)
    }

    /// The current page of a group.
    pub(crate) fn page(&mut self, file: &dyn File, group: u64) -> Result<Page> {
        if let Some(page) = self.pages.get(&group) {
            return Ok(Arc::clone(page));
        }
        let entry = self.groups[group as usize];
        let page = match entry.copy {
            PageCopy::None => Arc::clone(&self.free_page),
            _ => Arc::new(read_page(file, group, entry)?),
        };
        self.pages.insert(group, Arc::clone(&page));
        Ok(page)
    }

    /// The same for a caller that reads many pages: it keeps the map within bounds.
    pub(crate) fn page_briefly(&mut self, file: &dyn File, group: u64) -> Result<Page> {
        let page = self.page(file, group)?;
        if self.pages.len() > 2 * self.pages_kept {
            self.shrink();
        }
        Ok(page)
    }

    /// The count of a unit in the durable state; `None` if its page cannot be read, or does not
    /// exist.
    pub(crate) fn count(&mut self, file: &dyn File, unit: u64) -> Option<u32> {
        let (group, index) = (unit / GROUP_UNITS as u64, (unit % GROUP_UNITS as u64) as usize);
        if group >= self.groups.len() as u64 {
            return None;
        }
        self.page_briefly(file, group).ok().map(|page| page[index])
    }

    /// The same if its page is in memory.
    pub(crate) fn known_count(&self, unit: u64) -> Option<u32> {
        let (group, index) = (unit / GROUP_UNITS as u64, (unit % GROUP_UNITS as u64) as usize);
        self.pages.get(&group).map(|page| page[index])
    }

    /// The current page of a group, which is in memory, to be forged.
    #[cfg(test)]
    pub(crate) fn page_mut(&mut self, group: u64) -> &mut Vec<u32> {
        Arc::make_mut(self.pages.get_mut(&group).expect("it was written before"))
    }

    /// Releases the units that no pin from `oldest` on needs. Returns them: first units and
    /// numbers.
    pub(crate) fn release(&mut self, oldest: u64) -> Vec<(u64, u16)> {
        let mut released = Vec::new();
        let longest = &mut self.longest;
        self.held.retain(|&unit, &mut (units, pin)| {
            if pin < oldest {
                released.push((unit, units));
                longest.remove(&(unit / GROUP_UNITS as u64));
            }
            pin >= oldest
        });
        released
    }

    /// An upper bound of the longest free run in a group, as far as is known.
    pub(super) fn longest(&self, group: u64) -> u16 {
        self.longest.get(&group).copied().unwrap_or(u16::MAX)
    }

    /// Forgets the bound of a group in which space was freed.
    pub(super) fn forget_longest(&mut self, group: u64) {
        self.longest.remove(&group);
    }

    /// Sets that bound.
    pub(super) fn set_longest(&mut self, group: u64, units: u16) {
        self.longest.insert(group, units);
    }

    /// The end of the held units that contain a unit.
    pub(super) fn held_at(&self, unit: u64) -> Option<u64> {
        let (&first, &(units, _)) = self.held.range(..=unit).next_back()?;
        let end = first + u64::from(units);
        (unit < end).then_some(end)
    }

    /// Drops pages beyond the bound.
    pub(super) fn shrink(&mut self) {
        while self.pages.len() > self.pages_kept {
            self.pages.pop_first();
        }
    }
}

/// The copy of the durable map that a checkpoint changes. Dropped when the checkpoint fails.
pub(crate) struct Work<'a> {
    pub(crate) nodes: &'a Nodes,
    pub(crate) base: &'a mut Space,
    pub(crate) groups: Vec<Entry>,
    /// Pages that differ from the durable ones.
    pub(super) changed: BTreeMap<u64, Page>,
    /// The state of the search for space.
    pub(super) search: Search,
    /// First units of the space that was taken for pages of the map.
    pub(super) reserved: BTreeSet<u64>,
    /// Whether there is enough space to write pages of the map adjacent to each other.
    pub(super) gathers: bool,
    pub(crate) generation: u64,
    /// Whether a content was dropped that is written to places of this copy, so that it cannot be
    /// written again.
    pub(crate) shed: bool,
}

impl<'a> Work<'a> {
    /// A copy of the map. A frugal one uses any hole, however short.
    pub(crate) fn new(
        nodes: &'a Nodes,
        base: &'a mut Space,
        generation: u64,
        frugal: bool,
    ) -> Work<'a> {
        let groups = base.groups.clone();
        Work {
            nodes,
            base,
            groups,
            changed: BTreeMap::new(),
            search: if frugal { Search::frugal() } else { Search::default() },
            reserved: BTreeSet::new(),
            gathers: !frugal,
            generation,
            shed: false,
        }
    }

    /// Whether holes of any length are used.
    pub(crate) fn is_frugal(&self) -> bool {
        !self.gathers
    }

    /// The count of a unit in the durable state, unless it was set since.
    pub(crate) fn count(&mut self, unit: u64) -> Result<u32> {
        let (group, index) = (unit / GROUP_UNITS as u64, (unit % GROUP_UNITS as u64) as usize);
        if let Some(page) = self.changed.get(&group) {
            return Ok(page[index]);
        }
        if group >= self.groups.len() as u64 {
            // A pointer outside the file: its node cannot be read either.
            return Ok(0);
        }
        Ok(self.base.page_briefly(self.nodes.file.as_ref(), group)?[index])
    }

    /// The page of a group as it is now.
    pub(super) fn page(&mut self, group: u64) -> Result<Page> {
        if let Some(page) = self.changed.get(&group) {
            return Ok(Arc::clone(page));
        }
        if group < self.base.groups.len() as u64 {
            return self.base.page_briefly(self.nodes.file.as_ref(), group);
        }
        Ok(Arc::new(vec![0; GROUP_UNITS]))
    }

    /// The page of a group, to be changed.
    pub(super) fn page_mut(&mut self, group: u64) -> Result<&mut Vec<u32>> {
        if !self.changed.contains_key(&group) {
            let Some(entry) = self.groups.get(group as usize).copied() else {
                // A forged pointer names it.
                return Err(nowhere(group, self.groups.len()).into());
            };
            let page = self.page(group)?;
            // The page is not checked against the free count in the directory.
            let free = page.iter().filter(|&&count| count == 0).count() as u16;
            self.groups[group as usize] = Entry { free, ..entry };
            self.changed.insert(group, page);
        }
        let page = self.changed.get_mut(&group).expect("invariant: the page was inserted");
        Ok(Arc::make_mut(page))
    }

    /// Sets the count of a node that starts at `unit`; 0 frees its units.
    pub(crate) fn set(&mut self, unit: u64, units: u16, count: u32) -> Result<()> {
        let (group, index) = (unit / GROUP_UNITS as u64, (unit % GROUP_UNITS as u64) as usize);
        let page = self.page_mut(group)?;
        let end = (index + usize::from(units)).min(page.len());
        let was_free = page[index..end].iter().filter(|&&count| count == 0).count();
        let rest = if count == 0 { 0 } else { CONTINUATION };
        page[index..end].fill(rest);
        page[index] = count;
        let free = &mut self.groups[group as usize].free;
        *free -= was_free as u16;
        if count == 0 {
            *free += (end - index) as u16;
        }
        Ok(())
    }

    /// Replaces the page of a group, which may be behind the end.
    pub(crate) fn replace_page(&mut self, group: u64, page: Page) {
        if self.groups.len() as u64 <= group {
            self.reach(group + 1);
        }
        let free = page.iter().filter(|&&count| count == 0).count();
        self.groups[group as usize].free = free as u16;
        self.changed.insert(group, page);
    }

    /// Removes the page of a group that is entirely free.
    pub(crate) fn empty_group(&mut self, group: u64) {
        self.groups[group as usize] = Entry::empty();
        self.changed.remove(&group);
    }

    /// Extends the map to `groups` groups; the new ones are free.
    pub(crate) fn reach(&mut self, groups: u64) {
        self.groups.resize(groups as usize, Entry::empty());
    }

    /// Changes the count of a node, not to 0.
    pub(crate) fn set_count(&mut self, unit: u64, count: u32) -> Result<()> {
        let (group, index) = (unit / GROUP_UNITS as u64, (unit % GROUP_UNITS as u64) as usize);
        self.page_mut(group)?[index] = count;
        Ok(())
    }

    /// Drops groups at the end that are free in this state, unless a pin reads them. A group that
    /// this checkpoint itself empties stays until the next one. A pin may read units that it freed,
    /// and `held` gets those only when the checkpoint is published.
    pub(super) fn give_up_groups(&mut self) {
        let last_held = self.base.held.last_key_value().map(|(&unit, _)| unit);
        let last_held = last_held.max(self.reserved.last().copied());
        let last_held = last_held.map(|unit| unit / GROUP_UNITS as u64);
        while let Some(entry) = self.groups.last() {
            let group = self.groups.len() as u64 - 1;
            let emptied = self
                .base
                .groups
                .get(group as usize)
                .is_some_and(|durable| usize::from(durable.free) != GROUP_UNITS);
            if emptied
                || usize::from(entry.free) != GROUP_UNITS
                || last_held.is_some_and(|held| held >= group)
            {
                break;
            }
            self.groups.pop();
        }
    }

    /// Groups in which space was taken.
    pub(crate) fn changed_groups(&self) -> Vec<u64> {
        let reserved = self.reserved.iter().map(|unit| unit / GROUP_UNITS as u64);
        let groups: BTreeSet<u64> = self.changed.keys().copied().chain(reserved).collect();
        groups.into_iter().collect()
    }

    /// The parts that become the durable map.
    pub(crate) fn into_parts(self) -> (Vec<Entry>, BTreeMap<u64, Page>) {
        (self.groups, self.changed)
    }
}

/// A node in a group that the map does not have.
fn nowhere(group: u64, groups: usize) -> Corruption {
    Corruption {
        file: NODES_FILE.to_owned(),
        offset: unit_offset(group.saturating_mul(GROUP_UNITS as u64)),
        structure: "pointer to a node",
        expected: format!("one of the {groups} groups of the file"),
        found: format!("group {group}"),
        unread: false,
    }
}

#[cfg(test)]
mod tests {
    use store::Error;

    use super::*;

    /// A directory can be forged with a valid checksum: closing the store used to panic.
    #[test]
    fn a_forged_map_directory_is_refused() {
        let device = testing::sim_env(1).env().device;
        let nodes = Nodes::new(device.create("nodes").expect("a file"));
        let mut space = Space::empty();
        space.groups = vec![Entry { free: 0, ..Entry::empty() }];
        let mut work = Work::new(&nodes, &mut space, 1, false);
        work.set(8, 8, 1).expect("there is space");
        assert_eq!(usize::from(work.groups[0].free), GROUP_UNITS - 8);
        let beyond = 5 * GROUP_UNITS as u64;
        for changed in [work.set(beyond, 8, 1), work.set_count(beyond, 2)] {
            assert!(matches!(changed, Err(Error::Corrupt(_))), "{changed:?}");
        }
        assert_eq!(work.changed_groups(), [0]);
    }
}
