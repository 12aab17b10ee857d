//! Power cuts in the middle of checkpoints, merges and deletions, and files that are still in use.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::sync::Mutex;
use lsm::{LsmStore, Options};
use store::{Commit, Cursor, Durable, KeyRange, Maintain, Pinned, Read, Snapshot, TreeId};
use testing::{CrashPolicy, Fault, FaultOn, Op, SimEnv, entries, sim_env};

use crate::util::{
    TREE, blobs, checked, column, commit, inspected, open, options, settle, store, store_with,
};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Some keys of the tree, and their new values.
type Changes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

fn changes(random: &mut fastrand::Rng, count: usize) -> Changes {
    let value = |random: &mut fastrand::Rng| vec![random.u8(..); random.usize(10..90)];
    (0..count)
        .map(|_| {
            let key = random.u32(0..400).to_be_bytes().to_vec();
            (key, (random.u8(0..4) > 0).then(|| value(random)))
        })
        .collect()
}

fn note(model: &mut Model, changes: &Changes) {
    for (key, value) in changes {
        match value {
            Some(value) => model.insert(key.clone(), value.clone()),
            None => model.remove(key),
        };
    }
}

fn make(store: &LsmStore, changes: &Changes) {
    commit(store, |batch| {
        for (key, value) in changes {
            match value {
                Some(value) => batch.put(TREE, key, value),
                None => batch.delete(TREE, key),
            }
        }
    });
}

/// An interrupted checkpoint, merge or deletion has no effect, and what it left is deleted: no file
/// is lost, none is kept.
#[test]
fn power_may_be_cut_in_checkpoints_merges_and_deletions() {
    for (seed, options) in [(0, options()), (1, options()), (0, column()), (1, column())] {
        let (sim, store) = store_with(seed, &options);
        // The tree's content after each commit that may be found.
        let states = Arc::new(Mutex::new(BTreeMap::new()));
        states.lock().insert(store.last_commit().0.0, Model::new());
        store.sync(store.last_commit()).expect("sync");
        let known = Arc::clone(&states);
        // The last commit that must be found.
        let least = Arc::new(AtomicU64::new(store.last_commit().0.0));
        let must = Arc::clone(&least);
        sim.device.watch(move |image, op| {
            let policy = CrashPolicy::ALL[(op % 3) as usize];
            let sim = SimEnv::on(image.after_crash(policy, op), op);
            let report = inspected(&sim);
            assert!(report.is_clean(), "cut before {op}: {:#?}", report.findings);
            let store = open(&sim);
            let last = store.last_commit().0.0;
            let least = must.load(Ordering::Relaxed);
            assert!(last >= least, "seed {seed}, cut before {op}: {last}, and {least} was durable");
            let found = entries(&*store, TREE);
            assert!(known.lock()[&last] == found, "seed {seed}, cut before {op}, commit {last}");
            checked(&store);
            settle(&store);
            assert!(entries(&*store, TREE) == found, "seed {seed}, cut before {op}: merged");
            let report = inspected(&sim);
            assert!(report.is_clean() && report.lost_bytes == 0, "cut before {op}: {report:?}");
            let others = |path: &str| path.contains("building") || path.contains("staged");
            assert!(!sim.device.files().iter().any(|(path, _)| others(path)), "cut before {op}");
        });
        let mut random = fastrand::Rng::with_seed(seed);
        let mut model = Model::new();
        for round in 0..18_u64 {
            let changes = changes(&mut random, 40);
            note(&mut model, &changes);
            // Before the store has it: the disk may be cut in the middle of the commit.
            states.lock().insert(store.last_commit().0.0 + 1, model.clone());
            make(&store, &changes);
            states.lock().insert(store.last_commit().0.0 + 1, model.clone());
            let clone = TreeId(50 + round / 4);
            match round % 4 {
                0 => commit(&store, |batch| batch.clone_tree(TREE, clone)),
                2 => commit(&store, |batch| batch.drop_tree(clone)),
                _ => {}
            }
            let made = store.last_commit().0.0;
            assert!(store.checkpoint().expect("checkpoint"));
            least.store(made, Ordering::Relaxed);
            while random.u8(0..3) > 0 && store.reclaim_step(1).expect("reclaim") {}
        }
        settle(&store);
        sim.device.unwatch();
        let merges = store.stats().merges.expect("it merges");
        assert!(merges.ended > 2, "merges were cut, too");
        assert_eq!(merges.cleaned > 0, options.values_from > 0, "cleaning was cut: {merges:?}");
    }
}

/// Reads a cursor to its end.
fn rest(cursor: &mut dyn Cursor) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rest = Vec::new();
    while let Some(item) = cursor.next().expect("it is still there") {
        rest.push((item.key.to_vec(), item.value.to_vec()));
    }
    rest
}

/// Merges and drops continue while pins, clones and cursors see older states. With next to no
/// cache, these read files that nothing else needs.
#[test]
fn no_file_is_deleted_that_a_pin_a_clone_or_a_cursor_needs() {
    for options in [options(), column()] {
        deletes_nothing_that_is_needed(options);
    }
}

fn deletes_nothing_that_is_needed(options: Options) {
    let sim = sim_env(1);
    let mut options = Options { block_bytes: 512, ..options };
    options.common.cache_bytes = 16 << 10;
    let store = LsmStore::create(&sim.env(), &options).expect("create");
    commit(&store, |batch| batch.create_tree(TREE));
    let mut random = fastrand::Rng::with_seed(1);
    let mut model = Model::new();
    let mut pins: Vec<(Box<dyn Pinned>, Model)> = Vec::new();
    let mut clones: BTreeMap<TreeId, Model> = BTreeMap::new();
    for round in 0..40_u64 {
        let changes = changes(&mut random, 60);
        note(&mut model, &changes);
        make(&store, &changes);
        let clone = TreeId(100 + round);
        commit(&store, |batch| batch.clone_tree(TREE, clone));
        clones.insert(clone, model.clone());
        assert!(store.checkpoint().expect("checkpoint"));
        pins.push((store.pin().expect("pin"), model.clone()));
        if round % 2 == 0 {
            let gone = *clones.keys().nth(random.usize(0..clones.len())).expect("there are some");
            commit(&store, |batch| batch.drop_tree(gone));
            clones.remove(&gone);
            pins.remove(random.usize(0..pins.len()));
        }
        // A cursor that started before the merges, over the live tree.
        let mut cursor = store.scan(TREE, KeyRange::all()).expect("scan");
        let first = cursor.next().expect("read").map(|item| item.key.to_vec());
        settle(&store);
        let expected = model.iter().skip(1).map(|(key, value)| (key.clone(), value.clone()));
        assert_eq!(first.as_ref(), model.keys().next());
        assert!(rest(&mut *cursor).into_iter().eq(expected), "round {round}: a cursor");
        if let Some((pin, seen)) = random.choice(&pins) {
            assert!(entries(&**pin, TREE) == *seen, "round {round}: a pin");
        }
    }
    assert!(store.stats().merges.expect("it merges").ended > 5);
    for (pin, seen) in &pins {
        assert!(entries(&**pin, TREE) == *seen);
    }
    for (clone, seen) in &clones {
        assert!(entries(&*store, *clone) == *seen);
    }
    // And what nothing needs is deleted.
    drop(pins);
    commit(&store, |batch| clones.keys().for_each(|clone| batch.drop_tree(*clone)));
    commit(&store, |batch| batch.delete_range(TREE, b"", &[0xff; 9]));
    assert!(store.checkpoint().expect("checkpoint"));
    settle(&store);
    assert!(store.checkpoint().expect("checkpoint"));
    settle(&store);
    assert!(blobs(&sim.device).is_empty(), "{:?}", blobs(&sim.device));
}

/// A merge that has to wait continues when time has passed, and a deep tree does not wait.
#[test]
fn merges_keep_to_their_rate() {
    let sim = sim_env(2);
    let rate = 1 << 20;
    let options = Options { merge_bytes_per_second: rate, ..options() };
    let store = LsmStore::create(&sim.env(), &options).expect("create");
    commit(&store, |batch| batch.create_tree(TREE));
    for round in 0..4_u32 {
        for part in 0..4 {
            commit(&store, |batch| {
                for n in 0..200_u32 {
                    batch.put(TREE, &(n * 40 + round * 4 + part).to_be_bytes(), &[7; 900]);
                }
            });
        }
        assert!(store.checkpoint().expect("checkpoint"));
    }
    let stats = store.stats().merges.expect("it merges");
    assert_eq!((stats.rate, stats.ended), (rate, 0));
    assert_eq!(stats.next.map(|(runs, _)| runs), Some(4));
    let writes = sim.device.counts().of(Op::Write);
    let mut seconds = 0;
    while store.stats().merges.is_some_and(|merges| merges.ended == 0) {
        while store.reclaim_step(1).expect("reclaim") {}
        let merges = store.stats().merges.expect("it merges");
        assert!(merges.ended > 0 || merges.under_way.is_some(), "{merges:?}");
        sim.clock.advance(std::time::Duration::from_secs(1));
        seconds += 1;
        assert!(seconds < 20, "it never ends: {merges:?}");
    }
    // 2.9 MB: the bucket has the first second's.
    assert!((2..=4).contains(&seconds), "{seconds} seconds");
    assert!(sim.device.counts().of(Op::Write) > writes);
    let stats = store.stats();
    assert!(stats.merge_bytes > 2_800_000, "{stats:?}");
    assert!((2.5..4.0).contains(&stats.write_amplification()), "{stats:?}");
    assert_eq!(entries(&*store, TREE).len(), 3200);
}

/// Each attempt has a number of its own, so that no later one replaces its file.
#[test]
fn manifests_that_cannot_be_made_leave_no_files() {
    let (sim, store) = store(9);
    let staged = || -> Vec<String> {
        let files = sim.device.files().into_iter().map(|(path, _)| path);
        files.filter(|path| path.ends_with(".staged")).collect()
    };
    let manifests = || -> Vec<String> {
        let files = sim.device.files().into_iter().map(|(path, _)| path);
        files.filter(|path| path.contains("manifest-") || path.contains("copy-")).collect()
    };
    let ops = [Op::Write, Op::Sync, Op::Rename];
    for (op, name) in ops.into_iter().flat_map(|op| [(op, "manifest-"), (op, "copy-")]) {
        for n in 0..4_u32 {
            commit(&store, |batch| batch.put(TREE, &n.to_be_bytes(), b"value"));
            let below = format!("lsm/{name}");
            sim.device.inject(Fault::no_space(FaultOn::Only(op), 0).below(&below));
            if name == "manifest-" {
                if manifests().len() == 2 {
                    // The copy of the previous one makes space for it.
                    sim.device.inject(Fault::no_space(FaultOn::Only(op), 1).below(&below));
                }
                let refused = store.checkpoint().expect_err("the manifest cannot be made");
                assert!(refused.is_no_space(), "{op:?}: {refused}");
                assert_eq!(manifests().len(), 1, "{op:?}");
            } else {
                assert!(store.checkpoint().expect("one is enough"));
                // When the earlier ones were deleted there was space for it.
                assert_eq!(manifests().len(), 2, "{op:?}");
            }
            assert!(!sim.device.faults_left(), "{op:?}");
            assert_eq!(staged(), [""; 0], "{op:?}");
        }
        checked(&store);
        assert_eq!(staged(), [""; 0], "{op:?}");
    }
    store.close().expect("close");
    // A file that a crash left does not stay either.
    let left = "lsm/manifest-0000000000000fff.staged";
    sim.env().device.create(left).expect("a file");
    assert_eq!(staged(), [left]);
    checked(&open(&sim));
    assert_eq!(staged(), [""; 0]);
}

/// Files that are to become blobs.
fn building(sim: &SimEnv) -> Vec<String> {
    let files = sim.device.files().into_iter().map(|(path, _)| path);
    files.filter(|path| path.contains("building")).collect()
}

/// Leaves this much space beside the reserve for checkpoints.
fn leave(sim: &SimEnv, bytes: u64) {
    sim.device.set_capacity(Some((sim.device.used_bytes() + bytes) * 32 / 31));
}

/// Four runs that would be merged; what is in them.
fn four_runs() -> (SimEnv, Arc<LsmStore>, Model) {
    let (sim, store) = store(11);
    for round in 0..4_u64 {
        for part in 0..4 {
            commit(&store, |batch| {
                for n in part * 50..part * 50 + 50 {
                    batch.put(TREE, &(n * 4 + round).to_be_bytes(), &testing::noise(n, 3000));
                }
            });
        }
        assert!(store.checkpoint().expect("checkpoint"));
    }
    let model = entries(&*store, TREE);
    (sim, store, model)
}

fn merges(store: &LsmStore) -> store::MergeStats {
    store.stats().merges.expect("it merges")
}

/// A change, and a checkpoint of it. The change counts as one that removes: those that add leave
/// more space than merges do.
fn change(store: &LsmStore, n: u8) {
    commit(store, |batch| {
        batch.mark(store::Need::Removes);
        batch.put(TREE, b"more", &[n]);
    });
    assert!(store.checkpoint().expect("a checkpoint has its space"));
}

/// Starts a merge, and stops in the middle of it, when part of it is on disk.
fn begin_merge(sim: &SimEnv, store: &LsmStore) {
    while merges(store).under_way.is_none_or(|(at, _)| at < 1_200_000) {
        assert!(store.reclaim_step(1).expect("reclaim"), "{:?}", merges(store));
    }
    assert!(merges(store).ended == 0 && !building(sim).is_empty(), "{:?}", merges(store));
}

/// A merge does not start if it would take the space that a checkpoint needs. It is aborted if
/// others take the space that it started for.
#[test]
fn merges_leave_the_space_that_checkpoints_need() {
    let (sim, store, mut expected) = four_runs();
    leave(&sim, 100_000);
    settle(&store);
    assert_eq!((merges(&store).ended, merges(&store).under_way), (0, None));
    assert_eq!(building(&sim), [""; 0]);
    change(&store, 1);
    settle(&store);
    assert_eq!(merges(&store).ended, 0);
    // There is space, and it starts.
    leave(&sim, 4_000_000);
    change(&store, 2);
    begin_merge(&sim, &store);
    leave(&sim, 0);
    settle(&store);
    assert_eq!((merges(&store).ended, merges(&store).under_way), (0, None));
    assert_eq!(building(&sim), [""; 0], "what it wrote is removed");
    change(&store, 3);
    settle(&store);
    assert_eq!(merges(&store).ended, 0);
    sim.device.set_capacity(None);
    change(&store, 4);
    settle(&store);
    assert!(merges(&store).ended > 0, "{:?}", merges(&store));
    expected.insert(b"more".to_vec(), vec![4]);
    assert!(entries(&*store, TREE) == expected);
    checked(&store);
}

/// A merge that no caller steps holds space: a checkpoint that finds none, and a commit, get it.
#[test]
fn a_checkpoint_takes_the_space_of_a_waiting_merge() {
    for dropped in [false, true] {
        let (sim, store, expected) = four_runs();
        commit(&store, |batch| {
            batch.clone_tree(TREE, TreeId(50));
            for n in 0..100_u64 {
                batch.put(TreeId(50), &n.to_be_bytes(), &testing::noise(n, 900));
            }
        });
        begin_merge(&sim, &store);
        sim.device.set_capacity(Some(sim.device.used_bytes() + 20_000));
        if dropped {
            let mut batch = store::Batch::new();
            batch.mark(store::Need::Removes);
            batch.drop_tree(TreeId(50));
            batch.delete_range(TREE, &400_u64.to_be_bytes(), &[0xff; 8]);
            store.commit(&batch).expect("there is space to remove");
            settle(&store);
            assert_eq!(store.stats().dropping, 0);
        } else {
            commit(&store, |batch| batch.put(TREE, b"more", b"a commit"));
        }
        assert!(store.checkpoint().expect("checkpoint"));
        assert_eq!((building(&sim), merges(&store).under_way), (Vec::new(), None));
        let left = entries(&*store, TREE);
        let expected = expected.len() - if dropped { 400 } else { 0 };
        assert_eq!(left.len(), expected + usize::from(!dropped));
        sim.device.set_capacity(None);
        checked(&store);
    }
}

/// A failed checkpoint does not count: the next is due as before.
#[test]
fn a_checkpoint_that_failed_is_due_again() {
    let (sim, store) = store(12);
    assert!(store.checkpoint().expect("checkpoint"));
    for n in 0..120 {
        commit(&store, |batch| batch.put(TREE, b"one key", &testing::noise(n, 10_000)));
    }
    assert!(store.checkpoint_due(), "by the length of the log");
    sim.device.inject(Fault::no_space(FaultOn::Only(Op::Write), 0).below("lsm/"));
    assert!(store.checkpoint().expect_err("no space left").is_no_space());
    assert!(!sim.device.faults_left() && store.checkpoint_due(), "it was not made");
    assert!(store.checkpoint().expect("there is space again"));
    assert!(!store.checkpoint_due());
}

/// Foreign files among those of the engine, under names that it does not assign: they are ignored,
/// and no number is one above theirs.
#[test]
fn files_of_strange_names_are_left_alone() {
    let (sim, store) = store(13);
    commit(&store, |batch| batch.put(TREE, b"key", b"value"));
    store.close().expect("close");
    drop(store);
    let strange = [
        "run-ffffffffffffffff",
        "run-fffffffffff00000",
        "run-1",
        "manifest-ffff",
        "manifest-+f",
        "manifest-ffffffffffffffff",
    ];
    for name in strange {
        sim.env().device.create(&format!("lsm/{name}")).expect("a file");
    }
    assert!(inspected(&sim).is_clean());
    let store = open(&sim);
    assert_eq!(entries(&*store, TREE).len(), 1);
    commit(&store, |batch| batch.put(TREE, b"more", b"value"));
    checked(&store);
    store.close().expect("close");
    for name in strange {
        assert!(sim.device.files().iter().any(|(path, _)| path.ends_with(name)), "{name}");
    }
    // Background work after the store was closed does nothing.
    let ops = sim.device.ops();
    assert!(!store.reclaim_step(100).expect("it is closed"));
    assert_eq!(sim.device.ops(), ops);
}
