//! The cost of look-ups, in reads of the device: at most one per run that is searched, and none for
//! absent keys (BabuDB II.A).

use std::sync::Arc;

use lsm::{LsmStore, Options};
use store::{Durable, KeyRange, Maintain, Read, TreeId};
use testing::{Op, SimEnv};

use crate::util::{TREE, column, commit, options, settle, store_with};

/// Directories, and files in each; a run has a quarter of the files of each directory.
const DIRECTORIES: u64 = 60;
const FILES: u64 = 40;
const RUNS: u64 = 4;

/// A directory, and a file in it; of odd numbers there is none.
fn key(directory: u64, file: u64) -> Vec<u8> {
    [&b"e"[..], &directory.to_be_bytes(), &file.to_be_bytes()].concat()
}

/// A tree of several runs, opened again with next to no cache of blocks.
fn cold(options: &Options) -> (SimEnv, Arc<LsmStore>) {
    cold_with(options, false)
}

/// The same; each run may also delete a range of the first directory and one of the last.
fn cold_with(options: &Options, ranges: bool) -> (SimEnv, Arc<LsmStore>) {
    let mut options = Options { prefix_bytes: 9, ..options.clone() };
    let (sim, store) = store_with(3, &options);
    for run in 0..RUNS {
        commit(&store, |batch| {
            for directory in 0..DIRECTORIES {
                for file in (run..FILES).step_by(RUNS as usize) {
                    let value = testing::noise(directory * FILES + file, 60);
                    batch.put(TREE, &key(2 * directory, 2 * file), &value);
                }
            }
            for directory in [0, 2 * (DIRECTORIES - 1)].into_iter().filter(|_| ranges) {
                batch.delete_range(TREE, &key(directory, 1), &key(directory, FILES));
            }
        });
        assert!(store.checkpoint().expect("checkpoint"));
    }
    store.close().expect("close");
    drop(store);
    options.common.cache_bytes = 0;
    let store = LsmStore::open(&sim.env(), &options).expect("open");
    assert_eq!(store.stats().merges.map(|merges| merges.depth), Some(RUNS));
    // The indexes are read once, and stay.
    assert!(!has(&*store, TREE, b"\xff"));
    (sim, store)
}

fn has(store: &dyn Read, tree: TreeId, key: &[u8]) -> bool {
    store.get_with(tree, key, &mut |_| ()).expect("it can be read")
}

/// How often an action reads the device.
fn reads<T>(sim: &SimEnv, act: impl FnOnce() -> T) -> (u64, T) {
    let before = sim.device.counts().of(Op::Read);
    let done = act();
    (sim.device.counts().of(Op::Read) - before, done)
}

/// If the run has the key it is one read, and another for a row that is in a value log. The filters
/// nearly always exclude the runs above it, which cost at most one read each.
#[test]
fn a_look_up_reads_at_most_one_block_of_each_run() {
    for (options, of_the_run) in [(options(), 1), (column(), 2)] {
        let (sim, store) = cold(&options);
        let (mut all, mut least) = (0, u64::MAX);
        for directory in 0..DIRECTORIES {
            for file in 0..FILES {
                let key = key(2 * directory, 2 * file);
                let (reads, there) = reads(&sim, || has(&*store, TREE, &key));
                assert!(there);
                // The youngest has the last of every four.
                let asked = RUNS - file % RUNS;
                assert!(reads < asked + of_the_run, "{reads} reads of {asked} runs");
                (all, least) = (all + reads, least.min(reads));
            }
        }
        let keys = DIRECTORIES * FILES;
        assert!(all >= keys, "the cache holds all: {all} reads for {keys} keys");
        assert!(all * 20 < keys * of_the_run * 21, "{all} reads for {keys} keys, {least} at least");
    }
}

/// The first query of every create: whether the name exists.
#[test]
fn a_look_up_of_a_missing_key_reads_nothing() {
    let (sim, store) = cold(&options());
    let (mut misses, mut all) = (0, 0);
    for directory in 0..2 * DIRECTORIES {
        for file in (1..2 * FILES).step_by(2) {
            let (reads, there) = reads(&sim, || has(&*store, TREE, &key(directory, file)));
            assert!(!there && reads <= RUNS, "{reads} reads of {RUNS} runs");
            (misses, all) = (misses + 1, all + reads);
        }
    }
    // Each of four filters errs now and then.
    assert!(all * 25 < misses, "{all} reads for {misses} names that are not there");
    // Above and below all keys of the runs there is not even a filter to err.
    let (none, _) = reads(&sim, || has(&*store, TREE, b"a") || has(&*store, TREE, b"z"));
    assert_eq!(none, 0);
}

/// Listing a directory that no run has a name of: the filters know directories, too. They are asked
/// also where runs have deleted ranges, as long as these are in other directories.
#[test]
fn a_scan_of_a_missing_directory_reads_nothing() {
    for ranges in [false, true] {
        let (sim, store) = cold_with(&options(), ranges);
        let mut all = 0;
        for directory in (1..2 * DIRECTORIES).step_by(2) {
            let prefix = key(directory, 0)[..9].to_vec();
            let (reads, found) = reads(&sim, || {
                let mut cursor = store.scan(TREE, KeyRange::prefix(&prefix)).expect("it exists");
                cursor.next().expect("it can be read").is_some()
            });
            assert!(!found);
            all += reads;
        }
        assert!(all * 10 < DIRECTORIES * RUNS, "{all} reads, ranges {ranges}");
    }
}

/// Reads of look-ups of some keys of a tree, in a store that is opened again with next to no cache.
fn reads_of(sim: &SimEnv, trees: &[TreeId]) -> Vec<u64> {
    let mut options = options();
    options.common.cache_bytes = 0;
    let store = LsmStore::open(&sim.env(), &options).expect("open");
    let of_tree = |tree: &TreeId| {
        assert!(!has(&*store, *tree, b"\xff"));
        let look = || (0..FILES).all(|file| has(&*store, *tree, &key(file % DIRECTORIES, file)));
        let (reads, all) = reads(sim, look);
        assert!(all);
        reads
    };
    trees.iter().map(of_tree).collect()
}

/// A clone shares runs, and its changes are in others: those are merged, or excluded by their
/// filters.
#[test]
fn look_ups_cost_the_same_beside_a_thousand_clones() {
    let (sim, store) = store_with(4, &options());
    for directory in 0..DIRECTORIES {
        commit(&store, |batch| {
            for file in 0..FILES {
                batch.put(TREE, &key(directory, file), &testing::noise(directory + file, 60));
            }
        });
    }
    assert!(store.checkpoint().expect("checkpoint"));
    settle(&store);
    store.sync(store.last_commit()).expect("sync");
    let alone = reads_of(&SimEnv::on(sim.device.copy(), 1), &[TREE])[0];
    assert!(alone >= FILES);
    let mut random = fastrand::Rng::with_seed(1);
    let clones: Vec<TreeId> = (100..1100).map(TreeId).collect();
    for (n, clone) in clones.iter().enumerate() {
        commit(&store, |batch| batch.clone_tree(TREE, *clone));
        commit(&store, |batch| {
            for tree in [TREE, *clone] {
                let (directory, file) = (random.u64(0..DIRECTORIES), random.u64(0..FILES));
                batch.put(tree, &key(directory, file), &testing::noise(directory, 60));
            }
        });
        if n % 50 == 49 {
            assert!(store.checkpoint().expect("checkpoint"));
            settle(&store);
        }
    }
    store.close().expect("close");
    drop(store);
    let asked = [TREE, clones[0], clones[499], clones[999]];
    for (tree, reads) in asked.iter().zip(reads_of(&sim, &asked)) {
        assert!(reads <= 3 * alone, "tree {}: {reads} reads, {alone} without clones", tree.0);
    }
}

/// The store's creation fixes the bytes that name a directory, with whatever options it is opened.
/// Otherwise scans would query filters for what is not in them, and omit existing keys.
#[test]
fn directories_are_found_with_any_store_options() {
    let key = |n: u32| [&n.to_be_bytes()[..], b"a file's name"].concat();
    for (made, opened) in [(4, 9), (9, 4), (1, 9), (0, 9), (9, 0)] {
        let with = |prefix_bytes| Options { prefix_bytes, ..options() };
        let (sim, mut store) = store_with(5, &with(made));
        for session in 0..2 {
            commit(&store, |batch| {
                for n in (session..2000).step_by(2) {
                    batch.put(TREE, &key(n), &[1; 50]);
                }
            });
            store.close().expect("close");
            store = LsmStore::open(&sim.env(), &with(opened)).expect("open");
        }
        for n in (0..2000).step_by(97) {
            for length in [4, 9, 12] {
                let range = KeyRange::prefix(&key(n)[..length]);
                let mut cursor = store.scan(TREE, range).expect("scan");
                let found = cursor.next().expect("read").map(|item| item.key.to_vec());
                assert_eq!(found, Some(key(n)), "made with {made}, opened with {opened}");
            }
        }
    }
}
