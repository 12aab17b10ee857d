//! How fast a count grows: over the last ten seconds, in whole seconds.

use std::collections::VecDeque;
use std::time::Duration;

/// Seconds that are looked back.
const SECONDS: usize = 10;

/// What a count was, once a second at most.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    seen: VecDeque<(Duration, u64)>,
}

impl Pace {
    /// Notes what the count is now.
    pub(crate) fn note(&mut self, now: Duration, count: u64) {
        let last = self.seen.back().map(|(at, _)| *at);
        if last.is_some_and(|last| now.saturating_sub(last) < Duration::from_secs(1)) {
            return;
        }
        self.seen.push_back((now, count));
        if self.seen.len() > SECONDS + 1 {
            self.seen.pop_front();
        }
    }

    /// By how much it grew in a second.
    pub(crate) fn a_second(&self, now: Duration, count: u64) -> u64 {
        let within = Duration::from_secs(SECONDS as u64 + 1);
        let recent = |(at, _): &&(Duration, u64)| now.saturating_sub(*at) <= within;
        let Some((at, before)) = self.seen.iter().find(recent) else { return 0 };
        let passed = now.saturating_sub(*at).max(Duration::from_secs(1)).as_secs_f64();
        (count.saturating_sub(*before) as f64 / passed) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_that_of_the_last_seconds() {
        let mut pace = Pace::default();
        let at = Duration::from_millis;
        assert_eq!(pace.a_second(at(0), 7), 0);
        for step in 0..1000_u64 {
            pace.note(at(step * 100), step * 50);
        }
        assert!((450..=550).contains(&pace.a_second(at(100_000), 50_000)));
        // Nothing is done any more.
        assert!(pace.a_second(at(105_000), 50_000) < 500);
        assert_eq!(pace.a_second(at(200_000), 50_000), 0);
        // It begins again from what it was.
        pace.note(at(200_000), 50_000);
        assert_eq!(pace.a_second(at(202_000), 50_600), 300);
    }
}
