//! A map of many more pages than are kept in memory. A file of as many groups as in use takes 4 GiB
//! of nodes, so the bound is made smaller.

use std::collections::BTreeMap;
use std::sync::Arc;

use store::{Batch, CheckReport, Commit, Durable, KeyRange, Maintain, Read, TreeId};
use testing::SimEnv;

use format::map_directory::Entry;
use format::space_map::GROUP_UNITS;

use super::map::{Space, Work};
use crate::nodes::Nodes;
use crate::{BtreeStore, Options, check};

const TREE: TreeId = TreeId(32);
const KEYS: u32 = 1100;
const TREES_MAX: usize = 4;

/// The entries of each tree: a byte, and its repetitions.
type Models = BTreeMap<u64, BTreeMap<u32, (u8, usize)>>;

struct Subject {
    sim: SimEnv,
    store: Arc<BtreeStore>,
    kept: usize,
    models: Models,
    next: u64,
    random: fastrand::Rng,
}

impl Subject {
    fn new(seed: u64, kept: usize) -> Subject {
        let sim = testing::sim_env(seed);
        let store = BtreeStore::create(&sim.env(), &Subject::options()).unwrap();
        let models = BTreeMap::from([(TREE.0, BTreeMap::new())]);
        let random = fastrand::Rng::with_seed(seed);
        let subject = Subject { sim, store, kept, models, next: TREE.0 + 1, random };
        subject.bound();
        subject.commit(|batch| batch.create_tree(TREE));
        subject
    }

    fn options() -> Options {
        Options::with_cache(8 << 20)
    }

    fn bound(&self) {
        self.store.engine().checkpoint.lock().space.pages_kept = self.kept;
    }

    fn commit(&self, fill: impl FnOnce(&mut Batch)) {
        let mut batch = Batch::new();
        fill(&mut batch);
        self.store.commit(&batch).unwrap();
    }

    fn step(&mut self) {
        let ids: Vec<u64> = self.models.keys().copied().collect();
        let id = ids[self.random.usize(0..ids.len())];
        let (tree, key) = (TreeId(id), self.random.u32(0..KEYS));
        match self.random.u8(0..100) {
            0..70 => {
                // Most have nodes of their own, so that there are many groups.
                let bytes = match self.random.u8(0..3) {
                    0 => self.random.usize(0..200),
                    _ => self.random.usize(20_000..60_000),
                };
                let byte = self.random.u8(..);
                self.commit(|batch| batch.put(tree, &key.to_be_bytes(), &vec![byte; bytes]));
                self.models.get_mut(&id).unwrap().insert(key, (byte, bytes));
            }
            70..90 => {
                self.commit(|batch| batch.delete(tree, &key.to_be_bytes()));
                self.models.get_mut(&id).unwrap().remove(&key);
            }
            90..92 => {
                let to = key + self.random.u32(0..KEYS / 8);
                let bounds = [key, to].map(u32::to_be_bytes);
                self.commit(|batch| batch.delete_range(tree, &bounds[0], &bounds[1]));
                self.models.get_mut(&id).unwrap().retain(|at, _| !(key..to).contains(at));
            }
            92..94 if ids.len() < TREES_MAX => {
                let clone = self.next;
                self.next += 1;
                self.commit(|batch| batch.clone_tree(tree, TreeId(clone)));
                let model = self.models[&id].clone();
                self.models.insert(clone, model);
            }
            94 if ids.len() > 1 => {
                self.commit(|batch| batch.drop_tree(tree));
                self.models.remove(&id);
            }
            _ => {
                self.store.reclaim_step(50).unwrap();
            }
        }
    }

    /// Pages in memory, and groups.
    fn pages(&self) -> (usize, usize) {
        let state = self.store.engine().checkpoint.lock();
        (state.space.pages.len(), state.space.groups.len())
    }

    /// Makes a checkpoint; returns the number of groups after it.
    fn checkpoint(&self) -> usize {
        assert!(self.store.checkpoint().unwrap());
        let (pages, groups) = self.pages();
        // Space is punched after it, which reads pages.
        assert!(pages <= 2 * self.kept, "{pages} pages of {groups} are in memory");
        groups
    }

    fn check(&self) -> CheckReport {
        let report = check(&self.store).unwrap();
        assert!(report.is_clean(), "{:#?}", report.findings);
        let (pages, groups) = self.pages();
        assert!(pages <= 2 * self.kept, "a check left {pages} pages of {groups} in memory");
        report
    }

    fn reopen(&mut self) {
        self.store.close().unwrap();
        self.store = BtreeStore::open(&self.sim.env(), &Subject::options()).unwrap();
        self.bound();
    }

    fn compare(&self) {
        for (&id, model) in &self.models {
            let mut cursor = self.store.scan(TreeId(id), KeyRange::all()).unwrap();
            for (key, &(byte, bytes)) in model {
                let item = cursor.next().unwrap().expect("an entry is missing");
                assert_eq!((item.key, item.value.len()), (&key.to_be_bytes()[..], bytes));
                assert!(item.value.iter().all(|&found| found == byte), "tree {id}, key {key}");
            }
            assert!(cursor.next().unwrap().is_none(), "tree {id} has more entries");
        }
    }
}

#[test]
fn a_map_of_which_little_is_in_memory_stays_exact() {
    for (seed, kept) in [(1, 1), (2, 2)] {
        println!("seed {seed}, {kept} pages kept");
        let mut subject = Subject::new(seed, kept);
        let mut groups_most = 0;
        for round in 0..30 {
            for _ in 0..80 {
                subject.step();
            }
            groups_most = groups_most.max(subject.checkpoint());
            match round % 6 {
                2 => subject.reopen(),
                5 => {
                    subject.compare();
                    subject.check();
                }
                _ => {}
            }
        }
        assert!(groups_most > 2 * kept, "{groups_most} groups: pages never had to go");
        let trees: Vec<u64> = std::mem::take(&mut subject.models).into_keys().collect();
        subject.commit(|batch| trees.iter().for_each(|&tree| batch.drop_tree(TreeId(tree))));
        while subject.store.reclaim_step(200).unwrap() {}
        subject.checkpoint();
        let left = subject.check();
        assert!(left.units < 100 && left.leaves == 1, "{left:?}");
    }
}

/// A falsified directory of the map may name millions of groups without pages, in 8 bytes each. A
/// check takes the pages of all groups.
#[test]
fn groups_without_pages_share_one() {
    let device = testing::sim_env(1).env().device;
    let nodes = Nodes::new(device.create("nodes").unwrap());
    let mut space = Space::empty();
    space.groups = vec![Entry::empty(); 100];
    let pages: Vec<_> =
        (0..100).map(|group| space.page_briefly(nodes.file.as_ref(), group).unwrap()).collect();
    for page in &pages {
        assert!(Arc::ptr_eq(page, &pages[0]), "a page of its own");
        assert!(page.iter().all(|&count| count == 0) && page.len() == GROUP_UNITS);
    }
    let mut work = Work::new(&nodes, &mut space, 1, false);
    work.set(4, 4, 1).unwrap();
    assert_eq!((work.count(4).unwrap(), work.count(GROUP_UNITS as u64 + 4).unwrap()), (1, 0));
}

/// A checkpoint may need pages of any group of the file.
#[test]
fn a_checkpoint_keeps_the_pages_that_it_changes_and_few_others() {
    const GROUPS: u64 = 500;
    let device = testing::sim_env(1).env().device;
    let nodes = Nodes::new(device.create("nodes").unwrap());
    let mut space = Space::empty();
    space.pages_kept = 10;
    space.groups = vec![Entry::empty(); GROUPS as usize];
    let mut work = Work::new(&nodes, &mut space, 1, false);
    let units = (0..GROUPS).map(|group| group * GROUP_UNITS as u64);
    let changed = units.clone().step_by(40);
    for unit in units.clone() {
        assert_eq!(work.count(unit).unwrap(), 0);
        assert!(work.base.pages.len() <= 20, "{} pages", work.base.pages.len());
    }
    for unit in changed.clone() {
        work.set(unit, 4, 1).unwrap();
    }
    for unit in units {
        let count = work.count(unit).unwrap();
        assert_eq!(count, u32::from(changed.clone().any(|changed| changed == unit)));
    }
    assert!(work.base.pages.len() <= 20, "{} pages", work.base.pages.len());
    assert_eq!(work.changed.len(), changed.count());
}
