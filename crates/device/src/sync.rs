//! Locks, condition variables and channels: everything a thread can wait for besides the clock,
//! the network and the disk.
//!
//! All crates take them from here and from nowhere else, so a simulator that decides which thread
//! continues has one place to replace: with the feature `sim` they come from `device::sim`.
//! `parking_lot` is a dependency of this crate alone; clippy
//! refuses the standard library's equivalents everywhere else.

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
