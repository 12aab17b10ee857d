//! Drops contents that a checkpoint froze and has written, and that are no longer needed.
//!
//! A leaf that is changed while a checkpoint has it is copied, and both copies are in memory until
//! the state is published. Syncing takes long, and committers would have to wait for memory. But
//! the older copy is not needed: the trees have the new one, and a failed checkpoint goes back to
//! the present trees. So its content is dropped once it is written, by the thread that needs the
//! memory.
//!
//! A leaf has no other owner when each node on the path to it from a frozen root has only one
//! owner. `Written`, which lists the written nodes, does not count. It gets none later. Nodes of a
//! frozen root are found through their owners alone, because a changed node is not in the map of
//! known cells. A tree that was not changed since, a clone or a pin of it has the frozen root or a
//! node on the path. Then nothing below is touched. Pins that may have a version of the frozen
//! state do not show as owners; while there is such a pin, nothing is dropped.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use store::TreeId;

use super::Frozen;
use super::state::Shedding;
use crate::cell::{Child, Interior, Node};
use crate::core::Core;
use crate::tree::Root;

/// A thread stops looking once it has dropped this many bytes.
const ENOUGH_BYTES: usize = 256 << 10;
/// Children of roots that it visits.
const LOOKS_MAX: usize = 8;
/// Owners of a node that was written: its parent, and the list of what was written.
const OWNERS: usize = 2;

impl Core {
    /// Notes that all of a frozen state is written, and listed.
    pub(super) fn begin_shedding(&self, frozen: &Frozen) {
        let (states, pins_from) = (Arc::clone(&frozen.states), frozen.pins_from);
        *self.shedding.lock() = Some(Shedding { states, pins_from, at: (TreeId(0), 0) });
    }

    /// Notes that cells are about to record their places, or never will.
    pub(super) fn end_shedding(&self) {
        *self.shedding.lock() = None;
    }

    /// Drops some contents; returns whether any were found.
    pub(crate) fn shed(&self) -> bool {
        // If another thread is doing it, nothing is left for this one.
        let Some(mut shedding) = self.shedding.try_lock() else { return false };
        let Some(shedding) = &mut *shedding else { return false };
        let mut bytes = 0;
        for _ in 0..LOOKS_MAX {
            bytes += self.shed_step(shedding);
            if bytes >= ENOUGH_BYTES {
                break;
            }
        }
        bytes > 0
    }
}

impl Core {
    /// Visits the next child of a root; returns how many bytes were dropped.
    fn shed_step(&self, shedding: &mut Shedding) -> usize {
        let (id, at) = shedding.at;
        let Some((&found, root)) = shedding.states.range(id..).next() else {
            shedding.at = (TreeId(0), 0);
            return 0;
        };
        let at = if found == id { at } else { 0 };
        let root = root.as_ref().filter(|root| self.is_alone(root, OWNERS, shedding.pins_from));
        let interior = root.and_then(|root| alone(&root.child));
        let Some(child) = interior.and_then(|interior| interior.children.get(at)) else {
            shedding.at = (TreeId(found.0 + 1), 0);
            return 0;
        };
        shedding.at = (found, at + 1);
        shed_below(child)
    }

    /// Whether a root of a frozen state has only the given number of owners, which the caller
    /// knows, and no pin has the state. Then the tree has another root by now, which later pins
    /// will find.
    pub(super) fn is_alone(&self, root: &Root, owners: usize, pins_from: u64) -> bool {
        let counted = root.child.cell.get().is_some_and(|node| node.owners() == owners);
        // A pin that was made before the tree changed is counted before its owners were.
        fence(Ordering::Acquire);
        counted && !self.pins.lock().any_after(pins_from)
    }
}

/// The changed interior node in a slot, if it has no other owner.
fn alone(child: &Child) -> Option<&Interior> {
    match child.cell.get()? {
        Node::Interior(interior) if Arc::strong_count(interior) == OWNERS => {
            // A former owner had copied its children before it let go: they are counted after that.
            fence(Ordering::Acquire);
            interior.disk.get().is_none().then_some(interior.as_ref())
        }
        _ => None,
    }
}

/// Recurses once a level.
fn shed_below(child: &Child) -> usize {
    if let Some(Node::Leaf(leaf)) = child.cell.get() {
        if Arc::strong_count(leaf) != OWNERS {
            return 0;
        }
        let mut state = leaf.latch.write();
        // An unchanged leaf belongs to the cache.
        return if state.disk.is_none() { state.shed() } else { 0 };
    }
    alone(child).map_or(0, |interior| interior.children.iter().map(shed_below).sum())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use store::{Batch, Commit, Durable, KeyRange, Maintain, Read, Result, Snapshot, TreeId};

    use super::super::run::Written;
    use crate::{BtreeStore, Options, check};

    const TREE: TreeId = TreeId(32);
    const KEYS: u32 = 8000;

    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    fn put(store: &BtreeStore, model: &mut Model, keys: impl Iterator<Item = u32>, value: u8) {
        for key in keys {
            let mut batch = Batch::new();
            batch.put(TREE, &key.to_be_bytes(), &[value; 120]);
            store.commit(&batch).unwrap();
            model.insert(key.to_be_bytes().to_vec(), vec![value; 120]);
        }
    }

    fn read(from: &dyn Read) -> Model {
        let mut cursor = from.scan(TREE, KeyRange::all()).unwrap();
        let mut all = Model::new();
        while let Some(item) = cursor.next().unwrap() {
            all.insert(item.key.to_vec(), item.value.to_vec());
        }
        all
    }

    /// The outcome of a checkpoint.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum End {
        Published,
        Failed,
    }

    /// When a pin is made.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum When {
        /// Before the checkpoint is frozen, so it shares the checkpoint's states.
        Before,
        /// While it is made.
        During,
    }

    /// Changes everything again while a checkpoint runs, half before it is written and half after
    /// that. Returns the changed bytes before that, and after all droppable contents were dropped.
    fn run(end: End, pinned: Option<When>) -> (usize, usize) {
        let sim = testing::sim_env(7);
        let options = Options::with_cache(32 << 20);
        let store = BtreeStore::create(&sim.env(), &options).unwrap();
        let mut batch = Batch::new();
        batch.create_tree(TREE);
        store.commit(&batch).unwrap();
        let (core, mut model) = (&store.engine(), Model::new());
        put(&store, &mut model, 0..KEYS, 1);
        let before = core.dirty();
        let mut state = core.checkpoint.lock();
        let early = (pinned == Some(When::Before)).then(|| store.pin().unwrap());
        let frozen = core.freeze();
        let old = model.clone();
        let late = (pinned == Some(When::During)).then(|| store.pin().unwrap());
        put(&store, &mut model, 0..KEYS / 2, 2);
        assert!(!core.shed(), "nothing is written yet");
        let written: Result<Written> = core.write_state(&mut state, &frozen, 0);
        put(&store, &mut model, KEYS / 2..KEYS, 3);
        // Each call visits some children of the root; together they visit all.
        for _ in 0..1000 {
            core.shed();
        }
        let after = core.dirty();
        assert_eq!(read(store.as_ref()), model);
        match end {
            End::Published => {
                core.publish(&mut state, frozen, written.unwrap(), Vec::new()).unwrap();
            }
            End::Failed => core.thaw(&frozen),
        }
        assert!(!core.shed());
        drop(state);
        assert_eq!(read(store.as_ref()), model);
        for pin in [early, late].into_iter().flatten() {
            assert_eq!(read(pin.as_ref()), old);
        }
        assert!(store.checkpoint().unwrap());
        assert_eq!(read(store.as_ref()), model);
        assert!(check(&store).unwrap().is_clean());
        store.close().unwrap();
        drop(store);
        let store = BtreeStore::open(&sim.env(), &options).unwrap();
        assert_eq!(read(store.as_ref()), model);
        (before, after)
    }

    #[test]
    fn a_written_and_changed_leaf_is_in_memory_once() {
        for end in [End::Published, End::Failed] {
            let (before, after) = run(end, None);
            assert!(after < before + before / 4, "{after} of {before} bytes are left");
        }
    }

    #[test]
    fn contents_that_a_pin_sees_are_kept() {
        for end in [End::Published, End::Failed] {
            for when in [When::Before, When::During] {
                let (before, after) = run(end, Some(when));
                assert!(after >= before / 4 * 7, "{after} of {before} bytes are left");
            }
        }
    }
}
