//! Slots of subvolumes: the part of a subvolume's number that fits into the kernel's inode numbers.
//!
//! A subvolume's number is never reused; its lowest 23 bits, the slot, are, because the kernel's
//! inode numbers have no more space. Invariants:
//!
//! 1. No two subvolumes that have a record share a slot. The record is removed when nothing of the
//!    subvolume is left to reclaim, orphans included, so it is all that occupies a slot on disk.
//! 2. A slot is not reused while the kernel holds a node of the subvolume that had it last.
//! 3. The number that has a slot is derived from the records. A number of generation 0 is its slot,
//!    and those of later generations are listed once, on first use. Nothing else is stored, and a
//!    volume that never had 2^23 subvolumes lists nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use device::sync::Mutex;
use device::{Map, Set};
use format::key;
use inode::{Slot, SubvolId};
use store::{KeyRange, Store};
use vfs::FsResult;

use crate::error::{from_store, malformed};
use crate::nodes::NodeTable;
use crate::own_tree::VOLUME;

/// How many freed slots are remembered before a check which are still held.
const FREED_MAX: usize = 1 << 16;

/// Which number has which slot.
#[derive(Default)]
pub struct Slots {
    state: Mutex<SlotTable>,
    /// Whether a number of generation 1 or later was allocated, or listed.
    has_later: AtomicBool,
}

#[derive(Default)]
struct SlotTable {
    /// Numbers of generation 1 and later, by slot: the last one that was given out. `None`: not
    /// listed yet.
    later: Option<Map<u64, u64>>,
    /// Slots of subvolumes that were removed since the volume was opened. The kernel may hold
    /// nodes of them.
    freed: Set<u64>,
}

impl SlotTable {
    fn later(&mut self, store: &dyn Store) -> FsResult<&mut Map<u64, u64>> {
        let listed = match self.later.take() {
            Some(listed) => listed,
            None => list(store)?,
        };
        Ok(self.later.insert(listed))
    }

    fn keep_held(&mut self, nodes: &NodeTable) {
        let held = nodes.held_slots();
        self.freed.retain(|slot| held.contains(slot));
    }
}

impl Slots {
    /// As in the counter of subvolumes at opening.
    pub fn open(next: u64) -> Slots {
        Slots { has_later: AtomicBool::new(key::generation(next) > 0), ..Slots::default() }
    }

    /// Whether all that exist are of generation 0.
    #[inline]
    pub fn are_first(&self) -> bool {
        !self.has_later.load(Ordering::Acquire)
    }

    /// The number of the subvolume that has a slot, or had it last.
    pub fn number(&self, store: &dyn Store, slot: Slot) -> FsResult<Option<SubvolId>> {
        if slot.0 == 0 || slot.0 > key::SLOT_MAX {
            return Ok(None);
        }
        if exists(store, slot.0)? {
            return Ok(Some(SubvolId(slot.0)));
        }
        let mut state = self.state.lock();
        Ok(state.later(store)?.get(&slot.0).copied().map(SubvolId))
    }

    /// Takes the slot of a number before that is allocated; `false` if it is occupied.
    pub fn take(&self, store: &dyn Store, nodes: &NodeTable, number: u64) -> FsResult<bool> {
        let slot = key::slot(number);
        if slot == 0 || slot > key::SLOT_MAX {
            return Ok(false);
        }
        if key::generation(number) == 0 {
            return Ok(true);
        }
        self.has_later.store(true, Ordering::Release);
        let mut state = self.state.lock();
        let before = state.later(store)?.get(&slot).copied();
        if exists(store, slot)? || before.map_or(Ok(false), |before| exists(store, before))? {
            return Ok(false);
        }
        if state.freed.contains(&slot) {
            state.keep_held(nodes);
            if state.freed.contains(&slot) {
                return Ok(false);
            }
        }
        state.later(store)?.insert(slot, number);
        Ok(true)
    }

    /// Notes that a subvolume was removed.
    pub fn free(&self, nodes: &NodeTable, id: SubvolId) {
        let mut state = self.state.lock();
        state.freed.insert(id.slot().0);
        if state.freed.len() >= FREED_MAX {
            state.keep_held(nodes);
        }
    }
}

fn exists(store: &dyn Store, number: u64) -> FsResult<bool> {
    store.get_with(VOLUME, &key::subvolume(number), &mut |_| ()).map_err(from_store)
}

/// All numbers of later generations, by slot. An impossible one is damage, and is reported where it
/// is read.
fn list(store: &dyn Store) -> FsResult<Map<u64, u64>> {
    let first = key::subvolume(1 << key::SLOT_BITS);
    let end = store::prefix_end(&key::SUBVOLUMES_PREFIX);
    let range = KeyRange { from: first.to_vec(), to: end };
    let mut later = Map::default();
    let mut cursor = store.scan(VOLUME, range).map_err(from_store)?;
    while let Some(item) = cursor.next().map_err(from_store)? {
        let number = key::parse_number(item.key).map_err(|error| malformed(VOLUME, &error))?;
        if key::can_be_subvolume(number) {
            later.insert(key::slot(number), number);
        }
    }
    Ok(later)
}

#[cfg(test)]
mod tests {
    use format::key::{self, SLOT_BITS};
    use inode::{Ino, NodeId, SubvolId};
    use store::{Batch, Commit};
    use testing::MemStore;

    use super::Slots;
    use crate::nodes::{Location, NodeTable};
    use crate::own_tree::VOLUME;

    #[test]
    fn a_slot_is_not_reused_while_the_kernel_holds_its_inodes() {
        let (store, nodes) = (MemStore::new(), NodeTable::new());
        let mut batch = Batch::new();
        batch.create_tree(VOLUME);
        batch.put(VOLUME, &key::subvolume(1), b"the volume's root");
        store.commit(&batch).expect("it is in memory");
        let (slots, next) = (Slots::open(2), (1 << SLOT_BITS) + 5);
        let take = |number| slots.take(&store, &nodes, number).expect("it reads");
        let held = NodeId::new(SubvolId(5), Ino(77));
        nodes.look_up(held, Location::Linked);
        slots.free(&nodes, SubvolId(5));
        assert!(!take(next), "a node of it is held");
        assert!(take(next + 1), "the next slot is free");
        nodes.forget(held, 1);
        assert!(take(next), "nobody holds any");
        assert!(!take((1 << SLOT_BITS) + 1), "the volume's root has it");
        for none in [1 << SLOT_BITS, (2 << SLOT_BITS) - 1] {
            assert!(!take(none), "{none:#x} is no slot of a subvolume");
        }
    }
}
