//! Two writers and a thread that makes checkpoints, on a disk that fails: space runs out, a write
//! or a sync fails, bits flip. Faults are of a seed; how the threads meet is not, so what is
//! asserted holds however they do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use btree::{BtreeStore, Options, check};
use format::node::{HEADER_BYTES, MAGIC, UNIT_BYTES};
use format::superblock::{Decoded, Superblock};
use store::{Batch, Commit, Durability, Durable, Error, KeyRange, Maintain, Read, TreeId};
use testing::{CrashPolicy, Fault, FaultOn, Op, SetAtEnd, SimDevice, SimEnv, sim_env};

use crate::threads::{OTHER, WRITERS, batch_of, key, recovered, whole_batches};
use crate::util::{TREE, checked, commit, options};

/// The progress of a writer, for the others to see.
#[derive(Default)]
struct Progress {
    durable: AtomicU64,
    refused: AtomicU64,
}

fn all(progress: &[Progress], count: impl Fn(&Progress) -> &AtomicU64) -> Vec<u64> {
    progress.iter().map(|one| count(one).load(Ordering::SeqCst)).collect()
}

/// How far a writer has counted at a place.
fn counted(store: &BtreeStore, tree: TreeId, key: &[u8]) -> u64 {
    let value = store.get(tree, key).expect("read");
    value.map_or(0, |bytes| u64::from_le_bytes(bytes[..].try_into().expect("eight bytes")))
}

/// Refusals that a writer sees before there is space again.
const REFUSALS: u64 = 12;
/// Batches that it commits then.
const MORE: u64 = 150;

/// Commits until there was no space for a while, and was again; returns how many batches there are.
fn write_into_little_space(
    store: &BtreeStore,
    writer: u64,
    progress: &Progress,
    space: &AtomicBool,
) -> u64 {
    let (mut count, mut more) = (0, 0);
    while more < MORE {
        // What begins when there is space again is not refused.
        let has_space = space.load(Ordering::SeqCst);
        match store.commit(&batch_of(writer, count + 1)) {
            Ok(token) => {
                count += 1;
                more += u64::from(has_space);
                if count % 7 == 0 {
                    match store.sync(token) {
                        Ok(()) => progress.durable.store(count, Ordering::SeqCst),
                        Err(error) => assert!(error.is_no_space() && !has_space, "{error:?}"),
                    }
                }
            }
            Err(error) => {
                assert!(error.is_no_space() && !has_space, "batch {}: {error:?}", count + 1);
                for (tree, place) in [(TREE, 0), (TREE, u64::MAX), (OTHER, 0)] {
                    let found = counted(store, tree, &key(writer, place));
                    assert_eq!(found, count, "writer {writer}: a refused batch left something");
                }
                progress.refused.fetch_add(1, Ordering::SeqCst);
            }
        }
        assert!(count < 200_000, "the disk never becomes full");
    }
    count
}

/// Makes checkpoints and reclaims until it is stopped; counts how often.
fn background(store: &BtreeStore, stop: &AtomicBool, rounds: &AtomicU64, failed: impl Fn(Error)) {
    let _stop = SetAtEnd(stop);
    while !stop.load(Ordering::SeqCst) {
        for step in [store.checkpoint().map(drop), store.reclaim_step(20).map(drop)] {
            if let Err(error) = step {
                failed(error);
            }
        }
        rounds.fetch_add(1, Ordering::SeqCst);
        device::yield_now();
    }
}

#[test]
fn space_runs_out_and_is_reclaimed_beside_two_writers() {
    for seed in 0..testing::run::rounds(1, 3) {
        println!("seed {seed}");
        let sim = sim_env(seed);
        let mut options = options(1 << 20);
        // So that little is kept for the log, and the disk soon full.
        options.common.log_segment_bytes = 64 << 10;
        let store = BtreeStore::create(&sim.env(), &options).expect("create");
        commit(&store, |batch| {
            batch.create_tree(TREE);
            batch.create_tree(OTHER);
        });
        assert!(store.checkpoint().expect("checkpoint"));
        let space_bytes = fastrand::Rng::with_seed(seed).u64(1 << 20..3 << 20);
        sim.device.set_capacity(Some(sim.device.used_bytes() + space_bytes));
        let progress: Vec<Progress> = (0..WRITERS).map(|_| Progress::default()).collect();
        let (space, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        let counts: Vec<u64> = device::scope(|scope| {
            let _stop = SetAtEnd(&stop);
            let (store, space) = (&*store, &space);
            let writers: Vec<_> = (0..WRITERS)
                .zip(&progress)
                .map(|(writer, own)| {
                    scope.spawn(move || write_into_little_space(store, writer, own, space))
                })
                .collect();
            scope.spawn(|| {
                let rounds = AtomicU64::new(0);
                background(store, &stop, &rounds, |error| {
                    assert!(error.is_no_space(), "{error:?}");
                });
            });
            let refused = || all(&progress, |one| &one.refused);
            while refused().iter().any(|&refused| refused < REFUSALS)
                && !writers.iter().any(|writer| writer.is_finished())
            {
                device::yield_now();
            }
            // A power cut now leaves a disk on which it opens, and what was durable before it.
            let durable = all(&progress, |one| &one.durable);
            recovered(&sim.device.copy(), seed, &durable);
            sim.device.set_capacity(None);
            space.store(true, Ordering::SeqCst);
            writers.into_iter().map(|writer| writer.join().expect("a writer")).collect()
        });
        println!("{counts:?} batches, refused {:?}", all(&progress, |one| &one.refused));
        assert_eq!(whole_batches(&store, &counts, "in the end"), counts);
        checked(&store);
        store.sync(store.last_commit()).expect("sync");
        drop(store);
        recovered(&sim.device, 4 * seed, &counts);
        let store = BtreeStore::open(&sim.env(), &options).expect("open");
        assert_eq!(whole_batches(&store, &counts, "opened again"), counts);
        checked(&store);
    }
}

/// Batches of a writer in a run in which something fails.
const BATCHES: u64 = 250;

/// The outcome of a run in which something fails.
#[derive(Debug, Default)]
struct Outcome {
    /// Batches of each writer that were acknowledged.
    acknowledged: Vec<u64>,
    durable: Vec<u64>,
    /// Whether a sync or a checkpoint failed, or a commit was refused for good.
    failed: bool,
}

/// What the threads of such a run share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    failed: AtomicBool,
    /// Rounds of the thread that makes checkpoints.
    rounds: AtomicU64,
}

impl Shared {
    /// Lets the checkpoint thread reach one, however little it gets to run.
    fn wait_for_a_round(&self) {
        let round = self.rounds.load(Ordering::SeqCst) + 2;
        while self.rounds.load(Ordering::SeqCst) < round && !self.stop.load(Ordering::SeqCst) {
            device::yield_now();
        }
    }
}

/// Commits all batches, or until one is refused for good.
fn write_while_something_fails(
    store: &BtreeStore,
    writer: u64,
    progress: &Progress,
    shared: &Shared,
) -> u64 {
    let waits = store.stats().durability == Durability::Sync;
    let mut lost = false;
    for count in 1..=BATCHES {
        if count % 20 == 0 {
            shared.wait_for_a_round();
        }
        let mut again = 0;
        let token = loop {
            match store.commit(&batch_of(writer, count)) {
                Ok(token) => {
                    assert!(!lost, "writer {writer}: a commit after a sync that failed");
                    break token;
                }
                // A leaf could not be written ahead of a checkpoint, and the batch was not begun.
                Err(Error::Device(_)) if again < 3 => again += 1,
                Err(Error::Device(_)) => return count - 1,
                Err(Error::ReadOnly(_)) => {
                    shared.failed.store(true, Ordering::SeqCst);
                    return count - 1;
                }
                Err(error) => panic!("writer {writer}, batch {count}: {error:?}"),
            }
        };
        if waits {
            progress.durable.store(count, Ordering::SeqCst);
        } else if count % 7 == 0 {
            match store.sync(token) {
                Ok(()) => progress.durable.store(count, Ordering::SeqCst),
                Err(error) => {
                    assert!(matches!(error, Error::Device(_) | Error::ReadOnly(_)), "{error:?}");
                    shared.failed.store(true, Ordering::SeqCst);
                    lost = true;
                }
            }
        }
    }
    BATCHES
}

/// Two writers beside checkpoints, while a fault strikes.
fn run_with(store: &BtreeStore) -> Outcome {
    let progress: Vec<Progress> = (0..WRITERS).map(|_| Progress::default()).collect();
    let shared = Shared::default();
    let acknowledged = device::scope(|scope| {
        let shared = &shared;
        let _stop = SetAtEnd(&shared.stop);
        let writers: Vec<_> = (0..WRITERS)
            .zip(&progress)
            .map(|(writer, own)| {
                scope.spawn(move || write_while_something_fails(store, writer, own, shared))
            })
            .collect();
        scope.spawn(|| {
            background(store, &shared.stop, &shared.rounds, |error| {
                assert!(matches!(error, Error::Device(_) | Error::ReadOnly(_)), "{error:?}");
                shared.failed.store(true, Ordering::SeqCst);
            });
        });
        writers.into_iter().map(|writer| writer.join().expect("a writer")).collect()
    });
    let durable = all(&progress, |one| &one.durable);
    Outcome { acknowledged, durable, failed: shared.failed.into_inner() }
}

/// A store with two trees, and how it is opened.
fn two_trees(seed: u64, durability: Durability) -> (SimEnv, Arc<BtreeStore>, Options) {
    let sim = sim_env(seed);
    let mut options = crate::conformance::options(durability);
    options.common.cache_bytes = 1 << 20;
    let store = BtreeStore::create(&sim.env(), &options).expect("create");
    commit(&store, |batch| {
        batch.create_tree(TREE);
        batch.create_tree(OTHER);
    });
    assert!(store.checkpoint().expect("checkpoint"));
    (sim, store, options)
}

/// One run in which something fails; returns whether the store refused commits from then on.
fn fail_one(seed: u64, durability: Durability, fault: Fault) -> bool {
    let place = format!("seed {seed}: {durability:?}, {fault:?}");
    let (sim, store, options) = two_trees(seed, durability);
    sim.device.inject(fault);
    let outcome = run_with(&store);
    if outcome.failed {
        let refused = store.commit(&batch_of(0, BATCHES + 1));
        assert!(matches!(refused, Err(Error::ReadOnly(_))), "{place}: {refused:?}, {outcome:?}");
        let refused = store.checkpoint();
        let what = "a checkpoint of what is not in the log";
        assert!(matches!(refused, Err(Error::ReadOnly(_))), "{place}: {what}: {refused:?}");
    } else {
        assert_eq!(outcome.acknowledged, [BATCHES; WRITERS as usize], "{place}");
    }
    // The last batch of each writer may be there though it was not acknowledged.
    let whole = |store: &BtreeStore, least: &[u64], when: &str| {
        let found = whole_batches(store, least, &format!("{place}, {when}"));
        for (found, &acknowledged) in found.iter().zip(&outcome.acknowledged) {
            assert!(*found <= acknowledged + 1, "{place}, {when}: {found}, {outcome:?}");
        }
    };
    whole(&store, &outcome.acknowledged, "while it runs");
    for policy in CrashPolicy::ALL {
        let cut = SimEnv::on(sim.device.after_crash(policy, seed), seed);
        let store = BtreeStore::open(&cut.env(), &options).expect(&place);
        whole(&store, &outcome.durable, &format!("power cut, {policy:?}"));
        let report = check(&store).expect(&place);
        assert!(report.is_clean(), "{place}: {:#?}", report.findings);
    }
    // The process ends, and the disk answers again.
    drop(store);
    sim.device.clear_faults();
    let store = BtreeStore::open(&sim.env(), &options).expect(&place);
    whole(&store, &outcome.durable, "opened again");
    commit(&store, |batch| batch.put(TREE, b"more", b"continues"));
    store.sync(store.last_commit()).expect(&place);
    let cut = SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, seed), seed);
    let store = BtreeStore::open(&cut.env(), &options).expect(&place);
    assert!(store.get(TREE, b"more").expect(&place).is_some(), "{place}");
    commit(&store, |batch| batch.delete(TREE, b"more"));
    whole(&store, &outcome.durable, "opened again, then power cut");
    outcome.failed
}

#[test]
fn a_write_or_a_sync_fails_beside_two_writers() {
    for durability in [Durability::Async, Durability::Sync] {
        // How many calls there are.
        let (sim, store, _) = two_trees(0, durability);
        let before = sim.device.counts();
        let outcome = run_with(&store);
        assert_eq!(outcome.acknowledged, [BATCHES; WRITERS as usize]);
        let counts = sim.device.counts();
        for (op, path) in [Op::Write, Op::Sync].into_iter().flat_map(|op| {
            // The log, and what checkpoints write.
            ["log/", "btree/"].map(|path| (op, path))
        }) {
            let calls = counts.of(op) - before.of(op);
            assert!(calls > 20, "{calls} calls of {op:?}");
            let mut refused = 0;
            for seed in 0..8 {
                // Later ones may not come, however the threads meet: beside other work far fewer
                // writes have more in them.
                let most = if path == "btree/" { 30 } else { (calls / 6).min(60) };
                let after = fastrand::Rng::with_seed(seed).u64(0..most);
                let fault = Fault::io(FaultOn::Only(op), after).below(path);
                println!("seed {seed}: {durability:?}, {fault:?}");
                refused += u64::from(fail_one(seed, durability, fault));
            }
            println!("{durability:?}: {op:?} in {path}: {refused} of 8 stores took no more");
            assert!(refused > 3, "{durability:?}, {op:?} in {path}: {refused} runs noticed it");
        }
    }
}

/// Entries of the tree of which bits are flipped.
const ENTRIES: u64 = 4000;

fn old_value(n: u64) -> Vec<u8> {
    let bytes = if n.is_multiple_of(30) { 2500 + n as usize } else { 40 + n as usize % 200 };
    vec![n as u8; bytes]
}

/// A disk with a tree of some hundred leaves that no process has open.
fn idle_disk(options: &Options) -> SimDevice {
    let sim = sim_env(1);
    let store = BtreeStore::create(&sim.env(), options).expect("create");
    commit(&store, |batch| batch.create_tree(TREE));
    for n in 0..ENTRIES {
        // Neighbours with long keys make nodes of few entries.
        commit(&store, |batch| batch.put(TREE, &key_between(n, u64::MAX), &old_value(n)));
    }
    checked(&store);
    store.close().expect("close");
    sim.device.clone()
}

/// Keys of writers are between the existing ones.
fn key_between(n: u64, writer: u64) -> Vec<u8> {
    [[b'k'; 200].as_slice(), &n.to_be_bytes(), &writer.to_be_bytes()].concat()
}

/// Offsets of nodes that are not those by which the store is opened, in the order of the file.
fn nodes(device: &SimDevice) -> Vec<u64> {
    let superblocks = ["btree/super-0", "btree/super-1"].map(|path| {
        match Superblock::decode(&device.read_file(path)).expect("whole") {
            Decoded::Superblock(superblock) => superblock,
            other => panic!("{other:?}"),
        }
    });
    let newest = superblocks.into_iter().max_by_key(|superblock| superblock.generation);
    let catalog = newest.expect("there are two").catalog.unit;
    let bytes = device.read_file("btree/nodes");
    let found = (0..bytes.len()).step_by(UNIT_BYTES).filter(|&at| {
        let node = &bytes[at..];
        // Leaves, interior nodes and overflow nodes.
        node.starts_with(&MAGIC)
            && matches!(node[6], 1..=3)
            && node[8..16] != catalog.to_le_bytes()
            && node[HEADER_BYTES..].len() > 100
    });
    found.map(|at| at as u64).collect()
}

/// Reads and writes of one thread where some nodes are damaged.
struct Reader<'a> {
    store: &'a BtreeStore,
    writer: u64,
    flipped: &'a [u64],
    random: fastrand::Rng,
    own: BTreeMap<Vec<u8>, Vec<u8>>,
    errors: u64,
}

impl Reader<'_> {
    /// Counts an error, which must be the damage.
    fn damage<T>(&mut self, done: Result<T, Error>) -> Option<T> {
        match done {
            Ok(done) => Some(done),
            Err(error) => {
                assert_names(&error, self.flipped);
                self.errors += 1;
                None
            }
        }
    }

    fn step(&mut self) {
        let n = self.random.u64(0..ENTRIES);
        let own = key_between(n, self.writer);
        match self.random.u8(0..10) {
            0..4 => {
                let read = self.store.get(TREE, &key_between(n, u64::MAX));
                if let Some(found) = self.damage(read) {
                    assert!(found == Some(old_value(n)), "entry {n} is another");
                }
            }
            4..6 => {
                let read = self.store.get(TREE, &own);
                if let Some(found) = self.damage(read) {
                    assert!(found.as_ref() == self.own.get(&own), "entry {n} of its own");
                }
            }
            6 => self.scan(n),
            _ => {
                let value = vec![self.random.u8(..); self.random.usize(0..400)];
                let deletes = self.random.u8(0..4) == 0;
                let mut batch = Batch::new();
                if deletes {
                    batch.delete(TREE, &own);
                } else {
                    batch.put(TREE, &own, &value);
                }
                let done = self.store.commit(&batch);
                if self.damage(done).is_some() {
                    if deletes {
                        self.own.remove(&own);
                    } else {
                        self.own.insert(own, value);
                    }
                }
            }
        }
    }

    /// Goes over some entries by cursor, until it meets damage.
    fn scan(&mut self, n: u64) {
        let from = KeyRange { from: key_between(n, 0), to: None };
        let opened = self.store.scan(TREE, from);
        let Some(mut cursor) = self.damage(opened) else { return };
        let mut next = n;
        while next < ENTRIES.min(n + 60) {
            let item = match cursor.next() {
                Ok(item) => item.expect("the last entry is not reached"),
                Err(error) => {
                    drop(cursor);
                    self.damage::<()>(Err(error));
                    return;
                }
            };
            let (head, tail) = item.key.split_at(item.key.len() - 8);
            let writer = u64::from_be_bytes(tail.try_into().expect("eight bytes"));
            if writer == u64::MAX {
                assert_eq!(head, &key_between(next, 0)[..head.len()], "no entry is skipped");
                assert!(item.value == old_value(next), "entry {next} is another");
                next += 1;
            } else if writer == self.writer {
                assert!(Some(item.value) == self.own.get(item.key).map(Vec::as_slice));
            }
        }
    }
}

fn assert_names(error: &Error, flipped: &[u64]) {
    let Error::Corrupt(damage) = error else { panic!("{error:?}") };
    assert_eq!(damage.file, "btree/nodes", "{error:?}");
    // Somewhere in the header of the node.
    let named = |&node: &u64| (node..=node + HEADER_BYTES as u64).contains(&damage.offset);
    assert!(flipped.iter().any(named), "{error:?} is not in {flipped:?}");
}

#[test]
fn bits_flip_beside_two_readers_and_writers() {
    let mut options = crate::conformance::options(Durability::Async);
    options.common.cache_bytes = 512 << 10;
    let whole = idle_disk(&options);
    let nodes = nodes(&whole);
    assert!(nodes.len() > 200, "{} nodes", nodes.len());
    let mut errors = 0;
    for seed in 0..8 {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let device = whole.copy();
        let flipped: Vec<u64> = (0..6).map(|_| nodes[random.usize(0..nodes.len())]).collect();
        for &node in &flipped {
            let byte = node + random.u64(0..HEADER_BYTES as u64 + 60);
            device.flip_bit("btree/nodes", byte * 8 + random.u64(0..8));
        }
        let sim = SimEnv::on(device, seed);
        let store = BtreeStore::open(&sim.env(), &options).expect("the catalog is whole");
        let stop = AtomicBool::new(false);
        let own = device::scope(|scope| {
            let _stop = SetAtEnd(&stop);
            let (store, flipped) = (&*store, flipped.as_slice());
            let readers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let random = random.fork();
                    scope.spawn(move || {
                        let own = BTreeMap::new();
                        let mut reader = Reader { store, writer, flipped, random, own, errors: 0 };
                        (0..3000).for_each(|_| reader.step());
                        (reader.own, reader.errors)
                    })
                })
                .collect();
            scope.spawn(|| {
                let rounds = AtomicU64::new(0);
                background(store, &stop, &rounds, |error| assert_names(&error, flipped));
            });
            readers.into_iter().map(|reader| reader.join().expect("a reader")).collect::<Vec<_>>()
        });
        let met: Vec<u64> = own.iter().map(|(_, errors)| *errors).collect();
        println!("{met:?} errors of {flipped:?}");
        errors += met.iter().sum::<u64>();
        // Opened again it answers the same, or the damage.
        drop(store.sync(store.last_commit()));
        drop(store);
        let store = BtreeStore::open(&sim.env(), &options);
        let store = match store {
            Ok(store) => store,
            Err(error) => {
                // A replay needs the leaf of each key.
                assert_names(&error, &flipped);
                continue;
            }
        };
        for (key, value) in own.into_iter().flat_map(|(own, _)| own) {
            match store.get(TREE, &key) {
                Ok(found) => assert!(found == Some(value), "seed {seed}"),
                Err(error) => assert_names(&error, &flipped),
            }
        }
    }
    assert!(errors > 100, "{errors} errors");
}
