//! Leaves that were written outside of a checkpoint. Until the next one counts them, their units
//! are held like those that a pin reads, by a pin that never drops.

use format::Malformed;
use format::map_directory::Entry;
use format::space_map::GROUP_UNITS;
use store::Result;

use super::counts::{Counts, Death};
use super::ingested_leaf::{FOREVER, Ingested};
use super::map::{Space, Work};

impl Space {
    /// Holds the space of a leaf that was written, so that nothing else takes it.
    pub(crate) fn hold(&mut self, leaf: &Ingested) {
        for pointer in leaf.pointers() {
            let group = pointer.unit / GROUP_UNITS as u64;
            while self.groups.len() as u64 <= group {
                self.groups.push(Entry::empty());
            }
            let before = self.held.insert(pointer.unit, (pointer.units, FOREVER));
            assert!(before.is_none(), "unit {} was given away twice", pointer.unit);
            self.uncounted += u64::from(pointer.units);
        }
    }

    /// As `hold`, for a leaf that a log record names, in a file of so many groups. Fails when its
    /// space is held already, because the log continues a later state than this one. Also fails
    /// when the space is outside the file, or crosses groups.
    pub(crate) fn hold_replayed(&mut self, leaf: &Ingested, groups: u64) -> Result<()> {
        let mut space: Vec<(u64, u64)> =
            leaf.pointers().map(|at| (at.unit, at.unit + u64::from(at.units))).collect();
        space.sort_unstable();
        let outside = |&&(unit, end): &&(u64, u64)| {
            let group = unit / GROUP_UNITS as u64;
            unit == end || group >= groups || (end - 1) / GROUP_UNITS as u64 != group
        };
        let taken = |&&(unit, end): &&(u64, u64)| {
            self.held_at(unit).is_some() || self.held.range(unit..end).next().is_some()
        };
        let twice = space.windows(2).find(|two| two[0].1 > two[1].0).map(|two| &two[1]);
        let bad = space.iter().find(outside).or_else(|| space.iter().find(taken)).or(twice);
        if let Some((unit, end)) = bad {
            let malformed = Malformed {
                structure: "ingested leaf",
                at: 0,
                expected: "a node in space of a group that no other record assigned",
                found: format!("units {unit} to {end}"),
            };
            // The log adds the place of the record.
            return Err(malformed.located("", 0).into());
        }
        self.hold(leaf);
        Ok(())
    }

    /// Releases the space of leaves that stay unreachable; returns it.
    pub(crate) fn let_go(&mut self, leaves: &[Ingested]) -> Vec<(u64, u16)> {
        let mut free = Vec::new();
        for pointer in leaves.iter().flat_map(Ingested::pointers) {
            if self.held.remove(&pointer.unit).is_some() {
                free.push((pointer.unit, pointer.units));
                self.uncounted -= u64::from(pointer.units);
                // There may be a longer run now than the last search found.
                self.forget_longest(pointer.unit / GROUP_UNITS as u64);
            }
        }
        free
    }

    /// Units that were written outside of a checkpoint, and that no checkpoint has counted.
    pub(crate) fn uncounted(&self) -> u64 {
        self.uncounted
    }

    /// Whether leaves are in a tree by now.
    pub(crate) fn has_ingested(&self, leaves: &[Ingested]) -> bool {
        leaves.first().is_some_and(|leaf| self.ingested.contains(leaf))
    }

    /// Called when a checkpoint that counted them is published: the map has those that are in use.
    pub(crate) fn forget_ingested(&mut self) {
        let counted = std::mem::take(&mut self.ingested);
        self.let_go(&counted);
    }
}

impl Work<'_> {
    /// Counts the leaves that were ingested since the last checkpoint, as if this one had written
    /// them. They add a reference to each of their long values. Those that no written node points
    /// to die in `settle`.
    pub(crate) fn count_ingested(&mut self, counts: &mut Counts) -> Result<()> {
        for leaf in self.base.ingested.clone() {
            for pointer in leaf.pointers() {
                self.set(pointer.unit, pointer.units, 1)?;
                counts.wrote(pointer.unit, pointer.units);
                counts.refer(*pointer);
            }
            counts.unrefer(Death { pointer: leaf.pointer, level: Some(0) });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use format::Pointer;
    use store::Error;

    use super::*;

    #[test]
    fn a_unit_that_two_records_name_is_damage_and_no_panic() {
        let pointer = |unit| Pointer { unit, units: 4, overflows: false, checksum: 1 };
        let leaf = |unit, overflows: &[u64]| Ingested {
            pointer: pointer(unit),
            overflows: overflows.iter().map(|&unit| pointer(unit)).collect(),
        };
        let mut space = Space::empty();
        space.hold_replayed(&leaf(8, &[16]), 1).expect("the first");
        // The same space, a part of it, and the space of a long value of the leaf itself.
        let group = GROUP_UNITS as u64;
        let twice = [leaf(8, &[]), leaf(16, &[]), leaf(24, &[32, 8]), leaf(5, &[]), leaf(18, &[])];
        // Across the end of the group, and behind that of the file.
        let outside = [leaf(group - 3, &[]), leaf(group, &[]), leaf(40, &[1 << 47])];
        for bad in twice.iter().chain(&outside).chain(&[leaf(40, &[42]), leaf(40, &[40])]) {
            let error = space.hold_replayed(bad, 1).expect_err("no space of its own");
            assert!(matches!(error, Error::Corrupt(_)), "{bad:?}: {error:?}");
        }
        assert_eq!((space.uncounted, space.groups.len()), (8, 1), "nothing of it is held");
        space.hold_replayed(&leaf(24, &[32, group - 4]), 1).expect("other space");
    }
}
