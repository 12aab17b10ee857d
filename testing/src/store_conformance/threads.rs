//! Several threads at once. Threads run freely here: the checks hold in every order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use device::sync::Barrier;
use store::{Batch, Durability, KeyRange, Lane, MergeKind, Read, Store, TreeId};

use super::engine::{EngineUnderTest, fresh};
use crate::CrashPolicy;
use crate::kit::{SetAtEnd, commit};
use crate::run::Context;

const TREE: TreeId = TreeId(20);
const OTHER: TreeId = TreeId(21);

/// Runs the background steps until `stop` is set.
fn background(store: &dyn Store, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        store.checkpoint().expect("checkpoint");
        store.reclaim_step(5).expect("reclaim");
        store.flush_if_due().expect("flush");
        device::yield_now();
    }
}

fn number(bytes: Option<Vec<u8>>) -> u64 {
    u64::from_le_bytes(bytes.expect("present")[..8].try_into().expect("invariant: eight bytes"))
}

/// Writers keep distant keys of one tree and keys of another equal; clones and pins taken meanwhile
/// find them equal.
pub fn a_torn_batch_is_never_seen<E: EngineUnderTest>() {
    let (_sim, store) = fresh::<E>(1);
    let store = &*store;
    commit(store, |batch| {
        batch.create_tree(TREE);
        batch.create_tree(OTHER);
        for n in 0..2000_u64 {
            batch.put(TREE, &(n * 2 + 1).to_be_bytes(), &[0; 50]);
        }
        for key in [0, 2000, 4000_u64] {
            batch.put(TREE, &key.to_be_bytes(), &0_u64.to_le_bytes());
        }
        batch.put(OTHER, b"x", &0_u64.to_le_bytes());
    });
    let equal = |read: &dyn Read, tree: TreeId| {
        let get = |key: u64| number(read.get(tree, &key.to_be_bytes()).expect("read"));
        let value = get(0);
        assert_eq!((get(2000), get(4000)), (value, value), "half a batch was seen");
        value
    };
    let stop = AtomicBool::new(false);
    device::scope(|scope| {
        for writer in 0..2_u64 {
            let stop = &stop;
            scope.spawn(move || {
                let mut count = writer << 32;
                while !stop.load(Ordering::Relaxed) {
                    count += 1;
                    commit(store, |batch| {
                        for key in [0, 2000, 4000_u64] {
                            batch.put(TREE, &key.to_be_bytes(), &count.to_le_bytes());
                        }
                        batch.put(OTHER, b"x", &count.to_le_bytes());
                        // Leaves split and merge meanwhile.
                        let near = (count % 2000) * 2 + 1;
                        batch.put(TREE, &near.to_be_bytes(), &vec![1; count as usize % 900]);
                    });
                }
            });
        }
        scope.spawn(|| background(store, &stop));
        let _stop = SetAtEnd(&stop);
        for round in 0..E::rounds(150, 3000) {
            let (clone, other) = (TreeId(1000 + round * 2), TreeId(1001 + round * 2));
            commit(store, |batch| {
                batch.clone_tree(TREE, clone);
                batch.clone_tree(OTHER, other);
            });
            let value = equal(store, clone);
            assert_eq!(number(store.get(other, b"x").expect("read")), value);
            let pin = store.pin().expect("pin");
            let value = equal(pin.as_ref(), TREE);
            assert_eq!(number(pin.get(OTHER, b"x").expect("read")), value);
            assert_eq!(equal(pin.as_ref(), clone), equal(store, clone));
            commit(store, |batch| {
                batch.drop_tree(clone);
                batch.drop_tree(other);
            });
        }
    });
}

/// Entries that threads put into their own ranges exist at the end, and merges into one key add up.
pub fn writers_on_several_threads_lose_nothing<E: EngineUnderTest>() {
    const THREADS: u64 = 4;
    let (_sim, store) = fresh::<E>(1);
    let store = &*store;
    commit(store, |batch| batch.create_tree(TREE));
    let stop = AtomicBool::new(false);
    let commits = E::rounds(400, 5000);
    let expected: Vec<BTreeMap<Vec<u8>, Vec<u8>>> = device::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|writer| scope.spawn(move || write_own(store, writer, commits)))
            .collect();
        scope.spawn(|| background(store, &stop));
        let _stop = SetAtEnd(&stop);
        writers.into_iter().map(|writer| writer.join().expect("a writer ends")).collect()
    });
    for (writer, own) in expected.into_iter().enumerate() {
        let prefix = [b'w', writer as u8];
        let mut cursor = store.scan(TREE, KeyRange::prefix(&prefix)).expect("the tree exists");
        for (key, value) in own {
            let item = cursor.next().expect("read").expect("present");
            assert_eq!((item.key, item.value), (key.as_slice(), value.as_slice()));
        }
        assert!(cursor.next().expect("read").is_none());
    }
    let counter = store.get(TREE, b"counter").expect("read");
    assert_eq!(number(counter), THREADS * commits);
}

/// Random changes below the writer's own prefix; returns the expected entries.
fn write_own(store: &dyn Store, writer: u64, commits: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let _context = Context::new(format!("writer {writer}"));
    let mut random = fastrand::Rng::with_seed(writer);
    let mut own = BTreeMap::new();
    let one = Lane { offset: 0, kind: MergeKind::Add, operand: 1 };
    for _ in 0..commits {
        let mut batch = Batch::new();
        for _ in 0..random.usize(1..6) {
            let mut key = vec![b'w', writer as u8];
            key.extend_from_slice(&random.u16(0..700).to_be_bytes());
            if random.u8(0..3) == 0 {
                batch.delete(TREE, &key);
                own.remove(&key);
            } else {
                let value = vec![random.u8(..); random.usize(0..200)];
                batch.put(TREE, &key, &value);
                own.insert(key, value);
            }
        }
        batch.merge(TREE, b"counter", &[one]);
        store.commit(&batch).expect("the batch is valid");
        let (key, value) = match own.range(vec![b'w', writer as u8, random.u8(0..2)]..).next() {
            Some((key, value)) => (key.clone(), Some(value.clone())),
            None => (b"w".to_vec(), None),
        };
        assert_eq!(store.get(TREE, &key).expect("read"), value, "a writer reads its own");
    }
    own
}

/// A scan beside writers returns every key that stays, once and in order.
pub fn a_scan_beside_writers_is_complete<E: EngineUnderTest>() {
    const STAYS: u64 = 1200;
    let (_sim, store) = fresh::<E>(1);
    let store = &*store;
    commit(store, |batch| {
        batch.create_tree(TREE);
        for n in 0..STAYS {
            batch.put(TREE, &(n << 16).to_be_bytes(), &[0; 40]);
        }
    });
    let stop = AtomicBool::new(false);
    device::scope(|scope| {
        for seed in 0..2 {
            let stop = &stop;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while !stop.load(Ordering::Relaxed) {
                    commit(store, |batch| {
                        let base = random.u64(0..STAYS) << 16;
                        for _ in 0..20 {
                            let key = base + random.u64(1..0xffff);
                            batch.put(TREE, &key.to_be_bytes(), &vec![1; random.usize(0..300)]);
                        }
                        let gone = random.u64(0..STAYS) << 16;
                        let to = (gone + 0xffff).to_be_bytes();
                        batch.delete_range(TREE, &(gone + 1).to_be_bytes(), &to);
                    });
                }
            });
        }
        scope.spawn(|| background(store, &stop));
        let _stop = SetAtEnd(&stop);
        for round in 0..E::places(15, 1000).max(2) {
            let mut cursor = store.scan(TREE, KeyRange::all()).expect("the tree exists");
            let backward = round % 2 == 1;
            if backward {
                cursor.seek(&[0xff; 9]).expect("seek");
            }
            let mut keys = Vec::new();
            loop {
                let item = if backward { cursor.prev() } else { cursor.next() };
                let Some(item) = item.expect("read") else { break };
                keys.push(u64::from_be_bytes(item.key.try_into().expect("invariant: a number")));
            }
            if backward {
                keys.reverse();
            }
            assert!(keys.is_sorted_by(|a, b| a < b), "keys are in order and come once");
            let stayed = keys.iter().filter(|key| key.trailing_zeros() >= 16).count() as u64;
            assert_eq!(stayed, STAYS);
        }
    });
}

/// Commits acknowledged as durable survive a power cut while others are in progress.
pub fn acknowledged_commits_of_many_threads_survive<E: EngineUnderTest>() {
    const THREADS: u64 = 4;
    for durability in [Durability::Sync, Durability::Async] {
        let sim = crate::sim_env(1);
        let store = E::create(&sim, durability).expect("a store is created");
        let store = &*store;
        commit(store, |batch| batch.create_tree(TREE));
        store.sync(store.last_commit()).expect("sync");
        let acknowledged: Vec<AtomicU64> = (0..THREADS).map(|_| AtomicU64::new(0)).collect();
        let acknowledged = &acknowledged;
        let stop = &AtomicBool::new(false);
        device::scope(|scope| {
            for writer in 0..THREADS {
                scope.spawn(move || {
                    let mut count = 0_u64;
                    while !stop.load(Ordering::Relaxed) {
                        count += 1;
                        let mut batch = Batch::new();
                        batch.put(TREE, &[writer as u8], &count.to_le_bytes());
                        let token = store.commit(&batch).expect("the batch is valid");
                        if durability == Durability::Async {
                            store.sync(token).expect("sync");
                        }
                        acknowledged[writer as usize].store(count, Ordering::SeqCst);
                    }
                });
            }
            scope.spawn(|| background(store, stop));
            let _stop = SetAtEnd(stop);
            for seed in 0..E::places(60, 1000).max(3) {
                let at_least: Vec<u64> =
                    acknowledged.iter().map(|count| count.load(Ordering::SeqCst)).collect();
                let policy = CrashPolicy::ALL[seed as usize % 3];
                let device = sim.device.after_crash(policy, seed);
                let left = crate::SimEnv::on(device, seed);
                let again = E::open(&left, durability).expect("the store opens after a crash");
                for (writer, at_least) in at_least.into_iter().enumerate() {
                    let found = again.get(TREE, &[writer as u8]).expect("read");
                    let found = found.map_or(0, |bytes| number(Some(bytes)));
                    assert!(found >= at_least, "writer {writer}: {found} of {at_least}");
                }
                device::yield_now();
            }
        });
    }
}

/// Among commits to the same keys, the one with the greatest number wins, for all keys, also after
/// a replay of the log.
pub fn conflicting_commits_are_applied_in_the_order_of_the_log<E: EngineUnderTest>() {
    const THREADS: u64 = 4;
    // Many, so that applying takes a while and threads overlap.
    const KEYS: u8 = 100;
    let (sim, store) = fresh::<E>(1);
    commit(&*store, |batch| batch.create_tree(TREE));
    for round in 0..E::rounds(60, 1000) {
        let together = Barrier::new(THREADS as usize);
        let newest: (u64, Vec<u8>) = device::scope(|scope| {
            let (store, together) = (&store, &together);
            let writers: Vec<_> = (0..THREADS)
                .map(|writer| {
                    scope.spawn(move || {
                        let value = (writer << 32 | round).to_le_bytes().to_vec();
                        let mut batch = Batch::new();
                        for key in 0..KEYS {
                            // In another order each.
                            let key = key.wrapping_mul(2 * writer as u8 + 1) % KEYS;
                            batch.put(TREE, &[key], &value);
                        }
                        for key in 0..KEYS {
                            batch.put(TREE, &[key], &value);
                        }
                        together.wait();
                        let token = store.commit(&batch).expect("the batch is valid");
                        (token.0.0, value)
                    })
                })
                .collect();
            let ended = writers.into_iter().map(|writer| writer.join().expect("a writer ends"));
            ended.max().expect("invariant: there are writers")
        });
        for key in 0..KEYS {
            let found = store.get(TREE, &[key]).expect("read");
            assert_eq!(found.as_ref(), Some(&newest.1), "key {key}: commit {}", newest.0);
        }
    }
    let before: Vec<_> = (0..KEYS).map(|key| store.get(TREE, &[key]).expect("read")).collect();
    store.sync(store.last_commit()).expect("sync");
    drop(store);
    let store = super::reopen::open::<E>(&sim, Durability::Async);
    let after: Vec<_> = (0..KEYS).map(|key| store.get(TREE, &[key]).expect("read")).collect();
    assert_eq!(before, after);
}
