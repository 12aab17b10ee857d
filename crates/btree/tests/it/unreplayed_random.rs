//! Logs of random changes over nodes that are damaged, or read wrong for a moment. Answers are
//! right, and what a store takes once it misses nothing is kept. The same while reads fail.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use btree::BtreeStore;
use device::Env;
use store::{Batch, Commit, Durable, Error, Lane, Maintain, MergeKind, Read, SliceRun, TreeId};
use testing::run::for_seeds;
use testing::{CrashPolicy, Fault, FaultOn, MemStore, Op, SimDevice, SimEnv, entries};

use crate::reads::{NODES, through};
use crate::superblocks::Model;
use crate::unreplayed_node::{ask_all, is_damage};
use crate::util::{TREE, options, store};

const KEYS: u32 = 900;
const TREES_MAX: usize = 9;
/// Keys of a run.
const RUN: u32 = 150;

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

/// A store and what should be in it.
struct Pair {
    store: Arc<BtreeStore>,
    model: Arc<MemStore>,
    trees: Vec<TreeId>,
    next: u64,
    /// The disk, where reads fail now and then.
    faulty: Option<SimDevice>,
    /// A checkpoint could not read what it needed.
    stopped: bool,
}

impl Pair {
    fn new(store: Arc<BtreeStore>) -> Pair {
        let model = Arc::new(MemStore::new());
        testing::commit(&*model, |batch| batch.create_tree(TREE));
        Pair { store, model, trees: vec![TREE], next: TREE.0 + 1, faulty: None, stopped: false }
    }

    /// Whether it was taken.
    fn commit(&mut self, batch: &Batch, random: &mut fastrand::Rng) -> bool {
        let fault = Fault::io(FaultOn::Only(Op::Read), random.u64(..3)).forever().below(NODES);
        if let Some(device) = self.faulty.as_ref().filter(|_| random.u32(..3) == 0) {
            device.inject(fault);
        }
        let done = self.store.commit(batch);
        if let Some(device) = &self.faulty {
            device.clear_faults();
            if let Err(error) = done {
                self.stopped |= matches!(error, Error::ReadOnly(_));
                assert!(self.stopped || matches!(error, Error::Device(_)), "{error}");
                return false;
            }
        } else {
            done.expect("it is valid");
        }
        self.model.commit(batch).expect("it is valid");
        true
    }

    fn any_tree(&self, random: &mut fastrand::Rng) -> TreeId {
        self.trees[random.usize(..self.trees.len())]
    }

    fn new_tree(&mut self) -> TreeId {
        self.trees.push(TreeId(self.next));
        self.next += 1;
        TreeId(self.next - 1)
    }

    fn change(&mut self, random: &mut fastrand::Rng) {
        let (before, tree, n) = (self.trees.clone(), self.any_tree(random), random.u32(..KEYS));
        let mut batch = Batch::new();
        match random.u32(..10) {
            _ if self.stopped => return,
            // All of some leaves, key by key.
            0 => (n..n + random.u32(1..RUN)).for_each(|n| batch.delete(tree, &key(n))),
            1 => return self.ingest(tree, n, random),
            _ => (0..random.usize(1..6)).for_each(|_| self.add(&mut batch, random)),
        }
        if !batch.is_empty() && !self.commit(&batch, random) {
            self.trees = before;
        }
    }

    fn ingest(&mut self, tree: TreeId, n: u32, random: &mut fastrand::Rng) {
        let mut batch = Batch::new();
        batch.delete_range(tree, &key(n), &key(n + RUN));
        if !self.commit(&batch, random) {
            return;
        }
        let seed = random.u64(..1 << 40);
        let value = |n: u32| testing::noise(seed + u64::from(n), 300);
        let run: Vec<_> = (n..KEYS.min(n + RUN)).map(|n| (key(n).to_vec(), value(n))).collect();
        self.store.ingest(tree, &mut SliceRun::new(&run)).expect("it is empty");
        self.model.ingest(tree, &mut SliceRun::new(&run)).expect("it is empty");
    }

    /// Adds an operation to a batch.
    fn add(&mut self, batch: &mut Batch, random: &mut fastrand::Rng) {
        let (tree, n) = (self.any_tree(random), random.u32(..KEYS));
        match random.u32(..100) {
            0..35 => {
                let long = if random.u32(..25) == 0 { 4000 } else { random.usize(20..400) };
                batch.put(tree, &key(n), &testing::noise(random.u64(..), long));
            }
            35..50 => batch.delete(tree, &key(n)),
            50..82 => {
                let (offset, operand) = (random.u16(..40), random.i64(..));
                batch.merge(tree, &key(n), &[Lane { offset, kind: MergeKind::Add, operand }]);
            }
            82..88 => {
                let most = [3, 30, 300][random.usize(..3)];
                batch.delete_range(tree, &key(n), &key(n + random.u32(1..most)));
            }
            88..93 if self.trees.len() < TREES_MAX => batch.clone_tree(tree, self.new_tree()),
            93..96 if self.trees.len() < TREES_MAX => {
                batch.clone_prefixes(tree, self.new_tree(), &[&key(n)[..3]]);
            }
            96..99 if self.trees.len() > 2 => {
                batch.drop_tree(tree);
                self.trees.retain(|one| *one != tree);
            }
            99 => batch.create_tree(self.new_tree()),
            _ => {}
        }
    }
}

/// What a crash leaves of a store after random changes, and what is in it.
fn made(seed: u64, cache: usize, faulty: bool) -> (SimDevice, Model) {
    let random = &mut fastrand::Rng::with_seed(seed);
    let (sim, store) = store(seed, cache);
    let mut pair = Pair::new(store);
    for part in 0..KEYS / 100 {
        let mut batch = Batch::new();
        for n in part * 100..part * 100 + 100 {
            batch.put(TREE, &key(n), &testing::noise(u64::from(n), 300));
        }
        assert!(pair.commit(&batch, random));
    }
    pair.faulty = faulty.then(|| sim.device.clone());
    (0..random.usize(..60)).for_each(|_| pair.change(random));
    assert!(pair.stopped || pair.store.checkpoint().expect("checkpoint"));
    (0..random.usize(1..120)).for_each(|_| pair.change(random));
    pair.store.sync(pair.store.last_commit()).expect("sync");
    let model: Model = pair.trees.iter().map(|&tree| (tree, entries(&*pair.model, tree))).collect();
    assert_eq!(ask(&*pair.store, &model, "before"), 0);
    (sim.device.after_crash(CrashPolicy::LoseAll, seed), model)
}

fn ask(read: &dyn Read, model: &Model, place: &str) -> usize {
    ask_all(read, model, KEYS, place)
}

/// What of the trees that the log changes cannot be read goes, where that blocks a change; the rest
/// is right, and takes changes. Whether something blocked one.
fn continues(device: &SimDevice, env: &Env, cache: usize, mut model: Model, place: &str) -> bool {
    let options = options(cache);
    let opened = match BtreeStore::open(env, &options) {
        Ok(opened) => opened,
        Err(error) => {
            assert!(is_damage(&error) && place.contains("moment"), "{place}: {error}");
            return true;
        }
    };
    ask(&*opened, &model, place);
    let is_read_only = opened.read_only().is_some();
    let mut left = device.copy();
    if is_read_only {
        let files = device.files();
        while opened.reclaim_step(100).expect("there is nothing to write") {}
        let refused = opened.checkpoint();
        assert!(matches!(refused, Err(Error::ReadOnly(_))), "{place}: {refused:?}");
        assert_eq!(device.files(), files, "{place}");
        let lost = opened.unknown();
        let mut batch = Batch::new();
        for &tree in &lost {
            batch.drop_tree(tree);
        }
        opened.commit(&batch).expect("it goes");
        opened.close().expect("there is nothing to write");
        model.retain(|tree, _| !lost.contains(tree));
        left = device.after_crash(CrashPolicy::LoseAll, 3);
    }
    drop(opened);
    let sim = SimEnv::on(left, 3);
    let store = BtreeStore::open(&sim.env(), &options).expect("it opens");
    assert_eq!(store.read_only(), None, "{place}: again");
    ask(&*store, &model, place);
    testing::commit(&*store, |batch| {
        batch.create_tree(TreeId(6000));
        (0..300).for_each(|n| batch.put(TreeId(6000), &key(n), &[7; 300]));
    });
    let more: BTreeMap<_, _> = (0..300).map(|n| (key(n).to_vec(), vec![7; 300])).collect();
    model.insert(TreeId(6000), more);
    for _ in 0..2 {
        assert!(store.checkpoint().expect("there is space"), "{place}");
        while store.reclaim_step(100).expect("it goes") {}
    }
    ask(&*store, &model, place);
    store.close().expect("there is space");
    drop(store);
    ask(&*BtreeStore::open(&sim.env(), &options).expect("it opens"), &model, place);
    is_read_only
}

#[test]
fn a_log_of_random_changes_is_replayed_over_damaged_nodes() {
    for_seeds("random changes over damage", 4, 300, |seed| {
        let random = &mut fastrand::Rng::with_seed(seed);
        let cache = [64 << 10, 512 << 10, 8 << 20][random.usize(..3)];
        let (left, model) = made(seed, 8 << 20, false);
        let bytes = left.read_file(NODES);
        let is_node = |at: &usize| {
            bytes[*at..].starts_with(&format::node::MAGIC) && (1..4).contains(&bytes[at + 6])
        };
        let all: Vec<usize> = (0..bytes.len()).step_by(1024).filter(is_node).collect();
        let mut read_only = 0;
        for round in 0..6 {
            let place = format!("round {round}, cache {cache}");
            let device = left.copy();
            for _ in 0..random.usize(1..4) {
                let byte = all[random.usize(..all.len())] + random.usize(..200);
                device.flip_bit(NODES, byte as u64 * 8 + random.u64(..8));
            }
            let env = SimEnv::on(device.clone(), seed).env();
            read_only += u32::from(continues(&device, &env, cache, model.clone(), &place));
        }
        for round in 0..6 {
            let place = format!("round {round}, for a moment, cache {cache}");
            let device = left.copy();
            let env = SimEnv::on(device.clone(), seed).env();
            let first = random.u64(..60);
            let env = wrong(env, first..first + random.u64(1..4), random.usize(..300));
            read_only += u32::from(continues(&device, &env, cache, model.clone(), &place));
        }
        println!("{read_only} of 12 were read-only");
    });
}

/// Some of the reads have a wrong bit.
fn wrong(env: Env, these: Range<u64>, byte: usize) -> Env {
    let reads = AtomicU64::new(0);
    let flip = move |_: u64, bytes: &mut [u8]| -> device::Result<()> {
        if these.contains(&reads.fetch_add(1, Ordering::Relaxed)) && !bytes.is_empty() {
            bytes[byte % bytes.len()] ^= 4;
        }
        Ok(())
    };
    through(env, Arc::new(flip))
}

#[test]
fn random_changes_are_right_despite_occasional_read_errors() {
    for_seeds("random changes while reads fail", 12, 1000, |seed| {
        let cache = [64 << 10, 256 << 10, 512 << 10][seed as usize % 3];
        let (left, model) = made(seed, cache, true);
        let opened = BtreeStore::open(&SimEnv::on(left, seed).env(), &options(cache));
        assert_eq!(ask(&*opened.expect("it opens"), &model, "opened again"), 0);
    });
}
