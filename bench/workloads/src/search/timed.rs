//! How long a step of the workload takes, and how one fails.

use std::time::Duration;

use device::{Clock, SystemClock};
use wire::{Failure, FailureKind};

/// How long something takes.
pub(super) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let clock = SystemClock::new();
    let start = clock.monotonic();
    let done = work();
    (done, clock.monotonic().saturating_sub(start))
}

/// The failure of a query on the volume under test.
pub(super) fn failed(what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Other, format!("{what}: {error}"))
}
