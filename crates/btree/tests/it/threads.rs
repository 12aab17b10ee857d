//! Writers, readers, clones and checkpoints at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use btree::{BtreeStore, check};
use device::spawn;
use store::{Batch, Commit, Durable, Lane, Maintain, MergeKind, Read, Snapshot, TreeId};
use testing::{CrashPolicy, SimDevice, SimEnv};

use crate::util::{TREE, checked, commit, entries, options, reclaim_all, store};

#[test]
fn checkpoints_race_writers_readers_and_clones() {
    let (_sim, store) = store(1, 2 << 20);
    let done = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for writer in 0..2_u32 {
        let store = Arc::clone(&store);
        threads.push(spawn("writer", move || {
            for n in 0..12_000_u32 {
                let key = [writer.to_be_bytes(), n.wrapping_mul(2_654_435_761).to_be_bytes()];
                let value = vec![n as u8; if n % 200 == 0 { 3000 } else { 80 }];
                commit(&store, |batch| batch.put(TREE, key.as_flattened(), &value));
                if n % 5 == 4 {
                    let gone = n - 2;
                    let gone = gone.wrapping_mul(2_654_435_761).to_be_bytes();
                    let key = [writer.to_be_bytes(), gone];
                    commit(&store, |batch| batch.delete(TREE, key.as_flattened()));
                }
            }
        }));
    }
    let background = {
        let (store, done) = (Arc::clone(&store), Arc::clone(&done));
        spawn("checkpoints", move || {
            while !done.load(Ordering::Relaxed) {
                store.checkpoint().expect("checkpoint");
            }
        })
    };
    let cloner = {
        let (store, done) = (Arc::clone(&store), Arc::clone(&done));
        spawn("clones", move || {
            let mut next = TREE.0 + 1;
            while !done.load(Ordering::Relaxed) {
                commit(&store, |batch| batch.clone_tree(TREE, TreeId(next)));
                let pin = store.pin().expect("pin");
                let (live, pinned) = (entries(&*store, TreeId(next)), entries(&*pin, TreeId(next)));
                assert_eq!(live, pinned, "a clone that nobody writes does not change");
                assert_eq!(live, entries(&*store, TreeId(next)));
                drop(pin);
                commit(&store, |batch| batch.drop_tree(TreeId(next)));
                store.reclaim_step(50).expect("reclaim");
                next += 1;
            }
        })
    };
    for thread in threads {
        thread.expect("a thread").join().expect("a writer");
    }
    done.store(true, Ordering::Relaxed);
    background.expect("a thread").join().expect("checkpoints");
    cloner.expect("a thread").join().expect("clones");
    reclaim_all(&store);
    checked(&store);
    assert_eq!(entries(&*store, TREE).len(), 2 * (12_000 - 2_400));
    for writer in 0..2_u32 {
        let key = [writer.to_be_bytes(), 11_998_u32.wrapping_mul(2_654_435_761).to_be_bytes()];
        assert!(store.get(TREE, key.as_flattened()).expect("read").is_some());
    }
}

pub(crate) const OTHER: TreeId = TreeId(33);
pub(crate) const WRITERS: u64 = 2;
const BATCHES: u64 = 700;
/// One in so many operations of the disk is a crash point that is looked at.
const STRIDE: u64 = 1;

/// A key of a writer; 0 and the greatest are those at which it counts.
pub(crate) fn key(writer: u64, n: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&writer.to_be_bytes());
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

fn value(n: u64) -> Vec<u8> {
    vec![n as u8; if n.is_multiple_of(40) { 2500 } else { n as usize % 300 }]
}

/// The `n`th batch of a writer: it counts in three places, adds an entry and removes an older one.
pub(crate) fn batch_of(writer: u64, n: u64) -> Batch {
    let mut batch = Batch::new();
    batch.put(TREE, &key(writer, 0), &n.to_le_bytes());
    // Scattered, so that all leaves change.
    batch.put(TREE, &key(writer, n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1), &value(n));
    batch.put(OTHER, &key(writer, 0), &n.to_le_bytes());
    if n.is_multiple_of(3) {
        batch.delete(TREE, &key(writer, (n / 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1));
    }
    batch.put(TREE, &key(writer, u64::MAX), &n.to_le_bytes());
    batch
}

/// What the first tree holds after so many batches of a writer.
pub(crate) fn expected(writer: u64, count: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut all = BTreeMap::new();
    for n in 1..=count {
        for op in batch_of(writer, n).ops() {
            match op.expect("a batch") {
                format::batch::Op::Put { tree, key, value } if tree == TREE.0 => {
                    all.insert(key.to_vec(), value.to_vec());
                }
                format::batch::Op::Delete { key, .. } => {
                    all.remove(key);
                }
                _ => {}
            }
        }
    }
    all
}

/// Asserts that of each writer there is a prefix of its batches, each of them whole, and not less
/// than what must be there. Returns how many there are.
pub(crate) fn whole_batches(store: &BtreeStore, least: &[u64], place: &str) -> Vec<u64> {
    let (found, other) = (entries(store, TREE), entries(store, OTHER));
    let (mut all, mut counts) = (BTreeMap::new(), Vec::new());
    for (writer, &least) in (0..WRITERS).zip(least) {
        let count = other
            .get(&key(writer, 0)[..])
            .map_or(0, |bytes| u64::from_le_bytes(bytes[..].try_into().expect("eight bytes")));
        assert!(count >= least, "{place}: writer {writer}: {count} of {least}");
        all.extend(expected(writer, count));
        counts.push(count);
    }
    assert!(found == all, "{place}: not whole batches, or not the first ones");
    counts
}

/// Opens what a power cut left: what was acknowledged as durable is there.
pub(crate) fn recovered(image: &SimDevice, op: u64, durable: &[u64]) {
    for policy in CrashPolicy::ALL {
        let place = format!("power cut before operation {op}, {policy:?}");
        let sim = SimEnv::on(image.after_crash(policy, op), op);
        let store = BtreeStore::open(&sim.env(), &options(1 << 20)).expect(&place);
        whole_batches(&store, durable, &place);
        if op.is_multiple_of(4) {
            let report = check(&store).expect(&place);
            assert!(report.is_clean(), "{place}: {:#?}", report.findings);
        }
    }
}

#[test]
fn power_may_be_cut_while_two_threads_write() {
    // How many points a run has depends on how its threads meet: the more of what they log is
    // written together, the fewer. So there are as many runs as it takes.
    let (mut points, mut seed) = (0, 3);
    while points <= 40 {
        println!("seed {seed}");
        let more = cut_power_while_two_threads_write(seed);
        assert!(more > 0, "no crash points in a run");
        (points, seed) = (points + more, seed + 1);
    }
    println!("{points} crash points");
}

/// One run; returns how many crash points were looked at.
fn cut_power_while_two_threads_write(seed: u64) -> u64 {
    let (sim, store) = store(seed, 1 << 20);
    commit(&store, |batch| batch.create_tree(OTHER));
    assert!(store.checkpoint().expect("checkpoint"));
    let durable: Arc<Vec<AtomicU64>> = Arc::new((0..WRITERS).map(|_| AtomicU64::new(0)).collect());
    let (watched, points) = (Arc::clone(&durable), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&points);
    // What was acknowledged when the last watch ended was so before this image was taken; while
    // it is looked at, other threads continue.
    let mut before = vec![0; WRITERS as usize];
    sim.device.watch(move |image, op| {
        if op.is_multiple_of(STRIDE) {
            recovered(image, op, &before);
            counted.fetch_add(1, Ordering::Relaxed);
        }
        before = watched.iter().map(|count| count.load(Ordering::SeqCst)).collect();
    });
    let done = Arc::new(AtomicBool::new(false));
    let background = {
        let (store, done) = (Arc::clone(&store), Arc::clone(&done));
        spawn("checkpoints", move || {
            while !done.load(Ordering::Relaxed) {
                if store.stats().commits % 100 < 50 {
                    store.checkpoint().expect("checkpoint");
                }
                store.reclaim_step(20).expect("reclaim");
                device::yield_now();
            }
        })
    };
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (store, durable) = (Arc::clone(&store), Arc::clone(&durable));
            spawn("writer", move || {
                for n in 1..=BATCHES {
                    let token = store.commit(&batch_of(writer, n)).expect("commit");
                    if n.is_multiple_of(7) {
                        store.sync(token).expect("sync");
                        durable[writer as usize].store(n, Ordering::SeqCst);
                    }
                }
            })
        })
        .collect();
    let ended: Vec<_> =
        writers.into_iter().map(|writer| writer.expect("a thread").join()).collect();
    done.store(true, Ordering::Relaxed);
    background.expect("a thread").join().expect("checkpoints");
    for writer in ended {
        writer.expect("a writer");
    }
    sim.device.unwatch();
    store.sync(store.last_commit()).expect("sync");
    recovered(&sim.device, sim.device.ops(), &[BATCHES; WRITERS as usize]);
    points.load(Ordering::Relaxed)
}

/// Adds to numbers of a few keys while others put, delete and take the greater one there. What a
/// replay makes of the log is what was in memory. Where all only add, nothing is missing.
#[test]
fn only_commits_that_merely_add_are_applied_in_any_order() {
    const ROUNDS: i64 = 4500;
    for only_add in [true, false] {
        let (sim, store) = store(1, 8 << 20);
        let next = Arc::new(AtomicU64::new(0));
        let lane = |offset, kind, operand| Lane { offset, kind, operand };
        let threads: Vec<_> = (0..3_u64)
            .map(|thread| {
                let (store, next) = (Arc::clone(&store), Arc::clone(&next));
                let writes = move || {
                    let mut random = fastrand::Rng::with_seed(thread);
                    loop {
                        // Each counter is the concern of all at about the same time.
                        let n = next.fetch_add(1, Ordering::Relaxed) as i64;
                        if n >= ROUNDS {
                            break;
                        }
                        let count = (n as u64 / 6).to_be_bytes();
                        // Half of them have long values.
                        let used = if count[7].is_multiple_of(2) { 1 } else { 2 };
                        let adds = [lane(0, MergeKind::Add, n), lane(2000, MergeKind::Add, 1)];
                        let greater = [lane(0, MergeKind::Max, n << 9)];
                        let other = random.u32(0..if only_add { 1 } else { 6 });
                        commit(&store, |batch| {
                            // So many that others come between a place in the log and its turn.
                            for own in 0..40 {
                                let key = [thread << 32, (own << 20) + n as u64 % 64];
                                batch.put(TREE, key.map(u64::to_be_bytes).as_flattened(), b"own");
                            }
                            match other {
                                1 => batch.put(TREE, &count, &[n as u8; 16]),
                                2 => batch.delete(TREE, &count),
                                3 => batch.merge(TREE, &count, &greater),
                                _ => batch.merge(TREE, &count, &adds[..used]),
                            }
                        });
                    }
                };
                spawn("writer", writes)
            })
            .collect();
        for thread in threads {
            thread.expect("a thread").join().expect("no panic");
        }
        store.sync(store.last_commit()).expect("sync");
        let there = entries(&*store, TREE);
        if only_add {
            let counters = there.iter().filter(|(key, _)| key.len() == 8);
            let sum =
                |value: &[u8]| value.first_chunk().map_or(0, |head| i64::from_le_bytes(*head));
            let sums: i64 = counters.map(|(_, value)| sum(value)).sum();
            assert_eq!(sums, ROUNDS * (ROUNDS - 1) / 2);
        }
        let disk = SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, 1), 1);
        let opened = BtreeStore::open(&disk.env(), &options(8 << 20)).expect("opens");
        assert!(entries(&*opened, TREE) == there, "a replay makes something else of it");
        checked(&opened);
    }
}
