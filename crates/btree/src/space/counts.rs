//! Reference counts of the state that a checkpoint makes.
//!
//! 1. Each pointer in a node that was written, each root in the catalog and the superblock, adds
//!    one (`refer`).
//! 2. Each root that was replaced subtracts one (`unrefer`).
//! 3. `settle`: a node that nothing refers to any more is dead; each of its pointers subtracts one
//!    in turn. Since all additions came first, a node that is found dead stays dead.
//! 4. `apply` writes the result into the map.
//!
//! A count that has reached `COUNT_MAX` stays there, because the number of references is no longer
//! known. The node is kept whatever happens, until a check of the whole store counts again.
//!
//! A dead node is read for its pointers, except a leaf without overflow nodes. If a dead node is
//! damaged, the nodes below it keep their references. Their space is lost, until a check of the
//! whole store finds that they are unreachable, but that does not prevent the checkpoint. The
//! number of nodes that one checkpoint frees is bounded. The rest is kept as trash, with a
//! reference of its own, for the next one. The bound counts the references that are subtracted, so
//! that a bound on interior nodes also bounds the nodes below them.

use std::collections::BTreeSet;

use device::{Map, Set};
use format::space_map::{COUNT_MAX, GROUP_UNITS};
use format::{Corruption, Pointer};
use store::{Error, Result};

use super::map::Work;
use crate::codec;
use crate::nodes::NODES_FILE;
use crate::units::unit_offset;

/// A node that lost a reference.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Death {
    pub(crate) pointer: Pointer,
    /// Its level; `None` for an overflow node.
    pub(crate) level: Option<u8>,
}

/// References gained and lost.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    change: Map<u64, i64>,
    /// The units in `change`, for a repeatable order.
    touched: Vec<u64>,
    /// Nodes that were written, and their units.
    fresh: Map<u64, u16>,
    /// Nodes that lost a reference and remain to be examined, the last first.
    doubtful: Vec<Death>,
    dead: Set<u64>,
    /// Space of the dead nodes.
    pub(crate) freed: Vec<(u64, u16)>,
    /// References that dead nodes subtracted, and interior nodes that died.
    cost: usize,
}

/// Cost of a dead interior node, relative to a reference that it subtracts: it has to be read.
const INTERIOR_COST: usize = 8;

impl Counts {
    fn add(&mut self, unit: u64, change: i64) {
        let touched = &mut self.touched;
        *self.change.entry(unit).or_insert_with(|| {
            touched.push(unit);
            0
        }) += change;
    }

    /// A node was written at a new place.
    pub(crate) fn wrote(&mut self, unit: u64, units: u16) {
        self.fresh.insert(unit, units);
    }

    /// A pointer was added.
    pub(crate) fn refer(&mut self, pointer: Pointer) {
        self.add(pointer.unit, 1);
    }

    /// A pointer was removed.
    pub(crate) fn unrefer(&mut self, death: Death) {
        self.add(death.pointer.unit, -1);
        self.doubtful.push(death);
    }

    /// Finds the dead nodes. Beyond the cost of `most` interior nodes, or eight times as many
    /// leaves, interior ones are not followed but returned as trash. Each then has one reference,
    /// which the caller must record.
    pub(crate) fn settle(&mut self, work: &mut Work<'_>, most: usize) -> Result<Vec<Death>> {
        let mut trash = Vec::new();
        while let Some(death) = self.doubtful.pop() {
            let unit = death.pointer.unit;
            let fresh = self.fresh.contains_key(&unit);
            let before = if fresh { 0 } else { work.count(unit)? };
            let change = self.change.get(&unit).copied().unwrap_or(0);
            let after = i64::from(before) + change;
            if after < 0 && before != COUNT_MAX {
                return Err(too_low(unit, before, change).into());
            }
            if before == COUNT_MAX || after > 0 || self.dead.contains(&unit) {
                continue;
            }
            let interior = death.level.is_some_and(|level| level > 0);
            if interior && self.cost >= most.saturating_mul(INTERIOR_COST) {
                self.add(unit, 1);
                trash.push(death);
                continue;
            }
            self.dead.insert(unit);
            self.freed.push((unit, death.pointer.units));
            let below = children(work, death)?;
            self.cost += below.len() + if interior { INTERIOR_COST } else { 0 };
            for below in below {
                self.unrefer(below);
            }
        }
        Ok(trash)
    }

    /// Groups whose counts `apply` may change.
    pub(crate) fn groups(&self) -> BTreeSet<u64> {
        let freed = self.freed.iter().map(|(unit, _)| unit);
        self.touched.iter().chain(freed).map(|unit| unit / GROUP_UNITS as u64).collect()
    }

    /// Writes the counts into the map.
    pub(crate) fn apply(&mut self, work: &mut Work<'_>) -> Result<()> {
        for &unit in &self.touched {
            let change = self.change[&unit];
            if change == 0 || self.dead.contains(&unit) {
                continue;
            }
            let fresh = self.fresh.get(&unit).copied();
            let before = if fresh.is_some() { 0 } else { work.count(unit)? };
            if before == COUNT_MAX {
                continue;
            }
            let after = i64::from(before) + change;
            if after <= 0 {
                return Err(too_low(unit, before, change).into());
            }
            if after >= i64::from(COUNT_MAX) {
                tracing::warn!(unit, "too many references: the node stays");
            }
            work.set_count(unit, u32::try_from(after).map_or(COUNT_MAX, |n| n.min(COUNT_MAX)))?;
        }
        for &(unit, units) in &self.freed {
            work.set(unit, units, 0)?;
        }
        Ok(())
    }
}

/// The map counts fewer references than there were, or a forged pointer names the space that a new
/// node was given. To continue would free nodes that are still referenced.
fn too_low(unit: u64, before: u32, change: i64) -> Corruption {
    Corruption {
        file: NODES_FILE.to_owned(),
        offset: unit_offset(unit),
        structure: "reference count",
        expected: format!("a count of which {} can be taken away", -change),
        found: before.to_string(),
        unread: false,
    }
}

/// The children of a dead node; none if it is damaged, because nothing reads it any more.
fn children(work: &Work<'_>, death: Death) -> Result<Vec<Death>> {
    let Some(level) = death.level else { return Ok(Vec::new()) };
    if level == 0 && !death.pointer.overflows {
        return Ok(Vec::new());
    }
    let pointers = match work.nodes.read_tree_node(death.pointer, level, codec::pointers) {
        Ok(pointers) => pointers,
        Err(Error::Corrupt(damage)) => {
            let (file, offset) = (damage.file.as_str(), damage.offset);
            tracing::warn!(file, offset, %damage, "a dead node is damaged: losing space below it");
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    let level = level.checked_sub(1);
    Ok(pointers.into_iter().map(|pointer| Death { pointer, level }).collect())
}
