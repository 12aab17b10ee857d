//! Checkpoints write long runs after long use too, because they empty sparse regions; and
//! what is moved is whole, whatever happens at the same time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use btree::{BtreeStore, NodeWrites, check};
use device::spawn;
use device::sync::Mutex;
use format::node::UNIT_BYTES;
use store::{Durable, Error, Maintain, Read, Snapshot, TreeId};
use testing::run::print_line;
use testing::{CrashPolicy, SimDevice, SimEnv};

use crate::util::{TREE, checked, commit, entries, options, reclaim_all, store};

/// Some eight to a leaf, so that few commits change many leaves.
const KEYS: u32 = 8000;
/// Changes in a round: of one leaf in ten.
const CHANGES: usize = 120;
const CACHE_BYTES: usize = 64 << 20;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn value(key: u32, version: u32) -> Vec<u8> {
    // Some are in nodes of their own.
    let length = if key.is_multiple_of(97) { 3000 } else { 1500 + key as usize % 400 };
    let mut value = vec![key as u8; length];
    value[..4].copy_from_slice(&version.to_le_bytes());
    value
}

fn put(store: &BtreeStore, model: &mut Model, tree: TreeId, key: u32, version: u32) {
    commit(store, |batch| batch.put(tree, &key.to_be_bytes(), &value(key, version)));
    model.insert(key.to_be_bytes().to_vec(), value(key, version));
}

fn filled(seed: u64) -> (SimEnv, Arc<BtreeStore>, Model) {
    let (sim, store) = store(seed, CACHE_BYTES);
    let mut model = Model::new();
    (0..KEYS).for_each(|key| put(&store, &mut model, TREE, key, 0));
    (sim, store, model)
}

/// A round of changes, and a checkpoint.
fn round(store: &BtreeStore, model: &mut Model, random: &mut fastrand::Rng, version: u32) {
    for _ in 0..CHANGES {
        put(store, model, TREE, random.u32(..KEYS), version);
    }
    assert!(store.checkpoint().expect("checkpoint"));
}

fn nodes_length(sim: &SimEnv) -> u64 {
    sim.env().device.open("btree/nodes").expect("open").len().expect("length")
}

/// Many rounds, in which clones are made and dropped or not. Prints how writes and the file become.
fn many_rounds(clones: bool) -> (NodeWrites, f64) {
    let (sim, store, mut model) = filled(1);
    let mut random = fastrand::Rng::with_seed(1);
    let (mut before, mut longest) = (NodeWrites::default(), 0.0_f64);
    for version in 1..=60 {
        if version == 21 {
            before = store.engine().node_writes();
        }
        let clone = TreeId(TREE.0 + u64::from(version));
        if clones {
            commit(&store, |batch| batch.clone_tree(TREE, clone));
            for n in 0..CHANGES as u32 / 3 {
                put(&store, &mut Model::new(), clone, random.u32(..KEYS), n);
            }
            if version > 1 {
                commit(&store, |batch| batch.drop_tree(TreeId(clone.0 - 1)));
            }
        }
        round(&store, &mut model, &mut random, version);
        reclaim_all(&store);
        let report = checked(&store);
        let ratio = nodes_length(&sim) as f64 / (report.units * UNIT_BYTES as u64) as f64;
        longest = longest.max(ratio);
        if version % 10 == 0 {
            let now = store.engine().node_writes();
            print_line(&format!(
                "round {version}: {now:?}, the file {ratio:.2} times what is in it"
            ));
        }
    }
    assert_eq!(entries(&*store, TREE), model);
    let now = store.engine().node_writes();
    let since = NodeWrites {
        runs: now.runs - before.runs,
        bytes: now.bytes - before.bytes,
        moved: now.moved - before.moved,
    };
    (since, longest)
}

#[test]
fn nodes_stay_in_long_runs_without_growing_the_file() {
    for clones in [false, true] {
        let (written, longest) = many_rounds(clones);
        let mean = written.bytes / written.runs;
        println!("clones: {clones}: {mean} bytes a run, {written:?}, at most {longest:.2}");
        // Nothing moved, and writes are short after some rounds (decision 0022).
        assert!(mean >= 256 << 10, "clones: {clones}: {mean} bytes a run");
        assert!(written.moved * 2 <= written.bytes, "more is moved than written: {written:?}");
        assert!(longest <= 2.4, "the file is {longest} times as long as what is in it");
    }
}

/// A store in which each checkpoint has something to move.
fn aged(seed: u64) -> (SimEnv, Arc<BtreeStore>, Model) {
    let (sim, store, mut model) = filled(seed);
    let mut random = fastrand::Rng::with_seed(seed);
    for version in 1..40 {
        round(&store, &mut model, &mut random, version);
    }
    (sim, store, model)
}

/// Rounds until one has moved something.
fn move_some(store: &BtreeStore, model: &mut Model, random: &mut fastrand::Rng) {
    let before = store.engine().node_writes().moved;
    for version in 100..110 {
        round(store, model, random, version);
        if store.engine().node_writes().moved > before {
            return;
        }
    }
    panic!("ten checkpoints have moved nothing");
}

#[test]
fn power_may_be_cut_while_leaves_are_moved() {
    let (sim, store, mut model) = aged(2);
    let mut random = fastrand::Rng::with_seed(2);
    let clone = TreeId(TREE.0 + 1);
    commit(&store, |batch| batch.clone_tree(TREE, clone));
    let cloned = model.clone();
    let cuts = Arc::new(Mutex::new(0));
    for _ in 0..2 {
        // All that is to be there is durable before a power cut.
        for _ in 0..2 * CHANGES {
            put(&store, &mut model, TREE, random.u32(..KEYS), 50);
        }
        store.sync(store.last_commit()).expect("sync");
        let (expected, cloned, cuts) = (model.clone(), cloned.clone(), Arc::clone(&cuts));
        sim.device.watch(move |disk: &SimDevice, op| {
            let policy = CrashPolicy::ALL[op as usize % CrashPolicy::ALL.len()];
            let place = format!("{policy:?} before {op}");
            let sim = SimEnv::on(disk.after_crash(policy, op), 1);
            let store = BtreeStore::open(&sim.env(), &options(CACHE_BYTES)).expect(&place);
            assert!(entries(&*store, TREE) == expected, "{place}: the tree has changed");
            assert!(entries(&*store, clone) == cloned, "{place}: the clone has changed");
            let report = check(&store).expect(&place);
            assert!(report.is_clean(), "{place}: {:#?}", report.findings);
            *cuts.lock() += 1;
        });
        let before = store.engine().node_writes().moved;
        while store.engine().node_writes().moved == before {
            assert!(store.checkpoint().expect("checkpoint"));
            if store.engine().node_writes().moved == before {
                sim.device.unwatch();
                move_some(&store, &mut model, &mut random);
            }
        }
        sim.device.unwatch();
    }
    assert!(*cuts.lock() > 20, "{} cuts", cuts.lock());
}

#[test]
fn unreadable_nodes_are_not_moved_and_fail_no_checkpoint() {
    let (sim, store, mut model) = aged(3);
    store.close().expect("close");
    drop(store);
    // Damaged leaves all over the file.
    let bytes = sim.device.read_file("btree/nodes");
    let leaf = [b"PNOD".as_slice(), &[1, 0, 1, 0]].concat();
    let starts = (0..bytes.len()).step_by(UNIT_BYTES);
    let leaves: Vec<usize> = starts.filter(|&at| bytes[at..].starts_with(&leaf)).collect();
    for at in leaves.iter().skip(7).step_by(40) {
        sim.device.flip_bit("btree/nodes", (*at as u64 + 1000) * 8);
    }
    let store = BtreeStore::open(&sim.env(), &options(CACHE_BYTES)).expect("open");
    let lost = |store: &BtreeStore| -> Vec<u32> {
        let damaged = |key: &u32| match store.get(TREE, &key.to_be_bytes()) {
            Err(Error::Corrupt(_)) => true,
            read => read.expect("read").is_none(),
        };
        (0..KEYS).filter(damaged).collect()
    };
    let before = lost(&store);
    assert!(before.len() > 10, "{} keys are damaged", before.len());
    let mut random = fastrand::Rng::with_seed(3);
    let moved = store.engine().node_writes().moved;
    for version in 200..220 {
        for _ in 0..CHANGES {
            let key = random.u32(..KEYS);
            if before.binary_search(&key).is_err() {
                put(&store, &mut model, TREE, key, version);
            }
        }
        assert!(store.checkpoint().expect("damage stops no checkpoint"));
    }
    assert!(store.engine().node_writes().moved > moved, "nothing was moved");
    assert_eq!(lost(&store), before, "no more and no less is damaged");
    for key in (0..KEYS).filter(|key| before.binary_search(key).is_err()) {
        let found = store.get(TREE, &key.to_be_bytes()).expect("read");
        assert_eq!(found.as_ref(), model.get(&key.to_be_bytes()[..]), "key {key}");
    }
}

#[test]
fn writers_readers_clones_and_pins_continue_while_leaves_are_moved() {
    let (sim, store, _) = aged(4);
    let before = store.engine().node_writes().moved;
    let done = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..2_u32)
        .map(|writer| {
            let store = Arc::clone(&store);
            let work = move || {
                let mut random = fastrand::Rng::with_seed(u64::from(writer));
                let mut model = Model::new();
                for version in 0..3000 {
                    // The writer has keys of its own.
                    let key = random.u32(..KEYS / 2) * 2 + writer;
                    put(&store, &mut model, TREE, key, version);
                    let read = store.get(TREE, &key.to_be_bytes()).expect("read");
                    assert_eq!(read, Some(value(key, version)));
                }
                model
            };
            spawn("writer", work).expect("a thread")
        })
        .collect();
    let cloner = {
        let (store, done) = (Arc::clone(&store), Arc::clone(&done));
        let work = move || {
            let mut next = TREE.0 + 1;
            while !done.load(Ordering::Relaxed) {
                let clone = TreeId(next);
                commit(&store, |batch| batch.clone_tree(TREE, clone));
                let seen = entries(&*store, clone);
                assert!(store.checkpoint().is_ok(), "beside another it is not made");
                if next.is_multiple_of(3) {
                    let pin = store.pin().expect("pin");
                    assert!(entries(&*pin, clone) == seen, "what a pin sees has changed");
                }
                assert!(entries(&*store, clone) == seen, "a clone has changed");
                commit(&store, |batch| batch.drop_tree(clone));
                store.reclaim_step(500).expect("reclaim");
                next += 1;
            }
        };
        spawn("clones", work).expect("a thread")
    };
    let checkpoints = {
        let (store, done) = (Arc::clone(&store), Arc::clone(&done));
        let work = move || {
            while !done.load(Ordering::Relaxed) {
                store.checkpoint().expect("checkpoint");
            }
        };
        spawn("checkpoints", work).expect("a thread")
    };
    let models: Vec<Model> = writers.into_iter().map(|one| one.join().expect("writer")).collect();
    done.store(true, Ordering::Relaxed);
    cloner.join().expect("clones");
    checkpoints.join().expect("checkpoints");
    reclaim_all(&store);
    checked(&store);
    assert!(store.engine().node_writes().moved > before, "nothing was moved");
    let all = entries(&*store, TREE);
    assert_eq!(all.len(), KEYS as usize);
    for (key, value) in models.iter().flatten() {
        assert_eq!(all.get(key), Some(value));
    }
    store.close().expect("close");
    drop(store);
    let store = BtreeStore::open(&sim.env(), &options(CACHE_BYTES)).expect("open");
    assert!(entries(&*store, TREE) == all, "opened again it differs");
}
