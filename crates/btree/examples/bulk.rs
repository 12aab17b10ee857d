//! Loading many records directory by directory, each directory in hash order: as commits, as
//! batches, and as ingested runs of one or more directories. A checkpoint ends each. Interleaved
//! rounds; prints a line for each way and round.
//!
//! `cargo run --release -p pando-btree --example bulk [RECORDS] [ROUNDS] [DIRECTORY]`
#![expect(clippy::print_stdout, reason = "it is a program that reports")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use btree::{BtreeStore, Options};
use device::{Clock, Env, SystemClock};
use store::{Batch, Commit, Maintain, SliceRun, TreeId};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TREE: TreeId = TreeId(32);
const A_DIRECTORY: usize = 1000;
const VALUE: [u8; 100] = [0x5a; 100];

type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// Records in the order in which a scan meets them: directories ascending, names in any order.
fn records(count: usize) -> Records {
    let mut random = fastrand::Rng::with_seed(42);
    let key = |n: usize, hash: u64| {
        let mut key = ((1000 + n / A_DIRECTORY) as u64).to_be_bytes().to_vec();
        key.extend_from_slice(&hash.to_be_bytes());
        key
    };
    (0..count).map(|n| (key(n, random.u64(..)), VALUE.to_vec())).collect()
}

/// Processor time of this process.
fn processor() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn put(store: &BtreeStore, records: &Records, a_batch: usize) {
    for part in records.chunks(a_batch) {
        let mut batch = Batch::new();
        for (key, value) in part {
            batch.put(TREE, key, value);
        }
        store.commit(&batch).expect("commit");
        if store.checkpoint_due() {
            store.checkpoint().expect("checkpoint");
        }
    }
}

fn ingest(store: &BtreeStore, records: &Records, directories: usize) {
    for part in records.chunks(directories * A_DIRECTORY) {
        let mut part = part.to_vec();
        part.sort_unstable();
        store.ingest(TREE, &mut SliceRun::new(&part)).expect("ingest");
        if store.checkpoint_due() {
            store.checkpoint().expect("checkpoint");
        }
    }
}

fn create(path: &Path) -> Arc<BtreeStore> {
    let env = Env::system(path).expect("a directory");
    let store = BtreeStore::create(&env, &Options::default()).expect("create");
    let mut batch = Batch::new();
    batch.create_tree(TREE);
    store.commit(&batch).expect("commit");
    store
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number =
        |usual: usize| arguments.next().map_or(usual, |text| text.parse().expect("a number"));
    let (count, rounds) = (number(1_000_000), number(3));
    let parent = arguments.next().map_or_else(std::env::temp_dir, Into::into);
    let records = records(count);
    for round in 0..rounds {
        for way in ["commits", "batches", "ingest-1", "ingest-64", "ingest-all"] {
            let place = tempfile::tempdir_in(&parent).expect("a directory");
            let store = create(place.path());
            let clock = SystemClock::new();
            let (start, busy) = (clock.monotonic(), processor());
            match way {
                "commits" => put(&store, &records, 1),
                "batches" => put(&store, &records, 1000),
                "ingest-1" => ingest(&store, &records, 1),
                "ingest-64" => ingest(&store, &records, 64),
                _ => ingest(&store, &records, count.div_ceil(A_DIRECTORY)),
            }
            store.checkpoint().expect("checkpoint");
            let took = clock.monotonic().saturating_sub(start);
            let busy = processor().saturating_sub(busy);
            let stats = store.stats();
            println!(
                "round {round} {way:10}: {:5.2} s, {:5.2} s of processor, {} MiB written in {} \
                 writes, {} syncs, {} MiB on disk",
                took.as_secs_f64(),
                busy.as_secs_f64(),
                stats.written_bytes >> 20,
                stats.writes,
                stats.syncs,
                stats.disk_bytes >> 20,
            );
        }
    }
}
