//! The mount is killed at random moments, repeatedly, under a mixed load; a verifier checks what
//! is left. `PANDO_KILL_ROUNDS` sets the number of rounds.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use device::{Clock, SystemClock};
use testing::SetAtEnd;

use crate::load::{self, Ledger};
use crate::world::{OBJECTS, World};

on_each_engine!(kill_the_mount_under_load_and_lose_nothing);

/// The same, and the host with its disk is lost with the daemon.
#[test]
fn lose_the_host_under_load_and_nothing_that_was_synced() {
    kill_the_mount_under_load_and_lose_nothing(OBJECTS);
}

const THREADS: u64 = 3;

fn rounds() -> u64 {
    let set = std::env::var("PANDO_KILL_ROUNDS").ok();
    set.and_then(|rounds| rounds.parse().ok()).unwrap_or(6)
}

#[expect(clippy::print_stdout, reason = "shows how far it is")]
fn kill_the_mount_under_load_and_lose_nothing(engine: &str) {
    let seed = testing::run::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let clock = SystemClock::new();
    let world = World::on(engine);
    if !world.mount() {
        return;
    }
    let mut before: Vec<Ledger> = Vec::new();
    let mut operations = 0;
    // Another host waits until the lost one has been silent for some periods.
    let rounds = if engine == OBJECTS { rounds().div_ceil(4) } else { rounds() };
    for round in 0..rounds {
        let stop = AtomicBool::new(false);
        let ledgers = device::scope(|scope| {
            let (world, stop) = (&world, &stop);
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let seed = random.u64(..);
                    let name = format!("r{round}t{thread}");
                    scope.spawn(move || load::work(world, &name, seed, stop))
                })
                .collect();
            let end = SetAtEnd(stop);
            clock.sleep(Duration::from_millis(random.u64(50..900)));
            world.kill_daemon();
            drop(end);
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        if engine == OBJECTS {
            world.lose_host();
        }
        // A command of the load may have found the dead mount and started a daemon; the mount
        // replaces it.
        assert!(world.mount());
        for ledger in ledgers.iter().chain(&before) {
            ledger.verify(&world);
        }
        operations += ledgers.iter().map(|ledger| ledger.operations).sum::<u64>();
        before = ledgers;
        if round > 1 {
            for thread in 0..THREADS {
                // Removing a tree, with its snapshots, is part of the load.
                drop(world.run(&["rmr", &world.at(&format!("/r{}t{thread}", round - 2))]));
            }
        }
        println!("round {round}: {operations} operations so far");
    }
    assert!(operations > 0);
    world.umount();
    assert_eq!(world.status()["read_only"], serde_json::Value::Null);
}
