//! Progress of merges: in bounded steps, and on a full disk.

use std::sync::Arc;

use lsm::{LsmStore, Options, Policy};
use store::{Batch, Commit, Maintain, Need};
use testing::{SimEnv, entries, noise};

use crate::util::{TREE, checked, commit, options, settle, store_with};

/// Most blocks of a kibibyte that a step reads, which may write a quarter of a mebibyte. They are
/// the blocks of that, and those in which each run continues.
const STEP_BLOCKS: u64 = 300;

/// Merges all, and returns the number of steps, none of which is long.
fn settle_in_steps(store: &LsmStore) -> u64 {
    let mut steps = 0;
    loop {
        let before = store.engine().blocks_read();
        let more = store.reclaim_step(1).expect("reclaim");
        let read = store.engine().blocks_read() - before;
        assert!(read <= STEP_BLOCKS, "step {steps} reads {read} blocks");
        if !more {
            return steps;
        }
        steps += 1;
    }
}

/// A store with a run of a mebibyte and one of what `remove` writes above it, both to be merged.
fn removed(policy: Policy, remove: impl FnOnce(&mut Batch)) -> (SimEnv, Arc<LsmStore>) {
    let (sim, store) = store_with(1, &Options { policy, ..options() });
    commit(&store, |batch| {
        for n in 0..5000_u32 {
            batch.put(TREE, &n.to_be_bytes(), &noise(u64::from(n), 150));
        }
    });
    assert!(store.checkpoint().expect("checkpoint"));
    settle(&store);
    commit(&store, remove);
    assert!(store.checkpoint().expect("checkpoint"));
    (sim, store)
}

#[test]
fn a_step_is_bounded_when_everything_is_deleted() {
    let (_sim, store) = removed(Policy::Tiered, |batch| {
        for n in 0..5000_u32 {
            batch.delete(TREE, &n.to_be_bytes());
        }
    });
    // It is reported before it begins.
    let next = store.stats().merges.expect("it merges").next;
    assert_eq!(next.map(|(runs, _)| runs), Some(2));
    assert!(settle_in_steps(&store) > 3);
    assert_eq!(store.stats().merges.expect("it merges").next, None);
    assert_eq!(checked(&store).entries, 0);
}

#[test]
fn a_step_is_bounded_when_many_ranges_are_deleted() {
    let (_sim, store) = removed(Policy::Full, |batch| {
        for n in 0..5000_u32 {
            let from = n.to_be_bytes();
            batch.delete_range(TREE, &from, &[&from[..], &[0]].concat());
        }
    });
    assert!(settle_in_steps(&store) > 3);
    assert_eq!(checked(&store).entries, 0);
}

/// A step continues behind what the previous one skipped, and leaves nothing out.
#[test]
fn entries_between_many_deletions_are_all_kept() {
    let (_sim, store) = removed(Policy::Full, |batch| {
        for n in (0..5000_u32).filter(|n| n % 500 != 7) {
            batch.delete(TREE, &n.to_be_bytes());
        }
    });
    assert!(settle_in_steps(&store) > 3);
    let left = entries(&*store, TREE);
    assert_eq!(left.len(), 10);
    assert!((0..10).all(|n| left.contains_key(&(500 * n + 7_u32).to_be_bytes()[..])));
    assert_eq!(checked(&store).entries, 10);
}

/// Removes everything from a full disk in this many parts, each with a checkpoint of its own.
fn empties(parts: u32) {
    const KEYS: u32 = 3000;
    const VALUE: usize = 16 << 10;
    let (sim, store) = store_with(2, &options());
    let put = |n: u32| {
        let mut batch = Batch::new();
        batch.put(TREE, &n.to_be_bytes(), &noise(u64::from(n), VALUE));
        store.commit(&batch)
    };
    for n in 0..KEYS {
        put(n).expect("there is space");
    }
    assert!(store.checkpoint().expect("checkpoint"));
    settle(&store);
    // A part of the disk is kept for checkpoints.
    let used = sim.device.used_bytes();
    sim.device.set_capacity(Some((used + (64 << 10)) / 31 * 32));
    let refused = (KEYS..KEYS + 200).find(|n| put(*n).is_err()).expect("it is full");
    let full = sim.device.used_bytes();
    for part in 0..parts {
        let mut batch = Batch::new();
        batch.mark(Need::Removes);
        for n in (0..refused).filter(|n| n % parts == part) {
            batch.delete(TREE, &n.to_be_bytes());
        }
        store.commit(&batch).expect("what is kept is for this");
        assert!(store.checkpoint().expect("what is kept is for this"));
    }
    settle(&store);
    let left = sim.device.used_bytes();
    assert!(left < full / 8, "{full} bytes, then {left}, in {parts} parts");
    assert_eq!(entries(&*store, TREE).len(), 0);
    put(0).expect("there is space again");
    checked(&store);
}

/// No run hides much of what is below it, and there is no space to merge those runs with each
/// other.
#[test]
fn gradual_removals_free_space() {
    empties(10);
}

/// The same if the tree becomes so deep that the bytes its runs hide are not inspected before
/// others.
#[test]
fn gradual_removals_free_space_in_a_deep_tree() {
    empties(40);
}
