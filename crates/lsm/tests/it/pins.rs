//! What pinned states have while commits continue.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lsm::{LsmStore, Options};
use store::{Batch, Commit, Maintain, Pinned, Snapshot, TreeId};
use testing::{SetAtEnd, sim_env};

const TREES: u64 = 150;
/// Two trees, of which one exists at any time.
const PAIR: [TreeId; 2] = [TreeId(1000), TreeId(1001)];
const KEY: &[u8] = b"round";

fn tree(at: u64) -> TreeId {
    TreeId(32 + at)
}

fn commit(store: &LsmStore, fill: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::new();
    fill(&mut batch);
    store.commit(&batch).expect("a store in memory");
}

/// The round of each tree.
fn rounds(pin: &dyn Pinned) -> Vec<u64> {
    let round = |at| {
        let value = pin.get(tree(at), KEY).expect("it reads").expect("it is there");
        u64::from_be_bytes(value.try_into().expect("eight bytes"))
    };
    (0..TREES).map(round).collect()
}

/// One thread writes a round to each tree in turn, one exchanges a tree for another one of an
/// earlier number, and one makes checkpoints. A pin has a state between two commits, and keeps it.
#[test]
fn a_pin_is_one_state_while_commits_continue() {
    let store = {
        let mut options = Options::default();
        options.common.cache_bytes = 64 << 20;
        LsmStore::create(&sim_env(1).env(), &options).expect("a store in memory")
    };
    for at in 0..TREES {
        commit(&store, |batch| {
            batch.create_tree(tree(at));
            batch.put(tree(at), KEY, &0_u64.to_be_bytes());
        });
    }
    commit(&store, |batch| batch.create_tree(PAIR[0]));
    let (done, ended, moves) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    device::scope(|scope| {
        scope.spawn(|| {
            let mut round = 1_u64;
            while !done.load(Ordering::Relaxed) {
                for at in 0..TREES {
                    commit(&store, |batch| batch.put(tree(at), KEY, &round.to_be_bytes()));
                }
                ended.store(round, Ordering::Relaxed);
                round += 1;
            }
        });
        scope.spawn(|| {
            let mut at = 0;
            while !done.load(Ordering::Relaxed) {
                commit(&store, |batch| {
                    batch.drop_tree(PAIR[at]);
                    batch.create_tree(PAIR[1 - at]);
                    batch.put(PAIR[1 - at], KEY, b"new");
                });
                at = 1 - at;
                moves.fetch_add(1, Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                store.checkpoint().expect("a store in memory");
            }
        });
        let end = SetAtEnd(&done);
        let mut kept = Vec::new();
        for _ in 0..200 {
            let before = ended.load(Ordering::Relaxed);
            let pin = store.pin().expect("it pins");
            let after = ended.load(Ordering::Relaxed);
            let rounds = rounds(&*pin);
            let (first, last) = (rounds[0], rounds[rounds.len() - 1]);
            assert!(rounds.is_sorted_by(|one, next| one >= next), "{rounds:?}");
            assert!(first <= last + 1, "{rounds:?}");
            assert!(last >= before && first <= after + 2, "{rounds:?}, {before}, {after}");
            let there = PAIR.map(|id| pin.get(id, KEY).is_ok());
            assert!(there[0] != there[1], "{there:?}");
            kept.push((pin, rounds, there));
            if kept.len() > 8 {
                kept.remove(0);
            }
        }
        drop(end);
        for (pin, was, there) in kept {
            assert_eq!(rounds(&*pin), was);
            assert_eq!(PAIR.map(|id| pin.get(id, KEY).is_ok()), there);
        }
    });
    assert!(ended.load(Ordering::Relaxed) > 1 && moves.load(Ordering::Relaxed) > 1);
}
