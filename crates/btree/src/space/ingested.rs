//! Leaves that were written outside of a checkpoint. Until the next one counts them, their units
//! are held like those that a pin reads, by a pin that never drops.

use format::Malformed;
use format::Pointer;
use format::map_directory::Entry;
use format::space_map::GROUP_UNITS;
use store::Result;

use super::counts::{Counts, Death};
use super::map::{Space, Work};

/// The number of a pin that never drops.
pub(super) const FOREVER: u64 = u64::MAX;

/// A leaf, and where its long values lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ingested {
    pub(crate) pointer: Pointer,
    pub(crate) overflows: Vec<Pointer>,
}

impl Ingested {
    fn pointers(&self) -> impl Iterator<Item = &Pointer> {
        self.overflows.iter().chain([&self.pointer])
    }
}

impl Space {
    /// Sees to it that nobody else gets the room of a leaf that was written.
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

    /// As `hold`, for a leaf that a record of the log names. Fails when its room is held already:
    /// the log goes on from a later state than this one.
    pub(crate) fn hold_replayed(&mut self, leaf: &Ingested) -> Result<()> {
        if let Some(twice) = leaf.pointers().find(|pointer| self.held.contains_key(&pointer.unit)) {
            let malformed = Malformed {
                structure: "ingested leaf",
                at: 0,
                expected: "a node in room that no other record gave away",
                found: format!("unit {}, which an earlier record names", twice.unit),
            };
            // The log adds the place of the record.
            return Err(malformed.located("", 0).into());
        }
        self.hold(leaf);
        Ok(())
    }

    /// Gives up the room of leaves to which nothing will lead; returns it.
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

    /// Units that were written outside of a checkpoint, and that none has counted.
    pub(crate) fn uncounted(&self) -> u64 {
        self.uncounted
    }

    /// Whether leaves are in a tree by now.
    pub(crate) fn has_ingested(&self, leaves: &[Ingested]) -> bool {
        leaves.first().is_some_and(|leaf| self.ingested.contains(leaf))
    }

    /// Called when a checkpoint that counted them is published: what is in use is in the map.
    pub(crate) fn forget_ingested(&mut self) {
        let counted = std::mem::take(&mut self.ingested);
        self.let_go(&counted);
    }
}

impl Work<'_> {
    /// Counts the leaves that were ingested since the last checkpoint, as if this one had written
    /// them: they add a reference to each of their long values, and those to which no node leads
    /// that it writes die in `settle`.
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
        space.hold_replayed(&leaf(8, &[16])).expect("the first");
        for twice in [leaf(8, &[]), leaf(16, &[]), leaf(24, &[32, 8])] {
            let error = space.hold_replayed(&twice).expect_err("named twice");
            assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
        }
        assert_eq!(space.uncounted, 8, "of what was refused nothing is held");
        space.hold_replayed(&leaf(24, &[32])).expect("other room");
    }
}
