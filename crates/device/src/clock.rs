//! Time: wall clock for timestamps that users see, monotonic clock for everything else.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in wall-clock time: nanoseconds since 1970-01-01 UTC, negative before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// Time, real or simulated.
pub trait Clock: Send + Sync {
    /// Wall-clock time.
    fn now(&self) -> Timestamp;

    /// Time since an arbitrary start that never goes back.
    fn monotonic(&self) -> Duration;

    /// Blocks the calling thread (a simulated clock advances instead).
    fn sleep(&self, duration: Duration);
}

/// The operating system's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: Duration,
}

/// Time since the machine was started, with the time that it was suspended. What another machine
/// may count on is over when a suspended one continues.
fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

impl SystemClock {
    /// Creates a clock whose monotonic time starts now.
    pub fn new() -> SystemClock {
        SystemClock { start: since_boot() }
    }
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the seam")]
    fn now(&self) -> Timestamp {
        #[cfg(feature = "sim")]
        if let Some(now) = crate::sim::now() {
            return Timestamp(i64::try_from(now.as_nanos()).unwrap_or(i64::MAX));
        }
        let nanos = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => {
                i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |nanos| -nanos)
            }
        };
        Timestamp(nanos)
    }

    fn monotonic(&self) -> Duration {
        #[cfg(feature = "sim")]
        if let Some(now) = crate::sim::now() {
            return now;
        }
        since_boot().saturating_sub(self.start)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the seam")]
    fn sleep(&self, duration: Duration) {
        #[cfg(feature = "sim")]
        if crate::sim::sleep(duration) {
            return;
        }
        std::thread::sleep(duration);
    }
}
