//! Limits the merge rate: a token bucket that time fills and merging empties.

use std::time::Duration;

/// Seconds of the rate that the bucket holds.
const BURST_SECONDS: i128 = 1;
const NANOS: i128 = 1_000_000_000;

/// A bound on bytes a second. A step takes what it needs, and later steps wait until the debt is
/// paid off.
#[derive(Debug)]
pub(crate) struct Limiter {
    /// Bytes a second; 0: no bound.
    rate: u64,
    /// Bytes that may be merged now, times [`NANOS`]; below zero after a step that took more.
    left: i128,
    at: Duration,
}

impl Limiter {
    /// With a full bucket.
    pub(crate) fn new(rate: u64) -> Limiter {
        let left = i128::from(rate) * BURST_SECONDS * NANOS;
        Limiter { rate, left, at: Duration::ZERO }
    }

    /// Whether a step may start at a time, which does not go back.
    pub(crate) fn may(&mut self, now: Duration) -> bool {
        let passed = now.saturating_sub(self.at).as_nanos() as i128;
        self.at = self.at.max(now);
        let most = i128::from(self.rate) * BURST_SECONDS * NANOS;
        self.left = (self.left + i128::from(self.rate) * passed).min(most);
        self.rate == 0 || self.left > 0
    }

    /// A step used this many bytes.
    pub(crate) fn took(&mut self, bytes: u64) {
        self.left -= i128::from(bytes) * NANOS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_keeps_to_the_rate_however_large_the_steps() {
        for step in [1_000, 300_000, 5_000_000_u64] {
            let mut limiter = Limiter::new(1_000_000);
            let mut taken = 0;
            for tick in 0..6000_u64 {
                if limiter.may(Duration::from_millis(10 * tick)) {
                    limiter.took(step);
                    taken += step;
                }
            }
            // A minute, the first second's worth, and one more step; small steps make one a tick.
            let most = 61_000_000 + step;
            let least = 60_000_000.min(step * 6000) - step;
            assert!((least..=most).contains(&taken), "{taken} bytes in steps of {step}");
        }
    }

    #[test]
    fn without_a_rate_merges_do_not_wait() {
        let mut limiter = Limiter::new(0);
        limiter.took(u64::MAX);
        assert!(limiter.may(Duration::ZERO));
    }

    #[test]
    fn a_stopped_clock_grants_no_rate() {
        let mut limiter = Limiter::new(100);
        assert!(limiter.may(Duration::from_secs(5)));
        limiter.took(1000);
        assert!(!limiter.may(Duration::from_secs(5)));
        assert!(!limiter.may(Duration::from_secs(4)));
        assert!(limiter.may(Duration::from_secs(15)));
    }
}
