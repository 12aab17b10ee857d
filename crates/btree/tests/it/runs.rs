//! How a checkpoint writes: in long runs, also when the nodes that it replaces are scattered.

use btree::BtreeStore;
use store::Maintain;

use crate::util::{TREE, checked, commit, reclaim_all, store};

const ENTRIES: u32 = 100_000;

fn fill(store: &BtreeStore) {
    for chunk in 0..ENTRIES / 1000 {
        commit(store, |batch| {
            for n in chunk * 1000..chunk * 1000 + 1000 {
                batch.put(TREE, &n.to_be_bytes(), &[1; 100]);
            }
        });
    }
}

/// Bytes a write of checkpoints that each replace a share of the leaves, after many of them. Also
/// the ratio of bytes on disk to bytes of nodes.
fn scattered(seed: u64, changes: usize) -> (u64, f64) {
    let (_sim, store) = store(seed, 64 << 20);
    fill(&store);
    checked(&store);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut before = (0, 0);
    for round in 0..60 {
        if round == 30 {
            let stats = store.stats();
            before = (stats.checkpoint_bytes, stats.checkpoint_writes);
        }
        for _ in 0..changes {
            let n = random.u32(..ENTRIES);
            commit(&store, |batch| batch.put(TREE, &n.to_be_bytes(), &[round as u8; 100]));
        }
        assert!(store.checkpoint().expect("checkpoint"));
    }
    let stats = store.stats();
    let writes = stats.checkpoint_writes - before.1;
    let mean = (stats.checkpoint_bytes - before.0) / writes;
    let report = checked(&store);
    let used = report.units * 1024;
    reclaim_all(&store);
    (mean, store.stats().disk_bytes as f64 / used as f64)
}

#[test]
fn scattered_changes_are_written_in_runs() {
    // Nodes written where space was free took 13 and 18 KiB a write.
    for (changes, least) in [(200, 320 << 10), (1000, 512 << 10)] {
        let (mean, share) = scattered(1, changes);
        println!("{changes} changes: {mean} bytes a write, {share:.2} of the nodes on disk");
        assert!(mean > least, "{changes} changes: {mean} bytes a write");
        assert!(share < 1.4, "{changes} changes: {share} of the nodes on disk");
    }
}
