//! Ingested runs cost one write, keep the structure sound and the counts exact, whatever is cut.

use btree::BtreeStore;
use store::{Batch, Commit, Durable, Error, KeyRange, Maintain, SliceRun, Snapshot, TreeId};
use testing::{CrashPolicy, Fault, FaultOn, Op, SimEnv, fails};

use crate::util::{TREE, checked, commit, entries, leaf_keys, options, store, verify};

const CACHE_BYTES: usize = 8 << 20;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Entries with these numbers; every hundredth has a long value.
fn run(numbers: impl Iterator<Item = u32>) -> Entries {
    let value = |n: u32| vec![n as u8; if n % 100 == 3 { 4000 } else { 100 }];
    numbers.map(|n| (n.to_be_bytes().to_vec(), value(n))).collect()
}

fn ingest(store: &BtreeStore, tree: TreeId, run: &Entries) {
    store.ingest(tree, &mut SliceRun::new(run)).expect("the range is empty");
}

#[test]
fn a_run_is_written_once_and_not_logged() {
    let (sim, store) = store(1, CACHE_BYTES);
    checked(&store);
    let run = run(0..60_000);
    let size: u64 = run.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum();
    let before = (store.stats().written_bytes, sim.device.counts().of(Op::Write));
    ingest(&store, TREE, &run);
    let report = checked(&store);
    let written = store.stats().written_bytes - before.0;
    assert_eq!(report.entries, 60_000 + 1);
    // 15/16 full, and interior nodes, and the log's record of where they are.
    assert!(written < size + size / 6, "{written} bytes for {size}");
    assert!(sim.device.counts().of(Op::Write) - before.1 < 40, "in long writes");
    assert_eq!(entries(&*store, TREE), run.into_iter().collect());
}

#[test]
fn runs_between_keys_leave_balanced_trees_and_exact_counts() {
    for seed in 0..4 {
        let (_sim, store) = store(seed, CACHE_BYTES);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut model = std::collections::BTreeMap::new();
        // Gaps in all places: inside leaves, between them, at both ends.
        for round in 0..60_u32 {
            let start = random.u32(0..1000) * 100_000;
            let numbers = start..start + random.u32(1..3000);
            let run = run(numbers);
            let free =
                model.range(run[0].0.clone()..=run[run.len() - 1].0.clone()).next().is_none();
            let done = store.ingest(TREE, &mut SliceRun::new(&run));
            assert_eq!(done.is_ok(), free, "{done:?}");
            if free {
                model.extend(run);
            }
            if random.bool() {
                let key = random.u32(0..100_000_000).to_be_bytes();
                commit(&store, |batch| batch.put(TREE, &key, &[9; 1900]));
                model.insert(key.to_vec(), vec![9; 1900]);
            }
            if round % 8 == 5 {
                checked(&store);
            }
        }
        checked(&store);
        assert!(entries(&*store, TREE) == model, "seed {seed}");
    }
}

#[test]
fn long_keys_grow_a_high_tree() {
    let (_sim, store) = store(5, CACHE_BYTES);
    let key = |n: u32| [[b'k'; 490].as_slice(), &n.to_be_bytes()].concat();
    let mut ends = (0, 100_000);
    // From both ends to the middle, so that separators are raised at every level.
    for _ in 0..12 {
        let low: Entries = (ends.0..ends.0 + 300).map(|n| (key(n), vec![1; 200])).collect();
        let high: Entries = (ends.1 - 300..ends.1).map(|n| (key(n), vec![2; 200])).collect();
        ingest(&store, TREE, &low);
        ingest(&store, TREE, &high);
        ends = (ends.0 + 300, ends.1 - 300);
    }
    let middle: Entries = (ends.0..ends.1).step_by(40).map(|n| (key(n), vec![3; 200])).collect();
    ingest(&store, TREE, &middle);
    let report = checked(&store);
    assert!(report.interiors > 10, "{report:?}");
    assert_eq!(entries(&*store, TREE).len(), 24 * 300 + middle.len());
}

#[test]
fn a_run_ingested_and_dropped_before_a_checkpoint_is_freed_and_kept_for_pins() {
    let (_sim, store) = store(1, 64 << 10);
    let empty = checked(&store);
    let run = run(0..5000);
    ingest(&store, TREE, &run);
    commit(&store, |batch| batch.clone_tree(TREE, TreeId(40)));
    let pinned = store.pin().expect("pin");
    commit(&store, |batch| {
        batch.drop_tree(TreeId(40));
        batch.delete_range(TREE, b"", &[0xff; 9]);
    });
    for n in 0..20_u32 {
        commit(&store, |batch| batch.put(TREE, &n.to_be_bytes(), &[7; 1500]));
        checked(&store);
    }
    let mut cursor = pinned.scan(TreeId(40), KeyRange::all()).expect("it is in the state");
    for (key, value) in &run {
        let item = cursor.next().expect("read").expect("there");
        assert!(item.key == key && item.value == value);
    }
    drop(cursor);
    drop(pinned);
    commit(&store, |batch| batch.delete_range(TREE, b"", &[0xff; 9]));
    let report = checked(&store);
    assert_eq!((report.units, report.lost_bytes), (empty.units, 0));
}

#[test]
fn a_run_that_fails_leaves_nothing() {
    let (sim, store) = store(1, CACHE_BYTES);
    commit(&store, |batch| batch.put(TREE, &4500_u32.to_be_bytes(), b"conflicts"));
    let before = checked(&store);
    let refused = store.ingest(TREE, &mut SliceRun::new(&run(0..90_000)));
    assert!(matches!(refused, Err(Error::RangeNotEmpty { tree: TREE, .. })));
    assert_eq!(checked(&store).units, before.units);
    sim.device.inject(Fault::no_space(FaultOn::Only(Op::Write), 0).below("btree/nodes").forever());
    let full = store.ingest(TREE, &mut SliceRun::new(&run(5000..90_000)));
    assert!(full.is_err_and(|error| error.is_no_space()));
    sim.device.clear_faults();
    assert_eq!(checked(&store).units, before.units);
    ingest(&store, TREE, &run(5000..90_000));
    assert_eq!(checked(&store).entries, before.entries + 85_000);
}

/// The system reports once, to one sync, that it could not write bytes; those may be of
/// leaves that were pre-flushed. So no later checkpoint may count on them.
#[test]
fn a_failed_sync_of_nodes_ends_all_allocation() {
    let (sim, store) = store(1, CACHE_BYTES);
    checked(&store);
    sim.device.inject(Fault::io(FaultOn::Only(Op::Sync), 0).below("btree/nodes"));
    fails(
        store.ingest(TREE, &mut SliceRun::new(&run(0..9_000))),
        "sync btree/nodes: Input/output error",
    );
    sim.device.clear_faults();
    let mut batch = Batch::new();
    batch.put(TREE, b"later", b"");
    assert!(matches!(store.commit(&batch), Err(Error::ReadOnly(_))));
    fails(store.checkpoint(), "nodes could not be made durable");
}

#[test]
fn after_any_power_cut_counts_are_exact() {
    for seed in 0..2 {
        let (sim, store) = store(seed, CACHE_BYTES);
        store.sync(store.last_commit()).expect("sync");
        sim.device.watch(move |image, op| {
            for policy in CrashPolicy::ALL {
                let sim = SimEnv::on(image.after_crash(policy, op), op);
                verify(&sim, CACHE_BYTES, &format!("cut before {op}"), |_| {});
            }
        });
        for round in 0..5_u32 {
            let start = round * 10_000;
            ingest(&store, TREE, &run(start..start + 400 + 300 * round));
            commit(&store, |batch| {
                batch.clone_tree(TREE, TreeId(50 + u64::from(round)));
                batch.put(TREE, &(start + 5).to_be_bytes(), b"changed");
            });
            if round % 2 == seed as u32 {
                assert!(store.checkpoint().expect("checkpoint"));
                commit(&store, |batch| batch.drop_tree(TreeId(50 + u64::from(round))));
            }
            store.sync(store.last_commit()).expect("sync");
            store.reclaim_step(3).expect("reclaim");
        }
        sim.device.unwatch();
    }
}

#[test]
fn a_run_that_does_not_fit_takes_no_space_and_leaves_some_for_checkpoints() {
    let (sim, store) = store(9, CACHE_BYTES);
    ingest(&store, TREE, &run(0..20_000));
    checked(&store);
    let space = sim.env().device.space().expect("space");
    let used = space.total_bytes - space.free_bytes;
    // Space for a checkpoint, and for some runs.
    sim.device.set_capacity(Some(used + (12 << 20)));
    let free = || sim.env().device.space().expect("space").free_bytes;
    let mut taken = 20_000;
    let refused = loop {
        let before = free();
        let entries = run(taken..taken + 200_000);
        match store.ingest(TREE, &mut SliceRun::new(&entries)) {
            Err(error) => break (error, before),
            Ok(_) => taken += 200_000,
        }
    };
    assert!(refused.0.is_no_space(), "{:?}", refused.0);
    assert!(free() + (256 << 10) > refused.1, "{} of {} bytes are free", free(), refused.1);
    // Smaller runs fill it until there is space for checkpoints only, which then is there.
    loop {
        let entries = run(taken..taken + 2000);
        match store.ingest(TREE, &mut SliceRun::new(&entries)) {
            Err(error) if error.is_no_space() => break,
            Err(error) => panic!("{error}"),
            Ok(_) => taken += 2000,
        }
    }
    assert!(taken > 22_000, "nothing fitted");
    let (from, to) = (1000_u32.to_be_bytes(), 19_000_u32.to_be_bytes());
    commit(&store, |batch| batch.delete_range(TREE, &from, &to));
    assert!(store.checkpoint().expect("space is kept for it"));
    while store.reclaim_step(1000).expect("reclaim") {}
    // Which makes space for more.
    ingest(&store, TREE, &run(taken..taken + 2000));
    let report = checked(&store);
    assert_eq!(report.entries, u64::from(taken) + 2000 - 18_000 + 1);
}

/// A leaf stays empty where its siblings cannot be read when all of it is removed.
#[test]
fn a_run_is_ingested_over_a_leaf_that_stayed_empty() {
    let (sim, whole) = store(1, CACHE_BYTES);
    for n in 0..3000_u32 {
        commit(&whole, |batch| batch.put(TREE, &n.to_be_bytes(), &[1; 300]));
    }
    checked(&whole);
    drop(whole);
    let leaves = leaf_keys(&sim.device.read_file("btree/nodes"));
    let at = leaves.iter().position(|(first, ..)| *first > 1500).expect("it has many");
    let [(_, before, _), (first, last, _), (behind, ..)] = leaves[at - 1..=at + 1] else {
        unreachable!("three leaves")
    };
    assert_eq!((before + 1, last + 1), (first, behind));
    let store = BtreeStore::open(&sim.env(), &options(CACHE_BYTES)).expect("open");
    let mut model = entries_but(3000, first..=last);
    assert!(store::Read::get(&*store, TREE, &first.to_be_bytes()).expect("read").is_some());
    sim.device.inject(Fault::io(FaultOn::Only(Op::Read), 0).forever().below("btree/nodes"));
    commit(&store, |batch| (first..=last).for_each(|n| batch.delete(TREE, &n.to_be_bytes())));
    sim.device.clear_faults();
    for n in [before, behind] {
        commit(&store, |batch| batch.delete(TREE, &n.to_be_bytes()));
        model.remove(&n.to_be_bytes()[..]);
    }
    let run: Entries =
        (before..=behind).map(|n| (n.to_be_bytes().to_vec(), vec![2; 1000])).collect();
    ingest(&store, TREE, &run);
    model.extend(run);
    for (key, value) in &model {
        let found = store::Read::get(&*store, TREE, key).expect("read");
        assert!(found.as_ref() == Some(value), "{key:02x?}");
    }
    assert!(entries(&*store, TREE) == model);
    checked(&store);
}

fn entries_but(
    count: u32,
    gone: std::ops::RangeInclusive<u32>,
) -> std::collections::BTreeMap<Vec<u8>, Vec<u8>> {
    let there = (0..count).filter(|n| !gone.contains(n));
    there.map(|n| (n.to_be_bytes().to_vec(), vec![1; 300])).collect()
}
