//! Concurrent actions between the steps of a checkpoint that moves leaves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use store::{Batch, Commit, Durable, KeyRange, Maintain, Pinned, Read, Snapshot, TreeId};
use testing::{Fault, FaultOn, Op, SimEnv};

use crate::{BtreeStore, Options, check};

const TREE: TreeId = TreeId(32);
const KEYS: u32 = 6000;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn value(key: u32, version: u32) -> Vec<u8> {
    let mut value = vec![key as u8; if key.is_multiple_of(50) { 2500 } else { 1600 }];
    value[..4].copy_from_slice(&version.to_le_bytes());
    value
}

fn options() -> Options {
    Options::with_cache(64 << 20)
}

fn commit(store: &BtreeStore, fill: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::new();
    fill(&mut batch);
    store.commit(&batch).expect("commit");
}

fn read(from: &dyn Read, tree: TreeId) -> Model {
    let mut cursor = from.scan(tree, KeyRange::all()).expect("scan");
    let mut all = Model::new();
    while let Some(item) = cursor.next().expect("read") {
        all.insert(item.key.to_vec(), item.value.to_vec());
    }
    all
}

/// A store, its trees, and pins of it, with their expected content.
struct World {
    store: Arc<BtreeStore>,
    random: fastrand::Rng,
    trees: BTreeMap<TreeId, Model>,
    next_tree: u64,
    pins: Vec<(Box<dyn Pinned>, BTreeMap<TreeId, Model>)>,
    version: u32,
}

impl World {
    fn put(&mut self, tree: TreeId, keys: usize) {
        self.version += 1;
        for _ in 0..keys {
            let key = self.random.u32(..KEYS);
            let value = value(key, self.version);
            commit(&self.store, |batch| batch.put(tree, &key.to_be_bytes(), &value));
            let model = self.trees.get_mut(&tree).expect("it is there");
            model.insert(key.to_be_bytes().to_vec(), value);
        }
    }

    fn clone_of(&mut self, tree: TreeId) -> TreeId {
        let clone = TreeId(self.next_tree);
        self.next_tree += 1;
        commit(&self.store, |batch| batch.clone_tree(tree, clone));
        let model = self.trees[&tree].clone();
        self.trees.insert(clone, model);
        clone
    }

    /// Drops a tree, except the first.
    fn drop_one(&mut self) {
        let Some(&gone) = self.trees.keys().nth(self.random.usize(1..4)) else { return };
        self.drop_tree(gone);
    }

    /// Evicts everything that can be evicted, so that it is read from disk.
    fn unload(&self) {
        let core = &self.store.engine();
        let _gate = core.gate.write();
        core.evictions.fetch_add(1, Ordering::Relaxed);
        (0..100_000).any(|_| !core.nodes.ring.turn());
        for &tree in self.trees.keys() {
            let tree = core.tree(tree).expect("it is there");
            let mut root = tree.state.write();
            (0..10_000).any(|at| !core.nodes.prune_part(&mut root, at));
        }
    }

    /// Trees that share nodes which no checkpoint has written, beside one that does not.
    fn entangle(&mut self) {
        if self.random.bool() {
            self.put(TREE, 60);
        }
        if self.random.bool() {
            let clone = self.clone_of(TREE);
            self.clone_of(clone);
        }
        while self.trees.len() > 6 {
            self.drop_one();
        }
        self.put(TREE, 100);
        if self.random.bool() {
            self.unload();
        }
    }

    /// One random action.
    fn act(&mut self) {
        let trees: Vec<TreeId> = self.trees.keys().copied().collect();
        let tree = trees[self.random.usize(..trees.len())];
        match self.random.u32(..10) {
            0..4 => {
                let keys = self.random.usize(1..300);
                self.put(tree, keys);
            }
            4 => {
                self.clone_of(tree);
            }
            5 => self.drop_one(),
            6 => self.unload(),
            7 => {
                let pin = self.store.pin().expect("pin");
                self.pins.push((pin, self.trees.clone()));
            }
            8 => self.pins.clear(),
            _ => assert!(read(&*self.store, tree) == self.trees[&tree], "tree {}", tree.0),
        }
    }

    fn some(&mut self, most: usize) {
        for _ in 0..self.random.usize(..=most) {
            self.act();
        }
    }

    fn compare(&self) {
        for (&tree, model) in &self.trees {
            assert!(&read(&*self.store, tree) == model, "tree {} has changed", tree.0);
        }
        for (pin, trees) in &self.pins {
            for (&tree, model) in trees {
                assert!(&read(&**pin, tree) == model, "tree {} of a pin has changed", tree.0);
            }
        }
    }

    /// A checkpoint with actions between its steps, which fails or not; returns whether leaves were
    /// to be moved.
    fn checkpoint(&mut self) -> bool {
        let store = Arc::clone(&self.store);
        let core = store.engine();
        let mut state = core.checkpoint.lock();
        let released = state.space.release(core.pins.lock().oldest());
        core.gather(&mut state);
        let moves = state.gather.moves.len();
        self.some(2);
        let frozen = core.freeze();
        self.some(3);
        let written = core.write_state(&mut state, &frozen, 4096).expect("write");
        self.some(3);
        if self.random.u32(..4) == 0 {
            core.thaw(&frozen);
        } else {
            core.log().sync(frozen.lsn).expect("sync");
            core.publish(&mut state, frozen, written, released).expect("publish");
        }
        moves > 0
    }
}

impl World {
    /// A checkpoint without other actions; returns whether leaves were to be moved.
    fn checkpoint_now(&self) -> bool {
        let core = &self.store.engine();
        let mut state = core.checkpoint.lock();
        let before = core.nodes.moved_bytes.load(Ordering::Relaxed);
        core.checkpoint_locked(&mut state, 4096).expect("checkpoint");
        core.nodes.moved_bytes.load(Ordering::Relaxed) > before
    }
}

/// A store whose file is full of holes, with all changes on the way in memory.
fn grown() -> (SimEnv, Arc<BtreeStore>, Model) {
    let sim = testing::sim_env(1);
    let store = BtreeStore::create(&sim.env(), &options()).expect("create");
    commit(&store, |batch| batch.create_tree(TREE));
    let (mut model, mut random) = (Model::new(), fastrand::Rng::with_seed(1));
    for version in 0..40 {
        for n in 0..if version == 0 { KEYS } else { KEYS / 60 } {
            let key = if version == 0 { n } else { random.u32(..KEYS) };
            commit(&store, |batch| batch.put(TREE, &key.to_be_bytes(), &value(key, version)));
            model.insert(key.to_be_bytes().to_vec(), value(key, version));
        }
        assert!(store.checkpoint().expect("checkpoint"));
    }
    (sim, store, model)
}

/// A disk with such a store, which was closed.
fn aged() -> (SimEnv, Model) {
    let (sim, store, model) = grown();
    store.close().expect("close");
    (sim, model)
}

impl World {
    /// The content of a copy of the disk.
    fn of(sim: &SimEnv, model: &Model, seed: u64) -> (SimEnv, World) {
        let sim = SimEnv::on(sim.device.copy(), seed);
        let store = BtreeStore::open(&sim.env(), &options()).expect("open");
        (sim, World::with(store, model.clone(), seed))
    }

    fn with(store: Arc<BtreeStore>, model: Model, seed: u64) -> World {
        World {
            store,
            random: fastrand::Rng::with_seed(seed),
            trees: BTreeMap::from([(TREE, model)]),
            next_tree: TREE.0 + 1,
            pins: Vec::new(),
            version: 1000,
        }
    }

    fn drop_tree(&mut self, tree: TreeId) {
        commit(&self.store, |batch| batch.drop_tree(tree));
        self.trees.remove(&tree);
    }

    /// Reads everything from disk, and counts again.
    fn look_at_all(&mut self, seed: u64) {
        self.pins.clear();
        while self.store.reclaim_step(500).expect("reclaim") {}
        assert!(self.store.checkpoint().expect("checkpoint"));
        self.unload();
        let report = check(&self.store).expect("check");
        assert!(report.is_clean(), "seed {seed}: {:#?}", report.findings);
        self.compare();
    }
}

/// A node of two clones that the search skips is a parent of leaves that are moved for another
/// tree. One clone copies it when its slots are empty; then they are filled in the frozen one.
#[test]
fn a_slot_copied_without_its_cell_points_to_the_old_place() {
    let (sim, model) = aged();
    let (_sim, mut world) = World::of(&sim, &model, 1);
    let store = Arc::clone(&world.store);
    let core = store.engine();
    let mut moves = 0;
    for _ in 0..6 {
        world.put(TREE, 60);
        let one = world.clone_of(TREE);
        let other = world.clone_of(one);
        world.put(TREE, 100);
        let mut state = core.checkpoint.lock();
        let released = state.space.release(core.pins.lock().oldest());
        core.gather(&mut state);
        moves += state.gather.moves.len();
        let frozen = core.freeze();
        world.put(one, 1);
        assert!(read(&*store, other) == world.trees[&other]);
        let written = core.write_state(&mut state, &frozen, 4096).expect("write");
        core.log().sync(frozen.lsn).expect("sync");
        core.publish(&mut state, frozen, written, released).expect("publish");
        drop(state);
        world.unload();
        world.compare();
        if moves > 0 {
            break;
        }
        world.drop_one();
        world.drop_one();
    }
    assert!(moves > 0, "nothing was to be moved");
    assert!(store.checkpoint().expect("checkpoint"));
    world.compare();
    let report = check(&store).expect("check");
    assert!(report.is_clean(), "{:#?}", report.findings);
}

/// Slots that were changed in this process have no pointers of their own, in clean nodes too. An
/// unchanged snapshot still has such a node. A clone of it, which the search skips, copies the node
/// with the cells of leaves that are moved for another tree.
#[test]
fn leaves_shared_with_a_clean_copy_are_not_moved() {
    let (_sim, store, model) = grown();
    let mut world = World::with(Arc::clone(&store), model, 1);
    let still = world.clone_of(TREE);
    assert!(store.checkpoint().expect("checkpoint"));
    world.put(TREE, 100);
    let one = world.clone_of(still);
    world.put(one, 100);
    let other = world.clone_of(one);
    assert!(world.checkpoint_now(), "nothing was to be moved");
    world.drop_tree(one);
    world.drop_tree(other);
    // The space that only they used is reused.
    for _ in 0..4 {
        while store.reclaim_step(500).expect("reclaim") {}
        world.put(TREE, 100);
        assert!(store.checkpoint().expect("checkpoint"));
    }
    world.look_at_all(1);
}

/// Less is moved then, and that is all.
#[test]
fn a_disk_that_reports_no_free_space_fails_no_checkpoint() {
    let (sim, model) = aged();
    for faulty in [false, true] {
        let (sim, mut world) = World::of(&sim, &model, 1);
        world.compare();
        let mut moved = false;
        for _ in 0..8 {
            world.put(TREE, 100);
            if faulty {
                sim.device.inject(Fault::io(FaultOn::Only(Op::Look), 0));
            }
            moved |= world.checkpoint_now();
            sim.device.clear_faults();
        }
        assert_eq!(moved, !faulty);
        world.look_at_all(1);
    }
}

/// A long-lived process: nothing is opened again, and nothing is unloaded before the end.
#[test]
fn moving_leaves_beside_changing_clones_loses_nothing() {
    let (mut moved, seeds) = (0, testing::run::rounds(3, 100));
    for seed in 0..seeds {
        let (_sim, store, model) = grown();
        let mut world = World::with(store, model, seed);
        for round in 0..12 {
            // Some stay unchanged, as snapshots do, some are changed, and some of those cloned
            // again.
            for _ in 0..world.random.usize(1..4) {
                let trees: Vec<TreeId> = world.trees.keys().copied().collect();
                let of = trees[world.random.usize(..trees.len())];
                let clone = world.clone_of(of);
                if world.random.bool() {
                    let keys = world.random.usize(20..100);
                    world.put(clone, keys);
                    if world.random.bool() {
                        world.clone_of(clone);
                    }
                }
            }
            world.put(TREE, 100);
            moved += usize::from(world.checkpoint_now());
            while world.trees.len() > 6 {
                world.drop_one();
            }
            while world.store.reclaim_step(500).expect("reclaim") {}
            if round % 4 == 3 {
                let report = check(&world.store).expect("check");
                assert!(report.is_clean(), "seed {seed}: {:#?}", report.findings);
            }
        }
        world.look_at_all(seed);
    }
    assert!(moved >= seeds as usize, "only {moved} checkpoints had something to move");
}

#[test]
fn no_operation_during_leaf_moves_loses_data() {
    let (sim, model) = aged();
    let (mut moved, seeds) = (0, testing::run::rounds(2, 300));
    for seed in 0..seeds {
        let (sim, mut world) = World::of(&sim, &model, seed);
        for round in 0..8 {
            if round % 3 == 2 {
                world.pins.clear();
            }
            world.entangle();
            moved += usize::from(world.checkpoint());
            world.some(2);
            if round % 4 == 3 {
                world.unload();
                world.compare();
            }
        }
        world.pins.clear();
        let report = check(&world.store).expect("check");
        assert!(report.is_clean(), "seed {seed}: {:#?}", report.findings);
        while world.store.reclaim_step(500).expect("reclaim") {}
        assert!(world.store.checkpoint().expect("checkpoint"));
        let report = check(&world.store).expect("check");
        assert!(report.is_clean(), "seed {seed}: {:#?}", report.findings);
        world.compare();
        world.store.close().expect("close");
        drop(world.store);
        let store = BtreeStore::open(&sim.env(), &options()).expect("open");
        for (&tree, model) in &world.trees {
            assert!(&read(&*store, tree) == model, "seed {seed}: opened again, tree {}", tree.0);
        }
    }
    assert!(moved >= seeds as usize, "only {moved} checkpoints had something to move");
}

/// Another process fills the disk between the choice of the leaves to move and the writing, and
/// then frees some space.
#[test]
fn a_checkpoint_without_space_to_move_nodes_moves_none() {
    let (sim, model) = aged();
    let (sim, mut world) = World::of(&sim, &model, 1);
    world.compare();
    let store = Arc::clone(&world.store);
    let core = store.engine();
    let mut chosen = 0;
    for _ in 0..8 {
        world.put(TREE, 100);
        let mut state = core.checkpoint.lock();
        let released = state.space.release(core.pins.lock().oldest());
        core.gather(&mut state);
        let moves: BTreeMap<u64, _> =
            state.gather.moves.iter().map(|(&unit, leaf)| (unit, Arc::downgrade(leaf))).collect();
        let frozen = core.freeze();
        sim.device.inject(Fault::no_space(FaultOn::Only(Op::Write), 0).below("btree/nodes"));
        let written = core.write_state(&mut state, &frozen, 4096).expect("the second time");
        assert!(!sim.device.faults_left());
        core.log().sync(frozen.lsn).expect("sync");
        core.publish(&mut state, frozen, written, released).expect("publish");
        for (unit, leaf) in &moves {
            let leaf = leaf.upgrade().expect("it is the tree's");
            assert_eq!(leaf.latch.read().disk.map(|disk| disk.unit), Some(*unit), "it was moved");
        }
        chosen += moves.len();
    }
    assert!(chosen > 0, "nothing was to be moved");
    world.look_at_all(1);
}

/// Contents that only the frozen state had are dropped as they are written, so that it cannot be
/// written a second time.
#[test]
fn a_checkpoint_that_released_contents_is_not_retried() {
    let (sim, model) = aged();
    let (sim, mut world) = World::of(&sim, &model, 2);
    let store = Arc::clone(&world.store);
    let core = store.engine();
    world.put(TREE, 100);
    {
        let mut state = core.checkpoint.lock();
        let frozen = core.freeze();
        // The same leaves once more, so that only the frozen state has its copies of them.
        for (key, value) in &world.trees[&TREE] {
            commit(&store, |batch| batch.put(TREE, key, value));
        }
        sim.device.inject(Fault::no_space(FaultOn::Only(Op::Write), 0).below("btree/nodes"));
        assert!(
            core.write_state(&mut state, &frozen, 4096).is_err_and(|error| error.is_no_space())
        );
        core.thaw(&frozen);
    }
    assert!(!sim.device.faults_left());
    assert!(store.checkpoint().expect("what the trees have by then"));
    world.look_at_all(1);
}
