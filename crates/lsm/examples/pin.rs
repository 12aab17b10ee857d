//! How long a pin takes in proportion to the trees that changed since the last checkpoint. The
//! first pin freezes what each of them has. The next has nothing changed, and one has a change in
//! one tree. Commits wait for a part of that alone (decision 0318).
//!
//!     cargo run --release -p pando-lsm --example pin

#![expect(clippy::print_stdout, reason = "it is a program that reports")]

use std::time::Duration;

use device::{Clock, SystemClock};
use lsm::{LsmStore, Options};
use store::{Batch, Commit, Snapshot, TreeId};
use testing::sim_env;

/// How often each is measured; the median is printed.
const TIMES: usize = 9;

fn pinned(store: &LsmStore, clock: &SystemClock) -> Duration {
    let start = clock.monotonic();
    let pin = store.pin().expect("a store in memory");
    let took = clock.monotonic().saturating_sub(start);
    drop(pin);
    took
}

fn median(mut took: Vec<Duration>) -> f64 {
    took.sort_unstable();
    took[took.len() / 2].as_secs_f64() * 1e6
}

fn main() {
    let clock = SystemClock::new();
    println!("{:>10} {:>14} {:>14} {:>14}", "trees", "all changed us", "none us", "one us");
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
        for tree in 0..trees {
            commit(&|batch| batch.create_tree(TreeId(32 + tree)));
        }
        let (mut all, mut none, mut one) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..TIMES as u64 {
            for tree in 0..trees {
                commit(&|batch| batch.put(TreeId(32 + tree), &round.to_be_bytes(), &[1; 64]));
            }
            all.push(pinned(&store, &clock));
            none.push(pinned(&store, &clock));
            commit(&|batch| batch.put(TreeId(32), b"one", &[1; 64]));
            one.push(pinned(&store, &clock));
        }
        let [all, none, one] = [all, none, one].map(median);
        println!("{trees:>10} {all:>14.1} {none:>14.1} {one:>14.1}");
    }
}
