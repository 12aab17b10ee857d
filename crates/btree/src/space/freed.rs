//! Free units whose space was not given back to the disk yet. A word for each group records in
//! which sixty-fourths of the group something was freed. So the list is bounded by the file,
//! however often the same space is used and freed again.

use std::collections::BTreeMap;

use format::space_map::GROUP_UNITS;

/// Units that a bit of the list covers.
const BLOCK_UNITS: usize = 64;

const _: () = assert!(GROUP_UNITS.div_ceil(BLOCK_UNITS) == 64, "a word has a bit for each block");

/// Freed units that are not punched yet.
#[derive(Debug, Default, Clone)]
pub(crate) struct Freed {
    pub(crate) groups: BTreeMap<u64, Listed>,
    /// Units that were freed since their groups were visited.
    pub(crate) units: u64,
    /// Where the scan continues.
    next: u64,
    /// Groups left in this round.
    pub(crate) left: usize,
}

/// The same of a group.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Listed {
    /// A bit for each block in which there may be something to punch.
    pub(crate) blocks: u64,
    pub(crate) units: u64,
}

/// The blocks of a part of a group that is not empty.
pub(crate) fn blocks(begin: usize, end: usize) -> u64 {
    (u64::MAX << (begin / BLOCK_UNITS)) & (u64::MAX >> (63 - (end - 1) / BLOCK_UNITS))
}

impl Freed {
    /// Lists units that were freed.
    pub(crate) fn note(&mut self, unit: u64, units: u16) {
        let index = (unit % GROUP_UNITS as u64) as usize;
        let end = (index + usize::from(units)).min(GROUP_UNITS);
        let listed = self.groups.entry(unit / GROUP_UNITS as u64).or_default();
        listed.blocks |= blocks(index, end);
        listed.units += u64::from(units);
        self.units += u64::from(units);
    }

    /// Begins a round: every group that is listed now is visited once.
    pub(crate) fn begin_round(&mut self) {
        self.left = self.groups.len();
    }

    /// Takes off the list the next group of the round in which at least `units` units were freed.
    pub(crate) fn take(&mut self, units: u64) -> Option<(u64, Listed)> {
        while self.left > 0 {
            self.left -= 1;
            let mut from_here = self.groups.range(self.next..);
            let (&group, &listed) = from_here.next().or_else(|| self.groups.first_key_value())?;
            self.next = group + 1;
            if listed.units >= units {
                self.groups.remove(&group);
                self.units -= listed.units;
                return Some((group, listed));
            }
        }
        None
    }

    /// Lists a group again that was taken off.
    pub(crate) fn put_back(&mut self, group: u64, listed: Listed) {
        let there = self.groups.entry(group).or_default();
        there.blocks |= listed.blocks;
        there.units += listed.units;
        self.units += listed.units;
    }

    /// Lists blocks again in which the free runs were too short.
    pub(crate) fn keep(&mut self, group: u64, blocks: u64) {
        if blocks != 0 {
            self.groups.entry(group).or_default().blocks |= blocks;
        }
    }
}
