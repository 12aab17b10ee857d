//! Renewals of grants while objects are in flight: how many requests wait at the same time, and
//! what they read.

use std::sync::Arc;
use std::time::Duration;

use device::sync::{Condvar, Mutex};
use device::{Blobs, Clock, OverBlobs};
use format::log_object::HEAD_BYTES;
use store::{Lsn, ObjectLogSettings};

use crate::objects_kit::{append, create, far, settings};

/// How long a request waits for the others: a bound for a test that fails.
const SOON: Duration = Duration::from_secs(20);

/// A store whose creations are answered when a test lets them, and whose reads, once expected, are
/// answered when all of them wait.
#[derive(Default)]
struct State {
    /// Creations that wait for their answers.
    created: usize,
    answers: bool,
    /// Reads that are expected at the same time, those that have begun, and the bytes they wanted.
    expected: usize,
    begun: usize,
    bytes: Vec<usize>,
    /// Whether a read did not see the others.
    was_alone: bool,
}

struct Slow {
    blobs: Arc<dyn Blobs>,
    state: Mutex<State>,
    changed: Condvar,
}

impl OverBlobs for Slow {
    fn below(&self) -> &dyn Blobs {
        &*self.blobs
    }

    fn create(&self, name: &str, bytes: &[u8]) -> device::Result<bool> {
        let created = self.blobs.create(name, bytes);
        let mut state = self.state.lock();
        state.created += 1;
        self.changed.notify_all();
        while !state.answers {
            self.changed.wait(&mut state);
        }
        created
    }

    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> device::Result<usize> {
        let mut state = self.state.lock();
        state.begun += 1;
        state.bytes.push(buffer.len());
        self.changed.notify_all();
        while state.begun < state.expected && !state.was_alone {
            let waited = self.changed.wait_for(&mut state, SOON);
            state.was_alone |= waited.timed_out() && state.begun < state.expected;
        }
        drop(state);
        self.blobs.read_at(name, buffer, offset)
    }
}

/// Regression: a renewal read whole objects, one after the other. With nine requests of 300 ms the
/// proof was older than a grant when it came, and a healthy owner could not answer.
#[test]
fn a_renewal_takes_as_long_as_one_request() {
    let (_, blobs) = far();
    let slow = Arc::new(Slow { blobs, state: Mutex::default(), changed: Condvar::new() });
    let all: Arc<dyn Blobs> = Arc::<Slow>::clone(&slow);
    let in_flight = ObjectLogSettings::default().in_flight;
    let (opened, _) = create(&all, ObjectLogSettings { in_flight, ..settings() });
    let (log, clock) = (&opened.log, &opened.sim.clock);
    let (sent, renewed) = device::scope(|scope| {
        for number in 1..=in_flight {
            append(log, 1);
            scope.spawn(move || log.sync(Lsn(number as u64)).expect("sync"));
            let mut state = slow.state.lock();
            while state.created < number {
                slow.changed.wait(&mut state);
            }
        }
        clock.advance(Duration::from_secs(100));
        slow.state.lock().expected = in_flight + 1;
        let sent = clock.monotonic();
        let renewed = log.renew_grant();
        slow.state.lock().answers = true;
        slow.changed.notify_all();
        (sent, renewed)
    });
    assert_eq!(renewed.expect("it owns the store").until(), sent + settings().grant);
    let state = slow.state.lock();
    assert!(!state.was_alone, "a request was sent after another one was answered");
    assert_eq!(state.bytes, vec![HEAD_BYTES; in_flight + 1]);
    assert_eq!(log.durable(), Lsn(in_flight as u64));
}
