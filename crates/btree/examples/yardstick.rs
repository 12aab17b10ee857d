//! The engine beside the yardstick: `BTreeMap<Vec<u8>, Vec<u8>>` with the same allocator, the same
//! bytes in the same order, in interleaved rounds. Prints medians of the ratios.
//!
//! `cargo run --release -p pando-btree --example yardstick [FILES] [ROUNDS] [insert]`
#![expect(clippy::print_stdout, reason = "it is a program that reports")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use btree::{BtreeStore, Options};
use device::{Clock, Env, SystemClock};
use store::{Batch, Commit, Durable, KeyRange, Lane, Maintain, MergeKind, Read, TreeId};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const TREE: TreeId = TreeId(32);
const FILES_A_DIRECTORY: usize = 1000;
const VALUE: [u8; 60] = [0x5a; 60];

fn key(directory: u64, hash: u64, kind: u8) -> [u8; 18] {
    let mut key = [0; 18];
    key[0] = b'D';
    key[1..9].copy_from_slice(&directory.to_be_bytes());
    key[9..17].copy_from_slice(&(hash >> 1).to_be_bytes());
    key[17] = kind;
    key
}

fn keys(files: usize) -> Vec<([u8; 18], [u8; 18])> {
    let mut random = fastrand::Rng::with_seed(42);
    (0..files)
        .map(|n| {
            let directory = 1000 + (n / FILES_A_DIRECTORY) as u64;
            (key(directory, random.u64(2..), 1), key(directory, 0, 1))
        })
        .collect()
}

/// Processor time of this thread: other work on the machine then disturbs less.
fn now() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = now();
    work();
    now().saturating_sub(start)
}

fn insert_map(map: &mut Map, keys: &[([u8; 18], [u8; 18])]) {
    for (key, directory) in keys {
        assert!(map.get(key.as_slice()).is_none());
        map.insert(key.to_vec(), VALUE.to_vec());
        if let Some(value) = map.get_mut(directory.as_slice()) {
            for lane in 0..3 {
                let slot = &mut value[lane * 8..lane * 8 + 8];
                let mut bytes = [0; 8];
                bytes.copy_from_slice(slot);
                slot.copy_from_slice(&(i64::from_le_bytes(bytes) + 1).to_le_bytes());
            }
        } else {
            map.insert(directory.to_vec(), VALUE.to_vec());
        }
    }
}

fn insert_store(store: &BtreeStore, keys: &[([u8; 18], [u8; 18])]) {
    let mut batch = Batch::new();
    let lanes = [
        Lane { offset: 0, kind: MergeKind::Add, operand: 1 },
        Lane { offset: 8, kind: MergeKind::Max, operand: 77 },
        Lane { offset: 16, kind: MergeKind::Max, operand: 77 },
    ];
    for (key, directory) in keys {
        assert!(!store.get_with(TREE, key, &mut |_| ()).expect("read"));
        batch.clear();
        batch.put(TREE, key, &VALUE);
        batch.merge(TREE, directory, &lanes);
        store.commit(&batch).expect("commit");
    }
}

fn new_store(directory: &tempfile::TempDir) -> (Env, Arc<BtreeStore>) {
    let env = Env::system(directory.path()).expect("directory");
    let options = Options::with_cache(4 << 30);
    let store = BtreeStore::create(&env, &options).expect("create");
    let mut batch = Batch::new();
    batch.create_tree(TREE);
    store.commit(&batch).expect("commit");
    (env, store)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn report(what: &str, count: usize, ours: &[Duration], theirs: &[Duration]) {
    let nanos = |all: &[Duration]| {
        median(all.iter().map(|time| time.as_nanos() as f64 / count as f64).collect())
    };
    let ratios =
        ours.iter().zip(theirs).map(|(our, their)| their.as_secs_f64() / our.as_secs_f64());
    let ratio = median(ratios.collect());
    println!("{what}: ours {:.0} ns, map {:.0} ns, ratio {ratio:.2}", nanos(ours), nanos(theirs));
}

/// Times of one kind of work, round by round.
#[derive(Default)]
struct Times {
    ours: Vec<Duration>,
    theirs: Vec<Duration>,
}

fn main() {
    let mut args = std::env::args().skip(1);
    let files: usize = args.next().map_or(1_000_000, |arg| arg.parse().expect("files"));
    let rounds: usize = args.next().map_or(5, |arg| arg.parse().expect("rounds"));
    let clock = SystemClock::new();
    let keys = keys(files);
    let mut order: Vec<usize> = (0..files).collect();
    fastrand::Rng::with_seed(7).shuffle(&mut order);
    if args.next().as_deref() == Some("insert") {
        // For a profiler: nothing but our insertions.
        let directory = tempfile::tempdir().expect("directory");
        let (_env, store) = new_store(&directory);
        let took = timed(|| insert_store(&store, &keys));
        println!("insert: {} ns", took.as_nanos() / files as u128);
        return;
    }
    let [mut insert, mut get, mut scan, mut cold] =
        [const { None::<Times> }; 4].map(|_| Times::default());
    for _ in 0..rounds {
        let mut map = Map::new();
        insert.theirs.push(timed(|| insert_map(&mut map, &keys)));
        let directory = tempfile::tempdir().expect("directory");
        let (env, store) = new_store(&directory);
        insert.ours.push(timed(|| insert_store(&store, &keys)));
        let mut sum = 0;
        get.theirs.push(timed(|| {
            for &at in &order {
                sum += map.get(keys[at].0.as_slice()).map_or(0, Vec::len);
            }
        }));
        get.ours.push(timed(|| {
            for &at in &order {
                store.get_with(TREE, &keys[at].0, &mut |value| sum += value.len()).expect("read");
            }
        }));
        scan.theirs.push(timed(|| {
            for (key, value) in &map {
                sum += key.len() + value.len();
            }
        }));
        scan.ours.push(timed(|| {
            let mut cursor = store.scan(TREE, KeyRange::all()).expect("scan");
            while let Some(item) = cursor.next().expect("read") {
                sum += item.key.len() + item.value.len();
            }
        }));
        assert!(sum > 0);
        let before = clock.monotonic();
        store.checkpoint().expect("checkpoint");
        let took = clock.monotonic().saturating_sub(before);
        let stats = store.stats();
        println!(
            "checkpoint {} ms, {} bytes a file on disk, {} bytes a file in memory",
            took.as_millis(),
            stats.disk_bytes / files as u64,
            stats.cache_bytes / files as u64,
        );
        store.close().expect("close");
        drop(store);
        let options = Options::with_cache(4 << 30);
        let before = clock.monotonic();
        let store = BtreeStore::open(&env, &options).expect("open");
        println!("open {} us", (clock.monotonic().saturating_sub(before)).as_micros());
        cold.theirs.push(*get.theirs.last().expect("a round"));
        cold.ours.push(timed(|| {
            for &at in &order {
                store.get_with(TREE, &keys[at].0, &mut |value| sum += value.len()).expect("read");
            }
        }));
    }
    report("insert", files, &insert.ours, &insert.theirs);
    report("get", files, &get.ours, &get.theirs);
    report("scan", files, &scan.ours, &scan.theirs);
    report("get from cold", files, &cold.ours, &cold.theirs);
}
