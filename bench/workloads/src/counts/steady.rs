//! A clock and a source of entropy that count: every run gets the same times, keys and ids, so
//! that it takes the same branches. The volume itself is on real files.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::sync::{Condvar, Mutex};
use device::{Clock, Device, Env, Random, Timestamp};

/// 2026-01-01, in nanoseconds since 1970.
const BEGIN: i64 = 1_767_225_600_000_000_000;
/// How far time advances at each question.
const TICK: u64 = 1000;

/// Time that advances by [`TICK`] nanoseconds whenever it is read.
#[derive(Default)]
struct SteadyClock {
    nanos: AtomicU64,
}

impl SteadyClock {
    fn advance(&self, nanos: u64) -> u64 {
        self.nanos.fetch_add(nanos, Ordering::Relaxed) + nanos
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Timestamp {
        Timestamp(BEGIN + self.advance(TICK) as i64)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.advance(TICK))
    }

    fn sleep(&self, duration: Duration) {
        self.advance(duration.as_nanos() as u64);
    }
}

/// Numbers of a fixed sequence (SplitMix64).
#[derive(Default)]
struct SteadyRandom {
    state: AtomicU64,
}

impl Random for SteadyRandom {
    fn fill(&self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let mut mixed = self.state.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^= mixed >> 31;
            part.copy_from_slice(&mixed.to_le_bytes()[..part.len()]);
        }
    }
}

/// An environment whose clock and entropy are the same in every run.
pub(super) fn env(device: Arc<dyn Device>) -> Env {
    Env {
        device,
        clock: Arc::new(SteadyClock::default()),
        random: Arc::new(SteadyRandom::default()),
        objects: None,
    }
}

/// A steady clock whose sleeps take their time: for threads that look at something now and then.
/// (The system's clock does not work under valgrind.)
struct WaitingClock(SteadyClock);

impl Clock for WaitingClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    fn sleep(&self, duration: Duration) {
        let (mutex, never) = (Mutex::new(()), Condvar::new());
        never.wait_for(&mut mutex.lock(), duration);
        self.0.sleep(duration);
    }
}

/// The clock of a server and its clients.
pub(super) fn waiting() -> Arc<dyn Clock> {
    Arc::new(WaitingClock(SteadyClock::default()))
}
