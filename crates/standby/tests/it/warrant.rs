//! When a process answers nothing any more, and lets others have its volume.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use device::{Clock, SystemClock, Timestamp, sync};
use remote::Warrant;
use standby::{End, Mandate, Owned, Watched};
use store::{Barrier, CommitToken, Durable, Error, Result};
use testing::MemStore;

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

fn watched() -> (Arc<Decided>, Arc<Owned>, Watched, sync::Receiver<End>) {
    let (events, inbox) = sync::channel();
    let on_end = Box::new(move |end| events.send(end).unwrap_or_default());
    let owned = Owned::new(Arc::new(MemStore::new()), Arc::new(SystemClock::new()), on_end);
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
    assert!(matches!(inbox.recv_timeout(SOON), Ok(End::Signal)));
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

/// A store that proves nothing: requests to it fail. Counts them.
#[derive(Default)]
struct Silent(MemStore, AtomicU64);

impl Durable for Silent {
    fn sync(&self, up_to: CommitToken) -> Result<()> {
        self.0.sync(up_to)
    }

    fn last_commit(&self) -> CommitToken {
        self.0.last_commit()
    }

    fn durable(&self) -> CommitToken {
        self.0.durable()
    }

    fn flush_if_due(&self) -> Result<Duration> {
        self.0.flush_if_due()
    }

    fn set_barrier(&self, barrier: Arc<dyn Barrier>) {
        self.0.set_barrier(barrier);
    }

    fn granted_until(&self) -> Result<Option<Duration>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Err(Error::Device(device::Error::new("read", "log", std::io::Error::other("no answer"))))
    }

    fn close(&self) -> Result<()> {
        self.0.close()
    }
}

/// A clock of a machine on which a thread that sleeps does not get the processor again.
struct Busy(SystemClock);

impl Clock for Busy {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    fn sleep(&self, _: Duration) {
        self.0.sleep(SOON * 2);
    }
}

/// Regression: a thread that had no proof slept, also when nothing was to be answered any more.
#[test]
fn a_thread_that_waits_for_a_proof_hears_of_the_end() {
    let store = Arc::new(Silent::default());
    let on_end = Box::new(|_| {});
    let owned =
        Owned::new(Arc::<Silent>::clone(&store), Arc::new(Busy(SystemClock::new())), on_end);
    let (answers, answered) = sync::channel();
    let waits = Arc::clone(&owned);
    let thread =
        device::spawn("waits", move || answers.send(waits.may_answer()).unwrap_or_default());
    while store.1.load(Ordering::SeqCst) == 0 {
        device::yield_now();
    }
    owned.end("it is another's");
    assert_eq!(answered.recv_timeout(SOON), Ok(false));
    thread.expect("a thread").join().expect("it ended");
}
