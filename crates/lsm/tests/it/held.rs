//! Slow calls block nothing else: at whatever call of a checkpoint or of a merge the disk is,
//! commits, reads and the log continue.

use device::sync;
use std::time::Duration;

use lsm::LsmStore;
use store::{Durable, Maintain, Snapshot, TreeId};
use testing::{Fault, FaultOn, Op, SimEnv, entries, noise};

use crate::util::{TREE, blobs, checked, commit, settle, store};

/// Time limit for an event that must need no waiting.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval of the log, and more.
const INTERVAL: Duration = Duration::from_secs(6);

/// Runs `slow` until a call matching the fault is held, then `other` beside it, which must return
/// before that call does. Returns whether a call was held.
fn while_held(
    sim: &SimEnv,
    calls: Fault,
    slow: impl FnOnce() + Send,
    other: impl FnOnce() + Send,
) -> bool {
    sim.device.hold(calls);
    device::scope(|scope| {
        let slow = scope.spawn(slow);
        let held = loop {
            if sim.device.is_held_within(Duration::from_millis(1)) {
                break true;
            }
            if slow.is_finished() {
                break false;
            }
        };
        let (done, is_done) = sync::channel();
        let other = held.then(|| {
            scope.spawn(move || {
                other();
                done.send(()).expect("somebody waits");
            })
        });
        let passed = other.is_none() || is_done.recv_timeout(PATIENCE).is_ok();
        sim.device.let_go();
        for thread in [Some(slow), other].into_iter().flatten() {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        assert!(passed, "it waits for a call that is slow");
        held
    })
}

fn put(store: &LsmStore, tree: TreeId, numbers: std::ops::Range<u32>, bytes: usize) {
    for n in numbers {
        commit(store, |batch| batch.put(tree, &n.to_be_bytes(), &noise(u64::from(n), bytes)));
    }
}

/// Changes, also of the set of trees, are made, read, and durable after the interval.
fn continues(sim: &SimEnv, store: &LsmStore, round: u32) {
    let (one, two) = (TreeId(1000 + u64::from(round)), TreeId(5000 + u64::from(round)));
    let key = round.to_be_bytes();
    commit(store, |batch| batch.put(TREE, &key, b"while it is held"));
    commit(store, |batch| {
        batch.clone_tree(TREE, one);
        batch.create_tree(two);
    });
    commit(store, |batch| batch.drop_tree(one));
    put(store, two, 0..3, 10);
    let pin = store.pin().expect("pin");
    assert_eq!(entries(&*pin, two).len(), 3);
    assert_eq!(
        entries(store, TREE).get(&key[..]).map(Vec::as_slice),
        Some(&b"while it is held"[..])
    );
    sim.clock.advance(INTERVAL);
    assert!(store.durable() < store.last_commit());
    store.flush_if_due().expect("flush");
    assert_eq!(store.durable(), store.last_commit());
    store.stats();
}

#[test]
fn no_request_waits_for_a_checkpoint() {
    let (sim, store) = store(1);
    let mut round = 0;
    loop {
        // The last round's changes are dropped, so that there is space to reclaim.
        if round > 0 {
            commit(&store, |batch| batch.drop_tree(TreeId(5000 + u64::from(round) - 1)));
        }
        put(&store, TREE, 100..130, 200);
        let calls = Fault::io(FaultOn::AnyChange, u64::from(round)).below("lsm");
        let checkpoint = || assert!(store.checkpoint().expect("checkpoint"));
        let beside = || {
            continues(&sim, &store, round);
            assert!(!store.checkpoint().expect("another thread is at it"));
        };
        if !while_held(&sim, calls, checkpoint, beside) {
            break;
        }
        round += 1;
    }
    // A blob and two manifests are each made, written, synced and renamed, with the directory; then
    // those before go.
    assert!(round > 15, "{round} calls were held");
    checked(&store);
}

/// Runs that are to be merged.
fn runs(store: &LsmStore, count: u32) {
    for n in 0..count {
        put(store, TREE, n * 100..n * 100 + 50, 100);
        assert!(store.checkpoint().expect("checkpoint"));
    }
}

#[test]
fn no_request_waits_for_a_merge() {
    let (sim, store) = store(2);
    let mut round = 0;
    loop {
        runs(&store, 4);
        let calls = Fault::io(FaultOn::AnyChange, u64::from(round)).below("lsm");
        let beside = || {
            continues(&sim, &store, round);
            store.checkpoint().expect("it is made, or another thread is at the durable state");
        };
        if !while_held(&sim, calls, || settle(&store), beside) {
            break;
        }
        settle(&store);
        round += 1;
    }
    assert!(round > 15, "{round} calls were held");
    checked(&store);
}

/// A merged run is made durable, which for a long run in an object store takes minutes. Meanwhile
/// checkpoints are made, and more is committed than memory may hold.
#[test]
fn checkpoints_are_made_beside_the_end_of_a_merge() {
    let (sim, store) = store(3);
    runs(&store, 4);
    let ended = store.stats().merges.expect("it merges").ended;
    let beside = || {
        for n in 0..8 {
            continues(&sim, &store, n);
            put(&store, TREE, 10_000..10_250, 4000);
            assert!(store.checkpoint().expect("nobody is at it"), "round {n}");
        }
        // More than may be in memory; the thread that commits makes the checkpoint.
        put(&store, TREE, 10_000..12_000, 4000);
    };
    let calls = Fault::io(FaultOn::Only(Op::Sync), 0).below("lsm/building-");
    assert!(while_held(&sim, calls, || settle(&store), beside));
    settle(&store);
    assert!(store.stats().merges.expect("it merges").ended > ended);
    checked(&store);
    // The merged content is read, and everything unneeded is deleted.
    for n in (0..4_u32).flat_map(|run| run * 100..run * 100 + 50).skip(8) {
        let value = store::Read::get(&*store, TREE, &n.to_be_bytes()).expect("read");
        assert_eq!(value, Some(noise(u64::from(n), 100)), "{n}");
    }
}

/// Another thread is at a step of a merge that frees space. Meanwhile a thread without space does
/// not get the answer that nothing can be done.
#[test]
fn a_thread_without_space_waits_for_a_merge_that_frees_some() {
    let (sim, store) = store(6);
    put(&store, TREE, 0..3000, 300);
    assert!(store.checkpoint().expect("checkpoint"));
    settle(&store);
    commit(&store, |batch| {
        (0..3000_u32).filter(|n| n % 4 != 0).for_each(|n| batch.delete(TREE, &n.to_be_bytes()));
    });
    assert!(store.checkpoint().expect("checkpoint"));
    let beside = || {
        assert!(store.compaction_may_free_space());
        assert!(store.reclaim_step(1).expect("it waits"), "more is to come");
    };
    let calls = Fault::io(FaultOn::Only(Op::Write), 0).below("lsm/building-");
    assert!(while_held(&sim, calls, || settle(&store), beside));
    settle(&store);
    assert!(!store.compaction_may_free_space());
    assert_eq!(checked(&store).entries, 750);
}

/// Many blobs that nothing needs any more do not make a checkpoint long.
#[test]
fn a_checkpoint_frees_a_bounded_number_of_blobs() {
    let (sim, store) = store(4);
    let trees = || (0..200).map(|n| TreeId(1000 + n));
    for tree in trees() {
        commit(&store, |batch| batch.create_tree(tree));
        put(&store, tree, 0..2, 10);
        assert!(store.checkpoint().expect("checkpoint"));
    }
    assert!(blobs(&sim.device).len() >= 200);
    commit(&store, |batch| trees().for_each(|tree| batch.drop_tree(tree)));
    let before = sim.device.counts().of(Op::Remove);
    assert!(store.checkpoint().expect("checkpoint"));
    let removed = sim.device.counts().of(Op::Remove) - before;
    assert!((10..=60).contains(&removed), "{removed} files were removed");
    settle(&store);
    assert!(blobs(&sim.device).len() < 5, "{:?}", blobs(&sim.device));
    checked(&store);
}

/// Layers that a checkpoint writes as one run are not split meanwhile: a part would stay in memory,
/// and be written again.
#[test]
fn layers_being_written_are_not_written_again() {
    let (sim, store) = store(5);
    let first = store.pin().expect("pin");
    put(&store, TREE, 0..1000, 100);
    // Separate layers, because something holds what is below them.
    let second = store.pin().expect("pin");
    put(&store, TREE, 2000..2100, 100);
    let third = store.pin().expect("pin");
    let beside = || {
        put(&store, TREE, 3000..3060, 100);
        drop(store.pin().expect("pin"));
    };
    let calls = Fault::io(FaultOn::Only(Op::Sync), 0).below("lsm/building-");
    let checkpoint = || assert!(store.checkpoint().expect("checkpoint"));
    assert!(while_held(&sim, calls, checkpoint, beside));
    drop((first, second, third));
    let before = sim.device.counts().written_bytes;
    assert!(store.checkpoint().expect("checkpoint"));
    let written = sim.device.counts().written_bytes - before;
    assert!(written < 40_000, "{written} bytes for 60 entries of 100");
    assert_eq!(checked(&store).entries, 1160);
}
