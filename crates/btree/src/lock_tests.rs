//! Which locks are held while something is read from the disk. The gate is not held exclusively,
//! because all commits wait for it. No tree is held exclusively, because all its readers wait for
//! it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use store::{Batch, Commit, Durable, Maintain, SliceRun, TreeId};
use testing::SimEnv;

use crate::tree::Tree;
use crate::{BtreeStore, Options, check};

const TREE: TreeId = TreeId(32);
const CLONE: TreeId = TreeId(33);
const KEYS: u32 = 40_000;
/// The prefix of all keys: long enough that separators are long, and there are two levels of
/// interior nodes.
const PREFIX: [u8; 300] = [b'k'; 300];
/// So many other trees that the catalog has leaves that were not read.
const OTHERS: u64 = 2000;

/// Number of reads, by the locks held.
#[derive(Debug, Default)]
struct Reads {
    all: AtomicU64,
    /// With the gate exclusive.
    gate: AtomicU64,
    /// With one of the trees exclusive.
    tree: AtomicU64,
}

impl Reads {
    fn get(&self) -> (u64, u64, u64) {
        let [all, gate, tree] =
            [&self.all, &self.gate, &self.tree].map(|count| count.load(Ordering::Relaxed));
        (all, gate, tree)
    }
}

fn key(n: u32) -> Vec<u8> {
    [PREFIX.as_slice(), &n.to_be_bytes()].concat()
}

fn commit(store: &BtreeStore, fill: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::new();
    fill(&mut batch);
    store.commit(&batch).expect("commit");
}

/// A store that was just opened, with nothing in memory, and its reads from then on. One thread
/// uses it, so a lock that it cannot take shared is held exclusively.
fn cold(cache_bytes: usize) -> (SimEnv, Arc<BtreeStore>, Arc<Reads>) {
    let sim = testing::sim_env(1);
    let store = BtreeStore::create(&sim.env(), &Options::with_cache(64 << 20)).expect("create");
    commit(&store, |batch| batch.create_tree(TREE));
    for first in (0..KEYS).step_by(1000) {
        commit(&store, |batch| {
            (first..first + 1000).for_each(|n| batch.put(TREE, &key(n), &[n as u8; 100]));
        });
    }
    commit(&store, |batch| {
        batch.clone_tree(TREE, CLONE);
        (0..OTHERS).for_each(|n| batch.clone_tree(TREE, TreeId(1000 + 2 * n)));
    });
    store.close().expect("close");
    drop(store);
    let store = BtreeStore::open(&sim.env(), &Options::with_cache(cache_bytes)).expect("open");
    let reads = Arc::new(Reads::default());
    let core = store.engine();
    // A latch has a lock for each thread that ever used it.
    drop(core.gate.read());
    let trees: Vec<Arc<Tree>> = [TREE, CLONE].map(|id| core.tree(id).expect("there")).to_vec();
    for tree in &trees {
        drop(tree.state.read());
    }
    let (seen, within) = (Arc::clone(&reads), Arc::downgrade(&store));
    *core.nodes.reading.lock() = Some(Box::new(move || {
        let Some(store) = within.upgrade() else { return };
        seen.all.fetch_add(1, Ordering::Relaxed);
        let gate = store.engine().gate.try_read().is_none();
        seen.gate.fetch_add(u64::from(gate), Ordering::Relaxed);
        let tree = trees.iter().any(|tree| tree.state.try_read().is_none());
        seen.tree.fetch_add(u64::from(tree), Ordering::Relaxed);
    }));
    (sim, store, reads)
}

/// Asserts that something was read, that nothing was read while others wait, and that the store is
/// sound.
fn looked(store: &BtreeStore, reads: &Reads, least: u64) {
    let (all, gate, tree) = reads.get();
    println!("{all} reads, {gate} with the gate exclusive, {tree} with a tree exclusive");
    assert!(all >= least, "{all} reads: the store was not cold");
    assert_eq!((gate, tree), (0, 0), "of {all} reads");
    *store.engine().nodes.reading.lock() = None;
    assert!(store.checkpoint().expect("checkpoint"));
    let report = check(store).expect("check");
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert_eq!(report.underfull, 0, "underfull nodes");
}

#[test]
fn siblings_are_not_read_while_readers_of_the_tree_wait() {
    for cache_bytes in [1 << 20, 64 << 20] {
        for seed in 0..2 {
            println!("cache {cache_bytes}, seed {seed}");
            let (_sim, store, reads) = cold(cache_bytes);
            let mut random = fastrand::Rng::with_seed(seed);
            // About a leaf each, among many others that were not read.
            for _ in 0..150 {
                let tree = if random.bool() { TREE } else { CLONE };
                let (mut n, mut left) = (random.u32(0..KEYS), 150);
                while left > 0 {
                    let some = random.u32(1..5).min(left);
                    commit(&store, |batch| {
                        (n..n + some).for_each(|n| batch.delete(tree, &key(n)));
                    });
                    (n, left) = (n + some, left - some);
                }
            }
            looked(&store, &reads, 200);
        }
    }
}

#[test]
fn nothing_is_read_while_all_commits_wait() {
    for cache_bytes in [1 << 20, 64 << 20] {
        let (_sim, store, reads) = cold(cache_bytes);
        let ingest = |first: u32| {
            let keys = (first..first + 200).map(|n| [key(n).as_slice(), b"+"].concat());
            keys.map(|key| (key, vec![7; 200])).collect::<Vec<_>>()
        };
        for at in 1..10 {
            let first = at * (KEYS / 10);
            // Ranges of whole leaves, and of a few entries.
            commit(&store, |batch| {
                batch.delete_range(TREE, &key(first), &key(first + 700));
                batch.delete_range(CLONE, &key(first + 100), &key(first + 103));
            });
            let target = TreeId(1001 + 300 * u64::from(at));
            // 256 keys each.
            let parts = [first + 900, first + 1700].map(|n| key(n)[..PREFIX.len() + 3].to_vec());
            commit(&store, |batch| {
                batch.create_tree(TreeId(target.0 + 100));
                batch.clone_prefixes(TREE, target, &[&parts[0], &parts[1]]);
            });
            // Ingested into the gap: whole leaves, and less than one.
            let run = ingest(first);
            store.ingest(TREE, &mut SliceRun::new(&run)).expect("the range is empty");
            let run = &ingest(first + 600)[..3];
            store.ingest(TREE, &mut SliceRun::new(run)).expect("the range is empty");
            commit(&store, |batch| batch.drop_tree(target));
        }
        looked(&store, &reads, 50);
    }
}
