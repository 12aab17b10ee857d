//! When a process answers nothing any more, and lets others have its volume.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::{Clock, SystemClock, sync};
use remote::Warrant;
use standby::{End, Mandate, Owned, Watched};
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
