//! Places whose machines did not answer a short while ago. A standby server names the dead one that
//! it replaces until that one's lease has ended, and each attempt there takes seconds.

use std::collections::BTreeMap;
use std::time::Duration;

use device::Clock;
use device::sync::Mutex;

/// For how long such a place is skipped, unless there is no other.
const SKIPPED_FOR: Duration = Duration::from_secs(5);
/// The same if it accepted a connection, and did not answer the hello. It may hang, or wait for the
/// store of a volume that it has just taken over.
const SKIPPED_FOR_CONNECTED: Duration = Duration::from_secs(1);
/// An attempt that failed sooner shows that the machine lives, and costs little.
const SILENT_FROM: Duration = Duration::from_secs(1);

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// The server answered.
    Answer,
    /// It accepted a connection, and sent nothing.
    Connection,
    /// Its machine did not.
    Nothing,
}

/// Until when each place, HOST:PORT, is skipped, on the monotonic clock.
#[derive(Default)]
pub(super) struct Silent(Mutex<BTreeMap<String, Duration>>);

impl Silent {
    /// Notes how an attempt ended that began at this time.
    pub(super) fn note(&self, place: &str, heard: Heard, begun: Duration, clock: &dyn Clock) {
        let now = clock.monotonic();
        let mut places = self.0.lock();
        let skipped = match heard {
            Heard::Answer => None,
            Heard::Connection => Some(SKIPPED_FOR_CONNECTED),
            Heard::Nothing => Some(SKIPPED_FOR),
        };
        match skipped.filter(|_| now.saturating_sub(begun) >= SILENT_FROM) {
            None => places.remove(place),
            Some(skipped) => places.insert(place.to_owned(), now + skipped),
        };
        places.retain(|_, until| *until > now);
    }

    /// Whether a place is skipped now.
    pub(super) fn has(&self, place: &str, clock: &dyn Clock) -> bool {
        self.0.lock().get(place).is_some_and(|until| *until > clock.monotonic())
    }
}
