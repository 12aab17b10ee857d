//! Leaves that were written outside of a checkpoint. Until the next one counts them, their units
//! are held like those that a pin reads, by a pin that never drops.

use format::Pointer;
use format::map_directory::Entry;
use format::space_map::GROUP_UNITS;
use store::Result;

use super::counts::{Counts, Death};
use super::map::{Space, Work};

/// The number of a pin that never drops.
const FOREVER: u64 = u64::MAX;

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
