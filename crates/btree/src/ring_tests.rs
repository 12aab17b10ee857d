//! Compares the cache misses of the present eviction order with those of second chance, all else
//! being equal.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use store::{Batch, Commit, Durable, KeyRange, Read, TreeId};
use testing::SimEnv;

use crate::{BtreeStore, Options};

const TREE: TreeId = TreeId(32);
/// About six times the cache.
const ENTRIES: u64 = 100_000;
const CACHE_BYTES: usize = 2 << 20;
/// One entry in this many is hot.
const HOT_SHARE: u64 = 25;
const OPERATIONS: u64 = 10_000;
const SEEDS: Range<u64> = 0..2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Clock,
    Queues,
}

/// How changed leaves are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    /// Mostly pre-flushed by committers, some at a time, as with a small cache.
    Early,
    /// By checkpoints alone, as with a large one.
    ByCheckpoints,
}

/// A mix of operations.
#[derive(Debug, Clone, Copy)]
struct Mix {
    name: &'static str,
    /// Updates, insertions and removals among a hundred operations; the others are look-ups.
    updates: u32,
    inserts: u32,
    removals: u32,
    /// Whether a fifth of the tree is scanned now and then.
    scans: bool,
    /// Most nodes read for 1,000 operations.
    reads_max: u64,
}

const LOOKUPS: Mix =
    Mix { name: "search-100", updates: 0, inserts: 0, removals: 0, scans: false, reads_max: 190 };

const MIXES: [Mix; 6] = [
    LOOKUPS,
    Mix { name: "search-80", updates: 20, ..LOOKUPS },
    Mix { name: "modify", updates: 80, reads_max: 200, ..LOOKUPS },
    Mix { name: "insert", inserts: 45, removals: 35, reads_max: 350, ..LOOKUPS },
    Mix { name: "search-100, scans", scans: true, ..LOOKUPS },
    Mix { name: "modify, scans", updates: 80, scans: true, reads_max: 200, ..LOOKUPS },
];

/// A disk with a large tree. Made once: a copy of it costs little.
fn disk() -> SimEnv {
    let sim = testing::sim_env(1);
    let store = BtreeStore::create(&sim.env(), &Options::with_cache(16 << 20)).expect("create");
    testing::commit(&*store, |batch| batch.create_tree(TREE));
    for chunk in 0..ENTRIES / 1000 {
        testing::commit(&*store, |batch| {
            for n in chunk * 1000..chunk * 1000 + 1000 {
                batch.put(TREE, &n.to_be_bytes(), &[n as u8; 100]);
            }
        });
    }
    store.close().expect("close");
    drop(store);
    sim
}

/// A store on a copy of it.
fn large(disk: &SimEnv, order: Order, written: Written) -> Arc<BtreeStore> {
    let sim = SimEnv::on(disk.device.copy(), 1);
    let mut options = Options::with_cache(CACHE_BYTES);
    if written == Written::ByCheckpoints {
        options.pre_flush_below = 0;
    }
    let store = BtreeStore::open(&sim.env(), &options).expect("open");
    store.engine().nodes.ring.clock.store(order == Order::Clock, Ordering::Relaxed);
    store
}

fn scan(store: &BtreeStore, from: u64, entries: u64) {
    let range = KeyRange { from: from.to_be_bytes().to_vec(), to: None };
    let mut cursor = store.scan(TREE, range).expect("scan");
    for _ in 0..entries {
        if cursor.next().expect("read").is_none() {
            break;
        }
    }
}

/// Nodes that were read for operations, and those of them for hot entries.
#[derive(Debug, Clone, Copy, Default)]
struct Reads {
    all: u64,
    hot: u64,
}

/// Runs some operations, and counts the nodes that are read for them, without the scans.
fn run(
    store: &BtreeStore,
    mix: Mix,
    random: &mut fastrand::Rng,
    operations: u64,
    reads: &mut Reads,
) {
    let mut batch = Batch::new();
    let (inserts, removals) = (mix.updates + mix.inserts, mix.inserts + mix.removals);
    for at in 0..operations {
        // Eight of ten uses are of hot entries.
        let is_hot = random.u32(0..10) < 8;
        let part = if is_hot { ENTRIES / HOT_SHARE } else { ENTRIES };
        let key = random.u64(0..part).to_be_bytes();
        // Inserted and removed keys are next to keys that stay.
        let beside = [&key[..], &[random.u8(0..4)]].concat();
        let before = store.engine().cache().loads;
        batch.clear();
        match random.u32(0..100) {
            kind if kind < mix.updates => batch.put(TREE, &key, &[at as u8; 100]),
            kind if kind < inserts => batch.put(TREE, &beside, &[at as u8; 100]),
            kind if kind < mix.updates + removals => batch.delete(TREE, &beside),
            _ => assert!(store.get(TREE, &key).expect("read").is_some()),
        }
        if !batch.is_empty() {
            store.commit(&batch).expect("commit");
        }
        let read = store.engine().cache().loads - before;
        reads.all += read;
        reads.hot += if is_hot { read } else { 0 };
        if mix.scans && at % 2000 == 1999 {
            scan(store, random.u64(0..ENTRIES), ENTRIES / 5);
        }
    }
}

/// An eviction order can only keep the hot entries. The other leaves are used equally seldom, so
/// which of them are in memory is chance.
#[test]
fn no_mix_reads_more_than_with_second_chance() {
    let operations = OPERATIONS * SEEDS.end;
    let disk = disk();
    for mix in MIXES {
        let writes = mix.updates + mix.inserts > 0;
        let both = [Written::Early, Written::ByCheckpoints];
        for &written in if writes { &both[..] } else { &both[..1] } {
            let [clock, queues] = [Order::Clock, Order::Queues].map(|order| {
                let mut reads = Reads::default();
                for seed in SEEDS {
                    let store = large(&disk, order, written);
                    let mut random = fastrand::Rng::with_seed(seed);
                    run(&store, mix, &mut random, OPERATIONS, &mut Reads::default());
                    run(&store, mix, &mut random, OPERATIONS, &mut reads);
                }
                reads
            });
            let place = format!("seeds {SEEDS:?}, {}, {written:?}", mix.name);
            println!("{place}: for {operations} operations {clock:?}, and {queues:?}");
            assert!(queues.hot <= clock.hot, "{place}: {queues:?}, {clock:?}");
            assert!(queues.all <= clock.all + clock.all / 100, "{place}: {queues:?}, {clock:?}");
            assert!(queues.all * 1000 / operations <= mix.reads_max, "{place}: {queues:?}");
        }
    }
}

#[test]
fn a_scan_evicts_no_more_than_second_chance() {
    let disk = disk();
    let [clock, queues] = [Order::Clock, Order::Queues].map(|order| {
        let store = large(&disk, order, Written::Early);
        // Together less than half of the cache.
        let warm = || {
            let before = store.engine().cache().loads;
            for n in 0..ENTRIES / HOT_SHARE {
                assert!(store.get(TREE, &n.to_be_bytes()).expect("read").is_some());
            }
            store.engine().cache().loads - before
        };
        let cold = warm();
        warm();
        scan(&store, 0, ENTRIES);
        (cold, warm())
    });
    println!("leaves read for the hot set at first, and after a scan: {clock:?}, and {queues:?}");
    assert!(queues.0 > 15 && queues.1 <= queues.0 / 20, "{queues:?}");
    assert!(clock.1 > clock.0 / 2, "the scan was too short: {clock:?}");
}
