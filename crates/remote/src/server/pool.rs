//! Threads that execute requests. No client occupies all of them. No client has more waiting than a
//! bounded number of bytes, nor more than it leaves to others. A thread that puts more waits, so
//! that the network holds it.
//!
//! Work begins only if it may: answers that a client does not read keep its next requests waiting.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use device::REST_AFTER;
use device::sync::{Condvar, Mutex};

use super::bounds::Bounds;
use super::memory::{LEAVES_BYTES, is_fair};

/// How many threads work for one client.
const THREADS_A_CLIENT: usize = 32;
/// How often a thread that waits to put looks whether to continue.
const ASKS_EVERY: Duration = Duration::from_secs(1);

/// Something to do for a client.
pub(super) trait Work: Send {
    /// Whether it may begin. After the first `true` it does.
    fn may_begin(&self) -> bool;

    /// Does it.
    fn run(self: Box<Self>);
}

/// Work that waits, and how many bytes it keeps.
type Waiting = (usize, Box<dyn Work>);

/// The threads.
pub(super) struct Pool {
    state: Mutex<State>,
    /// Most bytes, and most requests, of a client, and most bytes of all.
    most: Most,
    /// There may be work that a thread can begin.
    changed: Condvar,
    #[cfg(test)]
    woken: std::sync::atomic::AtomicUsize,
}

#[derive(Clone, Copy)]
struct Most {
    bytes: usize,
    requests: usize,
    bytes_of_all: usize,
}

#[derive(Default)]
struct State {
    clients: BTreeMap<Arc<str>, Client>,
    /// Bytes of all of them.
    bytes: usize,
    /// Clients with threads that wait to put more.
    putting: BTreeSet<Arc<str>>,
    /// Clients that have work waiting, in turn.
    turns: VecDeque<Arc<str>>,
    ended: bool,
}

#[derive(Default)]
struct Client {
    waiting: VecDeque<Waiting>,
    running: usize,
    /// Its connections: while it has one it stays, so that no request makes it again.
    connections: usize,
    bytes: usize,
    /// Threads that wait to put more, the first one first.
    putting: VecDeque<Arc<Putting>>,
}

/// A thread that waits to put so many bytes. It is woken alone: what one client does not finish
/// costs those that do nothing.
struct Putting {
    bytes: usize,
    may_have_space: Condvar,
}

impl State {
    /// Wakes the first thread of a client that may put now. The next one is woken by that.
    fn wake(&self, client: &str, most: Most) {
        if self.putting.is_empty() {
            return;
        }
        let Some(own) = self.clients.get(client) else { return };
        // (Most often none may.)
        if own.putting.is_empty() || !self.has_space(client, 1, most) {
            return;
        }
        let may = |one: &&Arc<Putting>| self.has_space(client, one.bytes, most);
        if let Some(first) = own.putting.iter().find(may) {
            first.may_have_space.notify_one();
        }
    }

    /// There are fewer bytes of all.
    fn wake_each(&self, most: Most) {
        for client in &self.putting {
            self.wake(client, most);
        }
    }

    /// Whether a client may have so many bytes more.
    fn has_space(&self, client: &str, bytes: usize, most: Most) -> bool {
        let left = most.bytes_of_all.saturating_sub(self.bytes);
        let has_some = |own: &&Client| !own.is_idle();
        let Some(own) = self.clients.get(client).filter(has_some) else { return bytes <= left };
        own.bytes < most.bytes
            && own.waiting.len() < most.requests
            && is_fair(LEAVES_BYTES, own.bytes, bytes, left)
    }

    /// A client has so many bytes, and threads, less, and may be gone.
    fn release(&mut self, client: &Arc<str>, bytes: usize, threads: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        let Some(own) = self.clients.get_mut(client) else { return };
        own.bytes = own.bytes.saturating_sub(bytes);
        own.running -= threads;
        if own.is_idle() && own.connections == 0 {
            self.clients.remove(client);
        }
    }
}

impl Client {
    fn is_idle(&self) -> bool {
        self.running == 0 && self.putting.is_empty() && self.bytes == 0 && self.waiting.is_empty()
    }
}

impl Pool {
    /// Starts them.
    pub(super) fn start(bounds: &Bounds) -> io::Result<Arc<Pool>> {
        let most = Most {
            bytes: bounds.request_bytes_of_client,
            requests: bounds.requests_of_client,
            bytes_of_all: bounds.request_bytes,
        };
        let pool = Arc::new(Pool {
            state: Mutex::default(),
            most,
            changed: Condvar::new(),
            #[cfg(test)]
            woken: std::sync::atomic::AtomicUsize::default(),
        });
        for _ in 0..bounds.threads {
            let own = Arc::clone(&pool);
            if let Err(error) = device::spawn("serve", move || own.work()) {
                pool.end();
                return Err(error);
            }
        }
        Ok(pool)
    }

    /// A connection of a client, while this lives.
    pub(super) fn present<'a>(&'a self, client: &'a Arc<str>) -> Present<'a> {
        self.state.lock().clients.entry(Arc::clone(client)).or_default().connections += 1;
        Present { pool: self, client }
    }

    /// Admits so many bytes of a client; waits while it has too many, and asks now and then whether
    /// to continue. They are of work that is put then, or they are dismissed. `false`: it gave up.
    pub(super) fn admit(
        &self,
        client: &Arc<str>,
        bytes: usize,
        continues: &mut dyn FnMut() -> bool,
    ) -> bool {
        let mut state = self.state.lock();
        if !state.has_space(client, bytes, self.most) {
            let own = Arc::new(Putting { bytes, may_have_space: Condvar::new() });
            let of_client = state.clients.entry(Arc::clone(client)).or_default();
            of_client.putting.push_back(Arc::clone(&own));
            state.putting.insert(Arc::clone(client));
            let mut goes = true;
            while goes && !state.ended && !state.has_space(client, bytes, self.most) {
                let waited = own.may_have_space.wait_for(&mut state, ASKS_EVERY);
                if waited.timed_out() {
                    drop(state);
                    goes = continues();
                    state = self.state.lock();
                } else {
                    #[cfg(test)]
                    self.woken.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
            }
            let of_client = state.clients.entry(Arc::clone(client)).or_default();
            of_client.putting.retain(|other| !Arc::ptr_eq(other, &own));
            if of_client.putting.is_empty() {
                state.putting.remove(client);
            }
            if !goes {
                // (It may have been woken just now, in place of another.)
                state.wake(client, self.most);
                state.release(client, 0, 0);
                return false;
            }
        }
        state.bytes += bytes;
        state.clients.entry(Arc::clone(client)).or_default().bytes += bytes;
        state.wake(client, self.most);
        true
    }

    /// Bytes that were admitted are no work.
    pub(super) fn dismiss(&self, client: &Arc<str>, bytes: usize) {
        let mut state = self.state.lock();
        state.release(client, bytes, 0);
        state.wake_each(self.most);
    }

    /// Has work done for a client, whose bytes are admitted.
    pub(super) fn put(&self, client: &Arc<str>, bytes: usize, work: Box<dyn Work>) {
        let mut state = self.state.lock();
        let State { clients, turns, ended, .. } = &mut *state;
        let own = clients.entry(Arc::clone(client)).or_default();
        if !*ended {
            own.waiting.push_back((bytes, work));
            if own.waiting.len() == 1 {
                turns.push_back(Arc::clone(client));
            }
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Bytes of all work that waits or runs.
    pub(super) fn bytes(&self) -> usize {
        self.state.lock().bytes
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
        for putting in state.clients.values().flat_map(|client| &client.putting) {
            putting.may_have_space.notify_one();
        }
        drop(state);
        drop(dropped);
        self.changed.notify_all();
    }

    fn work(&self) {
        while let Some((client, (bytes, work))) = self.take() {
            work.run();
            let mut state = self.state.lock();
            state.release(&client, bytes, 1);
            state.wake_each(self.most);
            let more = !state.turns.is_empty();
            drop(state);
            if more {
                self.changed.notify_one();
            }
        }
    }

    /// Waits for what to run next.
    fn take(&self) -> Option<(Arc<str>, Waiting)> {
        let mut state = self.state.lock();
        let mut rests = false;
        loop {
            if state.ended {
                return None;
            }
            if let Some((client, work)) = state.next() {
                // It has one request less waiting.
                state.wake(&client, self.most);
                return Some((client, work));
            }
            if rests {
                self.changed.wait(&mut state);
            } else if self.changed.wait_for(&mut state, REST_AFTER).timed_out() {
                drop(state);
                device::rest();
                rests = true;
                state = self.state.lock();
            }
        }
    }
}

/// A connection of a client.
pub(super) struct Present<'a> {
    pool: &'a Pool,
    client: &'a Arc<str>,
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        if let Some(own) = state.clients.get_mut(self.client) {
            own.connections -= 1;
        }
        state.release(self.client, 0, 0);
    }
}

impl State {
    /// Takes what can begin, of the client whose turn it is.
    fn next(&mut self) -> Option<(Arc<str>, Waiting)> {
        for _ in 0..self.turns.len() {
            let client = self.turns.pop_front()?;
            let Some(own) = self.clients.get_mut(&client) else { continue };
            let next = if own.running < THREADS_A_CLIENT {
                own.waiting.iter().position(|(_, work)| work.may_begin())
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

    struct Counted {
        may_begin: Arc<AtomicBool>,
        done: Arc<AtomicUsize>,
    }

    impl Work for Counted {
        fn may_begin(&self) -> bool {
            self.may_begin.load(Ordering::SeqCst)
        }

        fn run(self: Box<Self>) {
            self.done.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn work(bytes: usize, may_begin: &Arc<AtomicBool>, done: &Arc<AtomicUsize>) -> Waiting {
        let (may_begin, done) = (Arc::clone(may_begin), Arc::clone(done));
        (bytes, Box::new(Counted { may_begin, done }))
    }

    fn put_admitted(pool: &Pool, client: &Arc<str>, (bytes, work): Waiting) {
        assert!(pool.admit(client, bytes, &mut || true));
        pool.put(client, bytes, work);
    }

    fn wait_until(happened: impl Fn() -> bool) {
        while !happened() {
            device::yield_now();
        }
    }

    #[test]
    fn a_client_that_may_not_begin_waits_alone_and_puts_no_more_than_its_bytes() {
        let bounds = Bounds { request_bytes: 1 << 30, ..Bounds::default() };
        let pool = Pool::start(&bounds).unwrap();
        let [full, other]: [Arc<str>; 2] = ["full".into(), "other".into()];
        let (gate, open) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
        let (done, put) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (own, theirs, sums, counted) =
            (Arc::clone(&pool), Arc::clone(&gate), Arc::clone(&done), Arc::clone(&put));
        let name = Arc::clone(&full);
        let putting = device::spawn("put", move || {
            for _ in 0..300 {
                put_admitted(&own, &name, work(1 << 20, &theirs, &sums));
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        wait_until(|| put.load(Ordering::SeqCst) == 256);
        let of_other = Arc::new(AtomicUsize::new(0));
        for _ in 0..100 {
            put_admitted(&pool, &other, work(1, &open, &of_other));
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

    #[test]
    fn a_client_stays_while_it_has_a_connection_and_may_put_as_much_as_one_that_comes() {
        let bounds = Bounds { request_bytes: 8 << 20, threads: 1, ..Bounds::default() };
        let pool = Pool::start(&bounds).unwrap();
        let [idle, other]: [Arc<str>; 2] = ["idle".into(), "other".into()];
        let (open, done) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        let (first, second) = (pool.present(&idle), pool.present(&idle));
        put_admitted(&pool, &idle, work(10, &open, &done));
        wait_until(|| done.load(Ordering::SeqCst) == 1 && pool.bytes() == 0);
        drop(first);
        assert_eq!(pool.state.lock().clients.keys().collect::<Vec<_>>(), [&idle]);
        assert!(pool.admit(&other, 5 << 20, &mut || false));
        for client in [&*idle, "one that comes"] {
            let state = pool.state.lock();
            let fits = [2 << 20, 3 << 20, 4 << 20].map(|b| state.has_space(client, b, pool.most));
            assert_eq!(fits, [true, true, false], "{client}");
        }
        pool.dismiss(&other, 5 << 20);
        drop(second);
        assert!(pool.state.lock().clients.is_empty());
        pool.end();
    }

    #[test]
    fn clients_share_the_bytes_of_all_and_leave_some_to_the_next_one() {
        let bounds = Bounds { request_bytes: 8 << 20, ..Bounds::default() };
        let pool = Pool::start(&bounds).unwrap();
        let shut = Arc::new(AtomicBool::new(false));
        let (done, put) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let fill = |name: &str| {
            let name: Arc<str> = name.into();
            let (own, theirs, sums, counted) =
                (Arc::clone(&pool), Arc::clone(&shut), Arc::clone(&done), Arc::clone(&put));
            device::spawn("put", move || {
                for _ in 0..100 {
                    own.admit(&name, 100 << 10, &mut || true);
                    let (bytes, work) = work(100 << 10, &theirs, &sums);
                    own.put(&name, bytes, work);
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            })
            .unwrap()
        };
        let putting = ["one", "two", "three"].map(fill);
        let are_full = || {
            let state = pool.state.lock();
            state.clients.len() == 3
                && state.clients.keys().all(|name| !state.has_space(name, 100 << 10, pool.most))
        };
        wait_until(are_full);
        let used = pool.bytes();
        // (Equal parts, or less and less, by who comes first.)
        assert!((4 << 20..=6 << 20).contains(&used), "{used} bytes of three clients");
        // A fourth one has its part, and is not kept waiting by the others.
        let (open, last) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        let other: Arc<str> = "four".into();
        for _ in 0..50 {
            put_admitted(&pool, &other, work(1 << 20, &open, &last));
        }
        wait_until(|| last.load(Ordering::SeqCst) == 50);
        pool.admit(&other, 1 << 20, &mut || true);
        pool.dismiss(&other, 1 << 20);
        shut.store(true, Ordering::SeqCst);
        pool.look_again();
        for putting in putting {
            putting.join().unwrap();
        }
        wait_until(|| done.load(Ordering::SeqCst) == 300);
        wait_until(|| pool.bytes() == 0 && pool.state.lock().clients.is_empty());
        pool.end();
    }

    /// Threads of a client that may put nothing sleep while others work, and all continue in the
    /// end, the short ones among long ones, too.
    #[test]
    fn threads_that_may_not_put_are_not_woken_by_the_work_of_others() {
        const WAIT: usize = 40;
        let bounds = Bounds { request_bytes: 3 << 20, ..Bounds::default() };
        let pool = Pool::start(&bounds).unwrap();
        let (shut, open) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
        let (done, of_other) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let [full, other]: [Arc<str>; 2] = ["full".into(), "other".into()];
        put_admitted(&pool, &full, work(1 << 20, &shut, &done));
        let putting: Vec<_> = (0..WAIT)
            .map(|number| {
                let (own, name) = (Arc::clone(&pool), Arc::clone(&full));
                let (theirs, sums) = (Arc::clone(&shut), Arc::clone(&done));
                let bytes = if number % 3 == 0 { 900 << 10 } else { 70 << 10 };
                device::spawn("put", move || put_admitted(&own, &name, work(bytes, &theirs, &sums)))
                    .unwrap()
            })
            .collect();
        let waiting = || pool.state.lock().clients.get(&full).map_or(0, |own| own.putting.len());
        wait_until(|| waiting() == WAIT);
        for _ in 0..1000 {
            put_admitted(&pool, &other, work(10, &open, &of_other));
        }
        wait_until(|| of_other.load(Ordering::SeqCst) == 1000);
        assert_eq!((waiting(), pool.woken.load(Ordering::Relaxed)), (WAIT, 0));
        shut.store(true, Ordering::SeqCst);
        pool.look_again();
        for putting in putting {
            putting.join().unwrap();
        }
        wait_until(|| done.load(Ordering::SeqCst) == 1 + WAIT);
        wait_until(|| pool.bytes() == 0 && pool.state.lock().clients.is_empty());
        assert!(pool.state.lock().putting.is_empty());
        pool.end();
    }
}
