//! Simulated time and seeded randomness, and an environment of simulated parts.

use std::sync::Arc;
use std::time::Duration;

use device::sync::Mutex;
use device::{Clock, Env, Random, Timestamp};

use crate::SimDevice;

/// Wall-clock time at which a [`SimClock`] starts: 2026-01-01 UTC.
const START: i64 = 1_767_225_600_000_000_000;

/// A clock that moves only when a test advances it, or a thread sleeps on it.
#[derive(Debug, Default)]
pub struct SimClock {
    elapsed: Mutex<Duration>,
}

impl SimClock {
    /// A clock at its start.
    pub fn new() -> SimClock {
        SimClock::default()
    }

    /// Moves time forward.
    pub fn advance(&self, by: Duration) {
        let mut elapsed = self.elapsed.lock();
        *elapsed = elapsed.saturating_add(by);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let nanos = i64::try_from(self.monotonic().as_nanos()).unwrap_or(i64::MAX);
        Timestamp(START.saturating_add(nanos))
    }

    fn monotonic(&self) -> Duration {
        *self.elapsed.lock()
    }

    fn sleep(&self, duration: Duration) {
        self.advance(duration);
        // Lets the thread that is waited for run.
        device::yield_now();
    }
}

/// Bytes determined by a seed.
#[derive(Debug)]
pub struct SeededRandom {
    random: Mutex<fastrand::Rng>,
}

impl SeededRandom {
    /// The sequence for a seed.
    pub fn new(seed: u64) -> SeededRandom {
        SeededRandom { random: Mutex::new(fastrand::Rng::with_seed(seed)) }
    }
}

impl Random for SeededRandom {
    fn fill(&self, bytes: &mut [u8]) {
        self.random.lock().fill(bytes);
    }
}

/// An environment of simulated parts, with handles to drive them.
#[derive(Clone)]
pub struct SimEnv {
    /// The disk.
    pub device: SimDevice,
    /// Time.
    pub clock: Arc<SimClock>,
    random: Arc<SeededRandom>,
}

/// A simulated environment with an empty disk.
pub fn sim_env(seed: u64) -> SimEnv {
    SimEnv::on(SimDevice::new(seed), seed)
}

impl SimEnv {
    /// A simulated environment around a disk.
    pub fn on(device: SimDevice, seed: u64) -> SimEnv {
        SimEnv {
            device,
            clock: Arc::new(SimClock::new()),
            random: Arc::new(SeededRandom::new(seed)),
        }
    }

    /// The environment for the code under test.
    pub fn env(&self) -> Env {
        Env {
            device: Arc::new(self.device.clone()),
            clock: Arc::<SimClock>::clone(&self.clock),
            random: Arc::<SeededRandom>::clone(&self.random),
            objects: None,
        }
    }
}
