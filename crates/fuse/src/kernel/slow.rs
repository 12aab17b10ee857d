//! Requests that may take as long as a search: look-ups in queries, and totals of directories.
//! They have threads of their own, so that the threads that serve all other requests continue. No
//! user has more than a few of them at a time, one is reserved for root, and an interrupted request
//! is cancelled.
//!
//! Another such queue has the requests that may wait for an object store.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::numbers::op;
use super::request::Request;
use crate::adapter::Adapter;
use device::sync::{Condvar, Mutex};
use vfs::Waits;

/// Threads for them.
pub(super) const THREADS: usize = 4;
/// How many of them serve one user at a time.
const THREADS_A_USER: usize = 2;
/// How many of them serve users other than root at a time.
const THREADS_OF_USERS: usize = THREADS - 1;
/// Threads for requests that may wait for an object store. They mostly wait, so many cost little.
pub(super) const WAITING: usize = 16;
/// Threads for requests that wait until another program ends its lock.
pub(super) const LOCKING: usize = 48;
/// Most remembered interruptions of requests that are not queued here: far more than the requests
/// that can have been read and not yet queued.
const REMEMBERED: usize = 1024;

/// A request that waits or is being served.
pub(super) struct Slow {
    pub(super) message: Vec<u8>,
    /// The channel it came from: the kernel accepts its answer only there.
    pub(super) channel: Arc<OwnedFd>,
    /// Set when no caller waits for its answer.
    pub(super) cancel: Arc<AtomicBool>,
    unique: u64,
    user: u32,
}

/// How many threads of a queue may serve at a time.
struct Most {
    /// Requests of one user.
    a_user: usize,
    /// Requests of users other than root.
    of_users: usize,
    /// Requests that were not cancelled. What is left serves those that were.
    waited_for: usize,
}

/// Requests that wait for a thread.
pub(super) struct Queue {
    most: Most,
    state: Mutex<SlowQueue>,
    changed: Condvar,
}

#[derive(Default)]
struct SlowQueue {
    waiting: VecDeque<Slow>,
    /// The requests being served: their numbers and users.
    served: Vec<(u64, u32, Arc<AtomicBool>)>,
    /// Numbers of interrupted requests that were not here, oldest first. Another thread may have
    /// read the request and be about to queue it. The kernel gives a number to one request only.
    interrupted: VecDeque<u64>,
    ended: bool,
}

/// Whether a request may be slow.
pub(super) fn is_slow(adapter: &Adapter, request: &Request<'_>) -> bool {
    let volatile = || adapter.is_volatile(request.node);
    match request.opcode {
        // A look-up by number of a node that the kernel does not hold: that takes a search.
        op::LOOKUP if request.arguments.clone().name() == Ok(b".") => true,
        op::LOOKUP => volatile(),
        // A directory may have a million snapshots, and their names are not in the order of lists.
        op::READDIR | op::READDIRPLUS => volatile() || adapter.takes_snapshots(request.node),
        op::GETXATTR => {
            let mut arguments = request.arguments;
            let name = arguments.skip(8).and_then(|()| arguments.name());
            name.is_ok_and(|name| adapter.is_computed(name))
        }
        _ => false,
    }
}

impl Default for Queue {
    /// For `THREADS` threads.
    fn default() -> Queue {
        let (a_user, of_users) = (THREADS_A_USER, THREADS_OF_USERS);
        Queue::of(Most { a_user, of_users, waited_for: THREADS })
    }
}

/// Whether a request may wait for an object store now.
pub(super) fn may_wait(adapter: &Adapter, request: &Request<'_>) -> bool {
    match (adapter.waits(), request.opcode) {
        // A search for data waits until the kernel has written, which takes these threads.
        (Waits::No, _) | (Waits::All, op::LSEEK | op::FORGET | op::BATCH_FORGET | op::DESTROY) => {
            false
        }
        (Waits::All, _) | (_, op::FSYNC | op::FSYNCDIR) => true,
        (Waits::Syncs, _) => false,
        (Waits::Changes, opcode) => is_change(opcode),
    }
}

/// Whether a request changes something.
pub(super) fn is_change(opcode: u32) -> bool {
    matches!(
        opcode,
        op::SETATTR
            | op::SYMLINK
            | op::MKNOD
            | op::MKDIR
            | op::UNLINK
            | op::RMDIR
            | op::RENAME
            | op::RENAME2
            | op::LINK
            | op::CREATE
            | op::TMPFILE
            | op::WRITE
            | op::FALLOCATE
            | op::COPY_FILE_RANGE
            | op::SETXATTR
            | op::REMOVEXATTR
    )
}

impl Queue {
    fn of(most: Most) -> Queue {
        Queue { most, state: Mutex::default(), changed: Condvar::new() }
    }

    /// For `WAITING` threads and requests that may wait for hours. One thread serves only those
    /// that nobody waits for any more: so that a caller that is killed is let go.
    pub(super) fn of_waiting() -> Queue {
        let waited_for = WAITING - 1;
        Queue::of(Most { a_user: waited_for - 2, of_users: waited_for - 1, waited_for })
    }

    /// For `LOCKING` threads.
    pub(super) fn of_locks() -> Queue {
        let most = LOCKING - 1;
        Queue::of(Most { a_user: most, of_users: most, waited_for: most })
    }

    /// Queues a request for a thread. If its interruption came earlier, it is cancelled.
    pub(super) fn put(&self, request: &Request<'_>, message: &[u8], channel: &Arc<OwnedFd>) {
        let slow = Slow {
            message: message.to_vec(),
            channel: Arc::clone(channel),
            cancel: Arc::default(),
            unique: request.unique,
            user: request.who.uid,
        };
        let mut state = self.state.lock();
        let before = state.interrupted.iter().position(|&unique| unique == slow.unique);
        if let Some(at) = before {
            state.interrupted.remove(at);
            slow.cancel.store(true, Ordering::Relaxed);
        }
        state.waiting.push_back(slow);
        drop(state);
        self.changed.notify_one();
    }

    /// Cancels the request with the number in an interruption. A waiting request is still served,
    /// and at once: it finds that no caller waits for it. The number of a request that is not here
    /// is remembered, because the kernel sends it once. (The kernel would send it again if it were
    /// answered with EAGAIN. But it does so only on the channel that the request was read from. It
    /// repeats that for every request that is being served elsewhere, until that is done.)
    pub(super) fn interrupt(&self, request: &Request<'_>) {
        let mut arguments = request.arguments;
        let Ok(unique) = arguments.u64() else { return };
        let mut state = self.state.lock();
        let waiting = state.waiting.iter().map(|slow| (slow.unique, &slow.cancel));
        let served = state.served.iter().map(|(unique, _, cancel)| (*unique, cancel));
        let mut here = false;
        for (_, cancel) in waiting.chain(served).filter(|(other, _)| *other == unique) {
            cancel.store(true, Ordering::Relaxed);
            here = true;
        }
        if !here {
            if state.interrupted.len() >= REMEMBERED {
                state.interrupted.pop_front();
            }
            state.interrupted.push_back(unique);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The next request: the first waiting one whose user has a thread left, or that was cancelled;
    /// `None` at the end.
    pub(super) fn take(&self) -> Option<Slow> {
        let mut state = self.state.lock();
        loop {
            if state.ended {
                return None;
            }
            let users = state.served.iter().filter(|(_, user, _)| *user != 0).count();
            let next = state.waiting.iter().position(|slow| {
                let own = state.served.iter().filter(|(_, user, _)| *user == slow.user).count();
                let is_free = slow.user == 0 || users < self.most.of_users;
                let is_free = is_free && state.served.len() < self.most.waited_for;
                (is_free && own < self.most.a_user) || slow.cancel.load(Ordering::Relaxed)
            });
            if let Some(slow) = next.and_then(|at| state.waiting.remove(at)) {
                state.served.push((slow.unique, slow.user, Arc::clone(&slow.cancel)));
                return Some(slow);
            }
            self.changed.wait(&mut state);
        }
    }

    /// A request was answered.
    pub(super) fn done(&self, slow: &Slow) {
        let mut state = self.state.lock();
        state.served.retain(|(_, _, cancel)| !Arc::ptr_eq(cancel, &slow.cancel));
        drop(state);
        self.changed.notify_all();
    }

    /// Closes the queue: no request is added, and no caller waits for those in it.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        state.waiting.clear();
        for (_, _, cancel) in &state.served {
            cancel.store(true, Ordering::Relaxed);
        }
        drop(state);
        self.changed.notify_all();
    }
}

#[cfg(test)]
pub(super) use tests::message;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::numbers::REQUEST_HEADER_BYTES;

    /// A message from a user, with eight bytes behind its header.
    #[expect(clippy::host_endian_bytes, reason = "the kernel's structures are in its own order")]
    pub(in crate::kernel) fn message(
        opcode: u32,
        unique: u64,
        user: u32,
        argument: u64,
    ) -> Vec<u8> {
        let mut bytes = vec![0; REQUEST_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&(REQUEST_HEADER_BYTES as u32 + 8).to_ne_bytes());
        bytes[4..8].copy_from_slice(&opcode.to_ne_bytes());
        bytes[8..16].copy_from_slice(&unique.to_ne_bytes());
        bytes[24..28].copy_from_slice(&user.to_ne_bytes());
        bytes.extend_from_slice(&argument.to_ne_bytes());
        bytes
    }

    fn put(queue: &Queue, unique: u64, user: u32) {
        // No answer is sent: any descriptor does.
        let channel = Arc::new(std::io::pipe().expect("a pipe").0.into());
        let message = message(op::LOOKUP, unique, user, 0);
        let request = Request::parse(&message).expect("a request");
        queue.put(&request, &message, &channel);
    }

    fn interrupt(queue: &Queue, unique: u64) {
        let message = message(op::INTERRUPT, unique | 1, 0, unique);
        queue.interrupt(&Request::parse(&message).expect("a request"));
    }

    #[test]
    fn no_user_takes_all_threads_and_interrupted_requests_are_cancelled() {
        let queue = Queue::default();
        for (unique, user) in [(2, 7), (4, 7), (6, 7), (8, 7), (10, 9)] {
            put(&queue, unique, user);
        }
        let taken: Vec<Slow> = (0..3).filter_map(|_| queue.take()).collect();
        let numbers: Vec<u64> = taken.iter().map(|slow| slow.unique).collect();
        assert_eq!(numbers, [2, 4, 10], "a third one of a user waits");
        interrupt(&queue, 4);
        let cancelled = |slow: &Slow| slow.cancel.load(Ordering::Relaxed);
        assert_eq!(taken.iter().map(cancelled).collect::<Vec<_>>(), [false, true, false]);
        // A waiting request need not wait for a thread when it is cancelled.
        interrupt(&queue, 8);
        let next = queue.take().expect("it was given up");
        assert!(next.unique == 8 && cancelled(&next));
        queue.done(&next);
        queue.done(&taken[0]);
        queue.done(&taken[1]);
        assert_eq!(queue.take().map(|slow| slow.unique), Some(6));
        queue.end();
        assert!(cancelled(&taken[2]) && queue.take().is_none());
    }

    #[test]
    fn users_leave_one_thread_to_root() {
        let queue = Queue::default();
        for (unique, user) in [(2, 7), (4, 7), (6, 8), (8, 8), (10, 9), (12, 0)] {
            put(&queue, unique, user);
        }
        let taken: Vec<Slow> = (0..THREADS).filter_map(|_| queue.take()).collect();
        let numbers: Vec<u64> = taken.iter().map(|slow| slow.unique).collect();
        assert_eq!(numbers, [2, 4, 6, 12], "the fourth thread serves root");
        queue.done(&taken[0]);
        assert_eq!(queue.take().map(|slow| slow.unique), Some(8));
        queue.end();
    }

    /// However many requests wait for an object store, one that nobody waits for any more is
    /// served.
    #[test]
    fn waiting_requests_leave_a_thread_to_those_that_were_given_up() {
        let queue = Queue::of_waiting();
        for unique in (2..100).step_by(2) {
            put(&queue, unique, (unique % 3) as u32);
        }
        let taken: Vec<Slow> = (1..WAITING).filter_map(|_| queue.take()).collect();
        assert_eq!(taken.len(), WAITING - 1);
        interrupt(&queue, 98);
        let given_up = queue.take().expect("it was given up");
        assert_eq!(given_up.unique, 98);
        queue.done(&given_up);
        queue.done(&taken[0]);
        assert!(queue.take().is_some(), "another waits");
        queue.end();
    }

    #[test]
    fn an_interruption_that_overtakes_its_request_cancels_it() {
        let queue = Queue::default();
        let cancelled = |slow: &Slow| slow.cancel.load(Ordering::Relaxed);
        // Both threads of the user are busy: a cancelled request need not wait for them.
        for unique in [2, 4] {
            put(&queue, unique, 7);
            assert!(queue.take().is_some_and(|slow| !cancelled(&slow)));
        }
        // Interruptions of requests that are served elsewhere arrive meanwhile.
        for unique in (1000..1000 + REMEMBERED as u64).step_by(2) {
            interrupt(&queue, unique);
        }
        interrupt(&queue, 6);
        put(&queue, 8, 7);
        put(&queue, 6, 7);
        let next = queue.take().expect("it was given up before it came");
        assert!(next.unique == 6 && cancelled(&next));
        queue.done(&next);
        // It is forgotten with its request, and the number of remembered ones is bounded.
        for unique in (10_000..20_000).step_by(2) {
            interrupt(&queue, unique);
        }
        assert_eq!(queue.state.lock().interrupted.len(), REMEMBERED);
        queue.end();
        assert!(queue.take().is_none());
    }
}
