//! Ingested runs are written once and not logged, and stay while a record of the log needs them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lsm::LsmStore;
use store::{Commit, Durable, Error, Maintain, Read, SliceRun, Snapshot, TreeId};
use testing::{CrashPolicy, Fault, FaultOn, Op, SetAtEnd, SimEnv, entries, numbered};

use crate::util::{TREE, blobs, checked, commit, inspected, open, settle, store};

const OTHER: TreeId = TreeId(33);

fn ingest(store: &LsmStore, tree: TreeId, run: &[(Vec<u8>, Vec<u8>)]) {
    store.ingest(tree, &mut SliceRun::new(run)).expect("the range is empty");
}

#[test]
fn a_run_longer_than_a_record_is_written_once_and_not_logged() {
    let (sim, store) = store(1);
    checked(&store);
    // 24 MiB: more than a record holds, more than the cache has, and many log segments.
    let run = numbered(0..24_000, 1000);
    let size = 24_000 * 1004;
    let before = store.stats();
    ingest(&store, TREE, &run);
    let after = store.stats();
    let written = after.written_bytes - before.written_bytes;
    // 15 blocks of 1 KiB hold as many entries, so their heads and the index weigh a tenth.
    assert!(written < size + size / 8, "{written} bytes for {size}");
    assert_eq!(after.log_bytes, before.log_bytes);
    assert!(after.cache_bytes < 4 << 20, "{}", after.cache_bytes);
    let report = checked(&store);
    assert_eq!(report.entries, 24_000);
    assert!(store.stats().written_bytes - after.written_bytes < 4096, "nothing is written twice");
    drop(store);
    let again = SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, 1), 1);
    let store = open(&again);
    assert!(entries(&*store, TREE).into_iter().eq(run));
}

#[test]
fn a_run_is_above_what_was_deleted_before_it() {
    let (_sim, store) = store(2);
    let run = numbered(100..400, 200);
    ingest(&store, TREE, &run);
    commit(&store, |batch| {
        batch.delete_range(TREE, &100_u32.to_be_bytes(), &300_u32.to_be_bytes());
        for n in 300..400_u32 {
            batch.delete(TREE, &n.to_be_bytes());
        }
        batch.put(TREE, &5_u32.to_be_bytes(), b"beside");
    });
    assert!(entries(&*store, TREE).len() == 1);
    let again = numbered(100..400, 300);
    ingest(&store, TREE, &again);
    commit(&store, |batch| batch.put(TREE, &150_u32.to_be_bytes(), b"changed"));
    for _ in 0..2 {
        let found = entries(&*store, TREE);
        assert_eq!(found.len(), 301);
        assert_eq!(found[&150_u32.to_be_bytes()[..]], b"changed");
        assert_eq!(found[&399_u32.to_be_bytes()[..]].len(), 300);
        checked(&store);
        settle(&store);
    }
}

/// A run whose tree is gone is needed by the record that replay meets first.
#[test]
fn a_run_is_not_deleted_while_the_log_names_it() {
    for checkpoint in [false, true] {
        let (sim, store) = store(3);
        assert!(store.checkpoint().expect("checkpoint"));
        commit(&store, |batch| batch.create_tree(OTHER));
        ingest(&store, OTHER, &numbered(0..2000, 100));
        let device = sim.device.copy();
        assert_eq!(blobs(&device).len(), 1);
        commit(&store, |batch| batch.drop_tree(OTHER));
        if checkpoint {
            assert!(store.checkpoint().expect("checkpoint"));
            settle(&store);
            assert_eq!(blobs(&sim.device).len(), 0, "nothing needs it any more");
        } else {
            // A refused run deletes everything unneeded at once, and nothing else.
            commit(&store, |batch| batch.put(TREE, &9_u32.to_be_bytes(), b"conflicts"));
            let refused = store.ingest(TREE, &mut SliceRun::new(&numbered(0..2000, 100)));
            assert!(matches!(refused, Err(Error::RangeNotEmpty { .. })), "{refused:?}");
            assert_eq!(blobs(&sim.device).len(), 1);
        }
        store.sync(store.last_commit()).expect("sync");
        drop(store);
        for policy in CrashPolicy::ALL {
            let again = SimEnv::on(sim.device.after_crash(policy, 1), 1);
            assert!(inspected(&again).is_clean());
            let store = open(&again);
            assert!(!store.tree_exists(OTHER).expect("asked"));
            checked(&store);
            settle(&store);
            assert_eq!(blobs(&again.device).len(), usize::from(!checkpoint));
        }
    }
}

#[test]
fn after_any_power_cut_a_run_is_whole_or_absent() {
    let (sim, store) = store(4);
    commit(&store, |batch| batch.put(TREE, &7_u32.to_be_bytes(), b"before"));
    store.sync(store.last_commit()).expect("sync");
    // Entries that must be found.
    let least = Arc::new(AtomicUsize::new(1));
    let must = Arc::clone(&least);
    sim.device.watch(move |image, op| {
        for policy in CrashPolicy::ALL {
            let sim = SimEnv::on(image.after_crash(policy, op), op);
            let report = inspected(&sim);
            assert!(report.is_clean(), "cut before {op}: {:#?}", report.findings);
            let store = open(&sim);
            let there = entries(&*store, TREE).len();
            assert!([1, 1001, 2001].contains(&there), "cut before {op}: {there} entries");
            let least = must.load(Ordering::Relaxed);
            assert!(there >= least, "cut before {op}: {there} entries, and {least} were durable");
            let live: u64 = checked(&store).entries;
            assert!(live >= there as u64, "cut before {op}");
            settle(&store);
            assert_eq!(inspected(&sim).lost_bytes, 0, "cut before {op}");
        }
    });
    ingest(&store, TREE, &numbered(1000..2000, 100));
    store.sync(store.last_commit()).expect("sync");
    least.store(1001, Ordering::Relaxed);
    ingest(&store, TREE, &numbered(3000..4000, 100));
    assert!(store.checkpoint().expect("checkpoint"));
    least.store(2001, Ordering::Relaxed);
    settle(&store);
    sim.device.unwatch();
}

/// The files of the engine, without those of the log.
fn files_of(sim: &SimEnv) -> Vec<String> {
    let files = sim.device.files().into_iter().map(|(path, _)| path);
    files.filter(|path| path.starts_with("lsm/")).collect()
}

#[test]
fn a_run_that_fails_leaves_nothing() {
    let (sim, store) = store(5);
    commit(&store, |batch| batch.put(TREE, &4500_u32.to_be_bytes(), b"conflicts"));
    checked(&store);
    let before = blobs(&sim.device);
    let refused = store.ingest(TREE, &mut SliceRun::new(&numbered(0..9000, 100)));
    assert!(matches!(refused, Err(Error::RangeNotEmpty { tree: TREE, .. })), "{refused:?}");
    assert_eq!(blobs(&sim.device), before);
    let run = numbered(5000..9000, 100);
    type Kind = fn(FaultOn, u64) -> Fault;
    for (round, kind) in [Fault::no_space as Kind, Fault::io].into_iter().enumerate() {
        let mut failed = 0;
        loop {
            let before = files_of(&sim);
            sim.device.inject(kind(FaultOn::AnyChange, failed).below("lsm"));
            let done = store.ingest(TREE, &mut SliceRun::new(&run));
            let struck = !sim.device.faults_left();
            sim.device.clear_faults();
            let Err(error) = done else {
                assert!(!struck, "a fault after {failed} was not reported");
                break;
            };
            assert!(struck && error.is_no_space() == (round == 0), "{error}");
            assert_eq!(files_of(&sim), before, "after {failed}: {error}");
            assert!(failed < 39, "it never succeeds");
            checked(&store);
            settle(&store);
            failed += 1;
        }
        // It is created, written, synced, named, and the directory is synced.
        assert!(failed >= 5, "{failed} faults");
        assert_eq!(checked(&store).entries, 4001);
        commit(&store, |batch| batch.delete_range(TREE, &run[0].0, &[0xff; 4]));
        checked(&store);
        settle(&store);
        assert_eq!(entries(&*store, TREE).len(), 1);
    }
}

#[test]
fn runs_that_do_not_fit_leave_space_for_checkpoints() {
    let (sim, store) = store(6);
    ingest(&store, TREE, &numbered(0..20_000, 100));
    checked(&store);
    let space = sim.env().device.space().expect("space");
    sim.device.set_capacity(Some(space.total_bytes - space.free_bytes + (12 << 20)));
    let mut taken = 20_000;
    let refused = loop {
        match store.ingest(TREE, &mut SliceRun::new(&numbered(taken..taken + 50_000, 100))) {
            Err(error) => break error,
            Ok(_) => taken += 50_000,
        }
    };
    assert!(refused.is_no_space(), "{refused}");
    commit(&store, |batch| {
        batch.delete_range(TREE, &1000_u32.to_be_bytes(), &taken.to_be_bytes());
    });
    assert!(store.checkpoint().expect("space is kept for it"));
    settle(&store);
    assert!(store.checkpoint().expect("checkpoint"));
    settle(&store);
    ingest(&store, TREE, &numbered(taken..taken + 20_000, 100));
    assert_eq!(entries(&*store, TREE).len(), 21_000);
}

/// Writers, clones, pins, checkpoints and merges continue while runs are built and linked.
#[test]
fn runs_are_ingested_beside_everything_else() {
    const RUNS: u32 = 30;
    let (_sim, store) = store(7);
    commit(&store, |batch| batch.create_tree(OTHER));
    let done = AtomicBool::new(false);
    let written = device::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut n = 0_u32;
            while !done.load(Ordering::Relaxed) || n < 200 {
                let key = (0x8000_0000 + n).to_be_bytes();
                commit(&store, |batch| batch.put(OTHER, &key, &[1; 60]));
                n += 1;
            }
            n
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                store.checkpoint().expect("checkpoint");
                store.reclaim_step(100).expect("reclaim");
            }
        });
        scope.spawn(|| {
            let mut seen = 0;
            while !done.load(Ordering::Relaxed) {
                let pin = store.pin().expect("pin");
                let count = entries(&*pin, TREE).len();
                assert!(count >= seen && count.is_multiple_of(500), "{count} after {seen}");
                seen = count;
            }
        });
        let end = SetAtEnd(&done);
        for run in 0..RUNS {
            ingest(&store, TREE, &numbered(run * 1000..run * 1000 + 500, 100));
            let clone = TreeId(100 + u64::from(run));
            commit(&store, |batch| batch.clone_tree(TREE, clone));
            ingest(&store, OTHER, &numbered(run * 1000..run * 1000 + 500, 100));
        }
        drop(end);
        writer.join().expect("the writer ends")
    });
    assert_eq!(entries(&*store, TREE).len(), 500 * RUNS as usize);
    assert_eq!(entries(&*store, OTHER).len(), 500 * RUNS as usize + written as usize);
    for run in 0..RUNS {
        let clone = TreeId(100 + u64::from(run));
        assert_eq!(entries(&*store, clone).len(), 500 * (run as usize + 1));
    }
    checked(&store);
}

/// Many short runs between commits do not make a tree deep.
#[test]
fn a_tree_of_many_runs_stays_shallow() {
    let (sim, store) = store(8);
    for run in 0..200_u32 {
        ingest(&store, TREE, &numbered(run * 1000..run * 1000 + 100, 100));
        commit(&store, |batch| batch.put(TREE, &(run * 1000 + 500).to_be_bytes(), b"between"));
    }
    let before = sim.device.counts().of(Op::Read);
    for run in 0..200_u32 {
        assert!(store.get_with(TREE, &(run * 1000 + 7).to_be_bytes(), &mut |_| ()).expect("read"));
    }
    let reads = sim.device.counts().of(Op::Read) - before;
    assert!(reads < 200 * 4, "{reads} reads");
    assert_eq!(checked(&store).entries, 200 * 101);
}
