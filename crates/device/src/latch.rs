//! A lock for data that all threads read and few change: each reader writes to a cache line of its
//! own.
//!
//! It consists of several locks, one per thread (`slot`; threads beyond their number share), each
//! created on its thread's first use. A thread that shares the latch takes its own lock. A thread
//! that holds it exclusively takes all existing locks, in order. So sharing costs one lock,
//! regardless of other threads. Exclusive access costs one lock for each thread that ever used the
//! latch, and unused locks take no memory.
//!
//! **Why a lock may be created at any time.** Only the thread that holds `alone` creates one, and
//! an exclusive holder keeps `alone` until it releases the latch. So while it holds the latch,
//! exactly the locks that it has taken exist. A thread without a lock waits for `alone`, and a
//! thread that found a lock found one that was created before.
//!
//! A thread that shares a latch must not share it again: it would wait for a thread that waits for
//! its release.

#![expect(unsafe_code, reason = "what guards a value with several locks is an unsafe trait")]

use std::sync::OnceLock;

use parking_lot::lock_api::{self, GuardNoSend, RawMutex as _, RawRwLock as _};

use crate::slot::thread_slot;
use crate::sync::{RawMutex, RawRwLock};

/// Locks of a latch. Further threads share them.
const LOCKS: usize = 8;
/// Spins before a thread sleeps. An exclusive holder usually finishes sooner than a sleep and a
/// wake-up take.
const LOOKS: u32 = 100;

/// A value, and the latch that guards it.
pub type Latch<T> = lock_api::RwLock<RawLatch, T>;

/// A lock with a cache line of its own: processors fetch them in pairs.
#[repr(align(128))]
struct Apart<L>(L);

/// The locks of a latch.
pub struct RawLatch {
    /// The lock of each thread that has shared the latch.
    locks: [OnceLock<Box<Apart<RawRwLock>>>; LOCKS],
    /// Held for exclusive access, or while a lock is created.
    alone: Apart<RawMutex>,
}

impl RawLatch {
    /// The lock of the calling thread.
    #[inline]
    fn lock_of_thread(&self) -> &RawRwLock {
        let lock = &self.locks[thread_slot() % LOCKS];
        match lock.get() {
            Some(lock) => &lock.0,
            None => self.make(lock),
        }
    }

    #[cold]
    fn make<'l>(&self, lock: &'l OnceLock<Box<Apart<RawRwLock>>>) -> &'l RawRwLock {
        self.alone.0.lock();
        let made = lock.get_or_init(|| Box::new(Apart(RawRwLock::INIT)));
        // SAFETY: this thread locked it just above.
        unsafe { self.alone.0.unlock() };
        &made.0
    }

    /// The existing locks; all of them if the caller holds `alone`.
    fn made(&self) -> impl Iterator<Item = &RawRwLock> {
        self.locks.iter().filter_map(OnceLock::get).map(|lock| &lock.0)
    }

    /// Waits for a lock that is taken.
    #[cold]
    fn wait_shared(lock: &RawRwLock) {
        for _ in 0..LOOKS {
            crate::spin_loop();
            if !lock.is_locked_exclusive() && lock.try_lock_shared() {
                return;
            }
        }
        lock.lock_shared();
    }
}

// SAFETY: an exclusive holder holds all existing locks, and no lock is created until it releases
// the latch (see above). So no other thread holds one of them, shared or not. Guards stay with
// their thread, and a thread's number never changes, so a thread releases the lock that it took.
unsafe impl lock_api::RawRwLock for RawLatch {
    const INIT: RawLatch =
        RawLatch { locks: [const { OnceLock::new() }; LOCKS], alone: Apart(RawMutex::INIT) };

    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        let lock = self.lock_of_thread();
        if !lock.try_lock_shared() {
            RawLatch::wait_shared(lock);
        }
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.lock_of_thread().try_lock_shared()
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller shares the latch, so it holds the lock of its thread.
        unsafe { self.lock_of_thread().unlock_shared() };
    }

    fn lock_exclusive(&self) {
        self.alone.0.lock();
        self.made().for_each(RawRwLock::lock_exclusive);
    }

    fn try_lock_exclusive(&self) -> bool {
        if !self.alone.0.try_lock() {
            return false;
        }
        for (taken, lock) in self.made().enumerate() {
            if !lock.try_lock_exclusive() {
                for lock in self.made().take(taken) {
                    // SAFETY: it was taken just before.
                    unsafe { lock.unlock_exclusive() };
                }
                // SAFETY: it was taken just before.
                unsafe { self.alone.0.unlock() };
                return false;
            }
        }
        true
    }

    unsafe fn unlock_exclusive(&self) {
        for lock in self.made() {
            // SAFETY: the caller holds the latch exclusively, so all locks, and none was created
            // since.
            unsafe { lock.unlock_exclusive() };
        }
        // SAFETY: it was taken first.
        unsafe { self.alone.0.unlock() };
    }
}

impl std::fmt::Debug for RawLatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawLatch").field("locks", &self.made().count()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::sync::Barrier;

    #[test]
    fn no_reader_sees_a_half_applied_change() {
        // More threads than locks, each sharing the latch for the first time while others use it.
        let latch = Latch::new((0_u64, 0_u64));
        let (together, seen) = (Barrier::new(12), AtomicUsize::new(0));
        crate::scope(|scope| {
            for thread in 0..12 {
                let (latch, together, seen) = (&latch, &together, &seen);
                scope.spawn(move || {
                    together.wait();
                    for n in 0..2000_u64 {
                        if (n + thread) % 7 == 0 {
                            let mut pair = latch.write();
                            pair.0 += 1;
                            crate::spin_loop();
                            pair.1 += 1;
                        } else if (n + thread) % 11 == 0 {
                            if let Some(mut pair) = latch.try_write() {
                                pair.0 += 1;
                                pair.1 += 1;
                            }
                        } else {
                            let pair = latch.read();
                            assert_eq!(pair.0, pair.1);
                            seen.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let pair = latch.into_inner();
        assert_eq!(pair.0, pair.1);
        assert!(pair.0 >= 12 * 2000 / 7 && seen.into_inner() > 12 * 1000);
    }

    #[test]
    fn a_failed_exclusive_attempt_leaves_the_latch_unchanged() {
        let latch = Latch::new(0);
        crate::scope(|scope| {
            let shared = latch.read();
            // The other thread uses another lock, which it takes first or last.
            let tried = scope.spawn(|| {
                drop(latch.read());
                latch.try_write().is_some()
            });
            assert!(!tried.join().unwrap());
            drop(shared);
            let again = scope.spawn(|| latch.try_write().map(|mut guard| *guard += 1).is_some());
            assert!(again.join().unwrap());
        });
        assert!(latch.try_read().is_some_and(|value| *value == 1));
        let alone = latch.write();
        crate::scope(|scope| {
            let waits = scope.spawn(|| *latch.read());
            drop(alone);
            assert_eq!(waits.join().unwrap(), 1);
        });
    }

    #[test]
    fn a_latch_that_one_thread_uses_has_one_lock() {
        let latch = Latch::new(());
        for _ in 0..3 {
            drop(latch.read());
            drop(latch.write());
        }
        // SAFETY: nothing is locked or unlocked by it.
        let raw = unsafe { latch.raw() };
        assert_eq!(raw.made().count(), 1);
    }
}
