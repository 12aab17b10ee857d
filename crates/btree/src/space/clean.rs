//! Selects the parts of the file that are worth emptying, so that short holes become long runs.
//!
//! As in a log-structured file system, the cleaner takes the parts with the lowest cost per gain.
//! These are **regions**, quarters of a group, in which few units are in use and the free ones are
//! in short holes.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use device::{File, Map};
use format::space_map::GROUP_UNITS;

use super::map::Space;
use super::page::Page;
use super::search::LONG_UNITS;

/// Units of a region: about one write of a checkpoint.
pub(crate) const REGION_UNITS: u64 = GROUP_UNITS as u64 / 4;
/// Shorter files are not cleaned.
const GROUPS_MIN: usize = 4;
/// Groups that are searched, beyond those that would hold the pending writes twice.
const LOOKS_MIN: u64 = 64;

/// The region of a unit.
pub(crate) fn region(unit: u64) -> u64 {
    unit / REGION_UNITS
}

/// The distribution of the space of a region.
#[derive(Debug, Clone, Copy, Default)]
struct Layout {
    /// Units in use.
    used: u64,
    /// Free units in runs that are too short to be searched for.
    short: u64,
    /// Free units in longer runs.
    long: u64,
}

impl Space {
    /// Regions to be emptied by a checkpoint that has `wanted` units to write. There are none if
    /// the file may still grow much, or if there are enough long runs. At most `wanted` units are
    /// in use in them. Regions in `quarantine` are skipped if as many units are in use as when they
    /// could not be emptied.
    pub(crate) fn sparse(
        &mut self,
        file: &dyn File,
        wanted: u64,
        quarantine: &Map<u64, u64>,
    ) -> BTreeSet<u64> {
        let mut sparse = BTreeSet::new();
        let all = self.groups.len() as u64 * GROUP_UNITS as u64;
        if self.groups.len() < GROUPS_MIN || self.free_units() < all / 9 * 4 {
            return sparse;
        }
        let (mut there, mut found) = (0, Vec::new());
        for group in self.emptiest(LOOKS_MIN + 2 * wanted / GROUP_UNITS as u64) {
            // A page that cannot be read is reported by its next user.
            let Ok(regions) = self.layouts(file, group) else { continue };
            for (at, layout) in regions.into_iter().enumerate() {
                let region = region(group * GROUP_UNITS as u64) + at as u64;
                there += layout.long;
                let is_known = quarantine.get(&region) == Some(&layout.used);
                // If less than two fifths can be gained, other regions are better.
                if !is_known && layout.used > 0 && layout.used * 2 <= layout.short * 3 {
                    found.push((region, layout));
                }
            }
        }
        if there >= 3 * wanted {
            return sparse;
        }
        // By the cost of a unit that is gained.
        found.sort_unstable_by(|(_, a), (_, b)| (a.used * b.short).cmp(&(b.used * a.short)));
        let (mut moved, mut won) = (0, 0);
        for (region, layout) in found {
            if won >= 2 * wanted {
                break;
            }
            if moved + layout.used <= wanted {
                moved += layout.used;
                won += layout.used + layout.short;
                sparse.insert(region);
            }
        }
        sparse
    }

    /// Units that are free, or will be when no pin reads them.
    pub(super) fn free_units(&self) -> u64 {
        let free: u64 = self.groups.iter().map(|entry| u64::from(entry.free)).sum();
        // Ingested units are in use, and not in the map yet; gathered pages never are.
        free.saturating_sub(self.uncounted + self.page_units)
    }

    /// The groups with the most free units, in order of place.
    fn emptiest(&self, most: u64) -> Vec<u64> {
        let free = |group: &u64| Reverse(self.groups[*group as usize].free);
        let mut groups: Vec<u64> = (0..self.groups.len() as u64).collect();
        let most = most as usize;
        if groups.len() > most {
            groups.select_nth_unstable_by_key(most, free);
            groups.truncate(most);
            groups.sort_unstable();
        }
        groups
    }

    /// The distribution of the space of a group's regions. A run counts where it begins.
    fn layouts(&mut self, file: &dyn File, group: u64) -> store::Result<[Layout; 4]> {
        let page = self.page_briefly(file, group)?;
        let taken = self.taken_in(group, &page);
        let mut layouts = [Layout::default(); 4];
        let mut at = 0;
        while at < taken.len() {
            let layout = &mut layouts[at / REGION_UNITS as usize];
            let run = taken[at..].iter().take_while(|&&unit| unit == taken[at]).count();
            if !taken[at] {
                let of = if run >= LONG_UNITS { &mut layout.long } else { &mut layout.short };
                *of += run as u64;
            }
            at += run;
        }
        for (at, _) in page.iter().enumerate().filter(|&(_, &count)| count != 0) {
            layouts[at / REGION_UNITS as usize].used += 1;
        }
        Ok(layouts)
    }

    /// Which units of a group are in use, or read by a pin.
    pub(crate) fn taken(&mut self, file: &dyn File, group: u64) -> store::Result<Vec<bool>> {
        let page = self.page_briefly(file, group)?;
        Ok(self.taken_in(group, &page))
    }

    fn taken_in(&self, group: u64, page: &Page) -> Vec<bool> {
        let first = group * GROUP_UNITS as u64;
        let mut taken: Vec<bool> = page.iter().map(|&count| count != 0).collect();
        for (unit, &(units, _)) in self.held.range(first..first + GROUP_UNITS as u64) {
            let at = (unit - first) as usize;
            taken[at..at + usize::from(units)].fill(true);
        }
        taken
    }

    /// Units in use in a region.
    pub(crate) fn used_in(&mut self, file: &dyn File, region: u64) -> u64 {
        let group = region * REGION_UNITS / GROUP_UNITS as u64;
        let at = region * REGION_UNITS % GROUP_UNITS as u64;
        self.layouts(file, group).map_or(0, |regions| regions[(at / REGION_UNITS) as usize].used)
    }
}
