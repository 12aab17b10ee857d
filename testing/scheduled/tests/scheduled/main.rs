//! Threads of which a seed decides which one runs (`testing::sim::Scheduler`).

#[cfg(test)]
mod appends;
#[cfg(test)]
mod engines;
#[cfg(test)]
mod log;
#[cfg(test)]
mod owners;
#[cfg(test)]
mod scheduler;

use std::sync::Arc;

use device::{Env, SystemClock};
use testing::{SeededRandom, SimDevice};

/// How many orders each test tries.
fn orders() -> std::ops::Range<u64> {
    0..testing::run::rounds(300, 100_000)
}

/// A disk with the scheduler's clock.
fn env(device: &SimDevice, seed: u64) -> Env {
    Env {
        device: Arc::new(device.clone()),
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SeededRandom::new(seed)),
        objects: None,
    }
}
