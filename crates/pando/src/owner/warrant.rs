//! Whether this process still owns the volume that it serves, when another server can take it over.
//!
//! Answers are given only within a grant of the volume's log, which a request to the object store
//! renews (`store::log`). So a process that was stopped for a while, or cut off, answers nothing
//! that its successor may have changed, whatever it believes. The coordinator's word ends it sooner
//! and in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use device::Clock;
use device::sync::{Mutex, Sender};
use objects::Traffic;
use remote::Warrant;
use store::Store;

use super::event::Event;

/// How often the coordinator's word and the store are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Pause before the store is asked again after an error.
const PAUSE: Duration = Duration::from_millis(100);
/// How long the store may not answer before another server gets the volume: it may reach it.
const CUT_OFF: Duration = Duration::from_secs(4);

/// Returns why this server should own a volume no more, if that is so.
pub(crate) type Deposed = dyn Fn() -> Option<String> + Send + Sync;

/// The right of this process to answer for its volume.
pub(super) struct Owned {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// Until when answers may be sent, in nanoseconds of the monotonic clock.
    until: AtomicU64,
    ended: AtomicBool,
    /// Gets one message when it has ended.
    events: Mutex<Option<Sender<Event>>>,
}

impl Owned {
    pub(super) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        events: Sender<Event>,
    ) -> Arc<Owned> {
        let (until, ended) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Owned { store, clock, until, ended, events: Mutex::new(Some(events)) })
    }

    /// Answers nothing from now on.
    pub(super) fn end(&self, why: &str) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(events) = self.events.lock().take() {
            // The daemon may have left by itself meanwhile.
            events.send(Event::Replaced(why.to_owned())).unwrap_or_default();
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.clock.monotonic().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Watches, until it ends, whether this server should own the volume no more, or cannot reach
    /// the store.
    pub(super) fn watch(
        self: &Arc<Owned>,
        deposed: Arc<Deposed>,
        traffic: Option<Arc<Traffic>>,
    ) -> std::io::Result<()> {
        let own = Arc::clone(self);
        let cut_off = move |now: Duration| {
            let failing = traffic.as_ref()?.counts().failing?;
            let since = now.saturating_sub(failing.since);
            (since >= CUT_OFF).then(|| format!("the store has not answered: {}", failing.why))
        };
        device::spawn("warrant", move || {
            while !own.ended.load(Ordering::SeqCst) {
                if let Some(why) = deposed().or_else(|| cut_off(own.clock.monotonic())) {
                    own.end(&why);
                    return;
                }
                own.clock.sleep(LOOK_EVERY);
            }
        })?;
        Ok(())
    }
}

impl Warrant for Owned {
    fn may_answer(&self) -> bool {
        let mut warned = false;
        loop {
            if self.ended.load(Ordering::SeqCst) {
                return false;
            }
            // Without a request while a grant holds; and a log that was sealed is known at once,
            // so that its error is no answer to a change.
            match self.store.granted_until() {
                // No other process can have it open.
                Ok(None) => return true,
                Ok(Some(until)) => {
                    let until = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
                    self.until.fetch_max(until, Ordering::SeqCst);
                    if self.is_known() {
                        return true;
                    }
                }
                Err(error @ (store::Error::Replaced(_) | store::Error::ReadOnly(_))) => {
                    self.end(&error.to_string());
                    return false;
                }
                Err(error) => {
                    if !std::mem::replace(&mut warned, true) {
                        tracing::warn!(%error, "answers wait: no proof of the owner");
                    }
                    self.clock.sleep(PAUSE);
                }
            }
        }
    }

    fn is_known(&self) -> bool {
        !self.ended.load(Ordering::SeqCst) && self.now() < self.until.load(Ordering::SeqCst)
    }
}
