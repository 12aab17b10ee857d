//! Letting go of what a checkpoint froze, has written, and needs no more.
//!
//! A leaf that is changed while a checkpoint has it is copied, and both copies are in memory until
//! the state is published: syncing it takes long, and committers would have to wait for room. But
//! the older copy is nobody's: the trees have the new one, and a failed checkpoint goes back to
//! what the trees have. So its content is dropped once it is written, by whoever needs the room.
//!
//! Nobody else has a leaf when each node on the way to it from a frozen root has one owner beside
//! `Written`, which lists what was written. That does not change: nodes of a frozen root are found
//! through their owners alone, for a changed node is not in the map of known cells. A tree that was
//! not changed since, a clone or a pin of it has the frozen root or a node on the way, and then
//! nothing below is touched.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::Frozen;
use super::freeze::Roots;
use crate::cell::{Child, Interior, Node};
use crate::core::Core;

/// Bytes with which a thread is content that looks for some.
const ENOUGH_BYTES: usize = 256 << 10;
/// Children of roots that it looks below.
const LOOKS_MAX: usize = 8;
/// Owners of a node that was written: its parent, and the list of what was written.
const OWNERS: usize = 2;

/// A frozen state, all of which is written.
#[derive(Debug)]
pub(crate) struct Shedding {
    roots: Arc<Roots>,
    /// Where the search goes on: the place of a root, and of a child of it.
    at: (usize, usize),
}

impl Core {
    /// Says that all of a frozen state is written, and listed.
    pub(super) fn begin_shedding(&self, frozen: &Frozen) {
        let roots = Arc::clone(&frozen.roots);
        *self.shedding.lock() = Some(Shedding { roots, at: (0, 0) });
    }

    /// Says that cells are about to learn where they lie, or never will.
    pub(super) fn end_shedding(&self) {
        *self.shedding.lock() = None;
    }

    /// Lets go of a little; tells whether anything was found.
    pub(crate) fn shed(&self) -> bool {
        // Another thread at it leaves nothing for this one.
        let Some(mut shedding) = self.shedding.try_lock() else { return false };
        let Some(shedding) = &mut *shedding else { return false };
        let mut bytes = 0;
        for _ in 0..LOOKS_MAX {
            bytes += shedding.step();
            if bytes >= ENOUGH_BYTES {
                break;
            }
        }
        bytes > 0
    }
}

impl Shedding {
    /// Looks below the next child of a root; returns how many bytes were let go of.
    fn step(&mut self) -> usize {
        let (root, at) = self.at;
        let Some((_, root)) = self.roots.get(root) else {
            self.at = (0, 0);
            return 0;
        };
        let interior = root.as_ref().and_then(|root| alone(&root.child));
        let Some(child) = interior.and_then(|interior| interior.children.get(at)) else {
            self.at = (self.at.0 + 1, 0);
            return 0;
        };
        self.at.1 += 1;
        shed_below(child)
    }
}

/// The changed interior node in a slot, if nobody else has it.
fn alone(child: &Child) -> Option<&Interior> {
    match child.cell.get()? {
        Node::Interior(interior) if Arc::strong_count(interior) == OWNERS => {
            // Whoever gave it up had copied its children before: they are counted after it.
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
        // One that was not changed is the cache's.
        return if state.disk.is_none() { state.shed() } else { 0 };
    }
    alone(child).map_or(0, |interior| interior.children.iter().map(shed_below).sum())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use store::{Batch, KeyRange, Read, Result, Store, TreeId};

    use super::super::Written;
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

    /// What becomes of a checkpoint.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum End {
        Published,
        Failed,
    }

    /// Changes everything again while a checkpoint is made, half before it is written and half
    /// after that; returns the changed bytes before that, and after everything was let go of.
    fn run(end: End, pinned: bool) -> (usize, usize) {
        let sim = testing::sim_env(7);
        let options = Options { cache_bytes: 32 << 20, ..Options::default() };
        let store = BtreeStore::create(&sim.env(), &options).unwrap();
        let mut batch = Batch::new();
        batch.create_tree(TREE);
        store.commit(&batch).unwrap();
        let (core, mut model) = (&store.core, Model::new());
        put(&store, &mut model, 0..KEYS, 1);
        let before = core.dirty();
        let mut state = core.checkpoint.lock();
        let frozen = core.freeze();
        let old = model.clone();
        let pin = pinned.then(|| store.pin().unwrap());
        put(&store, &mut model, 0..KEYS / 2, 2);
        assert!(!core.shed(), "nothing is written yet");
        let written: Result<Written> = core.write_state(&mut state, &frozen, 0);
        put(&store, &mut model, KEYS / 2..KEYS, 3);
        // Each call looks below some children of the root; all are looked at.
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
        if let Some(pin) = pin {
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
    fn what_is_written_and_changed_again_is_in_memory_once() {
        for end in [End::Published, End::Failed] {
            let (before, after) = run(end, false);
            assert!(after < before + before / 4, "{after} of {before} bytes are left");
        }
    }

    #[test]
    fn what_a_pin_sees_is_kept() {
        for end in [End::Published, End::Failed] {
            let (before, after) = run(end, true);
            assert!(after >= before / 4 * 7, "{after} of {before} bytes are left");
        }
    }
}
