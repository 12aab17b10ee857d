//! Waits until the requests that were taken from the kernel are answered.
//!
//! A serving thread increments a counter before it takes a request, and again as soon as it has
//! one. Between the two it sleeps, or it has received a request and has not yet counted it. Only
//! the kernel knows which, and reports it as the state of the thread. So serving itself costs two
//! additions, and the waiting thread does the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::Clock;
use device::sync::Mutex;

/// How often a thread is checked that is not in the expected state.
const GLANCE: Duration = Duration::from_micros(200);

/// The counter of a thread that no longer serves; same parity as one that has gone to take another
/// request.
const ENDED: u64 = u64::MAX;

/// The threads that serve a mount.
#[derive(Default)]
pub(crate) struct Turns {
    threads: Mutex<Vec<Arc<Turn>>>,
}

/// The progress of one of them.
struct Turn {
    thread: i32,
    /// Odd from when it goes to take a request until it has counted that it has one.
    count: AtomicU64,
}

/// A serving thread, for as long as this lives.
pub(crate) struct Serving {
    turn: Arc<Turn>,
}

impl Turns {
    /// The calling thread serves from now on.
    pub(crate) fn enter(&self) -> Serving {
        let thread = rustix::thread::gettid().as_raw_pid();
        let turn = Arc::new(Turn { thread, count: AtomicU64::new(0) });
        self.threads.lock().push(Arc::clone(&turn));
        Serving { turn }
    }

    /// Waits until every request that a thread had received when this was called is answered,
    /// except those that were queued because they are slow. `false`: not within `patience`.
    pub(crate) fn wait(&self, clock: &dyn Clock, patience: Duration) -> bool {
        let deadline = clock.monotonic() + patience;
        let threads = self.threads.lock().clone();
        for turn in threads {
            let seen = turn.count.load(Ordering::SeqCst);
            // It may have received a request before it counts one, so the request that it counts
            // next has to be answered as well.
            let over = seen.saturating_add(1) | 1;
            while turn.count.load(Ordering::SeqCst) < over && !turn.has_none(seen) {
                if clock.monotonic() >= deadline {
                    return false;
                }
                clock.sleep(GLANCE);
            }
        }
        true
    }
}

impl Turn {
    /// Whether the thread sleeps for lack of a request, having counted `seen`. A thread that has
    /// received one runs, or is about to.
    fn has_none(&self, seen: u64) -> bool {
        seen % 2 == 1 && self.sleeps() && self.count.load(Ordering::SeqCst) == seen
    }

    fn sleeps(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", self.thread));
        let stat = stat.unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('S'))
    }
}

impl Serving {
    /// It goes to take a request: the one before is answered.
    pub(crate) fn take(&self) {
        self.turn.count.fetch_add(1, Ordering::SeqCst);
    }

    /// It has one.
    pub(crate) fn taken(&self) {
        self.turn.count.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.turn.count.store(ENDED, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use device::sync::channel;
    use std::io::{Read, Write};

    use device::SystemClock;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(120);
    const LITTLE: Duration = Duration::from_millis(50);

    #[test]
    fn only_threads_with_a_request_are_waited_for() {
        let (threads, clock) = (Turns::default(), SystemClock::new());
        let turns = &threads;
        let (mut requests, mut kernel) = std::io::pipe().expect("a pipe");
        let (answer, answers) = channel();
        let (took, taken) = channel();
        // What it waits for ends with this closure, however the closure ends.
        device::scope(move |scope| {
            let worker = device::spawn_in(scope, "worker", move || {
                let serving = turns.enter();
                loop {
                    serving.take();
                    let mut request = [0_u8];
                    if requests.read(&mut request).expect("a pipe") == 0 {
                        return;
                    }
                    // Received, and not counted yet: it runs, which a thread that sleeps in a
                    // system call does not.
                    let since = SystemClock::new();
                    while request == *b"u" && since.monotonic() < 4 * LITTLE {
                        device::spin_loop();
                    }
                    serving.taken();
                    took.send(()).expect("somebody listens");
                    answers.recv().expect("somebody answers");
                }
            });
            while turns.threads.lock().is_empty() {
                device::yield_now();
            }
            assert!(turns.wait(&clock, PATIENCE), "it sleeps while there is no request");
            for request in [b"c", b"u"] {
                kernel.write_all(request).expect("a pipe");
                if request == b"c" {
                    taken.recv().expect("it takes it");
                }
                assert!(!turns.wait(&clock, LITTLE), "{request:?} is not answered");
                answer.send(()).expect("it waits for it");
                assert!(turns.wait(&clock, PATIENCE), "{request:?} is answered");
            }
            drop(kernel);
            worker.expect("a thread").join().expect("no panic");
            assert!(turns.wait(&clock, PATIENCE), "it serves no more");
        });
    }
}
