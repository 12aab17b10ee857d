//! Threads that execute requests. No client occupies all of them.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use device::sync::{Condvar, Mutex};

/// Threads.
const THREADS: usize = 48;
/// How many of them work for one client.
const THREADS_A_CLIENT: usize = 32;

type Work = Box<dyn FnOnce() + Send>;

/// The threads.
pub(super) struct Pool {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(Arc<str>, Work)>,
    running: BTreeMap<Arc<str>, usize>,
    ended: bool,
}

impl Pool {
    /// Starts them.
    pub(super) fn start() -> io::Result<Arc<Pool>> {
        let pool = Arc::new(Pool { state: Mutex::default(), changed: Condvar::new() });
        for _ in 0..THREADS {
            let own = Arc::clone(&pool);
            if let Err(error) = device::spawn("serve", move || own.run()) {
                pool.end();
                return Err(error);
            }
        }
        Ok(pool)
    }

    /// Has work done for a client.
    pub(super) fn put(&self, client: &Arc<str>, work: Work) {
        let mut state = self.state.lock();
        if !state.ended {
            state.waiting.push_back((Arc::clone(client), work));
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Begins no more work.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        state.waiting.clear();
        drop(state);
        self.changed.notify_all();
    }

    fn run(&self) {
        while let Some((client, work)) = self.take() {
            work();
            let mut state = self.state.lock();
            if let Some(running) = state.running.get_mut(&client) {
                *running -= 1;
                if *running == 0 {
                    state.running.remove(&client);
                }
            }
            let more = !state.waiting.is_empty();
            drop(state);
            if more {
                self.changed.notify_one();
            }
        }
    }

    fn take(&self) -> Option<(Arc<str>, Work)> {
        let mut state = self.state.lock();
        loop {
            if state.ended {
                return None;
            }
            let State { waiting, running, .. } = &*state;
            let next = waiting.iter().position(|(client, _)| {
                running.get(client).copied().unwrap_or(0) < THREADS_A_CLIENT
            });
            if let Some((client, work)) = next.and_then(|at| state.waiting.remove(at)) {
                *state.running.entry(Arc::clone(&client)).or_default() += 1;
                return Some((client, work));
            }
            self.changed.wait(&mut state);
        }
    }
}
