//! Locks, condition variables and channels: everything a thread can wait for besides the clock,
//! the network and the disk.
//!
//! All crates take them from here and from nowhere else. So a simulator that decides which thread
//! continues has one place to replace: with the feature `sim` they come from `device::sim`.
//! `parking_lot` is a dependency of this crate alone; clippy refuses the standard library's
//! equivalents everywhere else.

#[cfg(feature = "sim")]
pub use crate::sim::{
    Condvar, Mutex, MutexGuard, Receiver, RwLock, RwLockReadGuard, RwLockWriteGuard, Sender,
    SyncSender, WaitTimeoutResult, bounded_channel, channel,
};
#[cfg(feature = "sim")]
pub(crate) use crate::sim::{RawMutex, RawRwLock};

#[cfg(not(feature = "sim"))]
pub use std::sync::mpsc::{Receiver, Sender, SyncSender};
pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};

#[cfg(not(feature = "sim"))]
pub use parking_lot::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult,
};
#[cfg(not(feature = "sim"))]
pub(crate) use parking_lot::{RawMutex, RawRwLock};

#[cfg(not(feature = "sim"))]
/// A channel without a bound: sending never waits.
#[expect(clippy::disallowed_methods, reason = "this is the seam")]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    std::sync::mpsc::channel()
}

#[cfg(not(feature = "sim"))]
/// A channel that holds up to `bound` messages: sending waits while it is full. With a bound of 0
/// each message is handed to a waiting receiver.
#[expect(clippy::disallowed_methods, reason = "this is the seam")]
pub fn bounded_channel<T>(bound: usize) -> (SyncSender<T>, Receiver<T>) {
    std::sync::mpsc::sync_channel(bound)
}

/// Lets a number of threads continue together.
pub struct Barrier {
    threads: usize,
    /// Threads that wait, and how often all had come.
    waiting: Mutex<(usize, u64)>,
    changed: Condvar,
}

impl Barrier {
    /// A barrier for this many threads.
    pub fn new(threads: usize) -> Barrier {
        Barrier { threads, waiting: Mutex::new((0, 0)), changed: Condvar::new() }
    }

    /// Waits until all threads wait here.
    pub fn wait(&self) {
        let mut waiting = self.waiting.lock();
        let round = waiting.1;
        waiting.0 += 1;
        if waiting.0 == self.threads {
            *waiting = (0, round + 1);
            self.changed.notify_all();
        } else {
            self.changed.wait_while(&mut waiting, |(_, now)| *now == round);
        }
    }
}
