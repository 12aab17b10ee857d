//! How long a pin takes in proportion to the trees that changed since the last checkpoint. The
//! first pin freezes what each of them has. The next has nothing changed, and one has a change in
//! one tree. Commits wait for a part of that alone (decision 0318).
//!
//! And the longest wait of a commit to another tree beside a checkpoint of all these trees.
//!
//!     cargo run --release -p pando-lsm --example pin

#![expect(clippy::print_stdout, reason = "it is a program that reports")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::{Clock, SystemClock};
use lsm::{LsmStore, Options};
use store::{Batch, Commit, Maintain, Snapshot, TreeId};
use testing::sim_env;

/// How often each is measured; the median is printed.
const TIMES: usize = 9;
/// A tree that is committed to beside checkpoints.
const BESIDE: TreeId = TreeId(31);

fn pinned(store: &LsmStore, clock: &SystemClock) -> Duration {
    let start = clock.monotonic();
    let pin = store.pin().expect("a store in memory");
    let took = clock.monotonic().saturating_sub(start);
    drop(pin);
    took
}

/// The longest commit to a tree while all others are in a checkpoint.
fn beside_a_checkpoint(store: &LsmStore, clock: &SystemClock) -> Duration {
    let (began, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    device::scope(|scope| {
        let commits = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            while !ended.load(Ordering::Acquire) {
                let mut batch = Batch::new();
                batch.put(BESIDE, b"key", &[1; 64]);
                let start = clock.monotonic();
                store.commit(&batch).expect("a store in memory");
                longest = longest.max(clock.monotonic().saturating_sub(start));
                began.store(true, Ordering::Release);
            }
            longest
        });
        while !began.load(Ordering::Acquire) {
            device::yield_now();
        }
        store.checkpoint().expect("a store in memory");
        ended.store(true, Ordering::Release);
        commits.join().expect("it ends")
    })
}

fn median(mut took: Vec<Duration>) -> f64 {
    took.sort_unstable();
    took[took.len() / 2].as_secs_f64() * 1e6
}

fn main() {
    let clock = SystemClock::new();
    let columns = ["all changed us", "none us", "one us", "checkpoint us"];
    let [a, b, c, d] = columns;
    println!("{:>10} {a:>14} {b:>14} {c:>14} {d:>14}", "trees");
    for trees in [1, 10, 100, 1000, 10_000] {
        let mut options = Options::default();
        options.common.cache_bytes = 8 << 30;
        let sim = sim_env(1);
        let store = LsmStore::create(&sim.env(), &options).expect("a store in memory");
        let commit = |fill: &dyn Fn(&mut Batch)| {
            let mut batch = Batch::new();
            fill(&mut batch);
            store.commit(&batch).expect("a store in memory");
        };
        commit(&|batch| batch.create_tree(BESIDE));
        for tree in 0..trees {
            commit(&|batch| batch.create_tree(TreeId(32 + tree)));
        }
        let (mut all, mut none, mut one) = (Vec::new(), Vec::new(), Vec::new());
        let mut beside = Vec::new();
        for round in 0..TIMES as u64 {
            for tree in 0..trees {
                commit(&|batch| batch.put(TreeId(32 + tree), &round.to_be_bytes(), &[1; 64]));
            }
            all.push(pinned(&store, &clock));
            none.push(pinned(&store, &clock));
            commit(&|batch| batch.put(TreeId(32), b"one", &[1; 64]));
            one.push(pinned(&store, &clock));
            beside.push(beside_a_checkpoint(&store, &clock));
        }
        let [all, none, one, beside] = [all, none, one, beside].map(median);
        println!("{trees:>10} {all:>14.1} {none:>14.1} {one:>14.1} {beside:>14.1}");
    }
}
