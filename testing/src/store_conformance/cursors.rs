//! Cursors: forward, backward and by seeking, on an idle state and on a changing one.

use store::{Batch, KeyRange, Read, TreeId};

use super::compare::{commit_both, must, same_item};
use super::engine::{EngineUnderTest, fresh};
use super::workload::{Shape, Workload};
use crate::MemStore;
use crate::kit::commit;

/// A random range.
fn range(work: &mut Workload) -> KeyRange {
    match work.random.u8(0..4) {
        0 => KeyRange::all(),
        1 => {
            let mut prefix = work.key();
            prefix.truncate(work.random.usize(0..=prefix.len()));
            KeyRange::prefix(&prefix)
        }
        2 => KeyRange { from: work.key(), to: None },
        _ => {
            let (from, to) = (work.key(), work.key());
            KeyRange::between(&from, &to)
        }
    }
}

/// Moves a cursor of each store in the same way, and compares their positions.
pub(super) fn walk(store: &dyn Read, oracle: &dyn Read, work: &mut Workload, moves: usize) {
    let tree = work.tree();
    walk_in(store, oracle, tree, work, moves);
}

/// The same in a given tree.
pub(super) fn walk_in(
    store: &dyn Read,
    oracle: &dyn Read,
    tree: TreeId,
    work: &mut Workload,
    moves: usize,
) {
    let range = range(work);
    let what = format!("cursor in tree {} over {range:?}", tree.0);
    let mut found = store.scan(tree, range.clone()).expect("the tree exists");
    let mut expected = oracle.scan(tree, range).expect("the tree exists");
    for _ in 0..moves {
        match work.random.u8(0..10) {
            0..5 => {
                must(same_item(&what, found.next().expect("read"), expected.next().expect("read")));
            }
            5..8 => {
                must(same_item(&what, found.prev().expect("read"), expected.prev().expect("read")));
            }
            _ => {
                let key = work.key();
                found.seek(&key).expect("seek");
                expected.seek(&key).expect("seek");
            }
        }
    }
}

/// Every move gives the same as the oracle's, at the ends of ranges too.
pub fn cursors_move_as_the_oracle_does<E: EngineUnderTest>() {
    E::for_seeds("cursors", 4, 40, |seed| {
        let (_sim, store) = fresh::<E>(seed);
        let oracle = MemStore::new();
        let mut work = Workload::new(seed, Shape { large: false, ..Shape::WIDE });
        for _ in 0..E::rounds(150, 600) {
            let batch = work.batch();
            commit_both(&*store, &oracle, &batch);
            // Part of it is then on disk, and newer data in memory.
            if work.random.u8(0..50) == 0 {
                store.checkpoint().expect("checkpoint");
            }
        }
        for _ in 0..E::rounds(300, 2000) {
            let moves = work.random.usize(1..200);
            walk(&*store, &oracle, &mut work, moves);
        }
        // An empty tree, and an empty range, have no entries in any direction.
        let empty = work.new_tree();
        let mut batch = Batch::new();
        batch.create_tree(empty);
        commit_both(&*store, &oracle, &batch);
        walk_in(&*store, &oracle, empty, &mut work, 50);
    });
}

/// A scan returns its whole range, in both directions, whether older entries are only outside the
/// range, or in it too, or all deleted.
pub fn a_scan_returns_its_whole_range_and_nothing_else<E: EngineUnderTest>() {
    const TREE: TreeId = TreeId(20);
    let key = |prefix: u8, n: u32| [&[prefix][..], &n.to_be_bytes()].concat();
    // Around the read-ahead sizes of engines.
    for newer in [0, 1, 15, 16, 17, 47, 48, 49, 500, 1100] {
        for older in [0, 1, 16, 40] {
            let (_sim, store) = fresh::<E>(1);
            commit(&*store, |batch| {
                batch.create_tree(TREE);
                for n in 0..3 {
                    batch.put(TREE, &key(b'a', n), b"before");
                    batch.put(TREE, &key(b'z', n), b"behind");
                }
                for n in 0..older {
                    batch.put(TREE, &key(b'm', n), b"old");
                }
            });
            store.checkpoint().expect("checkpoint");
            commit(&*store, |batch| {
                for n in 0..newer {
                    // In the middle of the older entries, and after them.
                    let n = n + older / 2;
                    if n % 7 == 6 {
                        batch.delete(TREE, &key(b'm', n));
                    } else {
                        batch.put(TREE, &key(b'm', n), b"new");
                    }
                    // Newer entries continue outside the range.
                    batch.delete(TREE, &key(b'n', n));
                    batch.delete(TREE, &key(b'l', n));
                }
            });
            let changed = |n: &u32| (older / 2..older / 2 + newer).contains(n);
            let mut expected: Vec<Vec<u8>> = (0..older.max(older / 2 + newer))
                .filter(|n| if changed(n) { n % 7 != 6 } else { *n < older })
                .map(|n| key(b'm', n))
                .collect();
            for forward in [true, false] {
                let range = KeyRange::prefix(b"m");
                let mut cursor = store.scan(TREE, range).expect("the tree exists");
                if !forward {
                    cursor.seek(b"n").expect("seek");
                    expected.reverse();
                }
                let mut seen = Vec::new();
                loop {
                    let item = if forward { cursor.next() } else { cursor.prev() };
                    let Some(item) = item.expect("read") else { break };
                    seen.push(item.key.to_vec());
                }
                assert_eq!(seen, expected, "{newer} over {older}, forward: {forward}");
            }
        }
    }
}

/// While keys are added and removed between its moves, a cursor returns every key that stays, once,
/// in order.
pub fn a_live_cursor_skips_nothing_and_repeats_nothing<E: EngineUnderTest>() {
    const TREE: TreeId = TreeId(20);
    let stays = |n: u64| (n * 1000).to_be_bytes();
    E::for_seeds("live cursor", 3, 30, |seed| {
        let (_sim, store) = fresh::<E>(seed);
        let mut random = fastrand::Rng::with_seed(seed);
        commit(&*store, |batch| {
            batch.create_tree(TREE);
            for n in 0..1500 {
                batch.put(TREE, &stays(n), &[0; 50]);
            }
        });
        for forward in [true, false] {
            let mut cursor = store.scan(TREE, KeyRange::all()).expect("the tree exists");
            if !forward {
                cursor.seek(&[0xff; 9]).expect("seek");
            }
            let mut seen: Vec<Vec<u8>> = Vec::new();
            loop {
                let item = if forward { cursor.next() } else { cursor.prev() };
                let Some(item) = item.expect("read") else { break };
                seen.push(item.key.to_vec());
                // Splits, merges and emptied leaves around the cursor.
                commit(&*store, |batch| {
                    let near = u64::from_be_bytes(item_number(seen.last()));
                    for _ in 0..random.usize(0..6) {
                        let at = near.saturating_sub(3000) + random.u64(0..6000);
                        if at.is_multiple_of(1000) {
                            continue;
                        }
                        if random.bool() {
                            let length = random.usize(0..600);
                            batch.put(TREE, &at.to_be_bytes(), &vec![1; length]);
                        } else {
                            let to = (at / 1000 + 1) * 1000;
                            batch.delete_range(TREE, &at.to_be_bytes(), &to.to_be_bytes());
                        }
                    }
                });
                if random.u8(0..100) == 0 {
                    store.checkpoint().expect("checkpoint");
                }
            }
            if !forward {
                seen.reverse();
            }
            assert!(seen.is_sorted_by(|a, b| a < b), "keys are in order and come once");
            let stayed = seen
                .iter()
                .filter(|key| u64::from_be_bytes(item_number(Some(key))).is_multiple_of(1000));
            assert!(stayed.eq((0..1500).map(|n| stays(n).to_vec()).collect::<Vec<_>>().iter()));
        }
    });
}

fn item_number(key: Option<&Vec<u8>>) -> [u8; 8] {
    key.and_then(|key| key.as_slice().try_into().ok()).expect("invariant: keys are numbers")
}
