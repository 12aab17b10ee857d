//! How long background work rests.

use std::time::Duration;

/// Rest of an object whose step failed: a failure that stays must not take the turns of others.
pub(crate) const REST_AFTER_FAILURE: Duration = Duration::from_secs(60);
/// How often the rest after a failure doubles: to about an hour.
const RESTS_DOUBLE: u32 = 6;

/// When work that failed may begin again. Each failure in a row lets the background rest for twice
/// as long as the one before. An operation that finds no space waits for the first rest alone: what
/// failed may have been repaired.
#[derive(Default)]
pub(crate) struct Rests {
    /// Until when the background begins nothing.
    background: Duration,
    /// Until when nothing is begun at all.
    all: Duration,
    /// How many failures there were in a row.
    failures: u32,
}

impl Rests {
    /// Notes a failure.
    pub(crate) fn failed(&mut self, now: Duration) {
        self.background = now + REST_AFTER_FAILURE * (1 << self.failures.min(RESTS_DOUBLE));
        self.all = now + REST_AFTER_FAILURE;
        self.failures += 1;
    }

    /// Ends the failures in a row.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Whether work may begin, for an operation that finds no space or for the background.
    pub(crate) fn may_begin(&self, now: Duration, for_space: bool) -> bool {
        now >= if for_space { self.all } else { self.background }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Rests;

    /// Regression: after some failures a full disk stayed full for an hour, though its collection
    /// would have succeeded.
    #[test]
    fn a_search_for_space_begins_a_collection_a_minute_after_any_failure() {
        let mut rests = Rests::default();
        let mut now = Duration::from_secs(1000);
        for failures in 0..9 {
            rests.failed(now);
            let after = |seconds| now + Duration::from_secs(seconds);
            assert!(!rests.may_begin(after(59), true), "after {failures}");
            assert!(rests.may_begin(after(60), true), "after {failures}");
            let rest = 60 << failures.min(6);
            assert!(!rests.may_begin(after(rest - 1), false), "after {failures}");
            assert!(rests.may_begin(after(rest), false), "after {failures}");
            now = after(rest);
        }
        rests.succeeded();
        rests.failed(now);
        assert!(rests.may_begin(now + Duration::from_secs(60), false));
    }
}
