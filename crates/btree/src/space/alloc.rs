//! Finding room. All of it is found by checkpoints, one after the other through the file, so that
//! what a checkpoint writes lies together.

use format::map_directory::Entry;
use format::space_map::GROUP_UNITS;
use store::Result;

use super::map::Work;

/// Groups with less room are passed over: they would scatter what is written.
const GROUP_FREE_MIN: u16 = 256;

impl Work<'_> {
    /// Takes the next room of `units` units, and marks it with a count of 1. What the durable
    /// state uses, or a pin reads, is never taken.
    pub(crate) fn alloc(&mut self, units: u16) -> Result<u64> {
        assert!(usize::from(units) <= GROUP_UNITS, "a node of {units} units");
        loop {
            let (group, index) = self.cursor;
            if group >= self.groups.len() as u64 {
                self.groups.push(Entry::empty());
            }
            let free = self.groups[group as usize].free;
            if free >= units.max(GROUP_FREE_MIN)
                && let Some(found) = self.find(group, index, usize::from(units))?
            {
                self.cursor = (group, found + usize::from(units));
                let unit = group * GROUP_UNITS as u64 + found as u64;
                self.set(unit, units, 1)?;
                return Ok(unit);
            }
            self.cursor = (group + 1, 0);
        }
    }

    /// The first run of free units in a group, from `index` on.
    fn find(&mut self, group: u64, mut index: usize, units: usize) -> Result<Option<usize>> {
        let first = group * GROUP_UNITS as u64;
        self.page_mut(group)?;
        let Some(page) = self.changed.get(&group) else { return Ok(None) };
        while index + units <= page.len() {
            if let Some(used) = page[index..index + units].iter().rposition(|&count| count != 0) {
                index += used + 1;
                continue;
            }
            let end = first + (index + units) as u64;
            let held = self.base.held.range(..end).next_back();
            match held.map(|(&unit, &(units, _))| unit + u64::from(units)) {
                Some(held_end) if held_end > first + index as u64 => {
                    index = (held_end - first) as usize;
                }
                _ => return Ok(Some(index)),
            }
        }
        Ok(None)
    }
}
