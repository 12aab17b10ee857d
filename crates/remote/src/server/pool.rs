//! Threads that execute requests. No client occupies all of them, and no client has more waiting
//! than a bounded number of bytes: who puts more waits, so that the network holds it.
//!
//! Work begins only if it may: answers that a client does not read keep its next requests waiting.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use device::sync::{Condvar, Mutex};

use super::bounds::Bounds;

/// How many threads work for one client.
const THREADS_A_CLIENT: usize = 32;

/// Something to do for a client.
pub(super) struct Work {
    /// How many bytes it keeps.
    pub(super) bytes: usize,
    /// Whether it may begin.
    pub(super) may_begin: Box<dyn Fn() -> bool + Send>,
    /// What to do.
    pub(super) run: Box<dyn FnOnce() + Send>,
}

/// The threads.
pub(super) struct Pool {
    state: Mutex<State>,
    /// Most bytes, and most requests, of a client.
    most: (usize, usize),
    /// There may be work that a thread can begin.
    changed: Condvar,
    /// A client has less waiting.
    drained: Condvar,
}

#[derive(Default)]
struct State {
    clients: BTreeMap<Arc<str>, Client>,
    /// Clients that have work waiting, in turn.
    turns: VecDeque<Arc<str>>,
    ended: bool,
}

#[derive(Default)]
struct Client {
    waiting: VecDeque<Work>,
    running: usize,
    bytes: usize,
    /// Threads that wait to put more.
    putting: usize,
}

impl Client {
    fn is_full(&self, most: (usize, usize)) -> bool {
        self.bytes >= most.0 || self.waiting.len() >= most.1
    }
}

impl Pool {
    /// Starts them.
    pub(super) fn start(bounds: &Bounds) -> io::Result<Arc<Pool>> {
        let most = (bounds.request_bytes_of_client, bounds.requests_of_client);
        let (changed, drained) = (Condvar::new(), Condvar::new());
        let pool = Arc::new(Pool { state: Mutex::default(), most, changed, drained });
        for _ in 0..bounds.threads {
            let own = Arc::clone(&pool);
            if let Err(error) = device::spawn("serve", move || own.work()) {
                pool.end();
                return Err(error);
            }
        }
        Ok(pool)
    }

    /// Has work done for a client; waits while the client has too much.
    pub(super) fn put(&self, client: &Arc<str>, work: Work) {
        let mut state = self.state.lock();
        state.clients.entry(Arc::clone(client)).or_default().putting += 1;
        while !state.ended && state.clients.get(client).is_some_and(|own| own.is_full(self.most)) {
            self.drained.wait(&mut state);
        }
        let State { clients, turns, ended } = &mut *state;
        let Some(own) = clients.get_mut(client) else { return };
        own.putting -= 1;
        if !*ended {
            own.bytes += work.bytes;
            own.waiting.push_back(work);
            if own.waiting.len() == 1 {
                turns.push_back(Arc::clone(client));
            }
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Bytes of all work that waits or runs.
    pub(super) fn bytes(&self) -> usize {
        self.state.lock().clients.values().map(|client| client.bytes).sum()
    }

    /// Work that could not begin may be able to.
    pub(super) fn look_again(&self) {
        let waits = !self.state.lock().turns.is_empty();
        if waits {
            self.changed.notify_all();
        }
    }

    /// Begins no more work.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        state.turns.clear();
        let dropped: Vec<_> =
            state.clients.values_mut().map(|client| std::mem::take(&mut client.waiting)).collect();
        drop(state);
        drop(dropped);
        self.changed.notify_all();
        self.drained.notify_all();
    }

    fn work(&self) {
        while let Some((client, bytes, run)) = self.take() {
            run();
            let mut state = self.state.lock();
            if let Some(own) = state.clients.get_mut(&client) {
                let was_full = own.is_full(self.most);
                own.running -= 1;
                own.bytes -= bytes;
                let (drained, putting) = (was_full && !own.is_full(self.most), own.putting);
                if own.running == 0 && putting == 0 && own.waiting.is_empty() {
                    state.clients.remove(&client);
                }
                if drained && putting > 0 {
                    self.drained.notify_all();
                }
            }
            let more = !state.turns.is_empty();
            drop(state);
            if more {
                self.changed.notify_one();
            }
        }
    }

    fn take(&self) -> Option<(Arc<str>, usize, Run)> {
        let mut state = self.state.lock();
        loop {
            if state.ended {
                return None;
            }
            if let Some((client, work)) = state.next() {
                if state.clients.get(&client).is_some_and(|own| own.putting > 0) {
                    self.drained.notify_all();
                }
                return Some((client, work.bytes, work.run));
            }
            self.changed.wait(&mut state);
        }
    }
}

/// What a thread runs.
type Run = Box<dyn FnOnce() + Send>;

impl State {
    /// Takes what can begin, of the client whose turn it is.
    fn next(&mut self) -> Option<(Arc<str>, Work)> {
        for _ in 0..self.turns.len() {
            let client = self.turns.pop_front()?;
            let Some(own) = self.clients.get_mut(&client) else { continue };
            let next = if own.running < THREADS_A_CLIENT {
                own.waiting.iter().position(|work| (work.may_begin)())
            } else {
                None
            };
            let work = next.and_then(|at| own.waiting.remove(at));
            own.running += usize::from(work.is_some());
            if !own.waiting.is_empty() {
                self.turns.push_back(Arc::clone(&client));
            }
            if let Some(work) = work {
                return Some((client, work));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    fn work(bytes: usize, may_begin: &Arc<AtomicBool>, done: &Arc<AtomicUsize>) -> Work {
        let (may_begin, done) = (Arc::clone(may_begin), Arc::clone(done));
        Work {
            bytes,
            may_begin: Box::new(move || may_begin.load(Ordering::SeqCst)),
            run: Box::new(move || {
                done.fetch_add(1, Ordering::SeqCst);
            }),
        }
    }

    fn wait_until(happened: impl Fn() -> bool) {
        while !happened() {
            device::yield_now();
        }
    }

    #[test]
    fn a_client_that_may_not_begin_waits_alone_and_puts_no_more_than_its_bytes() {
        let pool = Pool::start(&Bounds::default()).unwrap();
        let [full, other]: [Arc<str>; 2] = ["full".into(), "other".into()];
        let (gate, open) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
        let (done, put) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (own, theirs, sums, counted) =
            (Arc::clone(&pool), Arc::clone(&gate), Arc::clone(&done), Arc::clone(&put));
        let name = Arc::clone(&full);
        let putting = device::spawn("put", move || {
            for _ in 0..300 {
                own.put(&name, work(1 << 20, &theirs, &sums));
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        wait_until(|| put.load(Ordering::SeqCst) == 256);
        let of_other = Arc::new(AtomicUsize::new(0));
        for _ in 0..100 {
            pool.put(&other, work(1, &open, &of_other));
        }
        wait_until(|| of_other.load(Ordering::SeqCst) == 100);
        assert_eq!((put.load(Ordering::SeqCst), done.load(Ordering::SeqCst)), (256, 0));
        gate.store(true, Ordering::SeqCst);
        pool.look_again();
        wait_until(|| done.load(Ordering::SeqCst) == 300);
        putting.unwrap().join().unwrap();
        wait_until(|| pool.state.lock().clients.is_empty());
        pool.end();
    }
}
