//! For how long a log has written nothing of what it has to write.

use std::time::Duration;

/// Since when a log that has commits to write has written none.
#[derive(Default)]
pub(crate) struct Written {
    durable: u64,
    since: Duration,
    /// It was asked to write.
    is_asked: bool,
}

impl Written {
    /// For how long it has written nothing.
    pub(crate) fn waits_for(&mut self, last: u64, durable: u64, now: Duration) -> Duration {
        if durable >= last || durable > self.durable {
            *self = Written { durable, since: now, is_asked: false };
        }
        now.saturating_sub(self.since)
    }
    /// Whether it is to be asked to write: once for each time in which it writes nothing.
    pub(crate) fn ask(&mut self) -> bool {
        !std::mem::replace(&mut self.is_asked, true)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Written;

    #[test]
    fn a_log_waits_only_while_it_has_something_to_write() {
        let at = Duration::from_secs;
        let mut written = Written::default();
        for second in 0..100 {
            assert_eq!(written.waits_for(5, 5, at(second)), at(0), "nothing waits");
            let waits = written.waits_for(second + 9, second + 6, at(second));
            assert_eq!(waits, at(0), "it writes");
        }
        assert_eq!(written.waits_for(300, 200, at(200)), at(0));
        assert_eq!(written.waits_for(301, 200, at(203)), at(3));
        assert_eq!(written.waits_for(302, 200, at(230)), at(30));
        assert!(written.ask() && !written.ask());
        assert_eq!(written.waits_for(302, 201, at(231)), at(0));
        assert!(written.ask(), "it wrote since");
        // A pause without changes counts for nothing.
        assert_eq!(written.waits_for(302, 302, at(300)), at(0));
        assert_eq!(written.waits_for(302, 302, at(400)), at(0));
        assert_eq!(written.waits_for(303, 302, at(401)), at(1));
    }
}
