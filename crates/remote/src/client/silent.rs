//! Places whose machines did not answer a short while ago: a standby server names the dead one that
//! it replaces until that one's lease has ended, and each attempt there takes seconds.

use std::collections::BTreeMap;
use std::time::Duration;

use device::Clock;
use device::sync::Mutex;

/// For how long such a place is passed over, unless there is no other.
const PASSED_OVER: Duration = Duration::from_secs(5);
/// An attempt that failed sooner shows that the machine lives, and costs little.
const SILENT_FROM: Duration = Duration::from_secs(1);

/// Until when each place, HOST:PORT, is passed over, on the monotonic clock.
#[derive(Default)]
pub(super) struct Silent(Mutex<BTreeMap<String, Duration>>);

impl Silent {
    /// Notes how an attempt ended that began at this time.
    pub(super) fn note(&self, place: &str, answered: bool, begun: Duration, clock: &dyn Clock) {
        let now = clock.monotonic();
        let mut places = self.0.lock();
        if answered || now.saturating_sub(begun) < SILENT_FROM {
            places.remove(place);
        } else {
            places.insert(place.to_owned(), now + PASSED_OVER);
        }
        places.retain(|_, until| *until > now);
    }

    /// Whether a place is passed over now.
    pub(super) fn has(&self, place: &str, clock: &dyn Clock) -> bool {
        self.0.lock().get(place).is_some_and(|until| *until > clock.monotonic())
    }
}
