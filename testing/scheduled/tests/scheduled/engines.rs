//! Both engines: commits, pins and checkpoints at once, and power cuts.

use std::collections::BTreeMap;
use std::sync::Arc;

use btree::BtreeStore;
use device::Env;
use device::sync::Mutex;
use lsm::LsmStore;
use store::{Batch, Durability, EngineOptions, Read, Store, TreeId};
use testing::sim::explore;
use testing::store_conformance::small;
use testing::{CrashPolicy, SimDevice, commit, entries};

const TREE: TreeId = TreeId(20);
const COMMITTERS: u32 = 3;
const BATCHES: u32 = 4;

/// How to create and open a store.
struct Engine {
    create: fn(&Env) -> Arc<dyn Store>,
    open: fn(&Env) -> Arc<dyn Store>,
}

fn common() -> EngineOptions {
    EngineOptions { log_segment_bytes: 4 << 10, ..small(Durability::Sync) }
}

fn lsm_options() -> lsm::Options {
    lsm::Options { common: common(), block_bytes: 256, compression: 0, ..lsm::Options::default() }
}

fn btree_options() -> btree::Options {
    btree::Options { common: common(), ..btree::Options::default() }
}

const LSM: Engine = Engine {
    create: |env| LsmStore::create(env, &lsm_options()).unwrap(),
    open: |env| LsmStore::open(env, &lsm_options()).unwrap(),
};

const BTREE: Engine = Engine {
    create: |env| BtreeStore::create(env, &btree_options()).unwrap(),
    open: |env| BtreeStore::open(env, &btree_options()).unwrap(),
};

/// A batch changes two keys that always have one value.
fn pair(store: &dyn Store, committer: u32, value: u32) {
    let mut batch = Batch::new();
    for end in [0, 1] {
        batch.put(TREE, &key(committer, end), &value.to_le_bytes());
    }
    store.commit(&batch).unwrap();
}

fn key(committer: u32, end: u32) -> [u8; 8] {
    (u64::from(end) << 32 | u64::from(committer)).to_be_bytes()
}

fn values(all: &BTreeMap<Vec<u8>, Vec<u8>>, committer: u32) -> [Option<u32>; 2] {
    [0, 1].map(|end| {
        let value = all.get(&key(committer, end)[..])?;
        Some(u32::from_le_bytes(value[..].try_into().unwrap()))
    })
}

/// How far each committer was acknowledged, and a disk after a power cut.
struct Cut {
    acknowledged: BTreeMap<u32, u32>,
    disk: SimDevice,
}

fn check(engine: &Engine, cut: &Cut, seed: u64) {
    let store = (engine.open)(&super::env(&cut.disk, seed));
    let all = entries(&*store, TREE);
    for committer in 0..COMMITTERS {
        let [first, second] = values(&all, committer);
        assert_eq!(first, second, "half a batch was recovered");
        let acknowledged = cut.acknowledged.get(&committer).copied();
        assert!(first >= acknowledged, "{first:?} is there, {acknowledged:?} was acknowledged");
    }
}

fn run(engine: &Engine, seed: u64) {
    let device = SimDevice::new(seed);
    let store = (engine.create)(&super::env(&device, seed));
    let store = &*store;
    commit(store, |batch| batch.create_tree(TREE));
    let acknowledged = Mutex::new(BTreeMap::new());
    let cuts = Mutex::new(Vec::new());
    device::scope(|scope| {
        for committer in 0..COMMITTERS {
            let acknowledged = &acknowledged;
            scope.spawn(move || {
                for value in 0..BATCHES {
                    pair(store, committer, value);
                    acknowledged.lock().insert(committer, value);
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..3 {
                store.checkpoint().unwrap();
                store.reclaim_step(5).unwrap();
                let acknowledged = acknowledged.lock().clone();
                let disk = device.after_crash(CrashPolicy::Random, seed);
                cuts.lock().push(Cut { acknowledged, disk });
            }
        });
        scope.spawn(|| {
            for _ in 0..3 {
                let pinned = store.pin().unwrap();
                let read: &dyn Read = &*pinned;
                for committer in 0..COMMITTERS {
                    let get = |end| read.get(TREE, &key(committer, end)).unwrap();
                    assert_eq!(get(0), get(1), "half a batch was seen");
                }
            }
        });
    });
    store.close().unwrap();
    let (acknowledged, disk) = (acknowledged.into_inner(), device.copy());
    for cut in cuts.into_inner().into_iter().chain([Cut { acknowledged, disk }]) {
        check(engine, &cut, seed);
    }
}

#[test]
fn batches_are_whole_and_durable_beside_checkpoints_of_the_log_structured_engine() {
    explore(super::orders(), 20, |seed| run(&LSM, seed));
}

#[test]
fn batches_are_whole_and_durable_beside_checkpoints_of_the_b_tree() {
    explore(super::orders(), 20, |seed| run(&BTREE, seed));
}
