//! The trees that differ from the durable state. One consistent state of all of them can be taken
//! in constant time, whatever their number.
//!
//! A tree that changes is **fresh**. Its root is **captured** when a pin or a checkpoint needs the
//! state, and earlier when many trees are fresh. Captured roots are in a persistent map. A pin
//! takes a version of the map and a checkpoint takes all of it, in constant time. A version is
//! another owner of the nodes below its roots, so a later writer finds that its tree is shared. It
//! makes the tree fresh again, which removes the root from the newest version. Unless a pin has
//! another version, the tree then has one owner as before, and nothing was copied.
//!
//! Versions share entries, so the owner count of a root does not reveal how many versions have it.
//! No thread may take a root in a version to be its alone while a pin may have it
//! (`Core::seen_by_pins`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::changed_trees::Changed;
use crate::core::Core;
use crate::tree::{States, Tree};

/// Trees that may be fresh before some are captured ...
const FRESH_MAX: usize = 512;
/// ... and before a thread waits for the gate to do it.
const FRESH_LIMIT: usize = 4 * FRESH_MAX;
/// Trees captured in one go.
const STEP: usize = 128;

impl Core {
    /// Notes that a tree is about to differ from the durable one, or to differ again.
    pub(crate) fn mark_changed(&self, tree: &Arc<Tree>) {
        if tree.changed.load(Ordering::Relaxed) {
            return;
        }
        let mut changed = self.changed.lock();
        if tree.changed.load(Ordering::Relaxed) {
            return;
        }
        // This drops the root's other owner, unless a pin has it.
        changed.captured.remove_mut(&tree.id);
        changed.fresh.push_back(Arc::clone(tree));
        self.note_changed(&changed);
        tree.changed.store(true, Ordering::Relaxed);
    }

    fn note_changed(&self, changed: &Changed) {
        self.changed_trees.store(changed.len(), Ordering::Relaxed);
        self.fresh_trees.store(changed.fresh.len(), Ordering::Relaxed);
    }

    /// Captures up to `most` fresh trees. The caller has the gate exclusively.
    fn capture(&self, most: usize) {
        let fresh = {
            let mut changed = self.changed.lock();
            let count = most.min(changed.fresh.len());
            changed.fresh.drain(..count).collect::<Vec<_>>()
        };
        // Lock order: latches of trees before this lock.
        let roots = fresh.into_iter().map(|tree| {
            tree.changed.store(false, Ordering::Relaxed);
            let dropped = tree.dropped.load(Ordering::Relaxed);
            (tree.id, (!dropped).then(|| tree.state.read().clone()))
        });
        let roots = roots.collect::<Vec<_>>();
        let mut changed = self.changed.lock();
        for (id, root) in roots {
            changed.captured.insert_mut(id, root);
        }
        self.note_changed(&changed);
    }

    /// The state of all trees that changed. The caller has the gate exclusively.
    pub(crate) fn captured(&self) -> States {
        self.capture(usize::MAX);
        self.changed.lock().captured.clone()
    }

    /// Takes that state out. The caller has the gate exclusively.
    pub(crate) fn take_captured(&self) -> States {
        self.capture(usize::MAX);
        let mut changed = self.changed.lock();
        let states = std::mem::take(&mut changed.captured);
        self.note_changed(&changed);
        states
    }

    /// Puts it back, except trees that have changed since. The caller has the gate exclusively.
    pub(crate) fn put_back(&self, states: &States) {
        self.capture(usize::MAX);
        let mut changed = self.changed.lock();
        for (id, root) in states {
            if !changed.captured.contains_key(id) {
                changed.captured.insert_mut(*id, root.clone());
            }
        }
        self.note_changed(&changed);
    }

    /// Called after operations, without locks. Keeps the number of fresh trees small, so that a
    /// thread that takes the state has little to do while all others wait.
    #[inline]
    pub(crate) fn capture_some(&self) {
        let fresh = self.fresh_trees.load(Ordering::Relaxed);
        if fresh > FRESH_MAX {
            self.capture_step(fresh);
        }
    }

    #[cold]
    fn capture_step(&self, fresh: usize) {
        if fresh > FRESH_LIMIT {
            let _gate = self.gate.write();
            self.capture(STEP);
        } else if let Some(_gate) = self.gate.try_write() {
            self.capture(STEP);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::Ordering;

    use store::{Batch, Commit, Error, Maintain, Pinned, Read, Snapshot, TreeId};

    use super::{FRESH_LIMIT, FRESH_MAX, STEP};
    use crate::{BtreeStore, Options, check};

    const SOURCE: TreeId = TreeId(32);
    const KEYS: u64 = 300;

    /// What each tree holds.
    type Model = BTreeMap<TreeId, BTreeMap<u64, u64>>;

    fn matches(found: &dyn Read, model: &Model, trees: u64) {
        for id in (SOURCE.0..SOURCE.0 + trees).map(TreeId) {
            for key in 0..KEYS {
                let value = found.get(id, &key.to_be_bytes());
                match (value, model.get(&id)) {
                    (Err(Error::NoTree(_)), None) => break,
                    (Ok(value), Some(tree)) => {
                        let expected = tree.get(&key).map(|value| value.to_be_bytes().to_vec());
                        assert_eq!(value, expected, "key {key} of tree {id:?}");
                    }
                    (value, _) => panic!("tree {id:?}: {value:?}"),
                }
            }
        }
    }

    /// Random changes to many trees, with pins and checkpoints between them.
    #[test]
    fn pins_see_their_state_while_trees_are_captured_and_changed() {
        for seed in 1..=testing::run::rounds(1, 2) {
            println!("seed {seed}");
            let mut random = fastrand::Rng::with_seed(seed);
            let sim = testing::sim_env(seed);
            let options = Options::with_cache(4 << 20);
            let store = BtreeStore::create(&sim.env(), &options).expect("create");
            let (mut model, mut next) = (Model::new(), SOURCE.0 + 1);
            let mut pins: Vec<(Box<dyn Pinned>, Model)> = Vec::new();
            let mut batch = Batch::new();
            batch.create_tree(SOURCE);
            (0..KEYS).for_each(|key| batch.put(SOURCE, &key.to_be_bytes(), &key.to_be_bytes()));
            store.commit(&batch).expect("commit");
            model.insert(SOURCE, (0..KEYS).map(|key| (key, key)).collect());
            for step in 0..8000_u64 {
                let ids: Vec<TreeId> = model.keys().copied().collect();
                let tree = ids[random.usize(0..ids.len())];
                batch.clear();
                match random.u32(0..100) {
                    0..20 => {
                        batch.clone_tree(tree, TreeId(next));
                        model.insert(TreeId(next), model[&tree].clone());
                        next += 1;
                    }
                    20..24 if ids.len() > 100 && tree != SOURCE => {
                        batch.drop_tree(tree);
                        model.remove(&tree);
                    }
                    24 if pins.len() < 3 => {
                        pins.push((store.pin().expect("pin"), model.clone()));
                    }
                    25 if step % 3 == 0 && !pins.is_empty() => {
                        let (pin, state) = pins.swap_remove(random.usize(0..pins.len()));
                        matches(&*pin, &state, next - SOURCE.0);
                    }
                    26 => assert!(store.checkpoint().expect("checkpoint")),
                    _ => {
                        let key = random.u64(0..KEYS);
                        batch.put(tree, &key.to_be_bytes(), &step.to_be_bytes());
                        model.get_mut(&tree).expect("it exists").insert(key, step);
                    }
                }
                store.commit(&batch).expect("commit");
            }
            assert!(model.len() > 2 * FRESH_MAX, "{} trees", model.len());
            matches(store.as_ref(), &model, next - SOURCE.0);
            for (pin, state) in &pins {
                matches(&**pin, state, next - SOURCE.0);
            }
            drop(pins);
            assert!(check(&store).expect("check").is_clean());
        }
    }

    /// Taking the state of all trees is cheap though many have changed.
    #[test]
    fn few_trees_remain_to_be_captured() {
        let store = BtreeStore::create(&testing::sim_env(1).env(), &Options::default());
        let store = store.expect("create");
        let mut batch = Batch::new();
        batch.create_tree(SOURCE);
        store.commit(&batch).expect("commit");
        for tree in 1..5000 {
            batch.clear();
            batch.clone_tree(SOURCE, TreeId(SOURCE.0 + tree));
            store.commit(&batch).expect("commit");
            let fresh = store.engine().fresh_trees.load(Ordering::Relaxed);
            assert!(fresh <= FRESH_MAX + 1, "{fresh} trees are fresh");
        }
        assert_eq!(store.engine().changed_trees.load(Ordering::Relaxed), 5000);
        // Whole batches arrive at once, and then the committing thread waits for the gate.
        batch.clear();
        for tree in 0..5000 {
            batch.put(TreeId(SOURCE.0 + tree), b"key", b"value");
        }
        store.commit(&batch).expect("commit");
        for _ in 0..5000 / STEP {
            batch.clear();
            batch.put(SOURCE, b"key", b"other");
            store.commit(&batch).expect("commit");
        }
        assert!(store.engine().fresh_trees.load(Ordering::Relaxed) <= FRESH_LIMIT);
    }
}
