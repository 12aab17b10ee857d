//! Whether a simulated server still owns the volume: what the daemon does with the grants of the
//! log (`pando serve --etcd`), without a coordinator.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::sync::Mutex;
use device::{Clock, SystemClock};
use fs::Fs;
use remote::Warrant;

/// Pause before the store is asked again after an error.
const PAUSE: Duration = Duration::from_millis(100);

/// The right of a server to answer.
pub(crate) struct Owned {
    fs: Arc<Fs>,
    clock: SystemClock,
    /// Until when answers may be sent.
    until: Mutex<Duration>,
    ended: AtomicBool,
    /// Called when it has ended.
    on_end: Box<dyn Fn() + Send + Sync>,
}

impl Owned {
    pub(crate) fn new(fs: &Arc<Fs>, on_end: Box<dyn Fn() + Send + Sync>) -> Arc<Owned> {
        let (until, ended) = (Mutex::new(Duration::ZERO), AtomicBool::new(false));
        Arc::new(Owned { fs: Arc::clone(fs), clock: SystemClock::new(), until, ended, on_end })
    }

    /// Answers nothing from now on.
    pub(crate) fn end(&self) {
        if !self.ended.swap(true, Ordering::SeqCst) {
            (self.on_end)();
        }
    }
}

impl Warrant for Owned {
    fn may_answer(&self) -> bool {
        if device::mutated("answers after the grant") {
            return true;
        }
        loop {
            if self.ended.load(Ordering::SeqCst) {
                return false;
            }
            // Also within a grant: a change may just have found that the log is another one's.
            match self.fs.store.granted_until() {
                Ok(None) => return true,
                Ok(Some(until)) => {
                    let mut known = self.until.lock();
                    *known = known.max(until);
                    drop(known);
                    if self.is_known() {
                        return true;
                    }
                }
                Err(store::Error::Replaced(_) | store::Error::ReadOnly(_)) => {
                    self.end();
                    return false;
                }
                Err(_) => self.clock.sleep(PAUSE),
            }
        }
    }

    fn is_known(&self) -> bool {
        let is_granted = self.clock.monotonic() < *self.until.lock();
        !self.ended.load(Ordering::SeqCst) && is_granted
    }
}
