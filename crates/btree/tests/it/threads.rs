//! Writers, readers, clones and checkpoints at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::spawn;
use store::{Read, Store, TreeId};

use crate::util::{TREE, checked, commit, entries, reclaim_all, store};

#[test]
fn checkpoints_race_writers_readers_and_clones() {
    let (_sim, store) = store(1, 2 << 20);
    let done = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for writer in 0..2_u32 {
        let store = Arc::clone(&store);
        threads.push(spawn("writer", move || {
            for n in 0..12_000_u32 {
                let key = [writer.to_be_bytes(), n.wrapping_mul(2_654_435_761).to_be_bytes()];
                let value = vec![n as u8; if n % 200 == 0 { 3000 } else { 80 }];
                commit(&store, |batch| batch.put(TREE, key.as_flattened(), &value));
                if n % 5 == 4 {
                    let gone = n - 2;
                    let gone = gone.wrapping_mul(2_654_435_761).to_be_bytes();
                    let key = [writer.to_be_bytes(), gone];
                    commit(&store, |batch| batch.delete(TREE, key.as_flattened()));
                }
            }
        }));
    }
    let background = {
        let (store, done) = (Arc::clone(&store), Arc::clone(&done));
        spawn("checkpoints", move || {
            while !done.load(Ordering::Relaxed) {
                store.checkpoint().expect("checkpoint");
            }
        })
    };
    let cloner = {
        let (store, done) = (Arc::clone(&store), Arc::clone(&done));
        spawn("clones", move || {
            let mut next = TREE.0 + 1;
            while !done.load(Ordering::Relaxed) {
                commit(&store, |batch| batch.clone_tree(TREE, TreeId(next)));
                let pin = store.pin().expect("pin");
                let (live, pinned) = (entries(&*store, TreeId(next)), entries(&*pin, TreeId(next)));
                assert_eq!(live, pinned, "a clone that nobody writes does not change");
                assert_eq!(live, entries(&*store, TreeId(next)));
                drop(pin);
                commit(&store, |batch| batch.drop_tree(TreeId(next)));
                store.reclaim_step(50).expect("reclaim");
                next += 1;
            }
        })
    };
    for thread in threads {
        thread.expect("a thread").join().expect("a writer");
    }
    done.store(true, Ordering::Relaxed);
    background.expect("a thread").join().expect("checkpoints");
    cloner.expect("a thread").join().expect("clones");
    reclaim_all(&store);
    checked(&store);
    assert_eq!(entries(&*store, TREE).len(), 2 * (12_000 - 2_400));
    for writer in 0..2_u32 {
        let key = [writer.to_be_bytes(), 11_998_u32.wrapping_mul(2_654_435_761).to_be_bytes()];
        assert!(store.get(TREE, key.as_flattened()).expect("read").is_some());
    }
}
