//! Whether this process still owns the volume that it serves, when another server can take it over.
//!
//! Answers are given only within a grant of the volume's log, which a request to the object store
//! renews (`store::log`). So a process that was stopped for a while, or cut off, answers nothing
//! that its successor may have changed, whatever it believes. The coordinator's word ends it sooner
//! and in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use device::sync::{Condvar, Mutex};
use device::{Clock, Thread};
use objects::Traffic;
use remote::Warrant;
use store::Durable;

use crate::written::Written;

/// How often the coordinator's word and the store are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Pause before the store is asked again after an error.
const PAUSE: Duration = Duration::from_millis(100);
/// How long requests to the store may fail before another server, which may reach it, gets the
/// volume. The sums of these times are in `docs/guide/serve.md`.
const CUT_OFF: Duration = Duration::from_secs(4);

/// How long the store may leave a request without an answer: a request that waits has not failed.
const UNANSWERED: Duration = Duration::from_secs(8);
/// How long the store may take no writes: it may still answer reads.
const UNWRITTEN: Duration = Duration::from_secs(15);

/// The part of this server in the servers' decision about a volume.
pub trait Mandate: Send + Sync {
    /// Why this server should own the volume no more, if that is so.
    fn deposed(&self) -> Option<String>;

    /// Whether this server is to end: a signal came, perhaps before the daemon of the volume could
    /// hear it.
    fn is_ending(&self) -> bool;

    /// Lets others have it, before it is closed here.
    fn give_up(&self);
}

/// What ends a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// A signal that it did not hear.
    Signal,
    /// Another server owns the volume, or is to, and why.
    Replaced(String),
}

type OnEnd = dyn Fn(End) + Send;

/// The right of this process to answer for its volume.
pub struct Owned {
    store: Arc<dyn Durable>,
    clock: Arc<dyn Clock>,
    /// Until when answers may be sent, in nanoseconds of the monotonic clock.
    until: AtomicU64,
    ended: AtomicBool,
    /// The volume is being closed in order: nothing is answered any more.
    closes: AtomicBool,
    /// It has been.
    closed: AtomicBool,
    /// Since when somebody waits for a proof that this server has the volume, on that clock; 0:
    /// nobody does.
    waits_since: AtomicU64,
    /// Called once when it has ended, and before that for a signal.
    on_end: Mutex<Option<Box<OnEnd>>>,
    /// Whether a thread asks the store; the others wait for its answer.
    asks: Mutex<bool>,
    asked: Condvar,
}

impl Owned {
    /// The right to answer for a volume that is open in this store, if its log grants it.
    pub fn new(store: Arc<dyn Durable>, clock: Arc<dyn Clock>, on_end: Box<OnEnd>) -> Arc<Owned> {
        let (until, waits_since) = (AtomicU64::new(0), AtomicU64::new(0));
        let [ended, closes, closed] = [(); 3].map(|()| AtomicBool::new(false));
        let on_end = Mutex::new(Some(on_end));
        let (asks, asked) = (Mutex::new(false), Condvar::new());
        Arc::new(Owned {
            store,
            clock,
            until,
            ended,
            closes,
            closed,
            waits_since,
            on_end,
            asks,
            asked,
        })
    }

    /// Answers nothing from now on.
    pub fn end(&self, why: &str) {
        self.ended.store(true, Ordering::SeqCst);
        self.wake();
        let on_end = self.on_end.lock().take();
        if let Some(on_end) = on_end {
            on_end(End::Replaced(why.to_owned()));
        }
    }

    /// Ends the daemon as a signal does.
    fn signal(&self) {
        if let Some(on_end) = &*self.on_end.lock() {
            on_end(End::Signal);
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
    pub fn watch(
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
        if waits >= UNWRITTEN / 3 && written.ask() {
            let store = Arc::clone(&self.store);
            let ask = move || store.sync(last).unwrap_or_default();
            if let Err(error) = device::spawn("warrant-sync", ask) {
                tracing::warn!(%error, "cannot look whether the store takes changes");
            }
        }
        None
    }

    /// Wakes the threads that wait to answer: nothing is answered any more.
    fn wake(&self) {
        // A thread that looked for the end under this lock waits by now.
        drop(self.asks.lock());
        self.asked.notify_all();
    }

    /// Waits before the store is asked again, or until nothing is answered any more.
    fn pause(&self) {
        let mut asks = self.asks.lock();
        if !self.has_ended() {
            self.asked.wait_for(&mut asks, PAUSE);
        }
    }

    /// The turn to ask the store; `None` after another thread's, whose answer may be for all.
    fn turn(&self) -> Option<Turn<'_>> {
        let mut asks = self.asks.lock();
        if *asks {
            if !self.has_ended() {
                self.asked.wait_for(&mut asks, LOOK_EVERY);
            }
            return None;
        }
        *asks = true;
        Some(Turn(self))
    }

    /// Whether somebody has waited too long for such a proof.
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
pub struct Watched {
    owned: Arc<Owned>,
    thread: Option<Thread<()>>,
}

impl Watched {
    /// The volume is closed from now on: that gives its grant up, and the successor does not wait
    /// for it then. The store may let that take long; the watch continues meanwhile.
    pub fn close(&self) {
        self.owned.closes.store(true, Ordering::SeqCst);
        self.owned.wake();
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

impl Warrant for Owned {
    fn may_answer(&self) -> bool {
        if device::mutated("answers after the grant") {
            return true;
        }
        let _waiting = (!self.is_known()).then(|| Waiting::begin(self));
        let mut warned = false;
        loop {
            if self.has_ended() {
                return false;
            }
            // Without a request while a grant holds. A log that was sealed is known at once, so
            // that its error is no answer to a change.
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
                        let what = "answers wait: no proof that this server has the volume";
                        tracing::warn!(%error, "{what}");
                    }
                    self.pause();
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

/// Somebody who waits for a proof that this server has the volume. (Who begins while another waits
/// counts from that one's beginning, and the first who gets the proof has it for all.)
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
