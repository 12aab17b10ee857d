//! Whether this process still owns the volume that it serves, when another server can take it over.
//!
//! Answers are given only within a grant of the volume's log, which a request to the object store
//! renews (`store::log`). So a process that was stopped for a while, or cut off, answers nothing
//! that its successor may have changed, whatever it believes. The coordinator's word ends it sooner
//! and in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use device::sync::{Condvar, Mutex, Sender};
use device::{Clock, Thread};
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

/// How long a question whose volume it is may have no answer from the store, and changes none:
/// a request that waits has not failed, and a store may answer reads and take nothing.
const UNANSWERED: Duration = Duration::from_secs(8);
const UNWRITTEN: Duration = Duration::from_secs(15);

/// The part of this server in the servers' decision about a volume.
pub(crate) trait Mandate: Send + Sync {
    /// Why this server should own the volume no more, if that is so.
    fn deposed(&self) -> Option<String>;

    /// Whether this server is to end: a signal came, perhaps before the daemon of the volume could
    /// hear it.
    fn is_ending(&self) -> bool;

    /// Lets others have it, before it is closed here.
    fn give_up(&self);
}

/// The right of this process to answer for its volume.
pub(super) struct Owned {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// Until when answers may be sent, in nanoseconds of the monotonic clock.
    until: AtomicU64,
    ended: AtomicBool,
    /// The volume is being closed in order: nothing is answered any more.
    closes: AtomicBool,
    /// It has been.
    closed: AtomicBool,
    /// Since when somebody waits for a proof of the owner, on that clock; 0: nobody does.
    waits_since: AtomicU64,
    /// Gets one message when it has ended.
    events: Mutex<Option<Sender<Event>>>,
    /// Whether a thread asks the store; the others wait for its answer.
    asks: Mutex<bool>,
    asked: Condvar,
}

impl Owned {
    pub(super) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        events: Sender<Event>,
    ) -> Arc<Owned> {
        let (until, waits_since) = (AtomicU64::new(0), AtomicU64::new(0));
        let [ended, closes, closed] = [(); 3].map(|()| AtomicBool::new(false));
        let events = Mutex::new(Some(events));
        let (asks, asked) = (Mutex::new(false), Condvar::new());
        Arc::new(Owned {
            store,
            clock,
            until,
            ended,
            closes,
            closed,
            waits_since,
            events,
            asks,
            asked,
        })
    }

    /// Answers nothing from now on.
    pub(super) fn end(&self, why: &str) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(events) = self.events.lock().take() {
            // The daemon may have left by itself meanwhile.
            events.send(Event::Replaced(why.to_owned())).unwrap_or_default();
        }
    }

    /// Ends the daemon as a signal does.
    fn signal(&self) {
        if let Some(events) = &*self.events.lock() {
            // (It may be leaving already.)
            events.send(Event::Signal).unwrap_or_default();
        }
    }

    /// Whether nothing is answered any more.
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst) || self.closes.load(Ordering::SeqCst)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.clock.monotonic().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Watches, until the volume is closed, whether this server should own it no more, or cannot
    /// reach the store. Then others may have it at once: closing it here may take until the store
    /// answers, and their seal keeps this process from changing anything.
    pub(super) fn watch(
        self: &Arc<Owned>,
        mandate: Arc<dyn Mandate>,
        traffic: Option<Arc<Traffic>>,
    ) -> std::io::Result<Watched> {
        let own = Arc::clone(self);
        let thread = device::spawn("warrant", move || {
            let (mut written, mut signalled) = (Written::default(), false);
            while !own.ended.load(Ordering::SeqCst) {
                if own.closed.load(Ordering::SeqCst) {
                    return;
                }
                if mandate.is_ending() && !std::mem::replace(&mut signalled, true) {
                    own.signal();
                }
                let cut_off = || own.is_cut_off(traffic.as_deref(), &mut written);
                if let Some(why) = mandate.deposed().or_else(cut_off) {
                    own.end(&why);
                    break;
                }
                own.clock.sleep(LOOK_EVERY);
            }
            mandate.give_up();
        })?;
        Ok(Watched { owned: Arc::clone(self), thread: Some(thread) })
    }

    /// Why another server should have the volume, if this one cannot reach the store.
    fn is_cut_off(&self, traffic: Option<&Traffic>, written: &mut Written) -> Option<String> {
        let now = self.clock.monotonic();
        let failing = traffic.and_then(|traffic| traffic.counts().failing);
        let failing = failing.filter(|failing| now.saturating_sub(failing.since) >= CUT_OFF);
        if let Some(failing) = failing {
            return Some(format!("the store has not answered: {}", failing.why));
        }
        if self.waits_too_long(now) {
            return Some("the store has not answered a request".to_owned());
        }
        let last = self.store.last_commit();
        let waits = written.waits_for(last.0.0, self.store.durable().0.0, now);
        if waits >= UNWRITTEN {
            return Some("the store has not taken a change".to_owned());
        }
        // Changes of the background may wait for the next one of a client.
        if waits >= UNWRITTEN / 3 && !std::mem::replace(&mut written.is_asked, true) {
            let store = Arc::clone(&self.store);
            let ask = move || store.sync(last).unwrap_or_default();
            if let Err(error) = device::spawn("warrant-sync", ask) {
                tracing::warn!(%error, "cannot look whether the store takes changes");
            }
        }
        None
    }

    /// The turn to ask the store; `None` after another thread's, whose answer may be for all.
    fn turn(&self) -> Option<Turn<'_>> {
        let mut asks = self.asks.lock();
        if *asks {
            self.asked.wait_for(&mut asks, LOOK_EVERY);
            return None;
        }
        *asks = true;
        Some(Turn(self))
    }

    /// Whether somebody has waited too long for a proof of the owner.
    fn waits_too_long(&self, now: Duration) -> bool {
        let since = self.waits_since.load(Ordering::SeqCst);
        since > 0 && now.saturating_sub(Duration::from_nanos(since)) >= UNANSWERED
    }
}

/// A thread asks the store.
struct Turn<'a>(&'a Owned);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.asks.lock() = false;
        self.0.asked.notify_all();
    }
}

/// Watches; dropping it, when the volume is closed, ends that.
pub(super) struct Watched {
    owned: Arc<Owned>,
    thread: Option<Thread<()>>,
}

impl Watched {
    /// The volume is closed from now on: that gives its grant up, and the successor does not wait
    /// for it then. The store may let that take long; the watch continues meanwhile.
    pub(super) fn close(&self) {
        self.owned.closes.store(true, Ordering::SeqCst);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.close();
        self.owned.closed.store(true, Ordering::SeqCst);
        // So that it gives up nothing that is taken again later.
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    }
}

/// Since when a log that has commits to write has written none.
#[derive(Default)]
struct Written {
    durable: u64,
    since: Duration,
    /// It was asked to write.
    is_asked: bool,
}

impl Written {
    /// For how long it has written nothing.
    fn waits_for(&mut self, last: u64, durable: u64, now: Duration) -> Duration {
        if durable >= last || durable > self.durable {
            *self = Written { durable, since: now, is_asked: false };
        }
        now.saturating_sub(self.since)
    }
}

impl Warrant for Owned {
    fn may_answer(&self) -> bool {
        let _waiting = (!self.is_known()).then(|| Waiting::begin(self));
        let mut warned = false;
        loop {
            if self.has_ended() {
                return false;
            }
            // Without a request while a grant holds; and a log that was sealed is known at once,
            // so that its error is no answer to a change.
            let turn = if self.is_known() { None } else { Some(self.turn()) };
            if matches!(turn, Some(None)) {
                continue;
            }
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
                    drop(turn);
                }
            }
        }
    }

    fn is_known(&self) -> bool {
        !self.has_ended() && self.now() < self.until.load(Ordering::SeqCst)
    }

    fn holds_for(&self) -> Duration {
        Duration::from_nanos(self.until.load(Ordering::SeqCst).saturating_sub(self.now()))
    }
}

/// Somebody who waits for a proof of the owner. (Who begins while another waits counts from that
/// one's beginning, and the first who gets the proof has it for all.)
struct Waiting<'a>(&'a Owned);

impl Waiting<'_> {
    fn begin(owned: &Owned) -> Waiting<'_> {
        let now = owned.now().max(1);
        let (order, none) = (Ordering::SeqCst, 0);
        owned.waits_since.compare_exchange(none, now, order, order).unwrap_or_default();
        Waiting(owned)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waits_since.store(0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use device::{Clock, SystemClock, sync};
    use remote::Warrant;

    use super::{Event, Mandate, Owned, Watched, Written};
    use crate::owner::fresh;

    /// What the servers decided, and whether the volume was given up.
    #[derive(Default)]
    struct Decided {
        is_deposed: AtomicBool,
        is_ending: AtomicBool,
        was_given_up: AtomicBool,
    }

    impl Mandate for Decided {
        fn deposed(&self) -> Option<String> {
            self.is_deposed.load(Ordering::SeqCst).then(|| "it is another's".to_owned())
        }

        fn is_ending(&self) -> bool {
            self.is_ending.load(Ordering::SeqCst)
        }

        fn give_up(&self) {
            self.was_given_up.store(true, Ordering::SeqCst);
        }
    }

    fn watched() -> (Arc<Decided>, Arc<Owned>, Watched, sync::Receiver<Event>) {
        let (events, inbox) = sync::channel();
        let store = Arc::clone(&fresh::volume().inner().store);
        let owned = Owned::new(store, Arc::new(SystemClock::new()), events);
        let decided = Arc::new(Decided::default());
        let watched = owned.watch(Arc::<Decided>::clone(&decided), None).unwrap();
        (decided, owned, watched, inbox)
    }

    const SOON: Duration = Duration::from_secs(60);

    /// The volume's daemon did not exist yet, or was just being made, when the signal came.
    #[test]
    fn a_signal_that_the_daemon_did_not_hear_ends_it_in_order() {
        let (decided, owned, watched, inbox) = watched();
        assert!(owned.may_answer());
        decided.is_ending.store(true, Ordering::SeqCst);
        assert!(matches!(inbox.recv_timeout(SOON), Ok(Event::Signal)));
        // Requests under way are still answered, and nobody else gets the volume.
        assert!(owned.may_answer());
        watched.close();
        assert!(!owned.may_answer() && !owned.is_known());
        drop(watched);
        assert!(!decided.was_given_up.load(Ordering::SeqCst));
    }

    /// Closing may wait for the store, and others reach it.
    #[test]
    fn a_volume_is_given_up_while_it_is_being_closed() {
        let (decided, _owned, watched, _inbox) = watched();
        watched.close();
        decided.is_deposed.store(true, Ordering::SeqCst);
        let clock = SystemClock::new();
        let until = clock.monotonic() + SOON;
        while !decided.was_given_up.load(Ordering::SeqCst) {
            assert!(clock.monotonic() < until, "it is kept");
            clock.sleep(Duration::from_millis(5));
        }
    }

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
        assert_eq!(written.waits_for(302, 201, at(231)), at(0));
        // A pause without changes counts for nothing.
        assert_eq!(written.waits_for(302, 302, at(300)), at(0));
        assert_eq!(written.waits_for(302, 302, at(400)), at(0));
        assert_eq!(written.waits_for(303, 302, at(401)), at(1));
    }
}
