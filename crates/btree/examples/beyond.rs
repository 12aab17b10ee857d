//! What look-ups and updates of single random entries cost a disk that holds four times what the
//! cache does. Nodes and bytes read, and bytes written, are counted. Operations are uniform, or
//! eight of ten go to one entry in 25, which are adjacent or spread over the tree. Built with
//! another `limits::WEIGHT_MAX` it compares sizes of nodes.
//!
//! `cargo run --release -p pando-btree --example beyond [ENTRIES] [OPERATIONS] [CACHE_KIB]`
#![expect(clippy::print_stdout, reason = "it is a program that reports")]

use std::sync::Arc;

use btree::{BtreeStore, Options};
use store::{Batch, Commit, Durable, Maintain, Read, TreeId};
use testing::{SimEnv, sim_env};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TREE: TreeId = TreeId(32);
/// What is used most is one entry in so many.
const HOT_SHARE: u64 = 25;

fn key(n: u64) -> [u8; 17] {
    let mut key = [0; 17];
    key[0] = b'D';
    key[1..9].copy_from_slice(&n.to_be_bytes());
    key
}

/// Which entries are used.
#[derive(Debug, Clone, Copy)]
enum Uses {
    Uniform,
    HotTogether,
    HotScattered,
}

impl Uses {
    fn pick(self, random: &mut fastrand::Rng, entries: u64) -> u64 {
        let is_hot = random.u32(0..10) < 8;
        match self {
            Uses::HotTogether if is_hot => random.u64(0..entries / HOT_SHARE),
            Uses::HotScattered if is_hot => random.u64(0..entries / HOT_SHARE) * HOT_SHARE,
            _ => random.u64(0..entries),
        }
    }
}

fn open(sim: &SimEnv, cache_bytes: usize) -> Arc<BtreeStore> {
    BtreeStore::open(&sim.env(), &Options::with_cache(cache_bytes)).expect("open")
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number =
        |usual: u64| arguments.next().map_or(usual, |text| text.parse().expect("a number"));
    let (entries, operations) = (number(1_200_000), number(80_000));
    let cache_bytes = number(34 << 10) as usize * 1024;
    let sim = sim_env(1);
    let store = BtreeStore::create(&sim.env(), &Options::with_cache(1 << 30)).expect("create");
    let mut batch = Batch::new();
    batch.create_tree(TREE);
    for n in 0..entries {
        // In no order; the factor is a prime.
        let at = n * 2_654_435_761 % entries;
        batch.put(TREE, &key(at), &[n as u8; 100]);
        if batch.len() >= 1000 || n + 1 == entries {
            store.commit(&batch).expect("commit");
            batch.clear();
        }
    }
    store.close().expect("close");
    let bytes = store.stats().disk_bytes;
    drop(store);
    println!("{entries} entries, {bytes} bytes on disk, a cache of {cache_bytes}");
    println!("for each operation: nodes read, bytes read, bytes written");
    for uses in [Uses::Uniform, Uses::HotTogether, Uses::HotScattered] {
        for updates in [false, true] {
            let store = open(&sim, cache_bytes);
            let mut random = fastrand::Rng::with_seed(2);
            let mut run = |operations: u64| {
                for at in 0..operations {
                    let key = key(uses.pick(&mut random, entries));
                    if updates {
                        batch.clear();
                        batch.put(TREE, &key, &[at as u8; 100]);
                        store.commit(&batch).expect("commit");
                        if store.checkpoint_due() {
                            store.checkpoint().expect("checkpoint");
                        }
                    } else {
                        assert!(store.get(TREE, &key).expect("read").is_some());
                    }
                }
            };
            // So that the cache is full, and changes are as many as they will be.
            run(operations);
            let (counts, cache, stats) =
                (sim.device.counts(), store.engine().cache(), store.stats());
            let moved = store.engine().node_writes().moved;
            run(operations);
            let read = sim.device.counts().read_bytes - counts.read_bytes;
            let nodes = store.engine().cache().loads - cache.loads;
            let written = store.stats().checkpoint_bytes - stats.checkpoint_bytes;
            let each = |total: u64| total as f64 / operations as f64;
            let what = if updates { "update" } else { "look-up" };
            println!(
                "{uses:?}, {what}: {:.3} {:.0} {:.0}, of it {:.0} moved ({} checkpoints)",
                each(nodes),
                each(read),
                each(written),
                each(store.engine().node_writes().moved - moved),
                store.stats().checkpoints - stats.checkpoints,
            );
            store.close().expect("close");
        }
    }
}
