//! What a replay skips because a node is damaged, and nodes that are stored twice, where the disk
//! fails in other ways than by rot. A sector does not read, a byte reads wrong once, or space of a
//! lost node is used again.

use std::sync::Arc;

use btree::{BtreeStore, inspect};
use store::{Durable, Lane, Maintain, MergeKind, Read, TreeId};
use testing::{CrashPolicy, SimEnv};

use crate::reads::{NODES, through};
use crate::util::{TREE, commit, entries, leaf_keys, options, store};

const CACHE_BYTES: usize = 8 << 20;
const OTHER: TreeId = TreeId(33);
const EIO: i32 = 5;

/// Both copies of a node are read at once.
#[test]
fn a_sector_unreadable_in_both_copies_keeps_the_volume_open() {
    let left = crate::catalog_copies::made();
    for (places, _) in crate::catalog_copies::copies(&left) {
        for at in places {
            // One 4 KiB block cannot be read.
            let bad = move |offset, bytes: &mut [u8]| {
                if offset >= at + 4096 || offset + bytes.len() as u64 <= at {
                    return Ok(());
                }
                Err(device::Error::new("read", NODES, std::io::Error::from_raw_os_error(EIO)))
            };
            let env = through(SimEnv::on(left.copy(), 1).env(), Arc::new(bad));
            let opened = BtreeStore::open(&env, &options(CACHE_BYTES));
            let value = opened.expect("the other copy is whole").get(TreeId(100), b"tree");
            assert!(value.expect("it reads").is_some(), "{at}");
            let mut proceed = |_, _| std::ops::ControlFlow::Continue(());
            let report =
                inspect(&env, &options(CACHE_BYTES), &mut proceed).expect("it is looked at");
            let is_named = report.findings.iter().any(|finding| finding.offset == at);
            assert!(is_named, "{at}: {:?}", report.findings);
        }
    }
}

/// Offsets of leaves.
fn leaves(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let starts = (0..bytes.len() / 1024).map(|unit| unit * 1024);
    starts.filter(|&at| bytes[at..at + 4] == format::node::MAGIC && bytes[at + 6] == 1)
}

/// Replay skips the log's records of a leaf that does not read. Wherever in the leaf that was, no
/// reader gets what was there before the log.
#[test]
fn a_leaf_misread_once_is_not_shown_without_its_log_records() {
    let (sim, whole) = store(1, CACHE_BYTES);
    let key = |n: u32| n.to_be_bytes();
    for n in 0..200 {
        commit(&whole, |batch| batch.put(TREE, &key(n), &[1; 300]));
    }
    assert!(whole.checkpoint().expect("there is space"));
    commit(&whole, |batch| batch.put(TREE, &key(7), &[2; 300]));
    whole.sync(whole.last_commit()).expect("it is written");
    let left = sim.device.after_crash(CrashPolicy::LoseAll, 1);
    drop(whole);
    let bytes = left.read_file(NODES);
    let mut skipped = 0;
    for (leaf, byte) in leaves(&bytes).flat_map(|at| [0, 8, 31, 100].map(|byte| (at, byte))) {
        let device = left.copy();
        let bit = (leaf + byte) as u64 * 8 + 6;
        device.flip_bit(NODES, bit);
        let opened = BtreeStore::open(&SimEnv::on(device.clone(), 1).env(), &options(CACHE_BYTES));
        let opened = opened.expect("one leaf closes nothing");
        device.flip_bit(NODES, bit);
        if opened.read_only().is_some() {
            skipped += 1;
            let found = opened.get(TREE, &key(7)).map(|value| value.map(|value| value[0]));
            assert!(!matches!(found, Ok(Some(1) | None)), "{leaf}, {byte}: {found:?}");
        }
    }
    assert!(skipped >= 4, "{skipped}");
}

/// A tree whose leaves are damaged under the log is dropped by the log. The log continues with so
/// much that checkpoints come in the same replay, and use the space of the leaves again.
#[test]
fn space_of_lost_nodes_is_reused() {
    let value = |n: u32, round: u32| testing::noise(u64::from(n * 1000 + round), 300);
    let (sim, whole) = store(1, 256 << 20);
    commit(&whole, |batch| batch.create_tree(OTHER));
    for n in 0..20_000u32 {
        commit(&whole, |batch| {
            if n < 4000 {
                batch.put(TREE, &n.to_be_bytes(), &[1; 300]);
            }
            batch.put(OTHER, &n.to_be_bytes(), &value(n, 0));
        });
    }
    assert!(whole.checkpoint().expect("there is space"));
    for n in (0..4000u32).step_by(5) {
        commit(&whole, |batch| batch.put(TREE, &n.to_be_bytes(), &[2; 300]));
    }
    commit(&whole, |batch| batch.drop_tree(TREE));
    for (round, n) in (1..30).flat_map(|round| (0..20_000u32).map(move |n| (round, n))) {
        commit(&whole, |batch| batch.put(OTHER, &n.to_be_bytes(), &value(n, round)));
    }
    whole.sync(whole.last_commit()).expect("it is written");
    let left = sim.device.after_crash(CrashPolicy::LoseAll, 1);
    drop(whole);
    let bytes = left.read_file(NODES);
    let mut hurt = 0;
    for at in leaves(&bytes) {
        let end = bytes.len().min(at + 2000);
        if bytes[at..end].windows(200).any(|some| some == [1; 200]) {
            left.flip_bit(NODES, (at + 100) as u64 * 8);
            hurt += 1;
        }
    }
    assert!(hurt > 20, "{hurt}");
    let opened = BtreeStore::open(&SimEnv::on(left, 1).env(), &options(1 << 20)).expect("it opens");
    assert_eq!((opened.unknown(), opened.read_only()), (Vec::new(), None));
    for n in (0..20_000u32).step_by(7) {
        let found = opened.get(OTHER, &n.to_be_bytes()).expect("it reads");
        assert!(found.is_some_and(|found| found[..] == value(n, 29)[..]), "{n}");
    }
}

/// A leaf that the log changes, and takes away after that. Also a long value that it adds to, and
/// replaces; in a tree and a clone of it.
#[test]
fn damage_that_later_log_records_remove_is_not_reported() {
    let (sim, whole) = store(1, CACHE_BYTES);
    let key = |n: u32| n.to_be_bytes();
    commit(&whole, |batch| {
        (0..600).for_each(|n| batch.put(TREE, &key(n), &[1; 300]));
        batch.put(TREE, &key(50), &[1; 4000]);
    });
    assert!(whole.checkpoint().expect("there is space"));
    let bytes = sim.device.read_file(NODES);
    let inside = |&&(first, last, _): &&(u32, u32, usize)| 201 < first && last < 399;
    let leaves = leaf_keys(&bytes);
    let &(first, _, leaf) = leaves.iter().find(inside).expect("it has many");
    let is_long = |at: &usize| bytes[*at..].starts_with(&format::node::MAGIC) && bytes[at + 6] == 3;
    let long = (0..bytes.len()).step_by(1024).find(is_long).expect("one");
    let one_more = Lane { offset: 0, kind: MergeKind::Add, operand: 1 };
    for (taken, place) in [(0, leaf), (1, leaf), (2, leaf), (2, long)] {
        let sim = SimEnv::on(sim.device.copy(), 1);
        let store = BtreeStore::open(&sim.env(), &options(CACHE_BYTES)).expect("it is whole");
        commit(&store, |batch| {
            batch.delete(TREE, &key(first));
            batch.merge(TREE, &key(50), &[one_more]);
            batch.clone_tree(TREE, OTHER);
        });
        for tree in [TREE, OTHER].into_iter().take(taken) {
            commit(&store, |batch| {
                batch.delete_range(tree, &key(200), &key(400));
                batch.put(tree, &key(50), b"short");
            });
        }
        store.sync(store.last_commit()).expect("it is written");
        let right = [TREE, OTHER].map(|tree| entries(&*store, tree));
        let left = sim.device.after_crash(CrashPolicy::LoseAll, 1);
        drop(store);
        left.flip_bit(NODES, (place as u64 + 100) * 8);
        let sim = SimEnv::on(left, 1);
        let opened = BtreeStore::open(&sim.env(), &options(CACHE_BYTES)).expect("it opens");
        let missed = &[TREE, OTHER][taken..];
        assert_eq!(opened.unknown(), missed, "{taken}");
        assert_eq!(opened.read_only().is_some(), taken < 2, "{taken}");
        if taken < 2 {
            continue;
        }
        assert!(opened.checkpoint().expect("it takes changes"));
        drop(opened);
        let opened = BtreeStore::open(&sim.env(), &options(CACHE_BYTES)).expect("it opens");
        assert!([TREE, OTHER].map(|tree| entries(&*opened, tree)) == right);
        while opened.reclaim_step(100).expect("it goes") {}
        assert!(opened.checkpoint().expect("there is space"));
        assert!(btree::check(&opened).expect("it is looked at").is_clean());
    }
}
